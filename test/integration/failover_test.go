package integration

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// patient returns a load whose applications tolerate errors of the database.
func patient() load {
	l := steady()
	l.patient = true
	return l
}

// takeBack finds rows, of those written from the given one on, that a failover
// or a restored backup took from the table.
func (w *world) takeBack(from int) (n int) {
	w.t.Helper()
	there := map[string]bool{}
	err := w.query(`SELECT split_part(convert_from(`+w.layout.payload+`, 'UTF8'), '|', 1) FROM `+w.tableName(), func(rows pgx.Rows) error {
		var ref string
		err := rows.Scan(&ref)
		there[ref] = true
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return w.log.TakeBack(from, func(ref string) bool { return there[ref] })
}

// A failover to a standby that has everything that was acknowledged to
// applications, and not the slot: the program finds the new primary by itself,
// sweeps, re-creates the slot and takes the stream up again.
func TestAFailoverWithoutTheSlot(t *testing.T) {
	t.Parallel() // it mostly waits
	pair := harness.PrivatePair(t, nil)
	pair.Synchronous(t)
	w := newWorld(t, surroundings{db: pair.Either, partitions: 2})
	w.small()
	w.serve()
	p := w.run().streaming()
	writers := w.write(patient())
	writers.wrote(200, 30*time.Second)
	from := len(w.log.Inserts())
	pair.FailOver(t)
	began := time.Now()
	w.recovered()
	p.Await(30*time.Second, "parked", "stream", "does not exist")
	p.Await(30*time.Second, "made the slot")
	p.Await(30*time.Second, "handed back to the stream", "stream")
	t.Logf("streaming again %v after the failover", time.Since(began).Round(time.Millisecond))
	writers.wrote(200, 30*time.Second)
	writers.stop()
	w.settled(30 * time.Second)
	if n := p.metric("outbox_cdc_rows_swept_total", `cause="slot"`); n == 0 {
		t.Error("no swept row is counted for the lost slot")
	}
	p.stop()
	for _, in := range w.log.Inserts()[:from] {
		if in.Outcome == history.Unknown {
			t.Errorf("the outcome of %s is unknown before the failover", in.Ref)
		}
	}
	committed := w.log.Count(history.Committed)
	w.takeBack(from)
	if lost := committed - w.log.Count(history.Committed); lost > 0 {
		t.Errorf("%d rows of acknowledged transactions are lost", lost)
	}
	w.judge(history.Rules{Duplicates: window})
}

// A failover to a standby that was cut off, in an outage of the broker: it takes
// transactions back, whose events are in the topic or still in memory, and the
// numbers that sequences had given out come again. Every row that the new
// primary has is delivered, in order, and none is taken for another one.
func TestAFailoverThatTakesTransactionsBack(t *testing.T) {
	t.Parallel() // it mostly waits
	pair := harness.PrivatePair(t, nil)
	k := harness.KfakeProxied(t)
	w := newWorld(t, surroundings{db: pair.Either, kafka: k})
	w.small()
	p := w.run().streaming()
	writers := w.write(patient())
	writers.wrote(200, 30*time.Second)
	from := len(w.log.Inserts()) // before the standby has them all
	pair.CaughtUp(t)
	pair.Link.Refuse()
	writers.wrote(200, 60*time.Second)
	k.Cut()
	writers.wrote(scaled(200, 1000), 60*time.Second)
	pair.FailOver(t)
	p.Await(30*time.Second, "a failover or a restored backup has replaced the database")
	writers.wrote(scaled(600, 3000), 60*time.Second)
	k.Restore(t)
	w.recovered()
	p.Await(30*time.Second, "handed back to the stream", "stream")
	writers.wrote(100, 60*time.Second)
	writers.stop()
	w.settled(30 * time.Second)
	p.stop()
	lost := w.takeBack(from)
	if lost == 0 {
		t.Error("nothing was taken back: the test is void")
	}
	w.judge(history.Rules{Duplicates: window})
	t.Logf("%d rows taken back", lost)
}

// The same while marks are outstanding: rows that the failover takes back were
// delivered, and the numbers they had are given to others before it is over.
func TestMarksOutstandingInAFailover(t *testing.T) {
	t.Parallel() // it mostly waits
	pair := harness.PrivatePair(t, nil)
	w := newWorld(t, surroundings{db: pair.Either})
	w.small()
	p := w.run().streaming()
	writers := w.write(patient())
	writers.wrote(200, 30*time.Second)
	from := len(w.log.Inserts()) // before the standby has them all
	pair.CaughtUp(t)
	pair.Link.Refuse()
	pair.Primary.Exec(t, `CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN NULL; END $$;
		CREATE TRIGGER wait BEFORE UPDATE ON outbox FOR EACH STATEMENT EXECUTE FUNCTION wait()`)
	writers.wrote(300, 60*time.Second)
	pair.FailOver(t)
	w.recovered()
	p.Await(30*time.Second, "a failover or a restored backup has replaced the database")
	p.Await(30*time.Second, "handed back to the stream", "stream")
	writers.wrote(scaled(600, 3000), 60*time.Second)
	writers.stop()
	w.settled(30 * time.Second)
	p.stop()
	lost := w.takeBack(from)
	if lost == 0 {
		t.Error("nothing was taken back: the test is void")
	}
	w.judge(history.Rules{Duplicates: window})
	t.Logf("%d rows taken back", lost)
}

// With a failover slot the stream goes on at the new primary as if nothing had
// happened: no sweep, no new slot, and since the server keeps events from
// overtaking the standby, nothing is delivered that the failover takes back.
func TestAFailoverWithASynchronisedSlot(t *testing.T) {
	t.Run("at least once", func(t *testing.T) { failoverWithASlot(t, false) })
	t.Run("exactly once", func(t *testing.T) {
		onlyLong(t)
		failoverWithASlot(t, true)
	})
}

func failoverWithASlot(t *testing.T, once bool) {
	t.Parallel() // it mostly waits
	atLeast(t, 17)
	pair, duplicates := harness.PrivatePair(t, map[string]string{"sync_replication_slots": "on"}), window
	w := newWorld(t, surroundings{db: pair.Either, partitions: 2, noInit: once})
	if w.pair = pair; once {
		w.exactlyOnce()
		duplicates = 0
	}
	w.pair.Primary.Exec(t, `ALTER SYSTEM SET synchronized_standby_slots = 'standby'`) // the standby has no standby
	w.pair.Primary.Exec(t, `SELECT pg_reload_conf()`)
	w.stream["failover_slot"] = true
	w.dropSlot() // init made it without
	w.small()
	p := w.run()
	p.Await(30*time.Second, "made the slot")
	p.Await(30*time.Second, "handed back to the stream", "stream")
	writers := w.write(patient())
	writers.wrote(200, 30*time.Second)
	harness.Eventually(t, 60*time.Second, func() error {
		w.pair.Primary.Exec(t, `SELECT pg_log_standby_snapshot()`)
		ready, err := harness.TryOne[bool](t.Context(), w.pair.Standby, `SELECT coalesce(bool_or(synced AND NOT temporary), false) FROM pg_replication_slots WHERE slot_type = 'logical'`)
		if err == nil && !ready {
			err = errors.New("the slot is not carried along yet")
		}
		return err
	})
	writers.wrote(200, 30*time.Second)
	from := len(w.log.Inserts())
	w.pair.FailOver(t)
	w.recovered()
	p.Await(30*time.Second, `"message":"streaming"`)
	writers.wrote(200, 30*time.Second)
	writers.stop()
	w.settled(30 * time.Second)
	p.stop()
	if n := p.logged("made the slot"); n != 1 {
		t.Errorf("the slot was made %d times", n)
	}
	w.takeBack(from)
	h := w.judge(history.Rules{Duplicates: duplicates})
	for _, in := range h.Inserts {
		for _, r := range h.Records {
			if in.Outcome == history.TakenBack && r.Ref == in.Ref {
				t.Errorf("row %s was delivered and taken back", in.Ref)
			}
		}
	}
}

// atLeast skips a test of what came with a later version of PostgreSQL.
func atLeast(t *testing.T, version int) {
	t.Helper()
	if major := harness.Postgres(t).Major(t); major < version {
		t.Skipf("PostgreSQL %d has not got it: OUTBOX_TEST_POSTGRES=%d", major, version)
	}
}

// The database is restored from an older copy under the running program: once
// with the slot as it was in the copy, once with the slot of later days, which
// stands in the future of what was restored. What the copy has PENDING is
// delivered, and so is everything that comes.
func TestARestoredBackup(t *testing.T) {
	t.Parallel() // it mostly waits
	db := harness.PrivatePostgres(t, localpg.Options{})
	w := newWorld(t, surroundings{db: db, partitions: 2})
	w.small()
	p := w.run().streaming()
	for round, restore := range []func(old, late string){
		func(old, _ string) { harness.Restore(t, db.Server, old) },
		func(old, late string) {
			harness.Restore(t, db.Server, old)
			harness.RestoreSlots(t, db.Server, late)
		},
	} {
		writers := w.write(patient())
		writers.wrote(200, 30*time.Second)
		w.stopServer()
		old := harness.Backup(t, db.Server)
		from := len(w.log.Inserts())
		w.resumeServer()
		end := harness.One[string](t, db, `SELECT pg_current_wal_lsn()::text`)
		p.streaming()
		writers.wrote(400, 30*time.Second)
		writers.stop()
		// The slot on disk moves with checkpoints.
		harness.Eventually(t, 30*time.Second, func() error {
			db.Exec(t, `CHECKPOINT`)
			later, err := harness.TryOne[bool](t.Context(), db, `SELECT restart_lsn > $1::text::pg_lsn FROM pg_replication_slots`, end)
			if err == nil && !later {
				err = errors.New("the slot has not moved on")
			}
			return err
		})
		w.stopServer()
		restore(old, harness.Backup(t, db.Server))
		w.resumeServer()
		w.recovered()
		if round == 1 {
			p.Await(30*time.Second, "parked", "stream", "but the WAL ends at")
			p.Await(30*time.Second, "made the slot")
			p.Await(30*time.Second, "handed back to the stream", "stream")
		} else {
			p.streaming()
		}
		lost := w.takeBack(from)
		w.writeRows(patient(), 300)
		w.settled(30 * time.Second)
		t.Logf("round %d: %d rows taken back", round, lost)
	}
	p.stop()
	w.judge(history.Rules{Duplicates: 2 * window})
}

func (w *world) stopServer() {
	w.t.Helper()
	if err := w.db.Server.Stop(w.t.Context(), localpg.Fast); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) resumeServer() {
	w.t.Helper()
	if err := w.db.Server.Resume(w.t.Context()); err != nil {
		w.t.Fatal(fmt.Errorf("after the restore: %w", err))
	}
}
