#!/usr/bin/env bash
# Expected: kcat -f '%h' prints a header's value as it prints a record's (%s): all its bytes.
# Happens:  it stops at the first zero byte. A number of four or eight bytes, as Spring's dead letter headers have them, is shown as empty,
#           like a header without a value. -J has the bytes, as \u0000 in the JSON.
# Who:      operators who look at the original partition and offset of a record in a dead letter topic of Spring Kafka.
# Version:  kcat 1.7.1, Kafka 4.4.0 (broker and Java client)
# Date:     2026-11-29
. "$(dirname "$0")/lib.sh"

need apt-get dpkg-deb
(cd "$work" && apt-get download kcat librdkafka1 libyajl2 >apt.log 2>&1) || fail "apt-get: $(tail -n 1 "$work/apt.log")"
for package in "$work"/*.deb; do dpkg-deb -x "$package" "$work/debs"; done
kcat() { LD_LIBRARY_PATH=$(echo "$work"/debs/usr/lib/*-linux-gnu) "$work/debs/usr/bin/kcat" "$@"; }
kcat -V >"$work/version" 2>&1 || fail "kcat: $(tail -n 1 "$work/version")"
grep -q '^Version 1\.7\.1 ' "$work/version" || fail "kcat is not 1.7.1"

kafka 4.4.0

cat >"$work/Headers.java" <<'EOF'
import java.nio.ByteBuffer;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class Headers {
    public static void main(String[] args) throws Exception {
        try (var admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            admin.createTopics(java.util.List.of(new NewTopic("dlt", 1, (short) 1))).all().get();
        }
        try (var producer = new KafkaProducer<>(Map.of("bootstrap.servers", args[0]), new StringSerializer(), new StringSerializer())) {
            var record = new ProducerRecord<>("dlt", "key", "a\0b");
            record.headers()
                .add("kafka_dlt-original-topic", "orders".getBytes())
                .add("kafka_dlt-original-partition", ByteBuffer.allocate(4).putInt(65).array())
                .add("kafka_dlt-original-offset", ByteBuffer.allocate(8).putLong(66).array())
                .add("text", "a\0b".getBytes());
            producer.send(record).get();
        }
    }
}
EOF
jvm "$work/Headers.java" "$brokers" >"$work/log" 2>&1 || fail "$(tail -n 1 "$work/log")"

read_by() { kcat -C -q -e -b "$brokers" -t dlt "$@" | tr '\0' '0' >"$work/out"; }
read_by -f '%s'
expect "the record's value, its zero byte as 0" "a0b" "$(cat "$work/out")"
read_by -f '%h'
expect "the headers" "kafka_dlt-original-topic=orders,kafka_dlt-original-partition=,kafka_dlt-original-offset=,text=a" "$(cat "$work/out")"
read_by -J
expect "the partition in JSON" '\u0000\u0000\u0000A' "$(grep -o '"kafka_dlt-original-partition","[^"]*"' "$work/out" | cut -d'"' -f4)"
done_here
