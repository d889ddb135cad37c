package integration

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// im2be returns the platform's table as its owners made it; the key is the
// aggregate's id, made from the writers' key.
func im2be() layout {
	return layout{
		ddl: `CREATE TABLE outbox (
			aggregate_id uuid NOT NULL, event_id uuid NOT NULL,
			status varchar(16) NOT NULL DEFAULT 'PENDING', topic varchar(249) NOT NULL, payload bytea NOT NULL,
			schema_version int NOT NULL DEFAULT 1, retries int NOT NULL DEFAULT 0, last_error varchar(1000),
			created_at timestamptz NOT NULL DEFAULT now(), sent_at timestamptz,
			record_version bigint NOT NULL DEFAULT 0, trace_parent varchar(64), trace_state varchar(512),
			PRIMARY KEY (aggregate_id, event_id));
			CREATE INDEX outbox_status_created_at ON outbox (status, created_at)`,
		config: fields{"table": "public.outbox", "profile": "im2be", "grace": "200ms", "head_start": "0s", "shedlock": nil},
		insert: `INSERT INTO outbox (aggregate_id, event_id, topic, payload, created_at, trace_parent)
			SELECT md5(coalesce(key, ''))::uuid, gen_random_uuid(), topic, value, clock_timestamp(), '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' FROM rows`,
		payload: "payload", status: "status",
	}
}

func TestTheIm2beTable(t *testing.T) {
	t.Parallel() // it mostly waits
	l := im2be()
	w := newWorld(t, surroundings{partitions: 3, layout: &l})
	p := w.run().streaming()
	load := steady()
	load.unkeyed = 0
	w.writeRows(load, scaled(1000, 50_000))
	w.dropSlot()
	p.Await(20*time.Second, "made the slot")
	w.writeRows(load, scaled(1000, 50_000))
	w.settled(30 * time.Second)
	p.stop()

	// The record's key is the uuid's text, as the replaced relay sends it.
	records := w.kafka.Records(t, w.topic)
	for _, r := range records[:min(len(records), 50)] {
		_, _, key, _ := history.ParseValue(r.Value)
		want := harness.One[string](t, w.db, `SELECT md5($1)::uuid::text`, key)
		if string(r.Key) != want || string(r.Header("traceparent")) == "" || len(r.Headers) != 1 {
			t.Fatalf("record %q with headers %v, wanted key %s and traceparent only", r.Key, r.Headers, want)
		}
	}
	w.judgeKeys(md5Key, history.Rules{})
	if n := harness.One[int](t, w.db, `SELECT count(*) FROM outbox WHERE sent_at IS NULL OR record_version <> 1 OR retries <> 0 OR last_error IS NOT NULL`); n > 0 {
		t.Errorf("%d rows were not marked as their application would", n)
	}
}

// The WAL is asked for binary values, but those of some types are only understood
// as text (a numeric id, an enum for a status): the program reads the WAL as text
// then, and nothing is lost, charged or parked.
func TestColumnsThatComeAsText(t *testing.T) {
	t.Parallel() // it mostly waits
	l := native()
	l.ddl = `CREATE TYPE outbox_status AS ENUM ('PENDING', 'SENT', 'FAILED'); CREATE SEQUENCE outbox_ids;
		CREATE TABLE outbox (id numeric PRIMARY KEY DEFAULT nextval('outbox_ids'), event_id uuid NOT NULL DEFAULT gen_random_uuid(), topic text NOT NULL, key text, payload bytea,
			headers jsonb, status outbox_status NOT NULL DEFAULT 'PENDING', attempts int NOT NULL DEFAULT 0, last_error text,
			created_at timestamptz NOT NULL DEFAULT clock_timestamp(), available_after timestamptz, sent_at timestamptz)`
	w := newWorld(t, surroundings{layout: &l})
	p := w.run().streaming()
	w.writeRows(steady(), 100)
	p.Await(20*time.Second, "reading the WAL as text", "numeric")
	w.settled(30 * time.Second)
	w.writeRows(steady(), 100)
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
	if len(p.Said("parked", "public.outbox")) > 0 {
		t.Error("the table was parked")
	}
}

func md5Key(w *world) map[string]string {
	keys := map[string]string{}
	for _, in := range w.log.Inserts() {
		if _, ok := keys[in.Key]; !ok {
			keys[in.Key] = harness.One[string](w.t, w.db, `SELECT md5($1)::uuid::text`, in.Key)
		}
	}
	return keys
}

// judgeKeys is judge where records carry another key than the writers named.
func (w *world) judgeKeys(keys func(*world) map[string]string, rules history.Rules) {
	w.t.Helper()
	h := w.history()
	names := keys(w)
	for i := range h.Inserts {
		h.Inserts[i].Key = names[h.Inserts[i].Key]
	}
	w.check(h, rules)
}

// TestAKeyThatIsGenerated: from PostgreSQL 18 on the WAL has stored generated columns, once the publication is told
// to (publish_generated_columns). init tells it, the rows stream, and swept ones have the same keys.
func TestAKeyThatIsGenerated(t *testing.T) {
	t.Parallel() // it mostly waits
	atLeast(t, 18)
	l := native()
	l.ddl = `CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_id uuid NOT NULL DEFAULT gen_random_uuid(), topic text NOT NULL,
		customer text, key text GENERATED ALWAYS AS ('customer-' || customer) STORED, payload bytea, headers jsonb, status text NOT NULL DEFAULT 'PENDING',
		attempts int NOT NULL DEFAULT 0, last_error text, created_at timestamptz NOT NULL DEFAULT clock_timestamp(), available_after timestamptz, sent_at timestamptz)`
	l.insert = `INSERT INTO outbox (topic, customer, payload) SELECT topic, key, value FROM rows`
	w := newWorld(t, surroundings{partitions: 3, layout: &l})
	w.config["http"] = fields{"listen": "127.0.0.1:0"}
	if out, err := w.command("check", "--config", w.file()); err != nil {
		t.Errorf("check: %v\n%s", err, out)
	}
	p := w.run().streaming()
	load := steady()
	load.unkeyed = 0
	w.writeRows(load, 300)
	w.settled(30 * time.Second)
	p.readyz(200, "")
	if n := p.logged("parked", `"scope":"table"`); n > 0 {
		t.Errorf("the table was parked:\n%s", p.log())
	}
	w.dropSlot()
	p.Await(20*time.Second, "made the slot")
	w.writeRows(load, 300)
	w.settled(30 * time.Second)
	p.stop()
	w.judgeKeys(func(w *world) map[string]string {
		keys := map[string]string{}
		for _, in := range w.log.Inserts() {
			keys[in.Key] = "customer-" + in.Key
		}
		return keys
	}, history.Rules{})
}

// deleting returns a table whose rows go when they are published.
func deleting() layout {
	return layout{
		ddl: `CREATE TABLE queue (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, topic text NOT NULL, key text, body text NOT NULL,
			tries int NOT NULL DEFAULT 0, at timestamptz NOT NULL DEFAULT clock_timestamp())`,
		config: fields{
			"table": "public.queue", "id": "id", "topic": fields{"column": "topic"}, "key": fields{"column": "key"},
			"payload": fields{"column": "body"}, "event_id": fields{"header": "id"}, "created_at": "at", "order": "id",
			"published": "delete", "status": fields{"attempts": "tries"}, "grace": "200ms",
		},
		insert:  `INSERT INTO queue (topic, key, body) SELECT topic, key, convert_from(value, 'UTF8') FROM rows`,
		eventID: "id", rules: history.Rules{Deletes: true},
	}
}

// gone waits until the table is empty.
func (w *world) gone(within time.Duration) {
	w.t.Helper()
	harness.Eventually(w.t, within, func() error {
		n, err := harness.TryOne[int](w.t.Context(), w.db, `SELECT count(*) FROM `+w.tableName())
		if err == nil && n > 0 {
			err = fmt.Errorf("%d rows are left", n)
		}
		return err
	})
}

func TestRowsDeletedOnSuccess(t *testing.T) {
	t.Parallel() // it mostly waits
	l := deleting()
	w := newWorld(t, surroundings{partitions: 3, layout: &l})
	p := w.run().streaming()
	w.writeRows(steady(), 1000)
	p.stop()
	w.writeRows(steady(), 300)
	p = w.run().streaming()
	w.dropSlot()
	p.Await(20*time.Second, "made the slot")
	w.writeRows(steady(), 500)
	w.gone(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}

// stateless returns a table that nothing is written back to.
func stateless() layout {
	return layout{
		ddl: `CREATE TABLE events (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, topic text NOT NULL, key text, body bytea NOT NULL)`,
		config: fields{
			"table": "public.events", "id": "id", "topic": fields{"column": "topic"}, "key": fields{"column": "key"},
			"payload": fields{"column": "body"}, "event_id": fields{"header": "id"}, "published": "none",
		},
		insert:  `INSERT INTO events (topic, key, body) SELECT topic, key, value FROM rows`,
		payload: "body", eventID: "id", rules: history.Rules{Stateless: true},
	}
}

// A table without state: everything arrives, over clean restarts once.
func TestATableWithoutState(t *testing.T) {
	t.Parallel() // it mostly waits
	l := stateless()
	w := newWorld(t, surroundings{partitions: 3, layout: &l})
	load := w.write(steady())
	for range 3 {
		p := w.run().streaming()
		load.wrote(200, 30*time.Second)
		p.stop()
	}
	load.stop()
	p := w.run().streaming()
	last := w.insertNow(w.topic, "last", 1, 10)[0]
	w.isPublished(last)
	p.stop()
	w.judge(history.Rules{})
}

// Rows that the application deletes in the transaction that inserts them.
func TestInsertAndDelete(t *testing.T) {
	t.Parallel() // it mostly waits
	l := stateless()
	l.insert = `INSERT INTO events (topic, key, body) SELECT topic, key, value FROM rows RETURNING id`
	w := newWorld(t, surroundings{partitions: 3, layout: &l})
	w.db.Exec(t, `CREATE FUNCTION forget() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN DELETE FROM events WHERE id = NEW.id; RETURN NULL; END';
		CREATE CONSTRAINT TRIGGER forget AFTER INSERT ON events DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION forget()`)
	p := w.run().streaming()
	w.writeRows(steady(), 500)
	w.isPublished(w.insertNow(w.topic, "last", 1, 10)[0])
	p.stop()
	w.judge(history.Rules{})
	if n := harness.One[int](t, w.db, `SELECT count(*) FROM events`); n != 0 {
		t.Fatalf("%d rows are left", n)
	}
}

// Two streams in one process: one of them cannot work, the other does.
func TestStreamsAreIsolated(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	broken := maps.Clone(w.stream)
	broken["name"], broken["slot"] = "broken", "slot_broken_"+w.db.Name
	broken["postgres"] = fields{"dsn": strings.Replace(w.db.DSN, w.db.Name, "nowhere", 1)}
	w.config["streams"] = []any{broken, w.stream}
	p := w.run()
	p.Await(20*time.Second, `"stream":"broken"`, "nowhere", "does not exist", "correct the database's name")
	p.streaming()
	w.writeRows(steady(), 500)
	w.settled(20 * time.Second)
	p.stop()
	w.judge(history.Rules{})
	if n := p.logged(`"stream":"broken"`, `"level":"error"`); n > 2 {
		t.Errorf("the broken stream logged %d errors", n)
	}
}

// A column that the mapping needs is renamed in the middle of the stream, under
// load of applications that know the old name, then of some that know the new
// one: the table is parked with an error that names it, nothing is published
// without its payload, and all is delivered when the column is back.
func TestAColumnIsRenamedAndComesBack(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	w.table["payload"] = fields{"column": "payload"} // a NULL is an error of the row
	p := w.run().streaming()
	load := w.write(patient())
	load.wrote(300, 30*time.Second)
	w.db.Exec(t, `ALTER TABLE outbox RENAME COLUMN payload TO renamed`)
	w.writing("renamed").writeRows(steady(), 300)
	p.Await(20*time.Second, "parked", "public.outbox", "payload")
	w.db.Exec(t, `ALTER TABLE outbox RENAME COLUMN renamed TO payload`)
	w.recovered()
	load.wrote(300, 30*time.Second)
	p.Await(60*time.Second, "handed back to the stream", "public.outbox")
	load.wrote(100, 30*time.Second)
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}

// The column is back, and no further row comes: the table is not told to be stuck for longer than it is.
func TestAColumnComesBackAndNoRow(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	w.serve()
	p := w.run().streaming()
	w.isPublished(w.insertNow(w.topic, "before", 1, 10)[0])
	w.db.Exec(t, `ALTER TABLE outbox RENAME COLUMN payload TO renamed`)
	row := w.writing("renamed").insertNow(w.topic, "meanwhile", 1, 10)[0]
	p.readyz(http.StatusServiceUnavailable, "payload")
	p.Await(20*time.Second, `"reason":`, `it is called "renamed" now`)
	w.db.Exec(t, `ALTER TABLE outbox RENAME COLUMN renamed TO payload`)
	p.Await(30*time.Second, "the table can be read again", `"table":"public.outbox"`)
	w.isPublished(row)
	p.readyz(http.StatusOK, "")
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}

// The publication gets a list of columns that leaves mapped ones out. Rows are swept, each change of the publication is looked
// at once, and the stream has the table back when the list is gone.
func TestAColumnListIsSetAndTakenAway(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	w.serve()
	p := w.run().streaming()
	w.isPublished(w.insertNow(w.topic, "before", 1, 10)[0])
	w.db.Exec(t, `ALTER PUBLICATION outbox SET TABLE outbox (id, topic, key)`)
	w.isPublished(w.insertNow(w.topic, "meanwhile", 1, 10)[0])
	p.Await(30*time.Second, "publication outbox lacks columns", "payload")
	for range 2 { // a row of the WAL without the columns, and a look at what can be read again
		w.isPublished(w.insertNow(w.topic, "meanwhile", 1, 10)[0])
		p.looksAgain()
	}
	before := p.logged(`"message":"streaming"`)
	w.db.Exec(t, `ALTER PUBLICATION outbox SET TABLE outbox`)
	p.Await(time.Minute, "handed back to the stream", "public.outbox")
	w.settled(30 * time.Second)
	if n := p.logged(`"message":"streaming"`); before != 2 || n != 3 {
		t.Errorf("it began to stream %d times before the list was taken away, %d times in all", before, n)
	}
	p.stop()
	w.judge(history.Rules{})
}

// looksAgain waits until the process has looked at its slot and its publication twice.
func (p *process) looksAgain() {
	p.t.Helper()
	var last string
	looks := 0
	harness.Eventually(p.t, time.Minute, func() error {
		_, text, err := p.page("/api/v1/status")
		_, at, _ := strings.Cut(text, `"read_at": "`)
		if at, _, _ = strings.Cut(at, `"`); err == nil && at != "" && at != last {
			last = at
			looks++
		}
		if looks < 3 {
			return fmt.Errorf("%d looks, the last at %s: %v", looks, last, err)
		}
		return nil
	})
}

// writing returns the world for applications that write their values to that column.
func (w *world) writing(column string) *world {
	other := *w
	other.layout.insert = fmt.Sprintf(`INSERT INTO outbox (topic, key, %s) SELECT topic, key, value FROM rows`, column)
	return &other
}

// The same with a column that is dropped, and added again with its values: the
// record of a row that was written in between has the value that it then got.
func TestAColumnIsDroppedAndAddedAgain(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	w.table["payload"] = fields{"column": "payload"}
	p := w.run().streaming()
	load := w.write(patient())
	load.wrote(100, 30*time.Second)
	w.db.Exec(t, `ALTER TABLE outbox RENAME COLUMN payload TO old; ALTER TABLE outbox ALTER COLUMN old DROP NOT NULL;
		ALTER TABLE outbox ADD COLUMN payload bytea; ALTER TABLE outbox DROP COLUMN payload`)
	w.writing("old").writeRows(steady(), 100)
	p.Await(20*time.Second, "parked", "public.outbox", "payload")
	w.db.Exec(t, `ALTER TABLE outbox ADD COLUMN payload bytea; UPDATE outbox SET payload = old`)
	w.recovered()
	load.wrote(100, 30*time.Second)
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.db.Exec(t, `DELETE FROM rewrites WHERE was = became`) // ours, of the values
	w.judge(history.Rules{})
}

// partitioned returns a native table in partitions, of which the table parts lists
// those that applications write to.
func partitioned() layout {
	l := native()
	l.ddl = `CREATE SEQUENCE ids;
		CREATE TABLE outbox (
			part int NOT NULL, id bigint NOT NULL DEFAULT nextval('ids'), event_id uuid NOT NULL DEFAULT gen_random_uuid(),
			topic text NOT NULL, key text, payload bytea, headers jsonb, available_after timestamptz, created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
			status text NOT NULL DEFAULT 'PENDING', sent_at timestamptz, attempts integer NOT NULL DEFAULT 0, last_error text,
			PRIMARY KEY (part, id)) PARTITION BY LIST (part);
		CREATE INDEX ON outbox (id) WHERE status = 'PENDING';
		CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES IN (1);
		CREATE TABLE parts (part int PRIMARY KEY);
		INSERT INTO parts VALUES (1)`
	l.config["id"] = []string{"part", "id"}
	l.insert = `INSERT INTO outbox (part, topic, key, payload)
		SELECT p.part, topic, key, value FROM rows, (SELECT part FROM parts ORDER BY random() LIMIT 1) p`
	return l
}

// Partitions are attached under load, and written to at once. One has its columns
// in another order with a dropped one among them, one had a row before; each row
// is published, in order of its key across partitions, and with its own values.
func TestPartitionsAreAttached(t *testing.T) {
	t.Parallel() // it mostly waits
	l := partitioned()
	w := newWorld(t, surroundings{partitions: 3, layout: &l})
	p := w.run().streaming()
	load := w.write(steady())
	load.wrote(100, 30*time.Second)
	// Writers learn of a partition when no INSERT is left that was planned
	// without it.
	use := func(part int) {
		w.db.Exec(t, fmt.Sprintf(`LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE; INSERT INTO parts VALUES (%d)`, part))
	}
	w.db.Exec(t, `CREATE TABLE outbox_2 PARTITION OF outbox FOR VALUES IN (2)`)
	use(2)
	load.wrote(100, 30*time.Second)
	w.db.Exec(t, `CREATE TABLE outbox_3 (
			last_error text, payload bytea, headers jsonb, dropped int, available_after timestamptz, created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
			attempts integer NOT NULL DEFAULT 0, key text, sent_at timestamptz, topic text NOT NULL, status text NOT NULL DEFAULT 'PENDING',
			event_id uuid NOT NULL DEFAULT gen_random_uuid(), id bigint NOT NULL DEFAULT nextval('ids'), part int NOT NULL);
		ALTER TABLE outbox_3 DROP COLUMN dropped;
		ALTER TABLE outbox ATTACH PARTITION outbox_3 FOR VALUES IN (3)`)
	use(3)
	load.wrote(100, 30*time.Second)
	// A row that was there before was never an insert of the stream's.
	w.db.Exec(t, `CREATE TABLE outbox_4 (LIKE outbox INCLUDING DEFAULTS)`)
	w.db.Exec(t, `INSERT INTO outbox_4 (part, topic, payload) VALUES (4, $1, $2)`, w.topic, history.Value("lone.1", 0, "", 4))
	w.db.Exec(t, `ALTER TABLE outbox ATTACH PARTITION outbox_4 FOR VALUES IN (4)`)
	use(4)
	w.recovered()
	w.log.Add(history.Insert{Ref: "lone.1", Table: w.tableName(), Topic: w.topic, Outcome: history.Committed})
	load.wrote(100, 30*time.Second)
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}
