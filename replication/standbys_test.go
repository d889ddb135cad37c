package replication

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// Sessions that wait for the lead are returned. The leader, other streams' processes and other connections
// are not.
func TestWhoWaitsForTheLead(t *testing.T) {
	db := harness.Postgres(t)
	pool := db.Pool(t)
	named := func(name string) *pgx.Conn {
		conn := db.Conn(t)
		if _, err := conn.Exec(t.Context(), "SELECT set_config('application_name', $1, false)", name); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	const leader = "outbox-cdc/orders@host1"
	look := func() (names []string) {
		t.Helper()
		var waiting []Holder
		if err := postgres.On(pool).Ask(t.Context(), Standbys("s", leader, &waiting)); err != nil {
			t.Fatal(err)
		}
		for _, h := range waiting {
			if h.PID == "" || h.Since == "" {
				t.Errorf("%+v", h)
			}
			names = append(names, h.Name)
		}
		return names
	}
	leads := named(leader)
	if _, err := leads.Exec(t.Context(), "SELECT pg_advisory_lock($1)", LockKey("s")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"outbox-cdc/orders", "outbox-cdc/orders2@host2", "psql"} {
		named(name)
	}
	if got := look(); len(got) != 0 {
		t.Error(got)
	}
	named("outbox-cdc/orders@host2")
	if got := look(); len(got) != 1 || got[0] != "outbox-cdc/orders@host2" {
		t.Error(got)
	}
}
