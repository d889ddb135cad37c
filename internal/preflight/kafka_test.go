package preflight

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// clusterWorld is a stream for tests that look at Kafka only.
func clusterWorld(topic string, cfg sink.Config) *Facts {
	f := sound()
	m := &f.Stream.Tables[0].Mapping
	m.Topic = outbox.Template{Literals: []string{topic}}
	cfg.Cluster, cfg.TransactionalID, cfg.RequestTimeout = "main", "outbox-cdc-orders-main", 3*time.Second
	f.Stream.Kafka = map[string]sink.Config{"main": cfg}
	return f
}

// lookAt gathers Kafka's facts and judges.
func lookAt(t *testing.T, f *Facts) []Finding {
	t.Helper()
	g := gathering{o: Options{}.withDefaults(), facts: f}
	g.kafka(t.Context(), g.clusters())
	return Judge(f)
}

func TestBrokersThatRefuse(t *testing.T) {
	safe := harness.Kfake(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "cdc", "right"))
	plain := harness.Kfake(t)
	for name, c := range map[string]struct {
		cfg  sink.Config
		want []string
	}{
		"nobody there":   {sink.Config{Brokers: []string{"127.0.0.1:1"}}, []string{"refused", "start the broker"}},
		"no such name":   {sink.Config{Brokers: []string{"kafka.invalid:9092"}}, []string{"its name cannot be resolved"}},
		"wrong password": {sink.Config{Brokers: safe.Addrs, SASL: &sink.SASL{Mechanism: "PLAIN", Username: "cdc", Password: "wrong"}}, []string{"PLAIN", `"cdc"`, "password"}},
		"no login":       {sink.Config{Brokers: safe.Addrs}, []string{"neither TLS nor SASL"}},
		"TLS to plain":   {sink.Config{Brokers: plain.Addrs, TLS: &sink.TLS{}, DialTimeout: time.Second}, []string{"TLS"}},
	} {
		t.Run(name, func(t *testing.T) {
			all := lookAt(t, clusterWorld("orders", c.cfg))
			expect(t, worst(t, all, "brokers"), Fail, c.want...)
			if f := worst(t, all, "topics"); f.Level != Skip || !f.Unseen {
				t.Errorf("%+v", f)
			}
		})
	}
}

// Before readiness, Kafka is asked at the same time as the database. Here the database does not answer before
// Kafka was asked.
func TestADatabaseThatIsSlowHoldsUpNoCluster(t *testing.T) {
	database, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked, k := make(chan struct{}), harness.Kfake(t)
	k.Fake.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		close(asked)
		return nil, nil, false
	})
	go func() {
		defer database.Close()
		conn, err := database.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		select {
		case <-asked:
		case <-time.After(5 * time.Second): // half of a probe's time
			t.Error("Kafka was not asked while the database did not answer")
		}
	}()
	f := clusterWorld("orders", sink.Config{Brokers: k.Addrs})
	f.Stream.DSN = "postgres://x@" + database.Addr().String() + "/x?sslmode=disable"
	f = gather(t.Context(), f.Stream, Options{}.withDefaults(), true)
	if f.Table.Err == nil || len(f.Kafka) != 1 || f.Kafka[0].Err != "" {
		t.Errorf("table session: %v; Kafka: %+v", f.Table.Err, f.Kafka)
	}
}

// A broker that has just started is asked again.
func TestBrokerThatIsStillLoading(t *testing.T) {
	k := harness.Kfake(t)
	loading := 2
	k.Fake.ControlKey(int16(kmsg.InitProducerID), func(req kmsg.Request) (kmsg.Response, error, bool) {
		k.Fake.KeepControl()
		if loading == 0 {
			return nil, nil, false
		}
		loading--
		res := req.ResponseKind().(*kmsg.InitProducerIDResponse)
		res.ErrorCode = int16(sarama.ErrOffsetsLoadInProgress)
		return res, nil, true
	})
	all := lookAt(t, clusterWorld("orders", sink.Config{Brokers: k.Addrs}))
	expect(t, worst(t, all, "idempotent-write"), OK, "we get a producer id")
}

func TestTopicsAsTheyAre(t *testing.T) {
	k := harness.Kfake(t)
	k.CreateTopic(t, "small", 1, map[string]string{"max.message.bytes": "500"})
	k.CreateTopic(t, "compacted", 2, map[string]string{"cleanup.policy": "compact"})
	cfg := sink.Config{Brokers: append([]string{"127.0.0.1:1"}, k.Addrs...), DialTimeout: time.Second}
	all := lookAt(t, clusterWorld("missing", cfg))
	expect(t, worst(t, all, "topics"), Fail, "does not exist", "--create --topic missing")
	expect(t, worst(t, all, "brokers"), Warn, "refused")
	if topics := k.Topics(t); len(topics) != 2 {
		t.Errorf("a topic was made: %v", topics)
	}
	expect(t, worst(t, lookAt(t, clusterWorld("small", cfg)), "message-size"), Fail, "500 B", "1000 B", "max.message.bytes=1762")
	expect(t, worst(t, lookAt(t, clusterWorld("compacted", cfg)), "compaction"), Warn, `key column key of public.outbox may be NULL`)
}

// At a real broker, a user has hardly any permission, and then each of the missing ones. A leader's
// transactional id is not touched.
func TestRealPermissions(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a Kafka of its own")
	}
	k := harness.PrivateKafka(t, harness.Authorizing())
	topic := k.Topic(t, 2)
	cfg := sink.Config{Brokers: k.AddrsOf("SAFE"), SASL: &sink.SASL{Mechanism: "PLAIN", Username: "poor", Password: "right"}}
	look := func() []Finding { return lookAt(t, clusterWorld(topic, cfg)) }
	allow := func(resource sarama.AclResourceType, name string, op sarama.AclOperation) {
		t.Helper()
		acls := &sarama.ResourceAcls{Resource: sarama.Resource{ResourceType: resource, ResourceName: name, ResourcePatternType: sarama.AclPatternLiteral}}
		acls.Acls = []*sarama.Acl{{Principal: "User:poor", Host: "*", Operation: op, PermissionType: sarama.AclPermissionAllow}}
		k.Admin(t, func(a sarama.ClusterAdmin) error { return a.CreateACLs([]*sarama.ResourceAcls{acls}) })
	}
	granted := func(check string, level Level, want ...string) {
		t.Helper()
		harness.Eventually(t, 10*time.Second, func() error { // rules reach the broker a moment later
			if f := worst(t, look(), check); f.Level != level {
				return fmt.Errorf("%+v", f)
			}
			return nil
		})
		expect(t, worst(t, look(), check), level, want...)
	}
	all := look()
	expect(t, worst(t, all, "brokers"), OK)
	expect(t, worst(t, all, "topics"), Fail, "we may not see it", "--allow-principal User:poor --operation Write --topic "+topic)
	expect(t, worst(t, all, "idempotent-write"), Fail, "--operation IdempotentWrite --cluster")
	expect(t, worst(t, all, "transactional-id"), Warn, "--transactional-id outbox-cdc-orders-main")
	allow(sarama.AclResourceTopic, topic, sarama.AclOperationDescribe)
	granted("topic-acl", Fail, "we may not WRITE")
	allow(sarama.AclResourceTopic, topic, sarama.AclOperationWrite)
	granted("topic-acl", Warn, "not READ")
	granted("idempotent-write", OK) // WRITE on any topic is enough (KIP-679)
	granted("message-size", Warn, "may not be read", "DescribeConfigs")
	allow(sarama.AclResourceTopic, topic, sarama.AclOperationRead)
	allow(sarama.AclResourceTopic, topic, sarama.AclOperationDescribeConfigs)
	granted("topic-acl", OK, "read its settings")
	granted("topic-replication", Warn, "lost with one disk")
	allow(sarama.AclResourceTransactionalID, "outbox-cdc-orders-main", sarama.AclOperationWrite)
	granted("transactional-id", OK)
	fencesNobody(t, k, look)
}

// fencesNobody checks that the holder of the transactional id before a look still holds it after the look.
func fencesNobody(t *testing.T, k *harness.Cluster, look func() []Finding) {
	t.Helper()
	id := "outbox-cdc-orders-main"
	epoch := func() (pid int64, epoch int16) {
		b := sarama.NewBroker(k.Addrs[0])
		if err := b.Open(sarama.NewConfig()); err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		var res *sarama.InitProducerIDResponse
		harness.Eventually(t, 20*time.Second, func() (err error) {
			res, err = b.InitProducerID(&sarama.InitProducerIDRequest{Version: 1, TransactionalID: &id, TransactionTimeout: time.Minute})
			if err == nil && res.Err != sarama.ErrNoError {
				err = res.Err
			}
			return err
		})
		return res.ProducerID, res.ProducerEpoch
	}
	pid, before := epoch()
	for range 3 {
		look()
	}
	if again, after := epoch(); again != pid || after != before+1 {
		t.Errorf("producer %d epoch %d became %d epoch %d: somebody else was given the id between", pid, before, again, after)
	}
}

// A broker advertises an address where it does not listen.
func TestBrokerAdvertisedWrongly(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a Kafka of its own")
	}
	k := harness.PrivateKafka(t, harness.KafkaOptions{Settings: map[string]string{}, Brokers: 2})
	gone := k.Nodes[1].Addr("PLAIN")
	k.Nodes[1].Kill()
	all := lookAt(t, clusterWorld("orders", sink.Config{Brokers: k.Addrs[:1], DialTimeout: time.Second}))
	for _, f := range all {
		if f.Check == "brokers" && strings.Contains(f.Subject, gone) {
			expect(t, f, Fail, "refused", gone, "advertised.listeners of broker 2")
			return
		}
	}
	t.Skip("the controller noticed before the look") // then the broker is in no answer
}
