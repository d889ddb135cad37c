import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Applies each event once, however often it is delivered: the event's id goes into an
 * inbox table in the same transaction as what the event changes. Needs kafka-clients and
 * PostgreSQL's JDBC driver. An error ends the program: whatever starts it again continues
 * after the last commit.
 */
public class Consumer {
    public static void main(String[] args) throws SQLException {
        var env = System.getenv();
        Map<String, Object> settings = Map.of("bootstrap.servers", env.get("KAFKA_BROKERS"),
            "group.id", env.get("GROUP"), "group.instance.id", env.get("INSTANCE"), // the same instance takes its partitions up at once
            "auto.offset.reset", "earliest", "isolation.level", "read_committed", "enable.auto.commit", false, "max.poll.records", 100);
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
            var db = DriverManager.getConnection(env.get("JDBC_URL"))) {
            db.setAutoCommit(false);
            consumer.subscribe(List.of(env.get("TOPIC")));
            while (true) {
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    apply(db, record);
                }
                consumer.commitSync();
            }
        }
    }

    /** Does nothing for an event that the inbox has. One that another consumer is at work on is waited for. */
    static void apply(Connection db, ConsumerRecord<String, String> record) throws SQLException {
        try (var inbox = db.prepareStatement("INSERT INTO inbox (topic, event_id) VALUES (?, ?) ON CONFLICT DO NOTHING")) {
            inbox.setString(1, record.topic());
            inbox.setString(2, eventId(record));
            if (inbox.executeUpdate() > 0) {
                change(db, record);
            }
        }
        db.commit();
    }

    /** The header that event_id names in the mapping. NOT NULL refuses an event without one: it cannot be told from its duplicate. */
    static String eventId(ConsumerRecord<String, String> record) {
        var header = record.headers().lastHeader("event-id");
        return header == null ? null : new String(header.value(), java.nio.charset.StandardCharsets.UTF_8);
    }

    /** The application's own work. Done twice, it would be wrong. */
    static void change(Connection db, ConsumerRecord<String, String> record) throws SQLException {
        try (var account = db.prepareStatement(
            "INSERT INTO account (id, balance) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET balance = account.balance + excluded.balance")) {
            account.setString(1, record.key());
            account.setLong(2, Long.parseLong(record.value()));
            account.executeUpdate();
        }
    }
}
