#!/usr/bin/env bash
# Expected: a listener that takes a Message finds a record's header "id" in it, and so does who takes a message that is made from it.
# Happens:  Spring's messages have an "id" of their own. The first message has the record's, as bytes, and getId() fails on it. Every message made
#           from that one has a new random UUID in its place, which looks like an event's id: an inbox never finds a duplicate. A record that
#           is made from the message has no such header at all. The header "timestamp" fares alike.
# Who:      Spring's consumers of Debezium's outbox event router, whose event id is the header "id", that make another message from the one
#           that came (an interceptor, a transformer), or send it on by KafkaTemplate.
# Version:  spring-kafka 4.1.2
# Date:     2026-11-29
. "$(dirname "$0")/lib.sh"

jars org.springframework.kafka:spring-kafka:4.1.2

cat >"$work/Ids.java" <<'EOT'
import java.nio.charset.StandardCharsets;
import java.util.UUID;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.springframework.kafka.support.converter.MessagingMessageConverter;
import org.springframework.messaging.Message;
import org.springframework.messaging.support.MessageBuilder;

public class Ids {
    static final String EVENT = "0191d2a0-0000-7000-8000-000000000001";

    public static void main(String[] args) {
        var record = new ConsumerRecord<>("orders", 0, 0, "key", "value");
        for (String name : new String[] {"id", "event-id"}) {
            record.headers().add(name, EVENT.getBytes(StandardCharsets.UTF_8));
        }
        var converter = new MessagingMessageConverter();
        Message<?> message = converter.toMessage(record, null, null, String.class);
        System.out.println("header " + what(message.getHeaders().get("id")));
        try {
            System.out.println("getId " + what(message.getHeaders().getId()));
        } catch (RuntimeException e) {
            System.out.println("getId " + e.getClass().getSimpleName());
        }
        var copy = MessageBuilder.withPayload("other").copyHeaders(message.getHeaders()).build().getHeaders();
        System.out.println("copy " + what(copy.get("id")));
        System.out.println("copy-event-id " + what(copy.get("event-id")));
        ProducerRecord<?, ?> forwarded = converter.fromMessage(message, "others");
        System.out.println("forwarded " + (forwarded.headers().lastHeader("id") != null));
        System.out.println("forwarded-event-id " + (forwarded.headers().lastHeader("event-id") != null));
    }

    static String what(Object id) {
        String text = id instanceof byte[] bytes ? new String(bytes, StandardCharsets.UTF_8) : String.valueOf(id);
        return (id instanceof UUID ? "UUID" : "bytes") + (text.equals(EVENT) ? " of the event" : " of something else");
    }
}
EOT
jvm "$work/Ids.java" >"$work/out" 2>"$work/log" || fail "$(tail -n 1 "$work/log")"

line() { sed -n "s/^$1 //p" "$work/out"; }
expect "the message's header" "bytes of the event" "$(line header)"
expect "the message's getId()" "IllegalArgumentException" "$(line getId)"
expect "the header of a message made from it" "UUID of something else" "$(line copy)"
expect "its header of another name" "bytes of the event" "$(line copy-event-id)"
expect "a record made from the message has the header" "false" "$(line forwarded)"
expect "a header of another name" "true" "$(line forwarded-event-id)"
done_here
