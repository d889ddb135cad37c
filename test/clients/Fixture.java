import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Writes what every client reads: to topic mixed transactions that overlap, committed, aborted, and one that stays open; to topic ended one that is
 * committed and one that is aborted; to topic nulls records without transaction.
 */
public class Fixture {
    static final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
    static String brokers;

    static KafkaProducer<String, String> producer(String id) {
        return producers.computeIfAbsent(id, i -> {
            Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", brokers, "linger.ms", "0"));
            if (!i.equals("N")) {
                config.put("transactional.id", i);
                config.put("transaction.timeout.ms", "900000");
            }
            var p = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
            if (!i.equals("N")) {
                p.initTransactions();
            }
            return p;
        });
    }

    /** What a script says: begin, commit or abort of a producer; or producer:value… to be sent one by one. */
    static void run(String topic, String script) throws Exception {
        for (String step : script.split("\\s+")) {
            String[] word = step.split(":");
            var p = producer(word[1]);
            switch (word[0]) {
                case "begin" -> p.beginTransaction();
                case "commit" -> p.commitTransaction();
                case "abort" -> p.abortTransaction();
                default -> {
                    for (String value : word[2].split(",")) {
                        p.send(new ProducerRecord<>(topic, 0, "key", value)).get();
                    }
                }
            }
        }
    }

    static String orNull(String text) {
        return text.equals("null") ? null : text;
    }

    public static void main(String[] args) throws Exception {
        brokers = args[0];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", brokers))) {
            admin.createTopics(Stream.of("mixed", "ended", "nulls", "at_least_once", "exactly_once").map(name -> new NewTopic(name, 1, (short) 1)).toList()).all().get();
        }
        // Letters are transactions: A, C and H are aborted, B, D, G and I committed, E stays open; N and F are sent without.
        run("mixed", """
            begin:1 send:1:A0,A1 begin:2 send:2:B0,B1 send:1:A2 abort:1 send:2:B2 commit:2 send:N:N0
            begin:1 send:1:C0 begin:2 send:2:D0 begin:3 send:3:G0 send:1:C1 send:2:D1 abort:1 commit:2 send:3:G1 commit:3 send:N:N1
            begin:1 send:1:H0,H1 abort:1 begin:1 send:1:I0,I1 commit:1
            begin:4 send:4:E0 send:N:F0""");
        run("ended", "begin:1 send:1:A0,A1 commit:1 begin:1 send:1:B0 abort:1");
        for (String record : List.of("k:v:h", "null:v:h", ":v:h", "k:null:h", "k::h", "k:v:null", "k:v:")) {
            String[] part = record.split(":", -1);
            var r = new ProducerRecord<>("nulls", 0, orNull(part[0]), orNull(part[1]));
            r.headers().add("header", part[2].equals("null") ? null : part[2].getBytes(StandardCharsets.UTF_8));
            producer("N").send(r).get();
        }
        System.exit(0); // with the transaction open
    }
}
