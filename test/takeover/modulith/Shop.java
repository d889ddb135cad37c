package shop;

import java.math.BigDecimal;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.ApplicationEventPublisher;
import org.springframework.context.annotation.Bean;
import org.springframework.modulith.events.EventExternalizationConfiguration;
import org.springframework.modulith.events.Externalized;
import org.springframework.modulith.events.RoutingTarget;
import org.springframework.transaction.support.TransactionTemplate;

/**
 * An application with Spring Modulith: its events are rows of the registry, and are
 * sent right after the commit by Modulith itself. Test data for the parity test.
 * Arguments are Spring's: --spring.datasource.url=… --topic=…
 */
@SpringBootApplication
public class Shop {
    @Externalized
    public record OrderPlaced(String orderId, String note, BigDecimal total, Instant at, List<Integer> items, Map<String, Object> more) {}

    @Externalized
    public record Imported(String text) {}

    public static void main(String[] args) {
        try (var context = SpringApplication.run(Shop.class, args)) {
            var transactions = context.getBean(TransactionTemplate.class);
            for (var event : events()) {
                transactions.executeWithoutResult(transaction -> context.publishEvent(event));
            }
            var registry = context.getBean(org.springframework.jdbc.core.JdbcTemplate.class);
            while (registry.queryForObject("SELECT count(*) FROM event_publication WHERE completion_date IS NULL", Integer.class) > 0) {
                Thread.sleep(50);
            }
            System.out.println("wrote");
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** Keys of both kinds of event are all different: the sender's threads keep no order. */
    static List<Object> events() {
        var notes = new String[] {null, "", "Überweisung für Zürich", "\"quoted\" \\ </script>", "\u2028 \uD83D\uDE00 \t\n", "x".repeat(100_000)};
        var all = new ArrayList<Object>();
        for (int i = 0; i < 18; i++) {
            Map<String, Object> more = i % 2 == 0 ? Map.of() : Map.of("größe", 1.5e10);
            all.add(new OrderPlaced("order-é-" + i, notes[i % notes.length], new BigDecimal("1.50").scaleByPowerOfTen(i - 9),
                Instant.parse("2024-02-29T12:00:00.123456789Z").plusSeconds(i), List.of(i, -i), more));
        }
        for (int i = 0; i < 6; i++) {
            all.add(new Imported(notes[i % notes.length]));
        }
        return all;
    }

    @Bean
    EventExternalizationConfiguration externalization(@Value("${topic}") String topic) {
        return EventExternalizationConfiguration.externalizing()
            .select(EventExternalizationConfiguration.annotatedAsExternalized())
            .route(OrderPlaced.class, e -> RoutingTarget.forTarget(topic).andKey(e.orderId()))
            .route(Imported.class, e -> RoutingTarget.forTarget(topic).withoutKey())
            .build();
    }
}
