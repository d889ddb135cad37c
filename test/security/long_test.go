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

// A writer inserts rows of 50 MB and more, some of which PostgreSQL stores in a
// few, and rows with very many headers. They come by the log, and after the slot was lost by a
// sweep; each time the others' rows are published, the process's memory does not
// follow, and the rows become FAILED.
func TestLongRows(t *testing.T) {
	w := newWorld(t)
	w.table["status"] = fields{
		"column": "status", "pending": "PENDING", "sent": "SENT", "failed": "FAILED", "sent_at": "sent_at",
		"attempts": "attempts", "max_attempts": 2, "last_error": "last_error",
	}
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

// A writer inserts JSON of a hundred kilobytes whose numbers print as more than
// PostgreSQL can hold at once. The log cannot be read past it, nor a page.
func TestRowThatCannotBePrinted(t *testing.T) {
	if !long {
		t.Skip("takes gigabytes of the server: only in the long form, OUTBOX_TEST_LONG=1")
	}
	w := newWorld(t)
	w.table["status"] = fields{
		"column": "status", "pending": "PENDING", "sent": "SENT", "failed": "FAILED", "sent_at": "sent_at",
		"attempts": "attempts", "max_attempts": 2, "last_error": "last_error",
	}
	w.run()
	w.good(3, 20*time.Second)
	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload, headers)
		SELECT $1, 'bad', '', jsonb_agg(('1e' || 131000 + n % 71)::numeric) FROM generate_series(1, 9000) AS n`, w.topic)
	w.good(5, 5*time.Minute)
	w.none(`key = 'bad' AND status <> 'FAILED'`, 5*time.Minute)
	w.good(5, time.Minute)
}
