package integration

import (
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// A broker of the tests' own that goes away and comes back. One starts for all
// of these tests.
func TestBrokerOutages(t *testing.T) {
	if testing.Short() {
		t.Skip("not in the short form")
	}
	k := harness.PrivateKafka(t, harness.KafkaOptions{})
	broker := k.Nodes[0]

	// Stopped for ten seconds under load: nothing is lost, nothing FAILED, no
	// attempt is counted, the order stays.
	t.Run("stopped under load", func(t *testing.T) {
		w := newWorld(t, surroundings{kafka: k, partitions: 3})
		p := w.run().streaming()
		load := w.write(steady())
		load.wrote(200, 30*time.Second)
		broker.Stop()
		down := time.Now()
		p.Await(15*time.Second, "the Kafka cluster cannot be used")
		load.wrote(scaled(400, 4000), 60*time.Second)
		waitUntil(t, down.Add(scaled(10*time.Second, 60*time.Second)))
		broker.Start(t)
		p.Await(20*time.Second, "the Kafka cluster can be used")
		load.wrote(100, 30*time.Second)
		load.stop()
		w.settled(30 * time.Second)
		p.stop()
		w.judge(history.Rules{})
		if n := harness.One[int](t, w.db, `SELECT count(*) FROM outbox WHERE attempts > 0`); n > 0 {
			t.Errorf("the outage was charged to %d rows", n)
		}
	})

	// Killed and started again while one key is written at full rate: its
	// records are in the order of its commits.
	t.Run("one key at full rate through a restart", func(t *testing.T) {
		w := newWorld(t, surroundings{kafka: k, partitions: 2})
		p := w.run().streaming()
		load := w.write(load{writers: 3, keys: 1, inserts: 1, rows: 100, pad: 60})
		load.wrote(5000, 60*time.Second)
		broker.Kill()
		load.wrote(5000, 60*time.Second)
		broker.Start(t)
		load.wrote(5000, 60*time.Second)
		broker.Stop()
		broker.Start(t)
		load.wrote(1000, 60*time.Second)
		load.stop()
		w.settled(60 * time.Second)
		p.stop()
		// A killed broker's last answer is unknown, and found out: the
		// producer's sequence tells whether the batch had landed.
		h := w.judge(history.Rules{})
		t.Logf("%d rows, %d duplicates", len(h.Inserts), duplicates(h))
	})

	// The program is killed while the broker is away, and again when it is back.
	t.Run("killed in an outage", func(t *testing.T) {
		w := newWorld(t, surroundings{kafka: k, partitions: 2})
		w.small()
		p := w.run().streaming()
		load := w.write(steady())
		load.wrote(200, 30*time.Second)
		broker.Kill()
		p.Await(15*time.Second, "the Kafka cluster cannot be used")
		p.Kill()
		p = w.run()
		p.Await(30*time.Second, "the Kafka cluster cannot be used")
		load.wrote(200, 30*time.Second)
		broker.Start(t)
		p.Await(20*time.Second, "the Kafka cluster can be used")
		p.Kill()
		load.stop()
		p = w.run().streaming()
		w.settled(30 * time.Second)
		p.stop()
		w.judge(history.Rules{Duplicates: 2 * window})
	})
}

// waitUntil waits for a moment: an outage has a length.
func waitUntil(t *testing.T, moment time.Time) {
	select {
	case <-time.After(time.Until(moment)):
	case <-t.Context().Done():
	}
}
