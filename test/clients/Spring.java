import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.KafkaMessageListenerContainer;
import org.springframework.kafka.listener.MessageListener;

/** Reads a topic by a listener of Spring Kafka: BROKERS TOPIC default|committed|fix_tx_offsets spring. */
public class Spring {
    public static void main(String[] args) throws Exception {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", args[0], "auto.offset.reset", "earliest"));
        if (!args[2].equals("default")) {
            config.put("isolation.level", "read_committed");
        }
        var values = new Values(args[1]);
        var properties = new ContainerProperties(args[1]);
        properties.setGroupId(args[3] + "-" + args[1] + "-" + args[2]);
        properties.setFixTxOffsets(args[2].equals("fix_tx_offsets"));
        properties.setMessageListener((MessageListener<byte[], byte[]>) r -> values.add(r.key(), r.value(), r.headers()));
        var bytes = new ByteArrayDeserializer();
        var container = new KafkaMessageListenerContainer<>(new DefaultKafkaConsumerFactory<>(config, bytes, bytes), properties);
        container.start();
        values.awaitAll();
        container.stop();
        System.out.println(values);
    }
}
