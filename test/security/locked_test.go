package security

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// A table that cannot be read as it is mapped at a start stops no other, and is streamed again
// as soon as it can be.
func TestATableThatCouldNotBeReadIsStreamedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.db.Exec(t, `CREATE TABLE other (LIKE outbox INCLUDING ALL); ALTER PUBLICATION outbox ADD TABLE other; ALTER TABLE outbox RENAME payload TO gone`)
	w.stream["tables"] = []any{w.table, fields{"table": "public.other", "profile": "native", "grace": "200ms"}}
	w.db.Exec(t, `INSERT INTO outbox (topic, key, gone) VALUES ($1, 'good', '')`, w.topic)
	p := w.run()
	w.db.Exec(t, `INSERT INTO other (topic, key, payload) VALUES ($1, 'good', '')`, w.topic)
	w.awaitCount(`SELECT count(*) FROM other WHERE status = 'SENT'`, 1)
	w.awaitCount(`SELECT count(*) FROM outbox_cdc.park WHERE kind = 'table'`, 1)
	w.db.Exec(t, `ALTER TABLE outbox RENAME gone TO payload`)
	w.awaitWithin(time.Minute, `SELECT count(*) FROM outbox_cdc.park`, 0)
	w.insertRows("good", 5)
	w.allSent("good", 6)
	p.Stop(20 * time.Second)
}

// A table that somebody has locked stops no other, neither at a start nor later. The process
// is not ready, and says who has it locked, and what ends that. So it is with a partition.
func TestALockedTableStopsNoOther(t *testing.T) {
	t.Parallel()
	t.Run("table", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		if harness.One[int](t, w.db, `SELECT current_setting('server_version_num')::int`) >= 15_00_00 {
			w.db.Exec(t, `ALTER PUBLICATION outbox SET TABLE outbox WHERE (id > 0)`) // to print it opens the table
		}
		lockedStopsNoOther(w, `BEGIN; LOCK TABLE outbox`)
	})
	t.Run("partition", func(t *testing.T) {
		t.Parallel()
		if testing.Short() {
			t.Skip("not in the short form")
		}
		w := worldOn(t, harness.Postgres(t))
		w.db.Exec(t, `CREATE TABLE outbox (
				part int NOT NULL DEFAULT 1, id bigint GENERATED ALWAYS AS IDENTITY, event_id uuid NOT NULL DEFAULT gen_random_uuid(), topic text NOT NULL,
				key text, payload bytea, headers jsonb, available_after timestamptz, created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
				status text NOT NULL DEFAULT 'PENDING', sent_at timestamptz, attempts integer NOT NULL DEFAULT 0, last_error text,
				PRIMARY KEY (part, id)) PARTITION BY LIST (part);
			CREATE INDEX ON outbox (id) WHERE status = 'PENDING';
			CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES IN (1) PARTITION BY LIST (part);
			CREATE TABLE outbox_1_1 PARTITION OF outbox_1 FOR VALUES IN (1)`)
		w.table["id"] = []string{"part", "id"}
		w.must("init")
		lockedStopsNoOther(w, `BEGIN; LOCK TABLE outbox_1_1`)
	})
}

func lockedStopsNoOther(w *world, locked string) {
	t := w.t
	t.Helper()
	w.db.Exec(t, `CREATE TABLE other (LIKE outbox INCLUDING ALL); ALTER PUBLICATION outbox ADD TABLE other`)
	free := maps.Clone(w.table)
	free["table"] = "public.other"
	w.stream["tables"] = []any{w.table, free}
	w.table["on_failed"] = "block" // such a table is read before the WAL
	lock := w.db.Conn(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := lock.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	var p *served
	others := 0
	other := func() {
		t.Helper()
		w.db.Exec(t, `INSERT INTO other (topic, key, payload) VALUES ($1, 'good', '')`, w.topic)
		others++
		w.awaitCount(`SELECT count(*) FROM other WHERE status = 'SENT'`, others)
	}
	ready := func(want int, said ...string) {
		t.Helper()
		harness.Eventually(t, 30*time.Second, func() error {
			code, body := p.ask(http.MethodGet, "/readyz", "")
			for _, s := range said {
				if !strings.Contains(body, s) {
					code = 0
				}
			}
			if code != want {
				return fmt.Errorf("/readyz: %d, want %d with %q: %s", code, want, said, body)
			}
			return nil
		})
	}
	who := fmt.Sprintf("pg_terminate_backend(%d)", lock.PgConn().PID())

	w.insertRows("good", 5)
	exec(locked)
	p = w.serve()
	other()
	ready(http.StatusServiceUnavailable, "public.outbox", "locked", who)
	exec(`COMMIT`)
	w.allSent("good", 5)
	ready(http.StatusOK)
	w.awaitCount(`SELECT count(*) FROM outbox_cdc.park`, 0) // it is streamed again

	exec(locked)
	p.run.Await(20*time.Second, "parked", "public.outbox", who)
	other()
	ready(http.StatusServiceUnavailable, "public.outbox", "locked", who)
	exec(`COMMIT`)
	w.insertRows("good", 5)
	w.allSent("good", 10)
	ready(http.StatusOK)
	w.stopped(p.run)
}
