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
		err := pool.AcquireFunc(t.Context(), func(conn *pgxpool.Conn) error {
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
		if err := pool.AcquireFunc(t.Context(), func(conn *pgxpool.Conn) error {
			pg := conn.Conn().PgConn()
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
