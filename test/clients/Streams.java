import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;

/** Reads a topic by Kafka Streams: BROKERS TOPIC default|committed|exactly_once streams. */
public class Streams {
    public static void main(String[] args) throws Exception {
        var config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("application.id", args[3] + "-" + args[1] + "-" + args[2]);
        config.put("state.dir", System.getProperty("java.io.tmpdir"));
        switch (args[2]) {
            case "committed" -> config.put("consumer.isolation.level", "read_committed");
            case "exactly_once" -> config.put("processing.guarantee", "exactly_once_v2");
        }
        var values = new Values(args[1]);
        var builder = new StreamsBuilder();
        builder.stream(args[1], Consumed.with(Serdes.ByteArray(), Serdes.ByteArray())).process(() -> new ContextualProcessor<byte[], byte[], Void, Void>() {
            @Override
            public void process(Record<byte[], byte[]> r) {
                values.add(r.key(), r.value(), r.headers());
            }
        });
        try (var streams = new KafkaStreams(builder.build(), config)) {
            streams.start();
            values.awaitAll();
        }
        System.out.println(values);
    }
}
