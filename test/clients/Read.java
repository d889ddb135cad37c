import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reads a topic by one of the Java client's protocols: BROKERS TOPIC default|committed java-PROTOCOL. */
public class Read {
    public static void main(String[] args) throws Exception {
        String topic = args[1], group = args[3] + "-" + args[1] + "-" + args[2], protocol = args[3].substring("java-".length());
        boolean share = protocol.equals("share"), committed = args[2].equals("committed");
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", args[0], "group.id", group));
        var bytes = new ByteArrayDeserializer();
        var values = new Values(topic);
        if (share) {
            try (Admin admin = Admin.create(config)) {
                set(admin, group, "share.auto.offset.reset", "earliest");
                if (committed) {
                    set(admin, group, "share.isolation.level", "read_committed");
                }
            }
            try (var c = new KafkaShareConsumer<>(config, bytes, bytes)) {
                c.subscribe(List.of(topic));
                while (values.more()) {
                    c.poll(Duration.ofMillis(200)).forEach(r -> values.add(r.key(), r.value(), r.headers()));
                }
            }
        } else {
            config.putAll(Map.of("group.protocol", protocol, "auto.offset.reset", "earliest"));
            if (committed) {
                config.put("isolation.level", "read_committed");
            }
            try (var c = new KafkaConsumer<>(config, bytes, bytes)) {
                c.subscribe(List.of(topic));
                while (values.more()) {
                    c.poll(Duration.ofMillis(200)).forEach(r -> values.add(r.key(), r.value(), r.headers()));
                }
            }
        }
        System.out.println(values);
    }

    static void set(Admin admin, String group, String name, String value) throws Exception {
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, group),
            List.of(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)))).all().get();
    }
}
