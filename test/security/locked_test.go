package security

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// A table that somebody has locked stops no other, neither at a start nor later. The process
// is not ready, and says who has it locked, since when, and what ends that.
func TestALockedTableStopsNoOther(t *testing.T) {
	w := newWorld(t)
	w.db.Exec(t, `CREATE TABLE other (LIKE outbox INCLUDING ALL); ALTER PUBLICATION outbox ADD TABLE other`)
	w.table["on_failed"] = "block" // such a table is read before the log
	w.stream["tables"] = []any{w.table, fields{"table": "public.other", "profile": "native", "grace": "200ms"}}
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
	exec(`BEGIN; LOCK TABLE outbox`)
	p = w.serve()
	other()
	ready(http.StatusServiceUnavailable, "public.outbox", "locked", who)
	exec(`COMMIT`)
	w.allSent("good", 5)
	ready(http.StatusOK)
	w.awaitCount(`SELECT count(*) FROM outbox_cdc.park`, 0) // it is streamed again

	exec(`BEGIN; LOCK TABLE outbox`)
	p.run.Await(20*time.Second, "parked", "public.outbox", who)
	other()
	ready(http.StatusServiceUnavailable, "public.outbox", "locked", who)
	exec(`COMMIT`)
	w.insertRows("good", 5)
	w.allSent("good", 10)
	ready(http.StatusOK)
	p.run.Stop(20 * time.Second)
}
