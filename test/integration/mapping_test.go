package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// newWorldOf returns a world with a table that is given as it is, and a mapping of it
// that may name the topic.
func newWorldOf(t *testing.T, ddl string, config func(topic string) fields) *world {
	t.Helper()
	l := layout{ddl: ddl, config: fields{"table": "public.outbox", "grace": "200ms"}}
	w := newWorld(t, surroundings{layout: &l, noInit: true})
	for key, value := range config(w.topic) {
		w.table[key] = value
	}
	w.init()
	return w
}

// operatorDoes runs a command of operators on the table.
func (w *world) operatorDoes(args ...string) string {
	w.t.Helper()
	out, err := w.command(append(args, "--config", w.file(), "--yes")...)
	if err != nil {
		w.t.Fatalf("outbox-cdc %v: %v\n%s", args, err, out)
	}
	return out
}

// A table with one timestamp and a count of attempts, the commonest that people
// write themselves: a row that can be no record is failed once its count says so,
// its key goes on, and it is published once it is fixed and requeued.
func TestACountAloneSaysThatARowHasFailed(t *testing.T) {
	w := newWorldOf(t, `CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, aggregate_id text, payload jsonb,
			created_at timestamptz NOT NULL DEFAULT clock_timestamp(), published_at timestamptz, attempts int NOT NULL DEFAULT 0, last_error text,
			updated_at timestamptz NOT NULL DEFAULT '2000-01-01', expires_at timestamptz, max_retries smallint, next_try timestamptz, locked_until timestamp)`,
		func(topic string) fields {
			return fields{
				"id": "id", "topic": fields{"constant": topic}, "key": fields{"column": "aggregate_id"}, "payload": fields{"column": "payload"},
				"created_at": "created_at", "order": "id", "available_after": []any{"next_try", "locked_until"},
				"status": fields{
					"sent_at": "published_at", "attempts": "attempts", "max_attempts": 2, "max_attempts_column": "max_retries", "last_error": "last_error",
					"touched_at": "updated_at", "expires_at": fields{"column": "expires_at", "after": "24h"},
				},
			}
		})
	p := w.run().streaming()
	w.db.Exec(t, `INSERT INTO outbox (aggregate_id, payload, attempts) VALUES ('k', '1', 0), ('k', NULL, 0), ('k', '2', 0), ('k', '9', 2)`)
	w.db.Exec(t, `INSERT INTO outbox (aggregate_id, payload, max_retries) VALUES ('m', NULL, 0), ('n', NULL, 3)`)
	w.awaitSQL(time.Minute, `SELECT count(*) FILTER (WHERE published_at IS NOT NULL) = 2 AND count(*) FILTER (WHERE attempts = 2 AND last_error <> '' AND updated_at > created_at AND expires_at IS NULL) = 1
		AND count(*) FILTER (WHERE aggregate_id = 'm' AND attempts = 1) = 1 AND count(*) FILTER (WHERE aggregate_id = 'n' AND attempts = 3) = 1 FROM outbox`)
	w.db.Exec(t, `DELETE FROM outbox WHERE aggregate_id IN ('m', 'n')`)
	w.db.Exec(t, `INSERT INTO outbox (aggregate_id, payload, next_try, locked_until) VALUES ('o', '5', now() - interval '1 hour', timezone('utc', now()) + interval '2 s'), ('o', '6', now() + interval '1 day', NULL)`)
	w.awaitSQL(time.Minute, `SELECT count(*) = 1 FROM outbox WHERE aggregate_id = 'o' AND published_at >= timezone('utc', locked_until) - interval '100 ms'`)
	w.db.Exec(t, `DELETE FROM outbox WHERE aggregate_id = 'o'`)
	if got := w.values(); got != "1 2 5" {
		t.Errorf("published: %q", got)
	}
	w.db.Exec(t, `UPDATE outbox SET payload = '3' WHERE payload IS NULL`)
	w.operatorDoes("failed", "requeue", "--all")
	w.awaitSQL(time.Minute, `SELECT count(*) = 4 FROM outbox WHERE published_at IS NOT NULL`)
	p.stop()
	if got := harness.One[int](t, w.db, `SELECT count(*) FROM outbox WHERE attempts > 0 OR last_error IS NOT NULL OR updated_at < published_at OR expires_at <> published_at + interval '24 hours'`); got != 0 {
		t.Errorf("%d rows keep a count or an error", got)
	}
}

// A table with rows of several brokers, of which the topics follow from the type: only
// ours are published, marked, swept, counted, requeued and deleted, whether their publication
// lets the others pass or not; a type without a topic fails its row alone.
func TestOnlyOurRowsAreTouched(t *testing.T) {
	w := newWorldOf(t, `CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, broker text, event_type text, tenant int NOT NULL DEFAULT 1, aggregate_id text, payload text,
			created_at timestamptz NOT NULL DEFAULT clock_timestamp(), published_at timestamptz, attempts int NOT NULL DEFAULT 0, last_error text)`,
		func(topic string) fields {
			return fields{
				"id": "id", "rows": []any{fields{"column": "broker", "in": []any{"kafka", nil}}},
				"topic": fields{"column": "event_type", "map": fields{"OrderPlaced": topic, "com.acme.*": topic}},
				"key":   fields{"template": "${tenant}:${aggregate_id}"}, "payload": fields{"column": "payload"}, "created_at": "created_at", "order": "id",
				"status": fields{"sent_at": "published_at", "attempts": "attempts", "max_attempts": 2, "last_error": "last_error"},
			}
		})
	const insert = `INSERT INTO outbox (broker, event_type, aggregate_id, payload) VALUES
		('kafka', 'OrderPlaced', 'k', 'a'), ('sns', 'OrderPlaced', 'k', 'no'), (NULL, 'com.acme.X', 'k', 'b'), ('kafka', 'Unknown', 'k', 'no'), ('kafka', 'com.acme.Y', 'k', 'c')`
	done := func(sent, failed int) string {
		return fmt.Sprintf(`SELECT count(*) FILTER (WHERE published_at IS NOT NULL) = %d AND count(*) FILTER (WHERE attempts = 2) = %d FROM outbox`, sent, failed)
	}
	w.db.Exec(t, insert) // swept
	p := w.run().streaming()
	w.awaitSQL(30*time.Second, done(3, 1))
	w.db.Exec(t, insert) // streamed
	w.awaitSQL(30*time.Second, done(6, 2))
	if got := w.values(); got != "a b c a b c" {
		t.Errorf("published: %q", got)
	}
	if w.db.Major(t) >= 15 {
		if got := harness.One[string](t, w.db, `SELECT string_agg(rowfilter, '') FROM pg_publication_tables WHERE tablename = 'outbox'`); got != "((broker = 'kafka'::text) OR (broker IS NULL))" {
			t.Errorf("the publication passes rows WHERE %s", got)
		}
	}
	for _, r := range w.kafka.Records(t, w.topic) {
		if string(r.Key) != "1:k" {
			t.Errorf("a record has the key %q", r.Key)
		}
	}
	// A key that is parked is found by its topic in SQL.
	w.db.Exec(t, `INSERT INTO outbox (broker, event_type, aggregate_id, payload) VALUES ('kafka', 'OrderPlaced', 'j', NULL), ('kafka', 'com.acme.X', 'j', 'd'), ('sns', 'com.acme.X', 'j', 'no')`)
	w.awaitSQL(30*time.Second, done(7, 3))
	w.db.Exec(t, `UPDATE outbox SET event_type = 'OrderPlaced', payload = 'e' WHERE attempts = 2`)
	w.operatorDoes("failed", "requeue", "--all")
	w.awaitSQL(30*time.Second, done(10, 0))
	p.stop()
	if got := harness.One[int](t, w.db, `SELECT count(*) FROM outbox WHERE broker = 'sns' AND published_at IS NULL AND attempts = 0 AND last_error IS NULL`); got != 3 {
		t.Errorf("%d of 3 rows of another broker were left alone", got)
	}
	out, err := w.command("check", "--config", w.file())
	if !strings.Contains(out, "3 of 13 rows are left to others") {
		t.Errorf("check: %v\n%s", err, out)
	}
	if out, err := w.command("pending", "list", "--config", w.file()); strings.Contains(out, "sns") || !strings.Contains(out, "no PENDING rows") && err != nil {
		t.Errorf("pending list: %v\n%s", err, out)
	}
}

// A table whose rows have everything in one JSON column of type text: topic, key, headers and
// payload are places in it. Rows that are no JSON, and such that PostgreSQL itself refuses to
// read, fail alone, and the sweep of parked keys and topics, for which the database reads the
// JSON too, goes on.
func TestRowsOfOneDocument(t *testing.T) {
	w := newWorldOf(t, `CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, content text,
			created_at timestamptz NOT NULL DEFAULT clock_timestamp(), published_at timestamptz, attempts int NOT NULL DEFAULT 0, last_error text)`,
		func(topic string) fields {
			return fields{
				"id": "id", "topic": fields{"column": "content", "path": "/type", "map": fields{"OrderPlaced": topic, "com.*": topic, "lost": topic + ".lost"}},
				"key":     fields{"first": []any{fields{"column": "content", "path": "/headers/key"}, fields{"column": "content", "path": "/id"}}},
				"payload": fields{"column": "content", "path": "/value", "decode": "base64"},
				"headers": []any{
					fields{"json": "content", "path": "/headers"},
					fields{"name": "id", "column": "content", "path": "/id"},
					fields{"name": "sequence", "column": "id", "encoding": "int64"},
					fields{"name": "time", "column": "created_at", "encoding": "rfc3339"},
				},
				"order": "id", "created_at": "created_at",
				"status": fields{"sent_at": "published_at", "attempts": "attempts", "max_attempts": 2, "last_error": "last_error"},
			}
		})
	deep := strings.Repeat("[", 100_000)
	documents := []any{
		`{"type":"OrderPlaced","headers":{"key":"k","n":1},"value":"YQ==","id":1}`, `{"type":"com.x","value":"Yg==","id":"2"}`,
		`no JSON`, `{"type":"OrderPlaced","x":"\u0000","value":"YQ=="}`, `{"type":"OrderPlaced","x":"\ud800","value":"YQ=="}`, deep, `{"type":"Other","value":"YQ=="}`,
		`{"type":"OrderPlaced","headers":{"key":"k"},"value":"not base64"}`, `{"type":"OrderPlaced","headers":{"key":"k"},"value":"Yw=="}`, nil,
		`{"type":"lost","headers":{"key":"k"},"value":"YQ=="}`, `{"type":"OrderPlaced","headers":{"key":"\ud83d\ude00"},"value":"ZA=="}`,
	}
	insert := func() {
		for _, d := range documents {
			w.db.Exec(t, `INSERT INTO outbox (content) VALUES ($1)`, d)
		}
	}
	insert() // swept
	p := w.run().streaming()
	done := func(n int) string {
		return fmt.Sprintf(`SELECT count(*) FILTER (WHERE published_at IS NOT NULL) = %d AND count(*) FILTER (WHERE attempts = 2) = %d FROM outbox`, 4*n, 7*n)
	}
	w.awaitSQL(60*time.Second, done(1))
	insert() // streamed, and parked by key and topic
	w.awaitSQL(60*time.Second, done(2))
	w.db.Exec(t, `UPDATE outbox SET content = '{"type":"OrderPlaced","headers":{"key":"k"},"value":"ZQ=="}' WHERE attempts = 2`)
	w.operatorDoes("failed", "requeue", "--all")
	w.awaitSQL(60*time.Second, fmt.Sprintf(`SELECT count(*) = %d FROM outbox WHERE published_at IS NOT NULL`, 2*(len(documents)-1)))
	p.stop()
	want := map[string]string{"a": "k k 1 1", "b": "2   2", "c": "k k  ", "d": "😀 😀  ", "e": "k k  "}
	got := map[string]int{}
	for _, r := range w.kafka.Records(t, w.topic) {
		got[string(r.Value)]++
		if at, err := time.Parse(time.RFC3339Nano, string(r.Header("time"))); err != nil || len(r.Header("sequence")) != 8 || at.Location() != time.UTC {
			t.Errorf("record %s: sequence %x at %s, %v", r.Value, r.Header("sequence"), at, err)
		}
		if text := fmt.Sprintf("%s %s %s %s", r.Key, r.Header("key"), r.Header("n"), r.Header("id")); text != want[string(r.Value)] {
			t.Errorf("record %s: %q, wanted %q", r.Value, text, want[string(r.Value)])
		}
	}
	if fmt.Sprint(got) != "map[a:2 b:2 c:2 d:2 e:14]" {
		t.Errorf("published: %v", got)
	}
}

// A table from which rows are moved to an archive once they were published, as outbox-event-bus and
// Spring Modulith do: what the archive refuses stays in the outbox, is published and holds up no
// other row, and is moved when the archive takes it; failed rows stay and are requeued.
func TestRowsAreMovedToAnArchive(t *testing.T) {
	w := newWorldOf(t, `CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, type text, payload text, status text NOT NULL DEFAULT 'created',
			created_at timestamptz NOT NULL DEFAULT clock_timestamp(), completed_at timestamptz, attempts int NOT NULL DEFAULT 0, last_error text,
			encoded jsonb DEFAULT '{"base": "aGk="}', listed text DEFAULT '[{"Value":1,"Key":"list"},{"Key":"xx-own","Value":{}}]', nested bytea DEFAULT '{"nest":{"x":[1, 2]}}',
			context text DEFAULT E'#Mon Nov 23\ntraceparent=00-1-2-01\nbaggage=a\\=\\u00e9\n');
		CREATE SCHEMA history;
		CREATE TABLE history.done (LIKE outbox, PRIMARY KEY (id, status)) PARTITION BY LIST (status);
		CREATE TABLE history.completed PARTITION OF history.done FOR VALUES IN ('completed')`,
		func(topic string) fields {
			return fields{
				"id": "id", "topic": fields{"constant": topic}, "key": fields{"column": "type"}, "created_at": "created_at",
				"payload": fields{"object": []any{fields{"name": "type", "column": "type"}, fields{"name": "data", "column": "payload", "as": "json"}, fields{"name": "why", "column": "last_error", "omit_null": true}, fields{"name": "by", "value": "\"me\""}}},
				"headers": []any{
					fields{"json": "encoded", "values": "base64"},
					fields{"json": "listed", "list": fields{"name": "Key", "value": "Value"}, "except": []any{"xx-*"}},
					fields{"json": "nested", "nested": "json"},
					fields{"properties": "context"},
				},
				"published": "archive", "archive": "history.done",
				"status": fields{"column": "status", "pending": []any{"created"}, "sent": "completed", "failed": "failed", "sent_at": "completed_at", "attempts": "attempts", "max_attempts": 2, "last_error": "last_error"},
			}
		})
	w.db.Exec(t, `INSERT INTO history.done (id, status, created_at, attempts) VALUES (2, 'completed', now(), 0)`) // in the way of a row
	const insert = `INSERT INTO outbox (type, payload) VALUES ('a', '1'), ('a', '2'), ('a', '3'), ('a', 'no JSON')`
	done := func(moved, failed, left int) string {
		return fmt.Sprintf(`SELECT (SELECT count(*) FROM history.done WHERE completed_at IS NOT NULL AND attempts = 0) = %d AND count(*) FILTER (WHERE status = 'failed') = %d AND count(*) = %d FROM outbox`, moved, failed, left)
	}
	w.db.Exec(t, insert) // swept
	p := w.run().streaming()
	w.awaitSQL(60*time.Second, done(2, 1, 2))
	w.db.Exec(t, insert) // streamed
	w.awaitSQL(60*time.Second, done(5, 2, 3))
	w.db.Exec(t, `UPDATE outbox SET payload = '4' WHERE status = 'failed'`)
	w.operatorDoes("failed", "requeue", "--all")
	w.awaitSQL(60*time.Second, done(7, 0, 1))
	w.db.Exec(t, `DELETE FROM history.done WHERE completed_at IS NULL`)
	p.stop()
	p = w.run().streaming()
	w.awaitSQL(60*time.Second, done(8, 0, 0))
	p.stop()
	records := map[string]string{}
	for _, r := range w.kafka.Records(t, w.topic) {
		records[string(r.Value)] = fmt.Sprintf("%s %s %s %s %s", r.Header("base"), r.Header("list"), r.Header("nest"), r.Header("traceparent"), r.Header("baggage"))
		if len(r.Headers) != 5 {
			t.Errorf("headers: %q", r.Headers)
		}
	}
	for i := range 4 {
		value := fmt.Sprintf(`{"type":"a","data":%d,"by":"\"me\""}`, i+1)
		if records[value] != `hi 1 {"x":[1, 2]} 00-1-2-01 a=é` {
			t.Errorf("%s has the headers %s", value, records[value])
		}
	}
	if len(records) != 4 {
		t.Errorf("published: %v", records)
	}
	w.db.Exec(t, `ALTER TABLE history.done DROP COLUMN last_error`)
	if out, err := w.command("check", "--config", w.file()); err == nil || !strings.Contains(out, `cannot be moved to the archive history.done (column "last_error" is missing there)`) {
		t.Errorf("check: %v\n%s", err, out)
	}
	if out, _ := w.command("replay", "--id", "1", "--config", w.file(), "--yes"); !strings.Contains(out, "history.done") {
		t.Errorf("replay: %s", out)
	}
}
