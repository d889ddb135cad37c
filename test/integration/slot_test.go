package integration

import (
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// The slot is dropped under load, more than once: the program sweeps, makes a
// new one and takes the stream up again, by itself and in order.
func TestALostSlotLosesNothing(t *testing.T) {
	w := newWorld(t, surroundings{partitions: 3})
	p := w.run().streaming()
	load := w.write(steady())
	for range scaled(2, 10) {
		load.wrote(200, 30*time.Second)
		w.dropSlot()
		p.awaitLog(20*time.Second, "made the slot")
		p.awaitLog(20*time.Second, "handed back to the stream", "stream")
	}
	load.wrote(200, 30*time.Second)
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}
