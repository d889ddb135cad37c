package integration

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/failpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// This file is exactly-once delivery of tables that keep no state, next to TestExactlyOnceThroughKills and
// TestExactlyOnceThroughFaults.

// withoutState returns a world with a table without state.
func withoutState(t *testing.T, s surroundings) *world {
	t.Helper()
	l := stateless()
	s.layout, s.noInit = &l, true
	w := newWorld(t, s)
	w.exactlyOnce()
	return w
}

// arrived waits until everything that was committed is in the topic, for a read_committed consumer.
func (w *world) arrived(within time.Duration) {
	w.t.Helper()
	harness.Eventually(w.t, within, func() error {
		inserts := w.log.Inserts()
		records, err := w.kafka.TryCommitted(w.t.Context(), w.topic, 10*time.Second)
		if err != nil {
			return err
		}
		there := map[string]bool{}
		for _, r := range records {
			ref, _, _, _ := history.ParseValue(r.Value)
			there[ref] = true
		}
		missing := 0
		for i := range inserts {
			if inserts[i].Outcome == history.Committed && !there[inserts[i].Ref] {
				missing++
			}
		}
		if missing > 0 {
			return fmt.Errorf("%d rows are not in the topic, %d are", missing, len(there))
		}
		return nil
	})
}

// sigkill ends the process at any moment.
func (p *process) sigkill() {
	p.Signal(syscall.SIGKILL)
	p.Ended(30 * time.Second)
}

// A kill leaves rows published that no position covers: another mode is refused until a clean stop, after which the
// mode may change, there and back, and the position goes on to count.
func TestExactlyOnceWithoutStateChangesOfMode(t *testing.T) {
	t.Parallel() // it mostly waits
	w := withoutState(t, surroundings{partitions: 3})
	w.small()
	delivery := func(mode string) { w.stream["delivery"] = mode }
	refused := func(why string) {
		t.Helper()
		p := w.run()
		p.Await(60*time.Second, "the stream does not work", why, `"needs_a_person":true`)
		p.stop()
	}
	load := w.write(steady())
	w.run(at(failpoint.AfterAck, 3)).killed(60 * time.Second)
	load.stop()
	w.checked("nobody leads: the stream was killed")
	delivery("at_least_once")
	refused("did not stop cleanly")
	delivery("exactly_once")
	w.table["payload"] = fields{"column": "body", "empty_tombstone": true}
	refused("published with another mapping")
	w.table["payload"] = fields{"column": "body"}
	w.table["published"], w.table["order"] = "delete", []string{"id"}
	refused("published with another mapping")
	delete(w.table, "order")
	w.table["published"] = "none"
	w.stopsWithoutKafka() // the journal is not read then, so the tally stays open
	delivery("at_least_once")
	refused("did not stop cleanly")
	for _, mode := range []string{"exactly_once", "at_least_once", "exactly_once", "exactly_once"} {
		delivery(mode)
		p := w.run()
		w.writeRows(steady(), 50)
		w.arrived(60 * time.Second)
		p.stop()
		if mode == "exactly_once" && !harness.One[bool](t, w.db, `SELECT closed AND lsn > '0/0' FROM outbox_cdc.tally`) {
			t.Error("the tally is open after a clean stop, or has no position")
		}
	}
	w.checked("closed: all that was published is marked")
	w.judge(history.Rules{})
}

// A crash of the server takes the slot back to where it was saved last: what comes again is not published again, though
// a clean stop came in between, after which the journal does not say so any more.
func TestExactlyOnceWithoutStateThroughAServerCrash(t *testing.T) {
	t.Parallel() // it mostly waits
	db := harness.PrivatePostgres(t, localpg.Options{Settings: map[string]string{"checkpoint_timeout": "1h"}})
	w := withoutState(t, surroundings{db: db, partitions: 3})
	w.small()
	w.writeRows(steady(), 50)
	for range scaled(1, 4) {
		w.stopServer()
		saved := harness.Backup(t, db.Server)
		w.resumeServer()
		before := harness.One[string](t, db, `SELECT confirmed_flush_lsn::text FROM pg_replication_slots`)
		load := w.write(patient())
		p := w.run().streaming()
		load.wrote(300, 30*time.Second)
		w.recovered()
		p.stop()
		p = w.run().streaming()
		load.wrote(100, 30*time.Second)
		w.recovered()
		db.Server.Kill()
		harness.RestoreSlots(t, db.Server, saved)
		w.resumeServer()
		load.wrote(100, 30*time.Second)
		w.recovered()
		load.stop()
		w.arrived(30 * time.Second)
		p.stop()
		t.Logf("the slot went back to %s", before)
	}
	w.judge(history.Rules{})
}

// A restart of a server before version 17 takes the slot back, too. A stream stops cleanly with delivery:
// at_least_once, and goes on with exactly_once: it publishes no row again that the clean stop had confirmed.
func TestExactlyOnceWithoutStateAfterAStopAndARestart(t *testing.T) {
	t.Parallel() // it mostly waits
	db := harness.PrivatePostgres(t, localpg.Options{Settings: map[string]string{"checkpoint_timeout": "1h"}})
	w := withoutState(t, surroundings{db: db, partitions: 3})
	w.writeRows(steady(), 50)
	w.stopServer()
	saved := harness.Backup(t, db.Server)
	w.resumeServer()
	w.stream["delivery"] = "at_least_once"
	p := w.run().streaming()
	w.writeRows(steady(), 50)
	w.arrived(30 * time.Second)
	p.stop()
	db.Server.Kill()
	harness.RestoreSlots(t, db.Server, saved)
	w.resumeServer()
	w.stream["delivery"] = "exactly_once"
	p = w.run().streaming()
	w.writeRows(steady(), 50)
	w.arrived(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}

// The slot is gone after a kill: what was in it is lost, and said to be, and what comes from then on is published
// once, whatever the position of before was.
func TestExactlyOnceWithoutStateOnANewSlot(t *testing.T) {
	t.Parallel() // it mostly waits
	w := withoutState(t, surroundings{partitions: 3})
	p := w.run().streaming()
	w.writeRows(steady(), 100)
	w.arrived(30 * time.Second)
	p.sigkill()
	w.dropSlot()
	p = w.run()
	p.Await(60*time.Second, "rows may be lost")
	p.streaming()
	w.writeRows(steady(), 100)
	w.arrived(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}

// A refused row waits, and the rows of its key behind it, through kills, while others are published. When the topic
// takes it, all come in order, each once.
func TestExactlyOnceWithoutStateWaitsForARefusedRow(t *testing.T) {
	t.Parallel() // it mostly waits
	w := withoutState(t, surroundings{noTopic: true})
	w.refusing(20_000)
	w.small()
	load := w.write(steady())
	p := w.run().streaming()
	load.wrote(50, 30*time.Second)
	w.insertNow(w.topic, "k", 2, 10)
	w.insertRefused("k")
	w.insertNow(w.topic, "k", 2, 10)
	for range scaled(1, 5) {
		p.Await(60*time.Second, "the stream waits for a refused row")
		load.wrote(100, 30*time.Second)
		p.sigkill()
		p = w.run()
	}
	p.Await(60*time.Second, "the stream waits for a refused row")
	w.kafka.ConfigureTopic(t, w.topic, map[string]string{"max.message.bytes": "1000000"})
	w.recovered()
	load.stop()
	w.arrived(60 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}

// With a failover slot the stream goes on at the new primary, also when it was killed in between: the tally is
// there, and its position and the journal's names hold. Where the standby was behind, transactions are taken back, and
// what comes at their positions is published.
func TestExactlyOnceWithoutStateThroughAFailover(t *testing.T) {
	for name, behind := range map[string]bool{"all is there": false, "transactions are taken back": true} {
		t.Run(name, func(t *testing.T) { withoutStateThroughAFailover(t, behind) })
	}
}

func withoutStateThroughAFailover(t *testing.T, behind bool) {
	onlyLong(t)
	t.Parallel() // it mostly waits
	atLeast(t, 17)
	pair := harness.PrivatePair(t, map[string]string{"sync_replication_slots": "on"})
	w := withoutState(t, surroundings{db: pair.Either, partitions: 3})
	if !behind {
		pair.Primary.Exec(t, `ALTER SYSTEM SET synchronized_standby_slots = 'standby'`) // the standby has no standby
		pair.Primary.Exec(t, `SELECT pg_reload_conf()`)
	}
	w.stream["failover_slot"] = true
	w.dropSlot() // init made it without
	w.small()
	p := w.run().streaming()
	writers := w.write(patient())
	writers.wrote(200, 30*time.Second)
	harness.Eventually(t, 60*time.Second, func() error {
		pair.Primary.Exec(t, `SELECT pg_log_standby_snapshot()`)
		ready, err := harness.TryOne[bool](t.Context(), pair.Standby, `SELECT coalesce(bool_or(synced AND NOT temporary), false) FROM pg_replication_slots WHERE slot_type = 'logical'`)
		if err == nil && !ready {
			err = errors.New("the slot is not carried along yet")
		}
		return err
	})
	writers.wrote(200, 30*time.Second)
	from := len(w.log.Inserts())
	p.sigkill()
	writers.wrote(100, 30*time.Second)
	p = w.run().streaming()
	writers.wrote(200, 30*time.Second)
	if behind {
		pair.CaughtUp(t)
		pair.Link.Refuse()
		writers.wrote(300, 60*time.Second)
		w.recovered() // that is published, and so is what is taken back
	}
	pair.FailOver(t)
	writers.wrote(scaled(400, 1500), 60*time.Second)
	writers.stop()
	if lost := w.takeBack(from); behind && lost == 0 {
		t.Error("nothing was taken back: the test is void")
	}
	w.arrived(60 * time.Second)
	p.stop()
	if n := p.logged("made the slot"); n != 0 {
		t.Errorf("the slot was made %d times", n)
	}
	w.judge(history.Rules{})
}
