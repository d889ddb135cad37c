package statusupdater

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-cdc/outbox-cdc/internal/mailbox"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// If a trigger fails because the server does, as with a full disk, no row is refused, however long that
// lasts.
func TestWhatTheServerLacksRefusesNoRow(t *testing.T) {
	t.Parallel()
	b := newBenchOn(t, harness.Postgres(t), fixture.Im2be(), Config{LockedRetry: 5 * time.Millisecond, BackoffMin: 5 * time.Millisecond, BackoffMax: 10 * time.Millisecond})
	rows := b.im2be(50)
	b.db.Exec(t, `CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_read_file('missing'); RETURN NEW; END $$;
		CREATE TRIGGER audit BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION audit()`) // SQLSTATE 58P01
	b.do(outbox.MarkSent, "", rows...)
	harness.Eventually(t, 20*time.Second, func() error {
		if n := b.updater.Stats().Repeated; n < 20 {
			return fmt.Errorf("tried %d times", n)
		}
		return nil
	})
	b.db.Exec(t, `DROP TRIGGER audit ON outbox`)
	for row, a := range b.await(len(rows)) {
		if a.State != outbox.MarkedSent {
			t.Fatalf("%q: %+v", row.ID, a)
		}
	}
}

// idle returns an Updater that does not run and uses no server.
func idle(t *testing.T, cfg Config) *Updater {
	t.Helper()
	cfg.Pool = pool(t, "postgres://127.0.0.1:1/none?sslmode=disable")
	return New(cfg, mailbox.New[outbox.Marked]())
}

func (u *Updater) processOf(b batch) *process {
	key := b.key
	key.free = true // locked rows are skipped already
	return &process{Updater: u, session: &session{pool: u.cfg.Pool}, key: key, slow: b.slow, backoff: u.newBackoff()}
}

// A row is refused for errors that are usually temporary only after it was tried alone often enough.
func TestOnlyTriesOfARowAloneAreHeldAgainstIt(t *testing.T) {
	u := idle(t, Config{LockedRetry: time.Millisecond, BackoffMax: time.Millisecond})
	u.queue.put(sentOf(&outbox.Table{Name: "outbox"}, 100))
	locked := &pgconn.PgError{Code: "55P03", Where: "PL/pgSQL function audit() line 1 at SQL statement"}
	alone := map[*outbox.Row]int{}
	for {
		b, _ := u.queue.take()
		if len(b.items) == 1 {
			alone[b.items[0].mark.Row]++
		}
		u.processOf(b).fault(t.Context(), b.items, locked)
		u.queue.done(b)
		if refused := u.answers.Take(nil); len(refused) > 0 {
			if n := alone[refused[0].Row]; n != maxStrikes+1 {
				t.Errorf("refused after %d tries alone, want %d", n, maxStrikes+1)
			}
			return
		}
	}
}

func TestTheWaitForATryAloneGrows(t *testing.T) {
	p := idle(t, Config{}).processOf(batch{})
	var got []time.Duration
	for n := 1; n <= maxStrikes; n++ {
		got = append(got, p.pause(n)/time.Second)
	}
	if want := []time.Duration{1, 2, 4, 5, 5}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v seconds", got, want)
	}
}

// A statement that ended at a short limit does not keep its table slow.
func TestOnlyTheWholeTimeoutMakesATableSlow(t *testing.T) {
	u := idle(t, Config{})
	table := &outbox.Table{Name: "outbox"}
	for _, slow := range []bool{true, false} {
		p := u.processOf(batch{key: markGroup{table: table}, slow: slow})
		p.fault(t.Context(), []*item{{}, {}}, &pgconn.PgError{Code: "57014"})
		if got := u.queue.hungLately(table, time.Now()); got == slow {
			t.Errorf("slow: %v, told: %v", slow, got)
		}
	}
}

// If statements have a short limit, connecting still has its usual time.
func TestASlowConnectionHoldsNoSlowTableUp(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t)
	db.Exec(t, fixture.Im2be().DDL)
	cfg, err := pgxpool.ParseConfig(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	cfg.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { time.Sleep(2 * time.Second); return true, nil }
	slow, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(slow.Close)
	b := runOn(t, db, fixture.Im2be().Table, Config{Pool: slow, StatementTimeout: 6 * time.Second, SlowTimeout: 100 * time.Millisecond})
	b.updater.queue.tellHung(b.table)
	b.expect(outbox.MarkSent, b.im2be(1)[0], outbox.MarkedSent, 0)
}

// A short limit may be exceeded because of a slow server, not a bad row. So the try that refuses a row has
// the whole timeout.
func TestARowIsRefusedOnlyAfterTheWholeTimeout(t *testing.T) {
	t.Parallel()
	b := newBenchOn(t, harness.Postgres(t), fixture.Im2be(), Config{SlowTimeout: 200 * time.Millisecond, LockedRetry: 10 * time.Millisecond})
	row := b.im2be(1)[0]
	b.db.Exec(t, `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1); RETURN NEW; END $$;
		CREATE TRIGGER slow BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION slow()`)
	b.updater.queue.tellHung(b.table)
	b.expect(outbox.MarkSent, row, outbox.MarkedSent, 0)
}

// Ending a hung statement of ours does not end a session of another database.
func TestOnlySessionsOfTheDatabaseAreEnded(t *testing.T) {
	t.Parallel()
	b := newBench(t, fixture.Im2be())
	other := harness.Postgres(t)
	p := b.updater.processOf(batch{key: markGroup{table: b.table}})
	for _, c := range []struct {
		db   *harness.DB
		ends bool
	}{{other, false}, {b.db, true}} {
		conn := c.db.Conn(t)
		pid := conn.PgConn().PID()
		done := make(chan error, 1)
		go func() {
			_, err := conn.Exec(context.Background(), `SELECT pg_sleep(600)`)
			done <- err
		}()
		harness.Eventually(t, 20*time.Second, func() error {
			if state, err := harness.TryOne[string](t.Context(), c.db, `SELECT state || wait_event FROM pg_stat_activity WHERE pid = $1`, pid); err != nil || state != "activePgSleep" {
				return fmt.Errorf("%q %v", state, err)
			}
			return nil
		})
		if ended := p.endHung(t.Context(), pid); ended != c.ends {
			t.Errorf("ended: %v, want %v", ended, c.ends)
		}
		c.db.Exec(t, `SELECT pg_cancel_backend($1)`, pid)
		if err := <-done; err == nil {
			t.Error("it was not ended")
		}
	}
}
