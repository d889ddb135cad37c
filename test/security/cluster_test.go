package security

import (
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// The only broker of a cluster ends, and one of another cluster starts on its port, with the same topic. It gets no row; what was on
// its way and what is written meanwhile waits, at no cost, for the first cluster, and goes there. A restart takes the other for ours.
func TestAnotherKafkaOnTheSamePort(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.kafka = harness.PrivateKafka(t, harness.KafkaOptions{})
	w.cluster["brokers"] = w.kafka.Addrs
	w.topic = "orders"
	w.kafka.CreateTopic(t, w.topic, 1, nil)
	const ours, theirs = "b3V0Ym94LWNkYy10ZXN0cw", "dGhlIG90aGVyIGNsdXN0ZXI"
	p := w.run()
	w.insertRows("before", 10)
	w.allSent("before", 10)

	broker := w.kafka.Nodes[0]
	stop := w.goodWriter() // some rows are on their way when the broker ends
	w.kafka.AwaitRecords(t, w.topic, 20, time.Minute)
	broker.Kill()
	w.insertRows("away", 10)
	broker.Become(t, theirs)
	w.kafka.CreateTopic(t, w.topic, 1, nil)
	from, to := stop()
	p.Await(time.Minute, `it belongs to cluster`, theirs, `belongs to`, ours, "restart outbox-cdc")
	w.insertRows("foreign", 10)
	nothing := func() {
		t.Helper()
		if got := w.kafka.Records(t, w.topic); len(got) != 0 {
			t.Errorf("the other cluster got %d records, the first: %s", len(got), got[0].Key)
		}
	}
	nothing()
	w.awaitCount(`SELECT count(*) FROM outbox WHERE key IN ('away', 'foreign') AND status = 'PENDING' AND attempts = 0`, 20)

	broker.Become(t, ours)
	w.allSent("away", 10)
	w.allSent("foreign", 10)
	w.sent("ours again", from, to, time.Minute)
	found := map[string]bool{}
	for _, r := range w.kafka.Records(t, w.topic) {
		found[string(r.Key)+"/"+string(r.Value)] = true
	}
	if n := harness.One[int](t, w.db, `SELECT count(DISTINCT (key, payload)) FROM outbox WHERE status = 'SENT'`); len(found) != n {
		t.Errorf("%d different records are in our cluster, %d are marked SENT", len(found), n)
	}

	broker.Become(t, theirs)
	nothing()
	w.stopped(p)
	p = w.run()
	w.insertRows("theirs", 10)
	w.allSent("theirs", 10)
	if got := w.kafka.Records(t, w.topic); len(got) != 10 {
		t.Errorf("after the restart the other cluster has %d records", len(got))
	}
	w.stopped(p)
}
