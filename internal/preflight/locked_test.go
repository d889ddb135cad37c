package preflight

import (
	"fmt"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// If a table is locked, check names the holder, does not wait for the lock, and reports everything else.
func TestALockedTable(t *testing.T) {
	w := made(t, harness.Postgres(t))
	other := w.db.Conn(t)
	if _, err := other.Exec(t.Context(), "SET application_name = 'migration'; BEGIN; LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	r := w.check()
	if took := time.Since(began); took > 9*time.Second { // a probe has ten
		t.Errorf("it took %v", took)
	}
	pid := fmt.Sprint(other.PgConn().PID())
	expect(t, find(t, r, "table", "public.outbox"), Fail, "locked", "process "+pid+" postgres", "migration idle in transaction", "pg_terminate_backend("+pid+")")
	expect(t, find(t, r, "columns", "public.outbox"), Skip, "the table is locked")
	expect(t, find(t, r, "slot", ""), OK)
	expect(t, find(t, r, "schema", ""), OK)
	if _, err := other.Exec(t.Context(), "PREPARE TRANSACTION 'locked'"); err != nil {
		t.Fatal(err)
	}
	expect(t, find(t, w.check(), "table", "public.outbox"), Fail, "locked", `prepared transaction "locked" of postgres`)
	w.db.Exec(t, "ROLLBACK PREPARED 'locked'")
	if r.MustAct() || !r.Incomplete() {
		t.Errorf("must act: %t, incomplete: %t", r.MustAct(), r.Incomplete())
	}
}
