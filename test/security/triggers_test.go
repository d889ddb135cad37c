package security

import (
	"testing"
	"time"
)

// hangs are triggers that keep the mark of a row from ending, each for the key of its
// name: by time, by a lock, by time that no timeout ends, and by ending the session.
const hangs = `
	CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		CASE OLD.key
		WHEN 'sleeps' THEN PERFORM pg_sleep(3600);
		WHEN 'waits' THEN PERFORM pg_advisory_xact_lock(4712);
		WHEN 'stays' THEN
			FOR i IN 1..100 LOOP
				BEGIN PERFORM pg_sleep(3600); EXCEPTION WHEN query_canceled THEN NULL; END;
			END LOOP;
		WHEN 'ends' THEN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(1);
		WHEN 'fakes' THEN RAISE EXCEPTION USING ERRCODE = '08006';
		END CASE;
		RETURN NEW;
	END $$;
	CREATE TRIGGER hang BEFORE UPDATE ON outbox FOR EACH ROW WHEN (OLD.key <> 'good') EXECUTE FUNCTION hang();
	CREATE TABLE other (LIKE outbox INCLUDING ALL)`

// A row whose mark does not end, or ends its session, is parked by itself. Marks of
// other tables do not wait for it, those of its own table only until it is found.
func TestMarksThatDoNotEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.db.Exec(t, hangs)
	w.db.Exec(t, `ALTER PUBLICATION outbox ADD TABLE other`)
	w.stream["tables"] = []any{w.table, fields{"table": "public.other", "profile": "native", "grace": "200ms"}}
	lock := w.db.Conn(t)
	if _, err := lock.Exec(t.Context(), `SELECT pg_advisory_lock(4712)`); err != nil {
		t.Fatal(err)
	}
	w.stream["backoff"] = fields{"min": "1s", "max": "5s"}
	p := w.run()
	p.Await(time.Minute, `"mode":"stream"`) // a sweep waits for what it has read
	keys := []string{"sleeps", "waits", "stays", "ends", "fakes"}
	for _, key := range keys {
		w.insertRows("good", 40)
		w.insertRows(key, 1)
	}
	w.kafka.AwaitRecords(t, w.topic, 205, 20*time.Second)
	slowest := time.Duration(0)
	for n := 1; n <= 20; n++ { // while the others hang
		began := time.Now()
		w.db.Exec(t, `INSERT INTO other (topic, key, payload) VALUES ($1, 'good', '')`, w.topic)
		w.awaitCount(`SELECT count(*) FROM other WHERE status = 'SENT'`, n)
		slowest = max(slowest, time.Since(began))
		time.Sleep(500 * time.Millisecond)
	}
	if slowest > 5*time.Second {
		t.Errorf("a mark of another table took %v", slowest)
	}
	w.awaitWithin(time.Minute, `SELECT count(*) FROM outbox WHERE key = 'good' AND status = 'SENT'`, 200)
	w.awaitWithin(time.Minute, `SELECT count(*) FROM outbox_cdc.park WHERE kind = 'row' AND cause = 'write_back'`, len(keys))
	w.awaitCount(`SELECT count(*) FROM outbox_cdc.park WHERE kind <> 'row'`, 0)
	w.insertRows("good", 100)
	w.allSent("good", 300)
	w.db.Exec(t, `DROP TRIGGER hang ON outbox`)
	w.awaitWithin(time.Minute, `SELECT count(*) FROM outbox WHERE status = 'PENDING'`, 0)
	w.stopped(p)
	if n := len(w.kafka.Records(t, w.topic)); n != 325 {
		t.Errorf("%d records of %d rows", n, 325)
	}
}

// leavings are a trigger that leaves something in its session, and one of another table that notes what it finds there.
const leavings = `
	CREATE TABLE other (LIKE outbox INCLUDING ALL);
	CREATE TABLE found (what text);
	GRANT INSERT ON found TO PUBLIC;
	CREATE FUNCTION find() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO public.found SELECT name FROM pg_settings WHERE (name, setting) IN (
			('work_mem', '64'), ('synchronous_commit', 'off'), ('enable_indexscan', 'off'), ('statement_timeout', '1'), ('default_transaction_deferrable', 'on'));
		INSERT INTO public.found SELECT 'lock' FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
		INSERT INTO public.found SELECT 'channel' FROM pg_listening_channels();
		INSERT INTO public.found SELECT 'table' FROM pg_class WHERE relname = 'theirs' AND relnamespace = pg_my_temp_schema(); -- others' sessions are cleaned a moment later
		RETURN NULL;
	END $$;
	CREATE TRIGGER find BEFORE UPDATE ON other FOR EACH STATEMENT EXECUTE FUNCTION find();
	CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		PERFORM set_config('work_mem', '64kB', false), set_config('synchronous_commit', 'off', false), set_config('enable_indexscan', 'off', false),
			set_config('statement_timeout', '1', false), set_config('default_transaction_deferrable', 'on', false), pg_advisory_lock(4713);
		LISTEN theirs;
		CREATE TEMP TABLE IF NOT EXISTS theirs (n int);
		RETURN NULL;
	END $$;
	CREATE TRIGGER change AFTER UPDATE ON outbox FOR EACH STATEMENT EXECUTE FUNCTION change()`

// What a trigger leaves in the session of ours that it runs in is gone before the session's
// next statement on another table.
func TestATriggerLeavesNothingInASession(t *testing.T) {
	w := newWorld(t)
	w.db.Exec(t, leavings)
	w.db.Exec(t, `ALTER PUBLICATION outbox ADD TABLE other`)
	w.stream["tables"] = []any{w.table, fields{"table": "public.other", "profile": "native", "grace": "200ms"}}
	p := w.run()
	for n := 1; n <= 20; n++ { // statements one after another
		w.insertRows("good", 1)
		w.allSent("good", n)
		w.db.Exec(t, `INSERT INTO other (topic, key, payload) VALUES ($1, 'good', '')`, w.topic)
		w.awaitCount(`SELECT count(*) FROM other WHERE status = 'SENT'`, n)
	}
	w.db.Exec(t, `NOTIFY theirs`)
	w.awaitCount(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND (classid, objid) = (0, 4713)`, 0)
	w.awaitCount(`SELECT count(*) FROM found`, 0)
	w.stopped(p)
}
