import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.cli.ConnectStandalone;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.sink.SinkConnector;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;

/** Reads a topic by a sink of a standalone worker of Kafka Connect: BROKERS TOPIC default|committed|worker_committed connect. */
public class Connect {
    static Values values;

    public static void main(String[] args) throws Exception {
        values = new Values(args[1]);
        var worker = new Properties();
        worker.put("bootstrap.servers", args[0]);
        worker.put("listeners", "http://127.0.0.1:0");
        worker.put("offset.storage.file.filename", Files.createTempFile("offsets", "").toString());
        worker.put("key.converter", "org.apache.kafka.connect.converters.ByteArrayConverter");
        worker.put("value.converter", "org.apache.kafka.connect.converters.ByteArrayConverter");
        worker.put("plugin.discovery", "only_scan");
        var sink = new Properties();
        sink.put("name", args[1] + "-" + args[2]);
        sink.put("connector.class", Sink.class.getName());
        sink.put("topics", args[1]);
        switch (args[2]) {
            case "committed" -> sink.put("consumer.override.isolation.level", "read_committed");
            case "worker_committed" -> worker.put("consumer.isolation.level", "read_committed");
        }
        String[] files = {file(worker), file(sink)};
        new Thread(() -> ConnectStandalone.main(files)).start();
        values.awaitAll();
        System.out.println(values);
        System.exit(0); // stops the worker, which commits
    }

    static String file(Properties properties) throws IOException {
        var path = Files.createTempFile("connect", ".properties");
        try (var out = Files.newOutputStream(path)) {
            properties.store(out, null);
        }
        return path.toString();
    }

    public static class Sink extends SinkConnector {
        @Override
        public void start(Map<String, String> config) {}

        @Override
        public void stop() {}

        @Override
        public Class<? extends Task> taskClass() {
            return ToValues.class;
        }

        @Override
        public List<Map<String, String>> taskConfigs(int most) {
            return List.of(Map.of());
        }

        @Override
        public ConfigDef config() {
            return new ConfigDef();
        }

        @Override
        public String version() {
            return "1";
        }
    }

    public static class ToValues extends SinkTask {
        @Override
        public void start(Map<String, String> config) {}

        @Override
        public void put(Collection<SinkRecord> records) {
            for (var r : records) {
                var header = r.headers().lastWithName("header");
                values.add((byte[]) r.key(), (byte[]) r.value(),
                    header == null || header.value() == null ? null : header.value().toString().getBytes(StandardCharsets.UTF_8));
            }
        }

        @Override
        public void stop() {}

        @Override
        public String version() {
            return "1";
        }
    }
}
