package sweeper

import (
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// Each stream of a shared table reads, counts and deletes the rows of its part, in table order. It follows
// the index through a backlog even if half of it belongs to the other part.
func TestOnlyOurShareIsRead(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, native(t).DDL)
	db.Exec(t, `ALTER TABLE outbox SET (autovacuum_enabled = off)`)
	db.Exec(t, `INSERT INTO outbox (key, topic, payload, created_at, status, sent_at)
		SELECT nullif(i % 100, 0), 'orders', 'x', now() - interval '1 hour', CASE WHEN i > 20000 THEN 'PENDING' WHEN i > 1000 THEN 'SENT' ELSE 'FAILED' END,
			CASE WHEN i BETWEEN 1001 AND 20000 THEN now() - interval '10 min' END
		FROM generate_series(1, 40000) i`)
	var parts []*bench
	for part := 1; part <= 2; part++ {
		table := native(t).Table
		table.Share = outbox.Share{Part: part, Of: 2}
		table.Mapping.OnFailed, table.Mapping.Retention = outbox.OnFailedBlock, time.Minute
		parts = append(parts, newBenchOn(t, db, db.DSN, table))
	}
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			db.Exec(t, `VACUUM ANALYZE outbox`)
		}
		owner, pending := map[string]int{}, int64(0)
		for i, b := range parts {
			before := b.scans()
			for _, r := range append(b.sweep(b.everything(15_000)).Rows, b.watch(outbox.SweepPart{}).Rows...) {
				key := string(r.Key)
				if at, known := owner[key]; known && at != i {
					t.Fatalf("both read key %q", key)
				}
				owner[key] = i
			}
			if after := b.scans(); after != before {
				t.Errorf("part %d, analyzed %v: the table was scanned %d times", i+1, analyzed, after-before)
			}
			p, err := b.sweeper.CountPending(t.Context(), b.table)
			if err != nil || p.Rows == 0 || p.Rows == 20_000 {
				t.Fatalf("%+v, %v", p, err)
			}
			pending += p.Rows
		}
		if len(owner) != 100 || pending != 20_000 { // 99 keys, and rows without a key
			t.Errorf("%d keys, %d pending rows", len(owner), pending)
		}
	}
	blocked := 0
	for _, b := range parts {
		failed, err := b.sweeper.Failed(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		blocked += len(failed)
	}
	if blocked != 99 {
		t.Errorf("%d blocked keys", blocked)
	}
	b := parts[0]
	if _, _, err := b.sweeper.Retain(t.Context(), b.table, nil); err != nil {
		t.Fatal(err)
	}
	left := harness.One[int](t, db, `SELECT count(*) FROM outbox AS t WHERE status = 'SENT'`)
	others := harness.One[int](t, db, `SELECT count(*) FROM outbox AS t WHERE status = 'SENT' AND `+parts[1].table.Filter("t."))
	if left != others || others == 0 {
		t.Errorf("%d sent rows are left, %d are the other part's", left, others)
	}
}
