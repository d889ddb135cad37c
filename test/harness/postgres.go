package harness

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
)

// DB is a database for one test.
type DB struct {
	Server *localpg.Server
	Name   string
	DSN    string // as superuser; see Own
}

// sharedServer is the server that all tests of a package share.
var sharedServer = sync.OnceValues(func() (*localpg.Server, error) {
	return localpg.Start(context.Background(), serverOptions(localpg.Options{Settings: map[string]string{
		"max_connections": "300", "max_wal_senders": "40", "max_replication_slots": "40", // of several tests at once
	}}))
})

// serverOptions lets OUTBOX_TEST_POSTGRES choose the version, and keeps the
// template between runs.
func serverOptions(o localpg.Options) localpg.Options {
	if o.Version == "" {
		o.Version = postgresVersion()
	}
	if dir, err := cache(); err == nil {
		o.TemplateDir = dir
	}
	return o
}

// Postgres returns a fresh database on the server that all tests of a package share. The slots and sessions
// of the database are removed together with it. Roles and settings belong to the whole server: a test that
// changes them has to use PrivatePostgres.
func Postgres(t testing.TB) *DB {
	t.Helper()
	s, err := sharedServer()
	if err != nil {
		t.Fatal(err)
	}
	return Database(t, s)
}

// PrivatePostgres starts a server for one test, and returns a database on it.
func PrivatePostgres(t testing.TB, o localpg.Options) *DB {
	t.Helper()
	s, err := localpg.Start(t.Context(), serverOptions(o))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the PostgreSQL server logged:\n%s", lastLines(s.Log(), 40))
		}
		if err := s.Close(); err != nil {
			t.Errorf("closing PostgreSQL: %v", err)
		}
	})
	db := &DB{Server: s, Name: "app", DSN: s.DSN("app")}
	onServer(t, s, "CREATE DATABASE app")
	beset(t, db)
	return db
}

var databases atomic.Int64

// Database makes a fresh database on a server, and drops it with the test.
func Database(t testing.TB, s *localpg.Server) *DB {
	t.Helper()
	db := PlainDatabase(t, s, "")
	beset(t, db)
	return db
}

// PlainDatabase is Database with options of CREATE DATABASE, and without the
// hostile schema.
func PlainDatabase(t testing.TB, s *localpg.Server, options string) *DB {
	t.Helper()
	name := fmt.Sprintf("t%d_%s", databases.Add(1), identifier(t.Name()))
	onServer(t, s, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()+" "+options)
	db := &DB{Server: s, Name: name, DSN: s.DSN(name)}
	t.Cleanup(func() { db.drop(t) })
	return db
}

// tidyTime limits the cleanup after a test.
const tidyTime = 30 * time.Second

func (db *DB) drop(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), tidyTime)
	defer cancel()
	conn, err := pgx.Connect(ctx, db.Server.DSN("postgres"))
	if err != nil {
		t.Logf("dropping database %s: %v", db.Name, err)
		return
	}
	defer conn.Close(ctx)
	for ctx.Err() == nil {
		if err = dropOnce(ctx, conn, db.Name); err == nil {
			return
		}
		// A walsender takes a moment to leave its slot.
	}
	t.Errorf("dropping database %s: %v", db.Name, err)
}

func dropOnce(ctx context.Context, conn *pgx.Conn, name string) error {
	if _, err := conn.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1`, name); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = $1`, name); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
	return err
}

// Conn opens a connection that is closed with the test.
func (db *DB) Conn(t testing.TB) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.Own())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's context is over in Cleanup.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	})
	return conn
}

// Pool opens a small pool that is closed with the test.
func (db *DB) Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(db.Own())
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// Exec runs statements on a connection of their own. Without arguments there
// may be several, separated by semicolons.
func (db *DB) Exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	if err := db.try(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func (db *DB) try(ctx context.Context, sql string, args ...any) error {
	conn, err := pgx.Connect(ctx, db.Own())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, sql, args...)
	return err
}

// One reads a single value on a connection of its own.
func One[T any](t testing.TB, db *DB, sql string, args ...any) T {
	t.Helper()
	v, err := TryOne[T](t.Context(), db, sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// TryOne is One for use in Eventually.
func TryOne[T any](ctx context.Context, db *DB, sql string, args ...any) (v T, err error) {
	conn, err := pgx.Connect(ctx, db.Own())
	if err != nil {
		return v, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = conn.QueryRow(ctx, sql, args...).Scan(&v)
	return v, err
}

func onServer(t testing.TB, s *localpg.Server, sql string) {
	t.Helper()
	db := &DB{Server: s, DSN: s.DSN("postgres")}
	db.Exec(t, sql)
}

// identifier makes a test's name fit for a database, a slot or a topic.
func identifier(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(name))
	return name[:min(len(name), 40)]
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
