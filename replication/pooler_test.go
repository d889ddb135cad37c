package replication

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// Through a PgBouncer that supports replication connections (from 1.23 on), a process leads and streams in
// every pool mode: such a connection has a server connection of its own. An older PgBouncer is refused with a
// hint.
func TestReplicationThroughAPooler(t *testing.T) {
	for _, mode := range []string{"session", "transaction"} {
		t.Run(mode, func(t *testing.T) { throughAPooler(t, mode) })
	}
}

func throughAPooler(t *testing.T, mode string) {
	b := newBench(t).init(t)
	role := "streamer_" + b.Name
	role = role[:min(63, len(role))]
	b.Exec(t, fmt.Sprintf(`CREATE ROLE %s LOGIN REPLICATION PASSWORD 'p'`, role))
	defer b.Exec(t, "DROP ROLE "+role)
	through := *b
	through.cfg.DSN = harness.PgBouncer(t, b.DB, mode, role, "p")
	c, err := Lead(t.Context(), through.cfg)
	var refused *postgres.Error
	if errors.As(err, &refused) {
		if !refused.Permanent || !strings.Contains(err.Error(), "PgBouncer 1.23 or later") {
			t.Fatal(err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Kill()
	if pid := harness.One[int64](t, b.DB, `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = $1`, c.PID()); pid != int64(c.PID()) {
		t.Errorf("process %d serves it, not %d", pid, c.PID())
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.insert(t, 2)
	receive(t, c, 2)
}
