package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// A broker of the tests' own that goes away and comes back. One starts for all
// of these tests.
func TestBrokerOutages(t *testing.T) {
	t.Parallel() // it mostly waits
	if testing.Short() {
		t.Skip("not in the short form")
	}
	k := harness.PrivateKafka(t, harness.KafkaOptions{})
	broker := k.Nodes[0]

	// Stopped for ten seconds (long form: ten minutes) under load: nothing is lost,
	// nothing FAILED, no attempt is counted, the order stays.
	t.Run("stopped under load", func(t *testing.T) {
		w := newWorld(t, surroundings{kafka: k, partitions: 3, limit: scaled(0, 30*time.Minute)})
		p := w.run().streaming()
		load := w.write(steady())
		load.wrote(200, 30*time.Second)
		broker.Stop()
		down := time.Now()
		p.Await(15*time.Second, "the Kafka cluster cannot be used")
		load.wrote(scaled(400, 4000), 60*time.Second)
		waitUntil(t, down.Add(scaled(10*time.Second, 10*time.Minute)))
		before, peak := w.mustCount(), p.Peak()
		broker.Start(t)
		up := time.Now()
		if !long { // behind what ten minutes have left it takes its time
			w.recovered()
		}
		p.Await(20*time.Second, "the Kafka cluster can be used")
		usable := time.Since(up)
		w.sentBeyond(before[history.Sent], 20*time.Second)
		t.Logf("%d rows waited, the process had %d MiB at most; usable %v after the broker served, the first of them SENT after %v",
			before[history.Pending], peak>>20, usable.Round(time.Millisecond), time.Since(up).Round(time.Millisecond))
		load.wrote(100, 30*time.Second)
		load.stop()
		w.settled(scaled(30*time.Second, 10*time.Minute))
		t.Logf("nothing was PENDING %v after the broker served, and the process had %d MiB at most", time.Since(up).Round(time.Second), p.Peak()>>20)
		p.stop()
		w.judge(history.Rules{})
		w.nobodyCharged()
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
		w.recovered()
		load.wrote(5000, 60*time.Second)
		broker.Stop()
		broker.Start(t)
		load.wrote(1000, 60*time.Second)
		load.stop()
		w.settled(60 * time.Second)
		p.stop()
		// A killed broker's last answer is unknown, and found out: the
		// producer's sequence tells whether the batch had landed.
		w.judge(history.Rules{})
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
		p = w.run()
		w.recovered()
		load.stop()
		w.settled(30 * time.Second)
		p.stop()
		w.judge(history.Rules{Duplicates: 2 * window})
	})
}

// mustCount is counts, now.
func (w *world) mustCount() map[history.Status]int {
	w.t.Helper()
	counts, err := w.counts()
	if err != nil {
		w.t.Fatal(err)
	}
	return counts
}

// sentBeyond waits until more than so many rows are SENT.
func (w *world) sentBeyond(before int, within time.Duration) {
	w.t.Helper()
	harness.Eventually(w.t, within, func() error {
		counts, err := w.counts()
		if n := counts[history.Sent]; err == nil && n <= before {
			err = fmt.Errorf("%d rows are SENT, as before", n)
		}
		return err
	})
}

// nobodyCharged expects that no row has used up an attempt.
func (w *world) nobodyCharged() {
	w.t.Helper()
	if n := harness.One[int](w.t, w.db, `SELECT count(*) FROM outbox WHERE attempts > 0`); n > 0 {
		w.t.Errorf("the outage was charged to %d rows", n)
	}
}

// waitUntil waits for a moment: an outage has a length.
func waitUntil(t *testing.T, moment time.Time) {
	select {
	case <-time.After(time.Until(moment)):
	case <-t.Context().Done():
	}
}
