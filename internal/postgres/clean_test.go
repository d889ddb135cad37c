package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// leavings are what a trigger may leave in the session that it runs in.
const leavings = `
	SET work_mem = '64kB'; SET synchronous_commit = off; SET search_path = public; SET enable_indexscan = off;
	SET default_transaction_read_only = on; SET idle_session_timeout = '1h'; SET ROLE pg_monitor; SET application_name = 'theirs';
	CREATE TEMP TABLE theirs AS SELECT 1; LISTEN theirs; SELECT pg_advisory_lock(4713); DECLARE c CURSOR WITH HOLD FOR SELECT 1;
	SET SESSION AUTHORIZATION pg_monitor`

// A session that others' code ran in goes back to the pool as it was.
func TestASessionIsCleanedAfterUse(t *testing.T) {
	db := harness.Postgres(t)
	pool, err := postgres.Access{DSN: db.DSN + "&application_name=ours"}.Pool(func(c *pgxpool.Config) { c.MaxConns = 1 })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	state := func() string {
		t.Helper()
		var all string
		err := postgres.Acquire(t.Context(), pool, func(conn *pgx.Conn) error {
			return conn.QueryRow(t.Context(), `SELECT (SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings WHERE source <> 'override')
				|| current_user || session_user || (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())
				|| (SELECT count(*) FROM pg_listening_channels()) || (SELECT count(*) FROM pg_cursors WHERE is_holdable) || coalesce(to_regclass('pg_temp.theirs')::text, '')`,
				pgx.QueryExecModeExec).Scan(&all)
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := state()
	for _, used := range []bool{false, true} {
		if err := postgres.Acquire(t.Context(), pool, func(conn *pgx.Conn) error {
			pg := conn.PgConn()
			if used {
				postgres.Used(pg)
			}
			_, err := pg.Exec(t.Context(), leavings).ReadAll()
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if after := state(); (after == before) != used {
			t.Errorf("used: %t; the session had\n%s\nand has\n%s", used, before, after)
		}
		pool.Reset()
	}
	if _, err := postgres.OnOthers(pool).Exec(t.Context(), `SELECT set_config('work_mem', '64kB', false), pg_advisory_lock(4713)`); err != nil {
		t.Fatal(err)
	}
	if after := state(); after != before {
		t.Errorf("after a statement about others' tables the session has\n%s\ninstead of\n%s", after, before)
	}
}

// A session of ours has its settings, so that single statements do not set them again.
func TestOwnSessionsAreSetUpOnce(t *testing.T) {
	pool, err := postgres.Access{DSN: harness.Postgres(t).DSN}.Pool(func(c *pgxpool.Config) { c.MaxConns = 1 })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	db := postgres.On(pool).After("SELECT 'first'")
	if _, err := db.Exec(t.Context(), "SELECT 1/$1::int", 0); err == nil {
		t.Error("an error was lost")
	}
	var path, ran string
	if err := db.QueryRow(t.Context(), `SELECT current_setting('search_path'), coalesce((SELECT string_agg(statement, '; ')
		FROM pg_prepared_statements WHERE statement ~ 'set_config|first' AND statement !~ 'pg_prepared'), '')`).Scan(&path, &ran); err != nil {
		t.Fatal(err)
	}
	if path != "pg_catalog, pg_temp" || ran != "SELECT 'first'" {
		t.Errorf("search_path = %s; before the statement ran: %s", path, ran)
	}
	pool.Close() // waits until each connection was given back
	if _, err := db.Exec(t.Context(), "SELECT 1"); err == nil {
		t.Error("no error from a closed pool")
	}
}

// Statements one after another are run in one session.
func TestASessionGoesBackAtOnce(t *testing.T) {
	pool, err := postgres.Access{DSN: harness.Postgres(t).DSN}.Pool(func(c *pgxpool.Config) { c.MaxConns = 4 })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	for range 100 {
		if _, err := postgres.On(pool).Exec(t.Context(), "SELECT 1"); err != nil {
			t.Fatal(err)
		}
	}
	if n := pool.Stat().NewConnsCount(); n != 1 {
		t.Errorf("%d sessions were opened", n)
	}
}

// A session that is in a transaction, or that cannot be cleaned, is closed.
func TestASessionThatIsNotCleanIsClosed(t *testing.T) {
	db := harness.Postgres(t)
	role := "of_" + db.Name
	db.Exec(t, "CREATE ROLE "+role+"; REVOKE EXECUTE ON FUNCTION pg_advisory_unlock_all() FROM PUBLIC") // so the role cannot be rid of locks
	pool, err := postgres.Access{DSN: db.DSN + "&role=" + role}.Pool(func(c *pgxpool.Config) { c.MaxConns = 1 })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	for _, left := range []string{"BEGIN; SET work_mem = '64kB'", "SELECT pg_advisory_lock(1)"} {
		if err := postgres.Acquire(t.Context(), pool, func(conn *pgx.Conn) error {
			postgres.Used(conn.PgConn())
			_, err := conn.PgConn().Exec(t.Context(), left).ReadAll()
			return err
		}); err != nil {
			t.Fatal(err)
		}
		var state string
		if err := postgres.On(pool).QueryRow(t.Context(), `SELECT current_setting('work_mem') || (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')`).Scan(&state); err != nil || state != "4MB0" {
			t.Errorf("after %s: %q, %v", left, state, err)
		}
	}
	if n := pool.Stat().NewConnsCount(); n != 3 {
		t.Errorf("%d sessions were opened, want 3", n)
	}
}
