package shop;

import io.namastack.outbox.Outbox;
import io.namastack.outbox.handler.OutboxHandler;
import io.namastack.outbox.handler.OutboxRecordMetadata;
import java.math.BigDecimal;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.stereotype.Component;
import org.springframework.transaction.support.TransactionTemplate;

/**
 * An application with Namastack Outbox: it writes rows, or has the library's scheduler work.
 * Test data for the parity test. Arguments are Spring's: --spring.datasource.url=… --topic=… --job=…
 */
@SpringBootApplication
public class Shop {
    public record OrderPlaced(String orderId, String note, BigDecimal total, Instant at, List<Integer> items, Map<String, Object> more) {}

    public static void main(String[] args) throws InterruptedException {
        try (var context = SpringApplication.run(Shop.class, args)) {
            if (context.getEnvironment().getRequiredProperty("job").equals("relay")) {
                Thread.sleep(Long.MAX_VALUE);
            }
            var outbox = context.getBean(Outbox.class);
            var notes = new String[] {null, "", "Überweisung für Zürich", "\"quoted\" \\ </script>", "\u2028 \uD83D\uDE00 \t\n\u001f", "x".repeat(100_000)};
            for (int i = 0; i < 24; i++) {
                Map<String, Object> more = i % 2 == 0 ? Map.of() : Map.of("größe", 1.5e10);
                var event = new OrderPlaced("order-é-" + i, notes[i % notes.length], new BigDecimal("1.50").scaleByPowerOfTen(i - 9),
                    Instant.parse("2024-02-29T12:00:00.123456789Z").plusSeconds(i), List.of(i, -i), more);
                var key = new String[] {"order-1", "größe/2", "3", "4"}[i % 4];
                context.getBean(TransactionTemplate.class).executeWithoutResult(transaction -> outbox.schedule(event, key));
            }
        }
    }

    /** As the handler of the library's module for Kafka: key by the row, value by JacksonJsonSerializer. */
    @Component
    static class Sender implements OutboxHandler {
        private final KafkaTemplate<Object, Object> kafka;
        private final String topic;

        Sender(KafkaTemplate<Object, Object> kafka, @Value("${topic}") String topic) {
            this.kafka = kafka;
            this.topic = topic;
        }

        @Override
        public void handle(Object payload, OutboxRecordMetadata metadata) {
            try {
                kafka.send(topic, metadata.getKey(), payload).get();
            } catch (InterruptedException | ExecutionException e) {
                throw new IllegalStateException(e);
            }
        }
    }
}
