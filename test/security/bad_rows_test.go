package security

import (
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// A writer inserts very many rows that can be no record, each with a key of its own. Good rows of other
// keys, and of another table, go on, and the bad ones become FAILED.
func TestBadRowsWithoutEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.db.Exec(t, `CREATE TABLE other (LIKE outbox INCLUDING ALL)`)
	w.db.Exec(t, `ALTER PUBLICATION outbox ADD TABLE other`)
	w.stream["tables"] = []any{w.table, fields{"table": "public.other", "profile": "native", "grace": "200ms"}}
	bad, within := 12_000, 5*time.Minute
	if long {
		bad, within = 1_000_000, time.Hour
	} else {
		w.tries(3)
	}
	p := w.run()
	const good = 5000
	// sent inserts good rows and tells how long it takes until all of them are SENT.
	sent := func(table, what string) time.Duration {
		t.Helper()
		began := time.Now()
		w.db.Exec(t, `INSERT INTO `+table+` (topic, key, payload) SELECT $1, $2 || n % 100, '' FROM generate_series(1, $3::int) n`, w.topic, what, good)
		w.awaitWithin(within, `SELECT count(*) FROM `+table+` WHERE key ~ '^`+what+`[0-9]+$' AND status = 'SENT'`, good)
		return time.Since(began)
	}
	alone := sent("outbox", "alone")
	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload, headers) SELECT $1, 'bad' || n, '', '{"a": []}' FROM generate_series(1, $2::int) n`, w.topic, bad)
	began := time.Now()
	other := sent("other", "other")
	if n := harness.One[int](t, w.db, `SELECT count(*) FROM outbox WHERE headers IS NOT NULL AND status = 'PENDING'`); n == 0 {
		t.Error("rows of another table went out only when no bad row was left")
	}
	among := sent("outbox", "among")
	w.awaitWithin(within, `SELECT count(*) FROM outbox WHERE headers IS NOT NULL AND status = 'FAILED'`, bad)
	ended := time.Since(began)
	w.awaitWithin(within, `SELECT count(*) FROM outbox_cdc.park`, 0)
	after := sent("outbox", "after")
	t.Logf("%d good rows took %v alone, %v of another table and %v of the table of %d bad rows, which had FAILED after %v, then %v", good, alone, other, among, bad, ended, after)
	w.tell(p, "process", 1000)
	w.stopped(p)
}
