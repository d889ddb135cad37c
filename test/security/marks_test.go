package security

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// refusals are what keeps rows with the key 'bad' from being marked, and nobody else.
const refusals = `
	CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;
	CREATE TRIGGER refuse BEFORE UPDATE ON outbox FOR EACH ROW WHEN (OLD.key = 'raised') EXECUTE FUNCTION refuse();
	CREATE FUNCTION talk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION '%', repeat('much', 5000000); END $$;
	CREATE TRIGGER talk BEFORE UPDATE ON outbox FOR EACH ROW WHEN (OLD.key = 'talks') EXECUTE FUNCTION talk();
	CREATE FUNCTION undo() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
	CREATE TRIGGER undo BEFORE UPDATE ON outbox FOR EACH ROW WHEN (OLD.key = 'undone') EXECUTE FUNCTION undo();
	ALTER TABLE outbox ADD CONSTRAINT checked CHECK (key <> 'checked' OR status <> 'SENT');
	CREATE UNIQUE INDEX single ON outbox ((1)) WHERE status = 'SENT' AND key = 'unique'`

// pardon takes them away.
const pardon = `
	DROP TRIGGER refuse ON outbox; DROP TRIGGER talk ON outbox; DROP TRIGGER undo ON outbox;
	ALTER TABLE outbox DROP CONSTRAINT checked; DROP INDEX single`

// Rows that cannot be marked, for whatever reason of their own, are published
// once, and hold up nobody: neither rows of other keys nor those of their own, nor a
// stop, nor a start. They are marked as soon as the reason is gone.
func TestRowsThatCannotBeMarkedHoldUpNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.db.Exec(t, refusals)
	p := w.run()
	const each = 6
	keys := []string{"raised", "undone", "checked", "unique"}
	for _, key := range keys {
		w.insertRows(key, each)
	}
	w.insertRows("talks", 1)
	// Rows that can be no record, and whose attempts cannot be counted any further, or begin far below zero.
	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload, headers, attempts) VALUES ($1, 'greatest', '', '{"a": []}', 2147483647), ($1, 'least', '', '{"a": []}', -2147483648)`, w.topic)
	good := 100
	w.insertRows("good", good)
	w.allSent("good", good)
	p.Await(20*time.Second, "parked", "write_back") // of many reasons the log has the first ones
	w.awaitCount(`SELECT count(*) FROM outbox_cdc.park WHERE reason LIKE '%not this one%'`, each)
	w.awaitCount(`SELECT count(*) FROM outbox WHERE key IN ('greatest', 'least') AND status = 'FAILED'`, 2)
	published := len(keys)*each + 1 + good
	w.kafka.AwaitRecords(t, w.topic, published, 20*time.Second)
	w.awaitCount(`SELECT count(*) FROM outbox_cdc.park WHERE kind = 'row' AND cause = 'write_back'`, len(keys)*each) // all, but for one of 'unique'
	w.awaitCount(`SELECT count(*) FROM outbox_cdc.park WHERE reason LIKE '%muchmuch%' AND length(reason) < 2000`, 1)
	if got := p.Peak() >> 20; got > peakMiB {
		t.Errorf("the process took %d MiB", got)
	}
	if list := w.must("pending", "list", "--stream", "s", "--key", "raised"); strings.Count(list, "published, cannot be marked: ERROR: not this one") != each {
		t.Errorf("the reason is not listed:\n%s", list)
	}

	w.stopped(p)
	p = w.run()
	w.insertRows("good", good)
	w.allSent("good", 2*good)
	published += good
	w.db.Exec(t, pardon)
	w.awaitCount(`SELECT count(*) FROM outbox WHERE status = 'PENDING'`, 0)
	w.awaitCount(`SELECT count(*) FROM outbox_cdc.park`, 0)
	w.stopped(p)
	if n := len(w.kafka.Records(t, w.topic)); n != published {
		t.Errorf("%d records of %d rows", n, published)
	}
}

// A mark that comes late, after the application has deleted the row and inserted
// another with its id, does not make that one SENT.
func TestALateMarkMissesARowWithTheSameID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.db.Exec(t, `CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(4711); RETURN NEW; END $$;
		CREATE TRIGGER wait BEFORE UPDATE ON outbox FOR EACH ROW WHEN (OLD.key = 'late') EXECUTE FUNCTION wait()`)
	lock := w.db.Conn(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := lock.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`SELECT pg_advisory_lock(4711)`)
	p := w.run()
	w.insertRows("late", 1)
	w.kafka.AwaitRecords(t, w.topic, 1, 20*time.Second)
	id := harness.One[int64](t, w.db, `DELETE FROM outbox WHERE key = 'late' RETURNING id`)
	w.db.Exec(t, `INSERT INTO outbox (id, topic, key, payload, available_after) OVERRIDING SYSTEM VALUE
		VALUES ($1, $2, 'late', 'second', now() + interval '7 s')`, id, w.topic)
	exec(`SELECT pg_advisory_unlock(4711)`)
	w.allSent("late", 1)
	w.kafka.AwaitRecords(t, w.topic, 2, 20*time.Second)
	w.stopped(p)
}

// Times at the ends of the calendar stop neither a stream nor its gauges.
func TestTimesAtTheEndsOfTheCalendar(t *testing.T) {
	w := newWorld(t)
	for _, end := range []string{"-infinity", "4713-01-01 BC", "294246-12-31", "294247-06-01", "294276-12-31 23:59:59+00", "infinity"} {
		for _, columns := range []string{"$2::timestamptz, now()", "now(), $2::timestamptz"} {
			w.db.Exec(t, `INSERT INTO outbox (topic, key, payload, created_at, available_after) SELECT $1, 'end', '', x.a, x.b
				FROM (SELECT `+columns+`) AS x(a, b)`, w.topic, end)
		}
	}
	p := w.run()
	w.insertRows("good", 50)
	w.allSent("good", 50)
	w.awaitCount(`SELECT count(*) FROM outbox WHERE key = 'end' AND status = 'SENT'`, 6+2)
	time.Sleep(2 * time.Second) // several rounds of the watch
	for _, text := range []string{"could not count", "write_back"} {
		if said := p.Said(text); len(said) > 0 {
			t.Errorf("%d lines, the first: %s", len(said), said[0])
		}
	}
	w.must("pending", "list", "--stream", "s")
	w.stopped(p)
}

func (w *world) insertRows(key string, n int) {
	w.t.Helper()
	w.db.Exec(w.t, `INSERT INTO outbox (topic, key, payload) SELECT $1, $2, convert_to(n::text, 'UTF8') FROM generate_series(1, $3::int) n`, w.topic, key, n)
}

// allSent waits until n rows of the key are.
func (w *world) allSent(key string, n int) {
	w.t.Helper()
	w.awaitCount(fmt.Sprintf(`SELECT count(*) FROM outbox WHERE key = '%s' AND status = 'SENT'`, key), n)
}

// awaitCount waits for a number in the database.
func (w *world) awaitCount(sql string, want int) {
	w.t.Helper()
	w.awaitWithin(30*time.Second, sql, want)
}

func (w *world) awaitWithin(limit time.Duration, sql string, want int) {
	w.t.Helper()
	harness.Eventually(w.t, limit, func() error {
		got, err := harness.TryOne[int](context.WithoutCancel(w.t.Context()), w.db, sql)
		if err == nil && got != want {
			err = fmt.Errorf("%s: %d, want %d", sql, got, want)
		}
		return err
	})
}

// A trigger may raise any error for one row, also one that usually passes or seems to
// be about the table: all other rows are marked.
func TestATriggerRaisesAnyErrorForItsRowAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.db.Exec(t, `CREATE FUNCTION raise() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = OLD.key; END $$;
		CREATE TRIGGER raise BEFORE UPDATE ON outbox FOR EACH ROW WHEN (OLD.key ~ '^[0-9A-Z]{5}$') EXECUTE FUNCTION raise()`)
	p := w.run()
	codes := []string{"40001", "53100", "57014", "25006", "42P01", "0A000", "55P03"}
	for _, code := range codes {
		w.insertRows(code, 1)
	}
	w.insertRows("good", 100)
	w.allSent("good", 100)
	w.awaitWithin(time.Minute, `SELECT count(*) FROM outbox_cdc.park WHERE kind = 'row' AND cause = 'write_back'`, len(codes))
	w.awaitCount(`SELECT count(*) FROM outbox_cdc.park WHERE kind <> 'row'`, 0)
	w.db.Exec(t, `DROP TRIGGER raise ON outbox`)
	w.awaitCount(`SELECT count(*) FROM outbox WHERE status = 'PENDING'`, 0)
	w.stopped(p)
	if n := len(w.kafka.Records(t, w.topic)); n != len(codes)+100 {
		t.Errorf("%d records of %d rows", n, len(codes)+100)
	}
}
