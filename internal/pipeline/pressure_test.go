package pipeline

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// A session of the application that waits for a row lock of ours is seen, without any privilege. One that
// waits for another session's lock is not.
func TestSessionsThatWaitForUsAreSeen(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t)
	db.Exec(t, `CREATE TABLE rows (id int PRIMARY KEY, n int); INSERT INTO rows VALUES (1, 0), (2, 0);
		DO $$ BEGIN CREATE ROLE pressed; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;
		GRANT ALL ON rows TO pressed`)
	cfg, err := pgxpool.ParseConfig(db.Own())
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.RuntimeParams["application_name"] = "outbox-cdc/pressed"
	cfg.ConnConfig.RuntimeParams["role"] = "pressed"
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)

	ours, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	other := db.Conn(t)
	for _, err := range []error{second(ours.Exec(t.Context(), `UPDATE rows SET n = 1 WHERE id = 1`)), second(other.Exec(t.Context(), `BEGIN; UPDATE rows SET n = 1 WHERE id = 2`))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 2)
	for id := range 2 {
		go func(conn *pgx.Conn) {
			done <- second(conn.Exec(t.Context(), `UPDATE rows SET n = 2 WHERE id = $1`, id+1))
		}(db.Conn(t))
	}
	harness.Eventually(t, 20*time.Second, func() error {
		p, err := readPressure(t.Context(), pool)
		if err == nil && p.Waiting != 1 {
			err = fmt.Errorf("%+v: of two that wait, one waits for us", p)
		}
		return err
	})
	for _, err := range []error{ours.Rollback(t.Context()), second(other.Exec(t.Context(), `ROLLBACK`)), <-done, <-done} {
		if err != nil {
			t.Error(err)
		}
	}
	if p, err := readPressure(t.Context(), pool); err != nil || p.Waiting != 0 || p.Insert == "" {
		t.Errorf("%+v, %v", p, err)
	}
}

func second[T any](_ T, err error) error { return err }

// Roles that may read statistics see a standby; other roles count it as hidden. Our own replication
// connections are not counted as standbys.
func TestStandbysAreSeenOrHidden(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t)
	db.Exec(t, `DO $$ BEGIN CREATE ROLE unprivileged; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$`)
	for _, name := range []string{"replica", "outbox-cdc/orders@host"} {
		cfg, err := pgconn.ParseConfig(db.Own())
		if err != nil {
			t.Fatal(err)
		}
		cfg.RuntimeParams["replication"], cfg.RuntimeParams["application_name"] = "true", name
		standby, err := pgconn.ConnectConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = standby.Conn().Close() })
		standby.Frontend().SendQuery(&pgproto3.Query{String: "START_REPLICATION PHYSICAL " + harness.One[string](t, db, `SELECT pg_current_wal_flush_lsn()::text`)})
		if err := standby.Frontend().Flush(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		role           string
		standbys, hide int
	}{{"", 1, 0}, {"unprivileged", 0, 1}} {
		cfg, err := pgxpool.ParseConfig(db.Own())
		if err != nil {
			t.Fatal(err)
		}
		if c.role != "" {
			cfg.ConnConfig.RuntimeParams["role"] = c.role
		}
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		harness.Eventually(t, 20*time.Second, func() error {
			p, err := readPressure(t.Context(), pool)
			if err == nil && (len(p.Standbys) != c.standbys || p.Hidden != c.hide || c.standbys == 1 && p.Standbys[0].Name != "replica") {
				err = fmt.Errorf("role %q sees %+v", c.role, p)
			}
			return err
		})
	}
}
