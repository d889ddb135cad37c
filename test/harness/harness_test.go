package harness

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestDatabasesAreFreshAndSlotsGoWithThem(t *testing.T) {
	var name string
	t.Run("first", func(t *testing.T) {
		db := Postgres(t)
		name = db.Name
		db.Exec(t, "SELECT pg_create_logical_replication_slot('s1', 'pgoutput')")
	})
	db := Postgres(t)
	if n := One[int](t, db, "SELECT count(*) FROM pg_replication_slots"); n != 0 {
		t.Errorf("%d slots are left", n)
	}
	if n := One[int](t, db, "SELECT count(*) FROM pg_database WHERE datname = $1", name); n != 0 {
		t.Errorf("database %s is left", name)
	}
}

func TestDatabaseThroughProxy(t *testing.T) {
	db, proxy := Postgres(t).Proxied(t)
	conn := db.Conn(t)
	proxy.Refuse()
	if _, err := conn.Exec(t.Context(), "SELECT 1"); err == nil {
		t.Error("a refused connection still works")
	}
	proxy.Allow()
	if got := One[int](t, db, "SELECT 1"); got != 1 {
		t.Errorf("got %d", got)
	}
	conn = db.Conn(t)
	proxy.Silence(Replies)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := conn.Exec(ctx, "SELECT 1"); err == nil {
		t.Error("a silenced connection answers")
	}
	proxy.Speak()
	if got := One[int](t, db, "SELECT 2"); got != 2 {
		t.Errorf("got %d", got)
	}
}

// produce writes n records with keys k0… and waits for their acknowledgement.
func produce(t *testing.T, c *Cluster, topic string, from, n int) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Addrs...), kgo.RetryTimeout(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for i := from; i < from+n; i++ {
		r := &kgo.Record{Topic: topic, Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "v%d", i)}
		if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

func checkCluster(t *testing.T, c *Cluster) {
	t.Helper()
	topic := c.Topic(t, 3)
	if n := c.Count(t, topic); n != 0 {
		t.Errorf("a new topic holds %d records", n)
	}
	follower := c.Follow(t, topic)
	produce(t, c, topic, 0, 20)
	if n := len(follower.Await(t, 20, 20*time.Second)); n != 20 {
		t.Errorf("followed %d records, wanted 20", n)
	}
	records := c.Records(t, topic)
	if len(records) != 20 {
		t.Errorf("read %d records, wanted 20", len(records))
	}
	seen := map[string]bool{}
	for _, r := range records {
		seen[string(r.Key)+string(r.Value)] = true
	}
	if !seen["k0v0"] || !seen["k19v19"] {
		t.Errorf("read %v", seen)
	}
}

func TestSharedKafka(t *testing.T) { checkCluster(t, Kafka(t)) }
func TestKfake(t *testing.T)       { checkCluster(t, Kfake(t)) }

func TestKfakeThroughProxy(t *testing.T) {
	c := KfakeProxied(t)
	checkCluster(t, c)
	topic := c.Topic(t, 1)
	c.Cut()
	if err := serves(t.Context(), c.Addrs[0], 0); err == nil {
		t.Error("a cut cluster answers")
	}
	if n := c.Count(t, topic); n != 0 {
		t.Errorf("read %d records around the cut", n)
	}
	c.Restore(t)
	produce(t, c, topic, 0, 1)
}

func TestPrivateKafkaSurvivesKillAndFreeze(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a broker twice")
	}
	c := PrivateKafka(t, KafkaOptions{Proxied: true, Settings: map[string]string{"message.max.bytes": "2000000"}})
	topic := c.Topic(t, 2)
	produce(t, c, topic, 0, 5)
	c.Nodes[0].Kill()
	c.Nodes[0].Start(t)
	produce(t, c, topic, 5, 5)
	c.Nodes[0].Freeze(t)
	c.Nodes[0].Thaw(t)
	c.Cut()
	c.Restore(t)
	produce(t, c, topic, 10, 5)
	if n := c.Count(t, topic); n != 15 {
		t.Errorf("%d records, wanted 15", n)
	}
}
