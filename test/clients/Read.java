import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Reads a topic by one of the Java client's protocols: BROKERS TOPIC default|committed PROTOCOL. */
public class Read {
    public static void main(String[] args) throws Exception {
        String topic = args[1], group = args[3] + "-" + args[1] + "-" + args[2];
        boolean share = args[3].equals("share");
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", args[0], "group.id", group));
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            if (share) {
                set(admin, group, "share.auto.offset.reset", "earliest");
                if (args[2].equals("committed")) {
                    set(admin, group, "share.isolation.level", "read_committed");
                }
            } else {
                config.putAll(Map.of("group.protocol", args[3], "auto.offset.reset", "earliest"));
                if (args[2].equals("committed")) {
                    config.put("isolation.level", "read_committed");
                }
            }
        }
        var values = new ArrayList<String>();
        long last = System.nanoTime();
        if (share) {
            try (var c = new KafkaShareConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
                c.subscribe(List.of(topic));
                while (System.nanoTime() - last < (values.isEmpty() ? 30e9 : 3e9)) {
                    for (var r : c.poll(Duration.ofMillis(200))) {
                        values.add(r.value());
                        last = System.nanoTime();
                    }
                }
            }
        } else {
            try (var c = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
                c.subscribe(List.of(topic));
                while (System.nanoTime() - last < (values.isEmpty() ? 30e9 : 3e9)) {
                    for (var r : c.poll(Duration.ofMillis(200))) {
                        values.add(r.value());
                        last = System.nanoTime();
                    }
                }
            }
        }
        System.out.println(String.join(" ", values));
    }

    static void set(Admin admin, String group, String name, String value) throws Exception {
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, group),
            List.of(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)))).all().get();
    }
}
