package security

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// peakMiB is what the process may take next to any row, however long it is.
const peakMiB = 160

// good inserts rows of a writer who does nothing wrong and waits until they are
// published.
func (w *world) good(n int, within time.Duration) {
	w.t.Helper()
	for range n {
		w.db.Exec(w.t, `INSERT INTO outbox (topic, key, payload) VALUES ($1, 'good', 'good')`, w.topic)
	}
	w.none(`key = 'good' AND status <> 'SENT'`, within)
}

// none waits until no row meets the condition.
func (w *world) none(condition string, within time.Duration) {
	w.t.Helper()
	harness.Eventually(w.t, within, func() error {
		n, err := harness.TryOne[int](w.t.Context(), w.db, `SELECT count(*) FROM outbox WHERE `+condition)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d rows with %s", n, condition)
		}
		return err
	})
}

// tries gives rows a budget of so many attempts.
func (w *world) tries(most int) {
	w.table["status"] = fields{
		"column": "status", "pending": "PENDING", "sent": "SENT", "failed": "FAILED", "sent_at": "sent_at",
		"attempts": "attempts", "max_attempts": most, "last_error": "last_error",
	}
}

// A writer inserts rows of 50 MB and more, some of which PostgreSQL stores in a
// few, and rows with very many headers. They come by the WAL, and after the slot was lost by a
// sweep; each time the others' rows are published, the process's memory does not
// follow, and the rows become FAILED.
func TestLongRows(t *testing.T) {
	w := newWorld(t)
	w.tries(2)
	sizes := []int{50, 300}
	if long {
		sizes = []int{50, 150, 300, 600, 1000}
	}
	insert := func(key string) {
		for _, mb := range sizes {
			w.db.Exec(t, `INSERT INTO outbox (topic, key, payload)
				SELECT $1, $2, string_agg(b, '') FROM (SELECT convert_to(repeat('x', 10000000), 'UTF8') AS b FROM generate_series(1, $3)) AS s`, w.topic, key, mb/10)
		}
		w.db.Exec(t, `INSERT INTO outbox (topic, key, payload, headers) SELECT $1, $2, '', jsonb_build_object('x', repeat('x', 100000000))`, w.topic, key)
		for _, headers := range []int{500_000, 20_000} {
			w.db.Exec(t, `INSERT INTO outbox (topic, key, payload, headers)
				SELECT $1, $2, '', jsonb_object_agg(n::text, '') FROM generate_series(1, $3) AS n`, w.topic, key, headers)
		}
	}
	patience := time.Duration(len(sizes)) * 30 * time.Second
	p := w.run()
	w.good(5, 20*time.Second)
	insert("by log")
	w.good(5, patience)
	w.none(`key = 'by log' AND status <> 'FAILED'`, patience)
	w.good(5, 10*time.Second)
	if got := p.Peak() >> 20; got > peakMiB {
		t.Errorf("the process took %d MiB", got)
	}
	w.stopped(p)

	w.db.Exec(t, `SELECT pg_drop_replication_slot($1)`, w.stream["slot"])
	insert("by sweep")
	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload) VALUES ($1, 'good', 'good')`, w.topic)
	p = w.run()
	w.good(5, patience)
	w.none(`key LIKE 'by%' AND status <> 'FAILED'`, patience)
	if got := p.Peak() >> 20; got > peakMiB {
		t.Errorf("the process took %d MiB for a sweep", got)
	}
	for _, key := range []string{"by log", "by sweep"} {
		text := harness.One[string](t, w.db, `SELECT string_agg(last_error, E'\n') FROM outbox WHERE key = $1`, key)
		if strings.Count(text, "max_row_bytes") != len(sizes)+2 || !strings.Contains(text, "column \"payload\" has 50000000 bytes") ||
			strings.Count(text, "has more than 10000 headers") != 1 {
			t.Errorf("%s: %s", key, text)
		}
	}
}

// How long rows of another writer take, from INSERT to SENT, while a row of 1 GB is
// inserted and read. docs/security.md has the figures; they decide nothing.
func TestLatencyNextToALongRow(t *testing.T) {
	if !long {
		t.Skip("measures for a minute: only in the long form, OUTBOX_TEST_LONG=1")
	}
	w := newWorld(t)
	w.tries(2)
	w.run()
	w.good(5, 20*time.Second)
	measure := func(what string) {
		for range 100 {
			w.db.Exec(t, `INSERT INTO outbox (topic, key, payload) VALUES ($1, $2, 'x')`, w.topic, what)
			time.Sleep(100 * time.Millisecond) // the load, not a wait
		}
		w.none(`key = '`+what+`' AND status <> 'SENT'`, 2*time.Minute)
		t.Log(what, harness.One[string](t, w.db, `SELECT 'p50 ' || percentile_disc(0.5) WITHIN GROUP (ORDER BY took) || ', at most ' || max(took)
			FROM (SELECT sent_at - created_at AS took FROM outbox WHERE key = $1) AS s`, what))
	}
	measure("alone")
	conn := w.db.Conn(t)
	inserted := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), `INSERT INTO outbox (topic, key, payload)
			SELECT $1, 'long', string_agg(b, '') FROM (SELECT convert_to(repeat('x', 10000000), 'UTF8') AS b FROM generate_series(1, 100)) AS s`, w.topic)
		inserted <- err
	}()
	measure("next to a row of 1 GB")
	if err := <-inserted; err != nil {
		t.Fatal(err)
	}
}

// A writer inserts JSON of a hundred kilobytes whose numbers print as more than
// PostgreSQL can hold at once. The WAL cannot be read past it, nor a page.
func TestRowThatCannotBePrinted(t *testing.T) {
	if !long {
		t.Skip("takes gigabytes of the server: only in the long form, OUTBOX_TEST_LONG=1")
	}
	w := newWorld(t)
	w.tries(2)
	w.run()
	w.good(3, 20*time.Second)
	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload, headers)
		SELECT $1, 'bad', '', jsonb_agg(('1e' || 131000 + n % 71)::numeric) FROM generate_series(1, 9000) AS n`, w.topic)
	w.good(5, 5*time.Minute)
	w.none(`key = 'bad' AND status <> 'FAILED'`, 5*time.Minute)
	w.good(5, time.Minute)
}

// A writer has FAILED rows, of a megabyte in the table, whose payload prints as more than
// PostgreSQL can hold at once. Listings, the page and check go on about the others.
func TestRowsThatCannotBePrintedHideNoOther(t *testing.T) {
	if testing.Short() {
		t.Skip("not in the short form")
	}
	w := worldOn(t, harness.Postgres(t))
	w.db.Exec(t, `CREATE TABLE outbox (
		id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_id uuid NOT NULL DEFAULT gen_random_uuid(), topic text NOT NULL, key text,
		payload bit varying, headers jsonb, available_after timestamptz, created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
		status text NOT NULL DEFAULT 'PENDING', sent_at timestamptz, attempts integer NOT NULL DEFAULT 0, last_error text)`)
	w.must("init")
	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload, status)
		WITH a AS MATERIALIZED (SELECT b || b || b || b || b || b || b AS c FROM CAST('0'::bit(80000000) AS bit varying) AS b)
		SELECT $1, 'bad', c || c, s FROM a, unnest(ARRAY['FAILED', 'PENDING']) AS s`, w.topic)
	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload, status) SELECT $1, 'good', B'101', 'FAILED' FROM generate_series(1, 3)`, w.topic)
	said := func(out string, wanted ...string) {
		t.Helper()
		for _, text := range wanted {
			if !strings.Contains(out, text) {
				t.Errorf("no %q: %.3000s", text, out)
			}
		}
	}
	said(w.must("failed", "list"), "4 FAILED rows", "good", "bad")
	out, _ := w.try(false, "preview", "--id", "1", "--id", "3")
	said(out, "good", "bad", "max_row_bytes")
	out, _ = w.try(false, "check")
	said(out, "1 row waits")
}

// A writer has the server compress numbers that print as a hundred megabytes down to a few hundred
// bytes. A sweep does not take them for short.
func TestCompressedNumbersAreLongRows(t *testing.T) {
	w := newWorld(t)
	w.tries(1)
	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload, headers)
		SELECT $1, 'bad', '', ('{"x": [' || repeat('1e131071,', 700) || '0]}')::jsonb FROM generate_series(1, 3)`, w.topic)
	if n := harness.One[int](t, w.db, `SELECT max(pg_column_size(headers)) FROM outbox`); n > 256 {
		t.Fatalf("they take %d bytes", n)
	}
	p := w.run()
	w.good(3, 30*time.Second)
	w.none(`key = 'bad' AND status <> 'FAILED'`, 30*time.Second)
	if got := p.Peak() >> 20; got > peakMiB {
		t.Errorf("the process took %d MiB", got)
	}
}
