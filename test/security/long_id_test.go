package security

import (
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// A table has no unique index on its id, and a writer inserts rows with ids of megabytes, which no
// statement can write to. They come by the WAL and by a sweep; others are published, the rows stay
// and are told of, and an operator's command reads none of them.
func TestLongIDs(t *testing.T) {
	if !long {
		t.Skip("only in the long form, OUTBOX_TEST_LONG=1; TestLongIDsAreNotRead of package tablesql looks at the statements")
	}
	w := worldOn(t, harness.Postgres(t))
	w.db.Exec(t, `CREATE TABLE outbox (
		id text NOT NULL DEFAULT gen_random_uuid()::text, event_id uuid NOT NULL DEFAULT gen_random_uuid(), topic text NOT NULL, key text,
		payload bytea, headers jsonb, available_after timestamptz, created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
		status text NOT NULL DEFAULT 'PENDING', sent_at timestamptz, attempts integer NOT NULL DEFAULT 0, last_error text)`)
	w.tries(1)
	w.table["max_row_bytes"] = "1MiB"
	w.must("init")
	bad := func(status string) {
		w.db.Exec(t, `INSERT INTO outbox (id, topic, key, payload, status) SELECT repeat($$x$$, 5000000) || n, $1, 'bad', '', $2 FROM generate_series(1, 3) AS n`, w.topic, status)
	}
	bad("FAILED")
	bad("PENDING")
	w.db.Exec(t, `INSERT INTO outbox (id, topic, key, payload, status) VALUES ('fine', $1, 'fine', 'good', 'FAILED')`, w.topic)
	p := w.run()
	bad("PENDING")
	w.good(5, 30*time.Second)
	p.Await(30*time.Second, "pending rows are never swept")
	w.must("failed", "requeue", "--all", "--yes")
	w.none(`key = 'fine' AND status <> 'SENT'`, 30*time.Second)
	if got := p.Peak() >> 20; got > peakMiB {
		t.Errorf("the process took %d MiB", got)
	}
	if n := harness.One[int](t, w.db, `SELECT count(*) FROM outbox WHERE key = 'bad'`); n != 9 {
		t.Errorf("%d rows are left", n)
	}
	w.stopped(p)
}
