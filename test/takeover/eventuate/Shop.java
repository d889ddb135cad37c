import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import io.eventuate.cdc.producer.wrappers.kafka.EventuateKafkaDataProducerWrapper;
import io.eventuate.common.id.ApplicationIdGenerator;
import io.eventuate.common.jdbc.EventuateCommonJdbcOperations;
import io.eventuate.common.jdbc.EventuateJdbcOperationsUtils;
import io.eventuate.common.jdbc.EventuateSchema;
import io.eventuate.common.jdbc.OutboxPartitioningSpec;
import io.eventuate.common.jdbc.sqldialect.PostgresDialect;
import io.eventuate.common.spring.jdbc.EventuateSpringJdbcStatementExecutor;
import io.eventuate.local.common.CdcDataPublisher;
import io.eventuate.local.polling.ParallelPollingChannels;
import io.eventuate.local.polling.PollingDao;
import io.eventuate.messaging.kafka.producer.EventuateKafkaProducer;
import io.eventuate.messaging.kafka.producer.EventuateKafkaProducerConfigurationProperties;
import io.eventuate.tram.cdc.connector.BinlogEntryToMessageConverter;
import io.eventuate.tram.cdc.connector.MessageWithDestination;
import io.eventuate.tram.cdc.connector.MessageWithDestinationPublishingStrategy;
import io.eventuate.tram.messaging.common.DefaultChannelMapping;
import io.eventuate.tram.messaging.common.Message;
import io.eventuate.tram.messaging.common.MessageInterceptor;
import io.eventuate.tram.messaging.producer.MessageBuilder;
import io.eventuate.tram.messaging.producer.common.MessageProducerImpl;
import io.eventuate.tram.messaging.producer.jdbc.MessageProducerJdbcImpl;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import java.util.Map;
import org.postgresql.ds.PGSimpleDataSource;
import org.slf4j.LoggerFactory;
import org.springframework.jdbc.core.JdbcTemplate;

/**
 * An application with Eventuate Tram, which writes messages, and the parts of Eventuate's
 * CDC service that poll the table and publish. Test data for the parity test.
 */
public class Shop {
    public static void main(String[] args) {
        ((Logger) LoggerFactory.getLogger(Logger.ROOT_LOGGER_NAME)).setLevel(Level.WARN);
        var database = new PGSimpleDataSource();
        database.setUrl(args[1]);
        switch (args[0]) {
            case "write" -> write(database, args[3]);
            default -> relay(database, args[1], args[2]);
        }
    }

    static void write(PGSimpleDataSource database, String topic) {
        var dialect = new PostgresDialect();
        var statements = new EventuateSpringJdbcStatementExecutor(new JdbcTemplate(database));
        var operations = new EventuateCommonJdbcOperations(new EventuateJdbcOperationsUtils(dialect), statements, dialect, OutboxPartitioningSpec.DEFAULT);
        var producer = new MessageProducerImpl(new MessageInterceptor[0], new DefaultChannelMapping(Map.of()),
            new MessageProducerJdbcImpl(operations, new ApplicationIdGenerator(), new EventuateSchema()));
        var payloads = new String[] {"{\"b\": 1.50, \"a\": [1, 2]}", "", "Überweisung für Zürich", "\"quoted\" \\ </script>", "\u2028 \uD83D\uDE00 \t\n\u0001\u007f", "x".repeat(100_000)};
        for (int i = 0; i < 24; i++) {
            var message = MessageBuilder.withPayload(payloads[i % payloads.length]);
            if (i % 3 > 0) {
                message = message.withHeader(Message.PARTITION_ID, new String[] {"order-1", "", "größe/2", "4"}[i % 4]);
            }
            if (i % 5 > 0) {
                message = message.withHeader("event-aggregate-type", "shop.Order").withHeader("Zürich \"<>&'", "\u2028 \uD83D\uDE00 " + i).withHeader("empty", "");
            }
            producer.send(topic, message.build());
        }
    }

    static void relay(PGSimpleDataSource database, String url, String brokers) {
        var metrics = new SimpleMeterRegistry();
        var kafka = new EventuateKafkaProducer(brokers, EventuateKafkaProducerConfigurationProperties.empty());
        var publisher = new CdcDataPublisher<MessageWithDestination>(() -> new EventuateKafkaDataProducerWrapper(kafka, false, 100, metrics),
            (offset, topic) -> true, new MessageWithDestinationPublishingStrategy(), metrics);
        publisher.start();
        var reader = new PollingDao(metrics, url, database, 1000, 100, 500, 50, "reader", new PostgresDialect(), 1L,
            ParallelPollingChannels.make(new String[0]), OutboxPartitioningSpec.DEFAULT);
        reader.addBinlogEntryHandler(new EventuateSchema(), "message", new BinlogEntryToMessageConverter(new ApplicationIdGenerator()), publisher::sendMessage);
        reader.start();
    }
}
