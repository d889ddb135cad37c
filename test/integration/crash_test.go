package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/failpoint"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// window is how many rows are in flight at most in the crash tests.
const window = 1000

func at(name string, hit int) string { return fmt.Sprintf("OUTBOX_FAILPOINT=%s:%d", name, hit) }

// crash runs the program until the failpoint kills it, and looks at what is
// there at that moment.
func (w *world) crash(name string, hit int, rules history.Rules) {
	w.t.Helper()
	began := time.Now()
	p := w.run(at(name, hit))
	p.killed(60 * time.Second)
	w.t.Logf("hit %d of %s came after %v", hit, name, time.Since(began).Round(time.Millisecond))
	rules.Unfinished = true
	w.judge(rules)
	if w.t.Failed() {
		w.t.Fatalf("after a kill at hit %d of %s", hit, name)
	}
}

// kill -9 on the way of a row, at different moments, under load. What is there
// after each kill is looked at, and at the end everything has arrived.
func TestKillsOnTheHotPath(t *testing.T) {
	w := newWorld(t, surroundings{partitions: 3, quick: true})
	w.small()
	load := w.write(steady())
	kills := 0
	for _, name := range []string{
		failpoint.AfterDecode, failpoint.BeforeProduce, failpoint.AfterProduce, failpoint.AfterAck,
		failpoint.BeforeMark, failpoint.AfterMark, failpoint.BeforeConfirm,
	} {
		for _, hit := range scaled([]int{1, 7}, []int{1, 2, 3, 7, 20, 50}) {
			kills++
			w.crash(name, hit, history.Rules{Duplicates: kills * window})
		}
	}
	load.stop()
	p := w.run().streaming()
	w.settled(30 * time.Second)
	p.stop()
	h := w.judge(history.Rules{Duplicates: kills * window})
	t.Logf("%d kills, %d rows, %d duplicates", kills, len(h.Inserts), duplicates(h))
}

// Each place of a row's way hangs for longer than wal_sender_timeout, once, under
// load. Nothing ends because of it: the replication connection stays, nothing is
// published twice, and all goes on.
func TestDelaysOnTheHotPath(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{partitions: 3})
	load := w.write(steady())
	for _, name := range scaled(
		[]string{failpoint.AfterDecode, failpoint.AfterProduce, failpoint.BeforeMark},
		[]string{failpoint.AfterDecode, failpoint.BeforeProduce, failpoint.AfterProduce, failpoint.AfterAck, failpoint.BeforeMark, failpoint.AfterMark, failpoint.BeforeConfirm},
	) {
		p := w.run(at(name, 5) + ":4s").streaming()
		hung := time.Now()
		load.wrote(100, 30*time.Second)
		waitUntil(t, hung.Add(5*time.Second))
		w.becomes(w.insertNow(w.topic, "after", 1, 10)[0], history.Sent, 20*time.Second)
		if n := p.logged("replication connection ended"); n > 0 && name != failpoint.BeforeConfirm {
			t.Errorf("%s hung, and the replication connection ended %d times", name, n)
		}
		p.stop()
	}
	load.stop()
	p := w.run().streaming()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}

// kill -9 while keys are parked and handed back: a record that the topic
// refuses parks its key, and the rows behind it must not pass it by a restart.
func TestKillsWhileKeysAreParked(t *testing.T) {
	w := newWorld(t, surroundings{noTopic: true})
	w.refusing(20_000)
	w.small()
	w.table["status"] = fields{"max_attempts": 2}
	rules := history.Rules{MayFail: refused}
	load := w.write(steady())
	stopTrouble := w.trouble()
	kills := 0
	for _, name := range []string{failpoint.BeforeParkWrite, failpoint.AfterParkWrite, failpoint.InHandback, failpoint.AfterMark} {
		for _, hit := range scaled([]int{1, 4}, []int{1, 2, 3, 5, 8}) {
			kills++
			rules.Duplicates = kills * window
			w.crash(name, hit, rules)
		}
	}
	stopTrouble()
	load.stop()
	p := w.run().streaming()
	w.settled(60 * time.Second)
	p.stop()
	h := w.judge(rules)
	t.Logf("%d kills, %d rows, %d duplicates", kills, len(h.Inserts), duplicates(h))
}

// refusing makes the world's topic one that refuses large records.
func (w *world) refusing(limit int) {
	w.topic = "refusing." + w.db.Name
	w.kafka.CreateTopic(w.t, w.topic, 2, map[string]string{"max.message.bytes": fmt.Sprint(limit)})
}

// tooLarge is the padding of a row that such a topic refuses.
const tooLarge = 30_000

func refused(in history.Insert) bool { return in.Refused }

// trouble inserts a refused row among the good ones of a key, now and then.
func (w *world) trouble() (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	pool := w.db.Pool(w.t)
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			key := fmt.Sprintf("k%d", i%6)
			rows, err := w.insert(w.t.Context(), pool, w.topic, &key, 1, tooLarge)
			if err != nil && w.t.Context().Err() == nil {
				w.t.Errorf("inserting a row too large: %v", err)
			}
			for i := range rows {
				rows[i].Outcome, rows[i].Refused = history.Committed, true
			}
			w.log.Add(rows...)
			select {
			case <-time.After(200 * time.Millisecond):
			case <-done:
				return
			}
		}
	}()
	return func() { close(done); <-ended }
}

// kill -9 while the slot is made anew.
func TestKillsWhileTheSlotIsMade(t *testing.T) {
	w := newWorld(t, surroundings{partitions: 3})
	w.small()
	load := w.write(steady())
	kills := 0
	w.run().streaming().Kill()
	for _, name := range []string{failpoint.BeforeParkWrite, failpoint.BeforeSlot, failpoint.AfterSlot, failpoint.InHandback, failpoint.ModeChange} {
		load.wrote(50, 30*time.Second)
		w.dropSlot()
		kills++
		w.crash(name, 1, history.Rules{Duplicates: kills * window})
	}
	w.dropSlot()
	kills++
	w.crash(failpoint.ModeChange, 2, history.Rules{Duplicates: kills * window}) // from sweep to stream
	load.stop()
	p := w.run().streaming()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{Duplicates: kills * window})
}

// dropSlot takes the slot away, as an operator or a failover does.
func (w *world) dropSlot() {
	w.t.Helper()
	slot := fmt.Sprint(w.stream["slot"])
	harness.Eventually(w.t, 10*time.Second, func() error {
		_, err := harness.TryOne[bool](w.t.Context(), w.db, `SELECT count(pg_terminate_backend(active_pid)) >= 0 FROM pg_replication_slots WHERE slot_name = $1`, slot)
		if err != nil {
			return err
		}
		_, err = harness.TryOne[bool](w.t.Context(), w.db, `SELECT count(pg_drop_replication_slot(slot_name)) >= 0 FROM pg_replication_slots WHERE slot_name = $1`, slot)
		return err
	})
}

// small bounds what is in flight, and so the duplicates that a kill can make.
func (w *world) small() {
	w.stream["memory"] = fields{"rows": window}
	w.stream["sweep"] = fields{"page_rows": window / 5}
}
