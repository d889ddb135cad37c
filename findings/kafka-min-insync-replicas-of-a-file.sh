#!/usr/bin/env bash
# Expected: min.insync.replicas=2 in the brokers' server.properties holds for each topic without a setting of its own: with one of two replicas
#           away, a record with acks=all is refused.
# Happens:  with eligible leader replicas, which new clusters have from 4.1 on, the value is taken once, at the first start, from the file of the
#           controller: 1, the default, if that has none. The brokers' files count for nothing, nor does a later change of any file. The record
#           is acknowledged, and is on one disk.
# Who:      who runs controllers of their own and sets durability in the brokers' files, or sets it after the first start.
# Version:  Kafka 4.4.0
# Date:     2026-11-29
. "$(dirname "$0")/lib.sh"

jars org.apache.kafka:kafka_2.13:4.4.0

cat >"$work/Topic.java" <<'EOF'
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringSerializer;

public class Topic {
    public static void main(String[] args) throws Exception {
        if (args[1].equals("make")) {
            make(args[0], args[2]);
        } else {
            write(args[0], args[2]);
        }
    }

    /** Makes a topic of two replicas, and says how many have to be in sync. */
    static void make(String brokers, String topic) throws Exception {
        try (var admin = Admin.create(Map.of("bootstrap.servers", brokers))) {
            while (admin.describeCluster().nodes().get().size() < 2) {
                Thread.sleep(100);
            }
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 2))).all().get();
            var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            System.out.println(admin.describeConfigs(List.of(resource)).all().get().get(resource).get("min.insync.replicas").value());
        }
    }

    static void write(String brokers, String topic) throws InterruptedException {
        Map<String, Object> once = Map.of("bootstrap.servers", brokers, "acks", "all", "retries", 0, "enable.idempotence", false);
        try (var producer = new KafkaProducer<>(once, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(topic, "key", "value")).get();
            System.out.println("acknowledged");
        } catch (ExecutionException e) {
            System.out.println(e.getCause().getClass().getSimpleName());
        }
    }
}
EOF

# file ROLE ID LISTENER LINE… writes a server's properties.
file() {
  printf '%s\n' "process.roles=$1" "node.id=$2" "listeners=$3" "controller.quorum.voters=1@127.0.0.1:${port[1]}" controller.listener.names=CONTROL \
    listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT "log.dirs=$work/$name-$2" "${@:4}" >"$work/$name-$2.properties"
}

begin() { # IDs
  local id
  for id; do
    serve "$work/$name-$id.log" kafka.Kafka "$work/$name-$id.properties"
    pid[id]=${started[-1]}
    until_true 120 listens "${port[id]}" || fail "server $id did not start: $(tail -n 1 "$work/$name-$id.log")"
  done
}

stop() { # IDs
  local id
  for id; do
    kill "${pid[id]}"
    wait "${pid[id]}" || true
  done
}

# cluster NAME ELR starts a controller, 1, and brokers, 2 and 3, whose files ask for two replicas.
cluster() {
  name=$1 port=() pid=()
  local id
  for id in 1 2 3; do port[id]=$(free_port); done
  file controller 1 "CONTROL://127.0.0.1:${port[1]}"
  for id in 2 3; do file broker $id "PLAINTEXT://127.0.0.1:${port[id]}" min.insync.replicas=2; done
  for id in 1 2 3; do
    jvm kafka.tools.StorageTool format -t ZmluZGluZ3MtY2x1c3Rlcg -c "$work/$name-$id.properties" --feature "eligible.leader.replicas.version=$2" \
      >"$work/$name-$id.log" 2>&1 || fail "formatting: $(tail -n 1 "$work/$name-$id.log")"
  done
  begin 1 2 3
}

topic() { jvm "$work/Topic.java" "127.0.0.1:${port[2]}" "$@" 2>"$work/topic.log" || fail "$(tail -n 1 "$work/topic.log")"; }

cluster without 0
expect "without eligible leader replicas, 2 in the brokers' files: needed" 2 "$(topic make first)"
stop 3
expect "a record while one of two replicas is away" NotEnoughReplicasException "$(topic write first)"
stop 2 1

cluster with 1
expect "with them, 2 in the brokers' files: needed" 1 "$(topic make first)"
stop 3
expect "a record while one of two replicas is away" acknowledged "$(topic write first)"
stop 2 1
echo min.insync.replicas=2 >>"$work/with-1.properties"
begin 1 2 3
expect "with them, 2 in all files, all restarted: needed" 1 "$(topic make second)"
stop 3
expect "a record while one of two replicas is away" acknowledged "$(topic write second)"
stop 2 1
done_here
