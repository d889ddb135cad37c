package integration

import (
	"testing"
	"time"

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
