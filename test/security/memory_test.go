package security

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// hostile is a table whose owner and whose writers do what they can to fill the memory of who reads it.
const hostile = `
	CREATE TABLE hostile (LIKE outbox INCLUDING ALL);
	CREATE TABLE bad (LIKE outbox INCLUDING ALL);
	CREATE TABLE hostile_header (message bigint, position int, name text, value text);
	CREATE INDEX ON hostile_header (message);
	CREATE TABLE long (bytes int, value text); -- compressed, and copied so
	INSERT INTO long SELECT n, repeat('x', n) FROM unnest(ARRAY[900000, 250000000]) AS n;
	CREATE PUBLICATION hostile FOR TABLE hostile, bad WITH (publish = 'insert');
	CREATE FUNCTION talk() RETURNS trigger LANGUAGE plpgsql SET log_min_messages = panic AS $$ BEGIN
		CASE OLD.key
		WHEN 'talks' THEN RAISE EXCEPTION '%', repeat('much', 40000000);
		WHEN 'notes' THEN RAISE NOTICE '%', repeat('much', 40000000);
		ELSE
		END CASE;
		RETURN NEW;
	END $$;
	CREATE TRIGGER talk BEFORE UPDATE ON hostile FOR EACH ROW EXECUTE FUNCTION talk()`

// memory is what docs/security.md goes by, in MiB.
type memory struct {
	bytes, row int // memory.bytes and max_row_bytes of each of two streams
	page       bool
}

// What docs/security.md says that the process takes at most, in MiB.
const (
	baseMiB = 112
	pageMiB = 96
	inWords = "at most %d MiB, and for each stream twice `memory.bytes` and four times `max_row_bytes`; with `http.page` %d MiB more"
)

func (m memory) most() int64 {
	most := baseMiB + 2*(2*m.bytes+4*m.row)
	if m.page {
		most += pageMiB
	}
	return int64(most)
}

// TestMemoryOfTheProcess has the process run in a cgroup of the memory that docs/security.md names for two streams, of
// which one has hostile tables: an error and a notice of 160 MB at marks, headers of 250 MB and of 900 MB
// together, many that fit one by one, long rows, and long keys of rows that are no records. Many ask over HTTP, with a page for
// rows too, and take their answers slowly. The other stream's rows are published meanwhile.
func TestMemoryOfTheProcess(t *testing.T) {
	text, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	if said := fmt.Sprintf(inWords, baseMiB, pageMiB); !strings.Contains(strings.Join(strings.Fields(string(text)), " "), said) {
		t.Errorf("docs/security.md does not say: %s", said)
	}
	for name, m := range map[string]memory{"defaults": {bytes: 8, row: 4}, "page": {bytes: 16, row: 8, page: true}} {
		t.Run(name, func(t *testing.T) { takesAtMost(t, m) })
	}
}

func takesAtMost(t *testing.T, m memory) {
	w := newWorld(t)
	w.db.Exec(t, hostile)
	w.tries(2)
	w.table["max_row_bytes"] = fmt.Sprint(m.row, "MiB")
	theirs := fields{"max_row_bytes": w.table["max_row_bytes"], "table": "public.hostile", "profile": "native", "grace": "200ms", "status": w.table["status"], "headers_table": fields{
		"table": "public.hostile_header", "parent": "message", "order": "position", "name": "name", "value": "value",
	}}
	w.stream["memory"] = fields{"bytes": fmt.Sprint(m.bytes, "MiB")}
	stream := fields{}
	for key, value := range w.stream {
		stream[key] = value
	}
	stream["name"], stream["slot"], stream["publication"], stream["tables"] = "hostile", "hostile_"+w.db.Name, "hostile", []any{theirs, fields{"max_row_bytes": w.table["max_row_bytes"], "table": "public.bad", "profile": "native", "grace": "200ms", "status": w.table["status"]}}
	w.config["streams"] = []any{w.stream, stream}
	address := freeAddress(t)
	w.config["http"] = fields{"listen": address, "page": m.page, "show_payloads": m.page}

	cmd, unconfined := harness.Confined(t, w.command(t.Context(), "run", "--log-format", "json"), m.most()<<20)
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
	w.db.Exec(t, `INSERT INTO hostile (topic, key, payload, status, last_error) SELECT 'orders', a, repeat(a, 1000)::bytea, 'FAILED', a
		FROM (SELECT repeat(E'\x01', 1000) AS a) AS a, generate_series(1, 1000)`)
	one := harness.One[int64](t, w.db, `INSERT INTO hostile (topic, key, payload, status, last_error) SELECT 'orders', a, a::bytea, 'FAILED', a
		FROM (SELECT repeat(E'\x01', 1000000) AS a) AS a RETURNING id`)
	paths := []string{"/metrics", "/api/v1/status", "/readyz"}
	if m.page {
		row := fmt.Sprintf("/failed/row?table=public.hostile&id=[%%22%d%%22]", one)
		paths = append(paths, "/streams/hostile", "/failed?table=public.hostile", row, "/api/v1"+row,
			"/api/v1/failed?limit=1000&table=public.hostile", "/api/v1/preview?limit=100&state=failed&table=public.hostile")
	}
	defer readers(t, address, paths)()
	insert("long", 1, 1, 250_000_000)
	insert("many", 1, 1000, 900_000)
	insert("fits", 200, 1, 900_000)
	w.db.Exec(t, `INSERT INTO hostile (topic, key, payload) SELECT $1, 'bare' || n, convert_to(repeat('x', $2), 'UTF8') FROM generate_series(1, 20) AS n`, w.topic, m.row*900_000)
	w.db.Exec(t, `INSERT INTO bad (topic, key, payload, headers) SELECT $1, n || repeat('k', 900000), '', '{"a": []}' FROM generate_series(1, 150) AS n`, w.topic)
	from, to := stop()
	w.sent("during", from, to, time.Minute)
	w.awaitWithin(2*time.Minute, `SELECT count(*) FROM hostile WHERE key ~ '^(fits|bare)' AND status = ANY ('{SENT,FAILED}')`, 220) // Kafka refuses what is too long for it
	w.awaitWithin(time.Minute, `SELECT count(*) FROM hostile WHERE key ~ '^(long|many)' AND status = 'FAILED'`, 2)
	w.awaitWithin(2*time.Minute, `SELECT least(count(*), 20) FROM bad WHERE status = 'FAILED'`, 20) // all could be parked by then
	w.goodFor("after", 2*time.Second, time.Minute)
	w.awaitWithin(2*time.Minute, `SELECT count(*) FROM hostile WHERE key = 'notes' AND status = 'SENT'`, 1)
	w.awaitWithin(2*time.Minute, `SELECT count(*) FROM outbox_cdc.park WHERE stream = 'hostile' AND cause = 'write_back' AND reason LIKE '%muchmuch%' AND length(reason) < 2000`, 1)
	peak := p.Peak() >> 20
	t.Logf("the process took %d MiB with the pages of its own file, of %d without", peak, m.most())
	w.stopped(p) // it was not killed
	const file = 40
	if unconfined != nil && (peak == 0 || peak > m.most()+file) {
		t.Errorf("it took too much, and there is no cgroup that would have told: %v", unconfined)
	}
}

// readers ask for what is long, on as many connections as one address may have, and take little of each answer.
func readers(t *testing.T, address string, paths []string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range 120 {
		all.Go(func() {
			for ctx.Err() == nil {
				read(ctx, address, paths[i%len(paths)])
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// read asks once, and gives the answer up after three seconds.
func read(ctx context.Context, address, path string) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		<-ctx.Done()
		return
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(1 << 10)
	_, _ = io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
	<-ctx.Done()
}
