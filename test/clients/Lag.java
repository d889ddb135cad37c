import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.TopicPartition;

/** Prints how far the offset that a group has committed lies before the topic's end: BROKERS TOPIC GROUP. */
public class Lag {
    public static void main(String[] args) throws Exception {
        var partition = new TopicPartition(args[1], 0);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            var offset = admin.listConsumerGroupOffsets(args[2]).partitionsToOffsetAndMetadata().get().get(partition);
            long end = admin.listOffsets(Map.of(partition, OffsetSpec.latest())).partitionResult(partition).get().offset();
            System.out.println(offset == null ? "none" : "lag " + (end - offset.offset()));
        }
    }
}
