#!/usr/bin/env bash
# Expected: the offset with the largest timestamp, OffsetSpec.maxTimestamp() or kafka-get-offsets --time -3, is that of a record.
# Happens:  it is a transaction's marker, which has the broker's time, where the records' times are those of their events. The timestamp is not
#           the newest event's, and at the offset there is nothing to read. An aborted transaction without a record to see is enough.
# Who:      monitoring of "how old is the newest event", and tools that read from there, of topics with transactions and events' own times.
# Version:  Kafka 4.4.0 (broker and Java client)
# Date:     2026-11-28
. "$(dirname "$0")/lib.sh"

kafka 4.4.0

cat >"$work/Newest.java" <<'EOF'
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Newest {
    static final long EVENT = System.currentTimeMillis() - Duration.ofDays(3).toMillis();
    static Admin admin;

    public static void main(String[] args) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", args[0]);
        admin = Admin.create(config);
        admin.createTopics(List.of(new NewTopic("plain", 1, (short) 1), new NewTopic("transactions", 1, (short) 1))).all().get();
        try (var p = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            p.send(new ProducerRecord<>("plain", 0, EVENT, "key", "value")).get();
        }
        try (var p = new KafkaProducer<>(Map.of("bootstrap.servers", args[0], "transactional.id", "t"), new StringSerializer(), new StringSerializer())) {
            p.initTransactions();
            p.beginTransaction();
            p.send(new ProducerRecord<>("transactions", 0, EVENT, "key", "value"));
            p.commitTransaction();
        }
        while (ask("transactions", OffsetSpec.latest()).offset() < 2) { // the marker is written after the answer
            Thread.onSpinWait();
        }
        for (String topic : List.of("plain", "transactions")) {
            var newest = ask(topic, OffsetSpec.maxTimestamp());
            System.out.println(topic + " offset " + newest.offset() + ", time of "
                + (newest.timestamp() == EVENT ? "the event" : "another") + ", records from there: " + from(config, topic, newest.offset()));
        }
        System.exit(0);
    }

    static ListOffsetsResultInfo ask(String topic, OffsetSpec spec) throws InterruptedException, ExecutionException {
        var partition = new TopicPartition(topic, 0);
        return admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get();
    }

    /** Counts the records from an offset to the end. */
    static int from(Map<String, Object> config, String topic, long offset) {
        var partition = new TopicPartition(topic, 0);
        try (var c = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            c.assign(List.of(partition));
            c.seek(partition, offset);
            long end = c.endOffsets(List.of(partition)).get(partition);
            int records = 0;
            while (c.position(partition) < end) {
                records += c.poll(Duration.ofMillis(100)).count();
            }
            return records;
        }
    }
}
EOF
jvm "$work/Newest.java" "$brokers" >"$work/out" 2>"$work/log" || fail "$(tail -n 1 "$work/log")"

line() { sed -n "s/^$1 //p" "$work/out"; }
expect "without transactions" "offset 0, time of the event, records from there: 1" "$(line plain)"
expect "with a transaction" "offset 1, time of another, records from there: 0" "$(line transactions)"
done_here
