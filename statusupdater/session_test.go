package statusupdater

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

func ownPool(t *testing.T, db *harness.DB) *pgxpool.Pool {
	t.Helper()
	pool, err := postgres.Access{DSN: db.DSN}.Pool(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func noneInUse(pool *pgxpool.Pool) func() error {
	return func() error {
		if n := pool.Stat().AcquiredConns(); n > 0 {
			return fmt.Errorf("%d connections are in use", n)
		}
		return nil
	}
}

// A connection is kept for one table, for a limited time. Only that table's next batch meets what the table's
// triggers left in the session.
func TestASessionIsKeptForOneTable(t *testing.T) {
	pool := ownPool(t, harness.Postgres(t))
	orders, payments := &outbox.Table{Name: "orders"}, &outbox.Table{Name: "payments"}
	s := session{pool: pool, keep: time.Hour}
	defer s.take(nil)
	visit := func(table *outbox.Table, works bool) (left string) {
		t.Helper()
		conn, err := s.acquire(t.Context(), table)
		if err != nil {
			t.Fatal(err)
		}
		defer s.release(conn, works)
		pg := conn.Conn().PgConn()
		postgres.Used(pg)
		results, err := pg.Exec(t.Context(), "SELECT current_setting('outbox.was', true); SET outbox.was = '"+table.Name+"'").ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		return string(results[0].Rows[0][0])
	}
	for i, step := range []struct {
		table *outbox.Table
		works bool
		left  string
	}{
		{orders, true, ""},
		{orders, true, "orders"},
		{payments, false, ""},
		{payments, true, ""},
		{payments, true, "payments"},
		{payments, false, "payments"},
		{payments, true, ""},
		{payments, true, ""},
	} {
		if left := visit(step.table, step.works); left != step.left {
			t.Errorf("step %d: %q was left", i+1, left)
		}
	}
	harness.Eventually(t, 10*time.Second, noneInUse(pool))

	s.none, s.keep = time.Time{}, time.Millisecond
	visit(orders, true)
	harness.Eventually(t, 10*time.Second, noneInUse(pool))
}

// A lock that a trigger leaves is released soon, even while marks of its table go on.
func TestATriggersLockIsGivenBackBetweenMarks(t *testing.T) {
	db := harness.Postgres(t)
	b := newBenchOn(t, db, fixture.Im2be(), Config{Pool: ownPool(t, db), Pace: time.Nanosecond})
	b.db.Exec(t, `CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_lock(4713); RETURN NEW; END $$;
		CREATE TRIGGER audit BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION audit()`)
	others := db.Conn(t)
	locked := make(chan error, 1)
	for i, row := range b.im2be(5000) {
		b.do(outbox.MarkSent, "", row)
		b.await(1)
		if i == 0 { // the session that marked has the lock
			go func() {
				_, err := others.Exec(t.Context(), `SELECT pg_advisory_lock(4713), pg_advisory_unlock(4713)`)
				locked <- err
			}()
		}
		select {
		case err := <-locked:
			if err != nil {
				t.Fatal(err)
			}
			return
		default:
		}
	}
	t.Fatal("nobody else got the lock while rows were marked")
}

// A role or a setting that a trigger leaves does not keep other rows of its table from being marked. It makes
// at most one statement fail.
func TestWhatATriggerLeavesRefusesNoRow(t *testing.T) {
	t.Parallel()
	for _, left := range []string{"SET ROLE pg_monitor", "SET SESSION AUTHORIZATION pg_monitor", "SET default_transaction_read_only = on"} {
		t.Run(left, func(t *testing.T) {
			db := harness.Postgres(t)
			b := newBenchOn(t, db, fixture.Im2be(), Config{Pool: ownPool(t, db), Pace: time.Nanosecond, Connections: 1})
			b.db.Exec(t, `CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN EXECUTE '`+left+`'; RETURN NEW; END $$;
				CREATE TRIGGER audit BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION audit()`)
			for _, row := range b.im2be(20) {
				b.do(outbox.MarkSent, "", row)
				for _, a := range b.await(1) {
					if a.State != outbox.MarkedSent {
						t.Fatalf("%q: %+v", row.ID, a)
					}
				}
			}
			if n := b.updater.Stats().Repeated; n > 1 {
				t.Errorf("the trigger had statements fail %d times", n)
			}
		})
	}
}

// The tally of exactly-once delivery is never written under a role that a trigger left.
func TestATriggersRoleDoesNotMeetTheTally(t *testing.T) {
	db, l := harness.Postgres(t), fixture.Plain()
	prepareOnce(t, db, l)
	db.Exec(t, `CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'SET ROLE pg_monitor'; RETURN NEW; END $$;
		CREATE TRIGGER audit AFTER UPDATE ON plain FOR EACH ROW EXECUTE FUNCTION audit()`)
	o := &once{guard: new(tablesql.Guard)}
	o.hold(t, db)
	o.bench = runOn(t, db, l.Table, Config{
		Pool: ownPool(t, db), Tables: []*outbox.Table{l.Table}, Once: &Once{Stream: "orders", Guard: o.guard}, Pace: time.Nanosecond, Connections: 1,
	})
	rows := o.rows("a", "b")
	o.mark(marks(outbox.MarkSent, "", rows[0])...)
	o.expect("a unit", o.mark(unitMarks(1, rows[1])...), "sent")
	if n := o.updater.Stats().Repeated; n > 0 {
		t.Errorf("the trigger had statements fail %d times", n)
	}
}
