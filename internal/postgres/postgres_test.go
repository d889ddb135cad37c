package postgres_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// hostile is what a role or a database may carry, each against our statements.
var hostile = []string{
	"search_path = evil, pg_catalog, public", "client_encoding = LATIN1", "standard_conforming_strings = off",
	"quote_all_identifiers = on", "transform_null_equals = on", "array_nulls = off", "row_security = on",
	"DateStyle = 'SQL, DMY'", "IntervalStyle = sql_standard", "TimeZone = 'Asia/Kathmandu'", "bytea_output = escape",
	"extra_float_digits = '-3'", "xmloption = document", "statement_timeout = '1s'", "lock_timeout = 1", "lc_monetary = 'POSIX'",
	"idle_session_timeout = '30s'", "idle_in_transaction_session_timeout = 1",
	"default_transaction_isolation = serializable", "default_transaction_read_only = on",
	"default_transaction_deferrable = on", "client_min_messages = error", "plan_cache_mode = force_generic_plan", "jit = on",
}

func settings(t *testing.T, show func(name string) string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, h := range hostile {
		name, _, _ := strings.Cut(h, " = ")
		found[name] = show(name)
	}
	return found
}

func show(t *testing.T, pg *pgconn.PgConn) func(string) string {
	return func(name string) string {
		results, err := pg.Exec(t.Context(), "SHOW "+name).ReadAll()
		if err != nil {
			t.Fatal(name, err)
		}
		return string(results[0].Rows[0][0])
	}
}

// Every kind of connection has the same settings, whatever role and database carry.
func TestSettingsAreOurs(t *testing.T) {
	db := harness.Postgres(t)
	before := map[string]map[string]string{}
	kinds := kindsOf(t, db.DSN)
	for name, connect := range kinds {
		before[name] = settings(t, show(t, connect()))
	}
	var alter strings.Builder
	for _, h := range hostile {
		if !db.Accepts(t, h) {
			continue
		}
		fmt.Fprintf(&alter, "ALTER DATABASE %s SET %s;\n", pgx.Identifier{db.Name}.Sanitize(), h)
	}
	db.Exec(t, alter.String())
	for name, connect := range kinds {
		after := settings(t, show(t, connect()))
		for setting, value := range after {
			if value != before[name][setting] {
				t.Errorf("%s: %s is %q, without the database's own settings %q", name, setting, value, before[name][setting])
			}
		}
		if after["search_path"] != "pg_catalog, pg_temp" || after["client_encoding"] != "UTF8" || after["row_security"] != "off" {
			t.Errorf("%s: %v", name, after)
		}
	}
}

func kindsOf(t *testing.T, dsn string) map[string]func() *pgconn.PgConn {
	keep := func(pg *pgconn.PgConn, err error) *pgconn.PgConn {
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = pg.Close(context.Background()) })
		return pg
	}
	return map[string]func() *pgconn.PgConn{
		"plain": func() *pgconn.PgConn { return keep(postgres.Access{DSN: dsn}.ConnectPlain(t.Context())) },
		"replication": func() *pgconn.PgConn {
			return keep(postgres.Access{DSN: dsn, Replication: true, OwnSession: true}.ConnectPlain(t.Context()))
		},
		"primary": func() *pgconn.PgConn {
			return keep(postgres.Access{DSN: dsn + "&target_session_attrs=read-write"}.ConnectPlain(t.Context()))
		},
		"pgx": func() *pgconn.PgConn {
			conn, err := postgres.Access{DSN: dsn + "&default_query_exec_mode=exec&pool_max_conns=3"}.Connect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return keep(conn.PgConn(), nil)
		},
		"pool": func() *pgconn.PgConn {
			pool, err := postgres.Access{DSN: dsn}.Pool(nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			conn, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(conn.Release)
			return conn.Conn().PgConn()
		},
	}
}

// In a session that is not ours a transaction has the settings, and nothing of
// them is left behind.
func TestTransactionsAreSetUpInOthersSessions(t *testing.T) {
	db := harness.Postgres(t)
	conn := db.Conn(t) // not by package postgres: as behind a pooler
	if _, err := conn.Exec(t.Context(), "SET search_path = evil, pg_catalog"); err != nil {
		t.Fatal(err)
	}
	var path string
	if err := postgres.On(conn).QueryRow(t.Context(), "SELECT current_setting($1)", "search_path").Scan(&path); err != nil || path != "pg_catalog, pg_temp" {
		t.Error(path, err)
	}
	rows, err := postgres.On(conn).Query(t.Context(), "SELECT current_setting(n) FROM unnest($1::text[]) n", []string{"search_path", "row_security"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || fmt.Sprint(got) != "[pg_catalog, pg_temp off]" {
		t.Error(got, err)
	}
	results, err := postgres.Exec(t.Context(), conn.PgConn(), "SELECT current_setting('search_path'); SHOW row_security")
	if err != nil || len(results) != 2 || string(results[0].Rows[0][0]) != "pg_catalog, pg_temp" {
		t.Error(results, err)
	}
	if _, err := postgres.Exec(t.Context(), conn.PgConn(), "SELECT 1/0"); err == nil {
		t.Error("an error was lost")
	}
	if _, err := postgres.On(conn).Exec(t.Context(), "SELECT 1/$1::int", 0); err == nil {
		t.Error("an error was lost")
	}
	if left := show(t, conn.PgConn())("search_path"); left != "evil, pg_catalog" {
		t.Errorf("the session was left with search_path %s", left)
	}
}

// The error of a commit is the statement's.
func TestACommitsErrorIsTold(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, `CREATE TABLE late (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)`)
	pool := postgres.On(db.Pool(t))
	twice := "INSERT INTO public.late SELECT 1 FROM generate_series(1, 2) RETURNING id"
	if _, err := pool.Exec(t.Context(), twice); err == nil {
		t.Error("Exec has no error")
	}
	rows, err := pool.Query(t.Context(), twice)
	if err == nil {
		_, err = pgx.CollectRows(rows, pgx.RowTo[int])
	}
	if err == nil {
		t.Error("Query has no error")
	}
	var id int
	if err := pool.QueryRow(t.Context(), twice).Scan(&id); err == nil {
		t.Error("QueryRow has no error")
	}
}

// now gives the current password, and counts questions and refusals.
type now struct {
	password       string
	asked, refused int
}

func (n *now) Read(context.Context) (string, error) { n.asked++; return n.password, nil }
func (n *now) Refused()                             { n.refused++ }

// The password is asked for at each connection, and its source hears of a refusal.
func TestThePasswordIsAskedFor(t *testing.T) {
	db := harness.Postgres(t)
	c, err := postgres.Parse(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	password := &now{password: c.Password}
	access := postgres.Access{DSN: db.Server.DSNAs(db.Name, "postgres", "wrong"), Password: password}
	pool, err := access.Pool(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for range 2 {
		if err := pool.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		pool.Reset()
	}
	conn, err := access.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close(t.Context())
	if password.asked != 3 || password.refused != 0 {
		t.Errorf("asked %d times, want 3; refused %d times", password.asked, password.refused)
	}
	password.password = "old"
	if _, err := access.ConnectPlain(t.Context()); err == nil || password.refused == 0 {
		t.Errorf("%v; refused %d times", err, password.refused)
	}
	if before := password.refused; pool.Ping(t.Context()) == nil || password.refused == before {
		t.Error("the pool tells nobody of a refused password")
	}
}

// Every kind of connection shows the client certificate that is in the files when it is made.
func TestEveryConnectionShowsItsCertificate(t *testing.T) {
	db, files := harness.PrivatePostgres(t, localpg.Options{}), t.TempDir()
	db.Exec(t, `CREATE ROLE cdc SUPERUSER REPLICATION LOGIN PASSWORD 'secret'`)
	path := func(name string) string { return filepath.Join(files, name) }
	access := postgres.Access{DSN: fmt.Sprintf("host=127.0.0.1 port=%d dbname=%s user=cdc password=secret sslmode=verify-full sslrootcert=%s sslcert=%s sslkey=%s",
		db.Server.Port(), db.Name, path("ca.pem"), path("own.pem"), path("own.key"))}
	var pool *pgxpool.Pool
	for _, which := range []string{"first", "second"} {
		authority := harness.NewAuthority(t)
		cert, key := authority.Issue(which)
		db.TrustsOnly(t, authority, "cdc")
		for name, from := range map[string]string{"ca.pem": authority.File, "own.pem": cert, "own.key": key} {
			b, err := os.ReadFile(from)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path(name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if pool == nil {
			var err error
			if pool, err = access.Pool(nil); err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
		}
		pool.Reset() // what was made with the former ones stays good
		connect := map[string]func() (*pgconn.PgConn, error){
			"of the pool": func() (*pgconn.PgConn, error) {
				conn, err := pool.Acquire(t.Context())
				if err != nil {
					return nil, err
				}
				return conn.Hijack().PgConn(), nil
			},
			"alone": func() (*pgconn.PgConn, error) {
				conn, err := access.Connect(t.Context())
				if err != nil {
					return nil, err
				}
				return conn.PgConn(), nil
			},
			"plain": func() (*pgconn.PgConn, error) { return access.ConnectPlain(t.Context()) },
			"for replication": func() (*pgconn.PgConn, error) {
				replication := access
				replication.Replication = true
				return replication.ConnectPlain(t.Context())
			},
		}
		for kind, connect := range connect {
			pg, err := connect()
			if err != nil {
				t.Errorf("%s: a connection %s: %v", which, kind, err)
				continue
			}
			pid := pg.PID()
			if shown := harness.One[*string](t, db, `SELECT client_dn FROM pg_stat_ssl WHERE pid = $1`, pid); shown == nil || *shown != "/CN="+which {
				t.Errorf("%s: a connection %s shows another certificate", which, kind)
			}
			_ = pg.Close(t.Context())
		}
	}
}

// A role that the owner of the database gives to every session is not taken on;
// one of the connection string is.
func TestOnlyTheConnectionStringGivesARole(t *testing.T) {
	db := harness.Postgres(t)
	owner := pgx.Identifier{db.Name + "_owner"}.Sanitize()
	db.Exec(t, fmt.Sprintf(`CREATE ROLE %[1]s; ALTER DATABASE %[2]s SET role = %[1]s`, owner, pgx.Identifier{db.Name}.Sanitize()))
	defer func() {
		db.Exec(t, fmt.Sprintf(`SET ROLE NONE; ALTER DATABASE %[2]s RESET role; DROP ROLE %[1]s`, owner, pgx.Identifier{db.Name}.Sanitize()))
	}()
	current := func(pg *pgconn.PgConn) string {
		results, err := pg.Exec(t.Context(), "SELECT current_user").ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		return string(results[0].Rows[0][0])
	}
	if role := current(db.Conn(t).PgConn()); role != db.Name+"_owner" {
		t.Fatalf("the server gives role %s", role)
	}
	for name, connect := range kindsOf(t, db.DSN) {
		if role := current(connect()); role == db.Name+"_owner" {
			t.Errorf("%s: the session has role %s", name, role)
		}
	}
	for _, given := range []string{"role=pg_monitor", "ROLE=pg_monitor", "options=-crole%3Dpg_monitor", "options=-c%20jit%3Don%20--Role%3Dpg_monitor"} {
		for name, connect := range kindsOf(t, db.DSN+"&"+given) {
			if role := current(connect()); role != "pg_monitor" {
				t.Errorf("%s, %s: the session has role %s", name, given, role)
			}
		}
	}
	for name, connect := range kindsOf(t, db.DSN+"&options=-c%20session_replication_role%3Dorigin") {
		if role := current(connect()); role == db.Name+"_owner" {
			t.Errorf("%s, with another setting whose name ends in role: the session has role %s", name, role)
		}
	}
}

// The connection string chooses how statements are sent, and not how large pgx's caches are.
func TestEveryQueryExecModeWorks(t *testing.T) {
	db := harness.Postgres(t)
	for _, mode := range []string{"", "cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		for _, capacity := range []string{"", "-1", "0", "2000000000"} {
			dsn := db.DSN
			if mode != "" {
				dsn += "&default_query_exec_mode=" + mode
			}
			if capacity != "" {
				dsn += "&statement_cache_capacity=" + capacity + "&description_cache_capacity=" + capacity
			}
			conn, err := postgres.Access{DSN: dsn}.Connect(t.Context())
			if err != nil {
				t.Fatal(mode, capacity, err)
			}
			if c := conn.Config(); c.StatementCacheCapacity+c.DescriptionCacheCapacity != 64 {
				t.Errorf("mode %q, capacity %q: room for %d statements and %d descriptions", mode, capacity, c.StatementCacheCapacity, c.DescriptionCacheCapacity)
			}
			for range 2 {
				var sum int
				if err := conn.QueryRow(t.Context(), "SELECT $1::int + 1", 1).Scan(&sum); err != nil || sum != 2 {
					t.Errorf("mode %q, capacity %q: %d, %v", mode, capacity, sum, err)
				}
			}
			if err := conn.Close(t.Context()); err != nil {
				t.Error(mode, capacity, err)
			}
		}
	}
}

// A connection that was used a moment ago is used again without a ping.
func TestOnlyALongIdleConnectionIsPinged(t *testing.T) {
	db := harness.Postgres(t)
	pool, err := postgres.Access{DSN: db.DSN}.Pool(func(c *pgxpool.Config) { c.MaxConns = 1 })
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(t.Context(), "SELECT 'last'", pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1100 * time.Millisecond) // pgx alone would ping now
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	last := harness.One[string](t, db, "SELECT query FROM pg_stat_activity WHERE pid = $1", int32(conn.Conn().PgConn().PID()))
	if last != "SELECT 'last'" {
		t.Errorf("the session's last statement is %q", last)
	}
	if long := (pgxpool.ShouldPingParams{IdleDuration: time.Minute}); !pool.Config().ShouldPing(t.Context(), long) {
		t.Error("a connection that was idle for a minute is used without a ping")
	}
}
