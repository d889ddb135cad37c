package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/failpoint"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// window is how many rows are in flight at most in the crash tests: memory.rows, and what is read at once.
const window = 1400

// hotPath are the places on the way of a row, of each row.
var hotPath = []string{
	failpoint.AfterDecode, failpoint.BeforeProduce, failpoint.AfterProduce, failpoint.AfterAck,
	failpoint.BeforeMark, failpoint.AfterMark, failpoint.BeforeConfirm,
}

func at(name string, hit int) string { return fmt.Sprintf("OUTBOX_FAILPOINT=%s:%d", name, hit) }

// fails arms each of these places with errors, at these hits.
func fails(hits []int, names ...string) (env string, errors int) {
	var all []string
	for _, name := range names {
		for _, hit := range hits {
			all = append(all, fmt.Sprintf("%s:%d:error", name, hit))
		}
	}
	return "OUTBOX_FAILPOINT=" + strings.Join(all, ","), len(all)
}

// met counts the errors that the process has had from failpoints.
func (p *process) met() int { return p.logged("failpoint ", ", hit ") }

// meets waits until it has had that many.
func (p *process) meets(errors int) {
	p.t.Helper()
	harness.Eventually(p.t, 60*time.Second, func() error {
		if n := p.met(); n < errors {
			return fmt.Errorf("%d of %d errors were met", n, errors)
		}
		return nil
	})
}

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
	for _, name := range hotPath {
		for _, hit := range scaled([]int{1, 7}, []int{1, 2, 3, 7, 20, 50}) {
			kills++
			w.crash(name, hit, history.Rules{Duplicates: kills * window})
		}
	}
	p := w.run()
	w.recovered()
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{Duplicates: kills * window})
	t.Logf("%d kills", kills)
}

// Each place of a row's way has errors, under load: of the WAL's connection, of
// the broker's, of the write-back's, before and after what they carry has arrived.
// One process meets them all and goes on by itself. What became of each request
// and each COMMIT is found out, so nothing is published twice.
func TestErrorsOnTheHotPath(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{partitions: 3})
	load := w.write(steady())
	env, errors := fails(scaled([]int{2, 9}, []int{1, 2, 3, 7, 20, 50}), hotPath...)
	p := w.run(env)
	p.meets(errors)
	w.recovered()
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
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
		hotPath,
	) {
		p := w.run(at(name, 5) + ":4s").streaming()
		hung := time.Now()
		load.wrote(100, 30*time.Second)
		waitUntil(t, hung.Add(5*time.Second))
		w.recovered()
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
	p := w.run()
	w.recovered()
	stopTrouble()
	load.stop()
	w.settled(60 * time.Second)
	p.stop()
	w.judge(rules)
	t.Logf("%d kills", kills)
}

// Errors while keys are parked, handed back and their rows charged: writing the
// parks fails, or succeeds and does not say so; the hand-back's question and the
// write-back's COMMIT likewise. The process goes on by itself, no row passes a
// parked one, and nothing is published twice.
func TestErrorsWhileKeysAreParked(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{noTopic: true})
	w.refusing(20_000)
	w.table["status"] = fields{"max_attempts": 2}
	load := w.write(steady())
	stopTrouble := w.trouble()
	env, errors := fails(scaled([]int{1, 4}, []int{1, 2, 3, 5, 8}),
		failpoint.BeforeParkWrite, failpoint.AfterParkWrite, failpoint.InHandback, failpoint.BeforeMark, failpoint.AfterMark)
	p := w.run(env)
	p.meets(errors)
	w.recovered()
	stopTrouble()
	load.stop()
	w.settled(60 * time.Second)
	p.stop()
	w.judge(history.Rules{MayFail: refused})
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

// kill -9 under load while the slot is re-created: before and after the stream's
// park is written, the slot made, the hand-back's question answered, and at both
// changes of the mode. The next process finds the stream parked, or not, with a
// slot or without, and delivers what the slot never brought, in order.
func TestKillsWhileTheSlotIsMade(t *testing.T) {
	t.Parallel() // it mostly waits
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
	p := w.run()
	w.recovered()
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{Duplicates: kills * window})
}

// The slot is lost under load, again and again, and while it is re-created there
// are errors: the stream's park cannot be written, or is and nobody knows; the
// replication connection is lost before the slot is made, and when it has been;
// the hand-back's answer does not arrive. The process sweeps meanwhile, ends each
// hand-back by itself, and publishes nothing twice.
func TestErrorsWhileTheSlotIsMade(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{partitions: 3})
	load := w.write(steady())
	env, errors := fails(scaled([]int{1, 2}, []int{1, 2, 4, 7}),
		failpoint.BeforeParkWrite, failpoint.AfterParkWrite, failpoint.BeforeSlot, failpoint.AfterSlot, failpoint.InHandback)
	p := w.run(env)
	w.driven(p, errors, func() {
		w.dropSlot()
		w.recovered()
		p.Await(60*time.Second, "handed back to the stream", "stream")
	})
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}

// driven provokes again until the process has met that many errors.
func (w *world) driven(p *process, errors int, provoke func()) {
	w.t.Helper()
	for range 3 + errors {
		provoke()
		if p.met() >= errors {
			return
		}
	}
	w.t.Fatalf("%d of %d errors were met", p.met(), errors)
}

// Killed, and having lost the lead, at each change of the mode under load: from
// standby to streaming, to holding when the broker goes away, back when it is
// there again, to sweeping when the slot is lost, and back. A process that has lost
// the lead takes it again by itself, as a new one does; what was acknowledged and
// not marked is published again, nothing is lost, and the order stays.
func TestFaultsAtChangesOfMode(t *testing.T) {
	t.Parallel() // it mostly waits
	k := harness.KfakeProxied(t)
	w := newWorld(t, surroundings{kafka: k})
	w.small()
	light := steady()
	light.rate = 5 // what a loaded machine sweeps in small pages, too
	load := w.write(light)
	p := w.run()
	p.Await(30*time.Second, "handed back to the stream", "stream")
	p.stop()
	w.crash(failpoint.ModeChange, 1, history.Rules{Duplicates: window})
	p = w.run(at(failpoint.ModeChange, 2)).streaming()
	k.Cut()
	p.killed(60 * time.Second)
	k.Restore(t)
	p = w.run(at(failpoint.ModeChange, 3)).streaming()
	k.Cut()
	p.Await(30*time.Second, "the Kafka cluster cannot be used")
	k.Restore(t)
	p.killed(60 * time.Second)
	env, errors := fails(scaled([]int{1, 3, 5, 7}, []int{1, 2, 4, 5, 7, 9, 10, 12}), failpoint.ModeChange)
	p = w.run(env)
	w.driven(p, errors, func() {
		load.wrote(50, 30*time.Second)
		k.Cut()
		p.Await(60*time.Second, "the Kafka cluster cannot be used")
		k.Restore(t)
		w.recovered()
		w.dropSlot()
		w.recovered()
	})
	load.stop()
	w.settled(60 * time.Second)
	p.stop()
	w.judge(history.Rules{Duplicates: (3 + errors) * window})
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
	w.stream["memory"] = fields{"rows": window * 5 / 7}
	w.stream["sweep"] = fields{"page_rows": window / 7}
}
