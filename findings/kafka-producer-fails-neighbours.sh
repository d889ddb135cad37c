#!/usr/bin/env bash
# Expected: each send has its own future: one record that the broker refuses fails, and the others are written.
# Happens:  all records of its batch fail, for good and without a retry, however many are allowed: nothing is written. The bad record has
#           InvalidRecordException, and its neighbours a KafkaException that is told apart by its text alone. Sent one by one, they are written.
# Who:      services that write to a compacted topic where one record has no key, and that put what failed into a dead letter topic.
# Version:  Kafka 4.4.0 (broker and Java client)
# Date:     2026-11-29
. "$(dirname "$0")/lib.sh"

kafka 4.4.0

cat >"$work/Neighbours.java" <<'EOF'
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

public class Neighbours {
    public static void main(String[] args) throws Exception {
        try (var admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            for (String topic : List.of("together", "alone")) {
                admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1).configs(Map.of("cleanup.policy", "compact")))).all().get();
                send(args[0], topic);
                var partition = new TopicPartition(topic, 0);
                System.out.println(topic + ": written " + admin.listOffsets(Map.of(partition, OffsetSpec.latest())).partitionResult(partition).get().offset());
            }
        }
    }

    static void send(String brokers, String topic) throws InterruptedException {
        // A batch is sent when it is flushed, or else at once.
        Map<String, Object> config = Map.of("bootstrap.servers", brokers, "linger.ms", 60_000);
        Map<String, Future<RecordMetadata>> sent = new LinkedHashMap<>();
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (String key : new String[] {"first", null, "third"}) {
                sent.put(key == null ? "no key" : key, producer.send(new ProducerRecord<>(topic, 0, key, "value")));
                if (topic.equals("alone")) {
                    producer.flush();
                }
            }
            producer.flush();
            for (var one : sent.entrySet()) {
                System.out.println(topic + ", " + one.getKey() + ": " + outcome(one.getValue()));
            }
        }
    }

    static String outcome(Future<RecordMetadata> sent) throws InterruptedException {
        try {
            return "offset " + sent.get().offset();
        } catch (ExecutionException e) {
            return e.getCause().getClass().getSimpleName();
        }
    }
}
EOF
jvm "$work/Neighbours.java" "$brokers" >"$work/out" 2>"$work/log" || fail "$(tail -n 1 "$work/log")"

line() { sed -n "s/^$1: //p" "$work/out"; }
expect "in one batch, with a key" "KafkaException" "$(line "together, first")"
expect "in one batch, without one" "InvalidRecordException" "$(line "together, no key")"
expect "in one batch, with a key, behind it" "KafkaException" "$(line "together, third")"
expect "records in the topic" "written 0" "$(sed -n 's/^together: //p' "$work/out")"
expect "alone, with a key" "offset 0" "$(line "alone, first")"
expect "alone, without one" "InvalidRecordException" "$(line "alone, no key")"
expect "alone, with a key, behind it" "offset 1" "$(line "alone, third")"
expect "records in the topic" "written 2" "$(sed -n 's/^alone: //p' "$work/out")"
done_here
