package integration

import (
	"errors"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// The hot path: writers at work, each row in the topic, in order, once, SENT.
func TestRowsReachTheTopic(t *testing.T) {
	w := newWorld(t, surroundings{partitions: 3, quick: true})
	p := w.run().streaming()
	w.writeRows(steady(), scaled(3000, 100_000))
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}

// Clean stops under load: each starts where the last one ended, and nothing is
// published twice.
func TestCleanRestartsUnderLoadMakeNoDuplicates(t *testing.T) {
	w := newWorld(t, surroundings{partitions: 3, quick: true})
	load := w.write(steady())
	for range scaled(4, 30) {
		p := w.run().streaming()
		load.wrote(300, 30*time.Second)
		p.stop()
	}
	load.stop()
	p := w.run().streaming()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
	if w.kafka.Real { // the first leader fences, the others inherit
		end, err := w.kafka.End(t.Context(), w.topic)
		if markers := int(end) - w.kafka.Count(t, w.topic); err != nil || markers != 3 {
			t.Errorf("%d markers in 3 partitions: %v", markers, err)
		}
	}
}

// Clean restarts of an idle stream write nothing into its topics: no record, and no marker, also where partitions have
// no rows. Exactly once each start seals the journal and the topics, which writes markers, and no record.
func TestCleanRestartsOfAnIdleStreamWriteNothing(t *testing.T) {
	for name, rows := range map[string]int{"at least once": 200, "without rows": 0, "exactly once": 200} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			once := name == "exactly once"
			w := newWorld(t, surroundings{partitions: 3, noInit: once})
			if !w.kafka.Real {
				t.Skip("it takes a real Kafka")
			}
			if once {
				w.exactlyOnce()
			}
			w.runOnce()
			if rows > 0 {
				p := w.run().streaming()
				w.writeRows(steady(), rows)
				w.settled(30 * time.Second)
				p.stop()
			}
			before, err := w.kafka.End(t.Context(), w.topic)
			if err != nil {
				t.Fatal(err)
			}
			records := w.kafka.Count(t, w.topic)
			for i := range scaled(3, 20) {
				p := w.run().streaming()
				harness.Eventually(t, 30*time.Second, func() error { // a leader that does not know the epoch that it got leaves nothing
					if p.logged("the Kafka cluster can be used") == 0 {
						return errors.New("the Kafka cluster is not used yet")
					}
					return nil
				})
				p.stop()
				end, err := w.kafka.End(t.Context(), w.topic)
				if err != nil {
					t.Fatal(err)
				}
				if !once && end != before {
					t.Errorf("restart %d: %d offsets were taken in the topic", i, end-before)
				}
				before = end
			}
			if n := w.kafka.Count(t, w.topic); n != records {
				t.Errorf("%d records, then %d", records, n)
			}
			p := w.run().streaming() // whose leader inherits from those that met no topic
			w.writeRows(steady(), 50)
			w.settled(30 * time.Second)
			p.stop()
			end, err := w.kafka.End(t.Context(), w.topic)
			if taken := int(end-before) - (w.kafka.Count(t, w.topic) - records); err != nil || rows > 0 && !once && taken != 0 {
				t.Errorf("%d offsets were taken by something else than rows: %v", taken, err)
			}
			w.judge(history.Rules{})
		})
	}
}
