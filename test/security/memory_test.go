package security

import (
	"os"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// hostile is a table whose owner and whose writers do what they can to fill the memory of who reads it.
const hostile = `
	CREATE TABLE hostile (LIKE outbox INCLUDING ALL);
	CREATE TABLE hostile_header (message bigint, position int, name text, value text);
	CREATE INDEX ON hostile_header (message);
	CREATE TABLE long (bytes int, value text); -- compressed, and copied so
	INSERT INTO long SELECT n, repeat('x', n) FROM unnest(ARRAY[900000, 250000000]) AS n;
	CREATE PUBLICATION hostile FOR TABLE hostile WITH (publish = 'insert');
	CREATE FUNCTION talk() RETURNS trigger LANGUAGE plpgsql SET log_min_messages = panic AS $$ BEGIN
		CASE OLD.key
		WHEN 'talks' THEN RAISE EXCEPTION '%', repeat('much', 40000000);
		WHEN 'notes' THEN RAISE NOTICE '%', repeat('much', 40000000);
		ELSE
		END CASE;
		RETURN NEW;
	END $$;
	CREATE TRIGGER talk BEFORE UPDATE ON hostile FOR EACH ROW EXECUTE FUNCTION talk()`

// TestMemoryOfTheProcess has the process run in the memory that docs/security.md names for two streams, of
// which one has a hostile table: an error and a notice of 160 MB at marks, headers of 250 MB and of 900 MB
// together, and many that fit one by one. The other stream's rows are published meanwhile.
func TestMemoryOfTheProcess(t *testing.T) {
	w := newWorld(t)
	w.db.Exec(t, hostile)
	w.tries(2)
	theirs := fields{"table": "public.hostile", "profile": "native", "grace": "200ms", "status": w.table["status"], "headers_table": fields{
		"table": "public.hostile_header", "parent": "message", "order": "position", "name": "name", "value": "value",
	}}
	stream := fields{}
	for key, value := range w.stream {
		stream[key] = value
	}
	stream["name"], stream["slot"], stream["publication"], stream["tables"] = "hostile", "hostile_"+w.db.Name, "hostile", []any{theirs}
	w.config["streams"] = []any{w.stream, stream}

	const mib = 128
	cmd, err := harness.Confined(t, w.command(t.Context(), "run", "--log-format", "json"), mib<<20)
	if err != nil {
		t.Logf("no cgroup, so the peak is judged: %v", err)
	}
	cmd.Env = append(os.Environ(), "GOMEMLIMIT=") // as it is without
	p := harness.Start(t, cmd)
	w.goodFor("before", time.Second, time.Minute)

	stop := w.goodWriter()
	insert := func(key string, rows, headers, bytes int) {
		t.Helper()
		w.db.Exec(t, `WITH r AS (INSERT INTO hostile (topic, key, payload) SELECT $1, $2 || n, '' FROM generate_series(1, $3) AS n RETURNING id)
			INSERT INTO hostile_header SELECT id, n, 'h' || n, value FROM r, long, generate_series(1, $4) AS n WHERE bytes = $5`, w.topic, key, rows, headers, bytes)
	}
	w.db.Exec(t, `INSERT INTO hostile (topic, key, payload) SELECT $1, key, '' FROM unnest(ARRAY['talks', 'notes']) AS key`, w.topic)
	insert("long", 1, 1, 250_000_000)
	insert("many", 1, 1000, 900_000)
	insert("fits", 200, 1, 900_000)
	w.db.Exec(t, `INSERT INTO hostile (topic, key, payload) SELECT $1, 'bare' || n, '' FROM generate_series(1, 20) AS n`, w.topic)
	from, to := stop()
	w.sent("during", from, to, time.Minute)
	w.awaitWithin(2*time.Minute, `SELECT count(*) FROM hostile WHERE key ~ '^(fits|bare)' AND status = 'SENT'`, 220)
	w.awaitWithin(time.Minute, `SELECT count(*) FROM hostile WHERE key ~ '^(long|many)' AND status = 'FAILED'`, 2)
	w.goodFor("after", 2*time.Second, time.Minute)
	w.awaitWithin(2*time.Minute, `SELECT count(*) FROM hostile WHERE key = 'notes' AND status = 'SENT'`, 1)
	w.awaitWithin(2*time.Minute, `SELECT count(*) FROM outbox_cdc.park WHERE stream = 'hostile' AND cause = 'write_back' AND reason LIKE '%muchmuch%' AND length(reason) < 2000`, 1)
	peak := p.Peak() >> 20
	t.Logf("the process took %d MiB", peak)
	w.stopped(p) // it was not killed
	if peak == 0 || peak > mib {
		t.Errorf("the process took %d MiB", peak)
	}
}
