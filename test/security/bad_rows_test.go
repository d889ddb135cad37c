package security

import (
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// A writer inserts very many rows that can be no record, each with a key of its own. Good rows of other
// keys, and of another table, go on, and the bad ones become FAILED. A try of one costs the database the same, however many
// there are, and once they are too many each is tried once more.
func TestBadRowsWithoutEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.db.Exec(t, `CREATE TABLE other (LIKE outbox INCLUDING ALL)`)
	w.db.Exec(t, `ALTER PUBLICATION outbox ADD TABLE other`)
	w.stream["tables"] = []any{w.table, fields{"table": "public.other", "profile": "native", "grace": "200ms"}}
	w.tries(3)
	bad, within := 12_000, 5*time.Minute
	if long {
		bad, within = 1_000_000, 3*time.Hour
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
	const most = 300 // blocks of 8 KiB; some 50 are usual, at 12,000 rows and at 100,000
	if n := harness.One[int](t, w.db, `SELECT (heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read) / n_tup_upd
		FROM pg_statio_user_tables JOIN pg_stat_user_tables USING (relid) WHERE relid = 'outbox'::regclass`); n > most {
		t.Errorf("an update took %d blocks, of at most %d", n, most)
	} else {
		t.Logf("an update took %d blocks", n)
	}
	const ours = 3 * good // rows of the table that are marked SENT
	if n := harness.One[int](t, w.db, `SELECT n_tup_upd FROM pg_stat_user_tables WHERE relid = 'outbox'::regclass`); 10*(n-ours) > 29*bad {
		t.Errorf("%d bad rows took %d updates", bad, n-ours)
	}
	w.tell(p, "process", 1000)
	w.stopped(p)
}
