package statusupdater

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/internal/mailbox"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/sql"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// TestUnitsUnderChaos: two processes mark the same units, one of them late, and a recovery settles them too.
// Meanwhile sessions are killed, rows are locked and requeued, and the head advances. In the end every row is
// marked, except requeued rows, which nobody has published again.
func TestUnitsUnderChaos(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	o := newOnce(t, fixture.Plain(), Config{BackoffMin: 5 * time.Millisecond, BackoffMax: 50 * time.Millisecond, BatchRows: 60})
	o.db.Exec(t, `INSERT INTO plain (key, body) SELECT 'k', n FROM generate_series(1, 300) n`)
	units := unitsAtRandom(rand.New(rand.NewPCG(seed, 1)), readPending(t, o.db, o.table))
	zombie := o.another(t)

	ctx, cancel := context.WithCancel(t.Context())
	var chaos sync.WaitGroup
	for name, do := range o.disturbances() {
		conn := o.db.Conn(t)
		if _, err := conn.Exec(t.Context(), "SET application_name = 'chaos'"); err != nil {
			t.Fatal(err)
		}
		chaos.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(len(name))))
			for ctx.Err() == nil {
				if err := do(ctx, conn, r); err != nil && ctx.Err() == nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
			}
		})
	}
	rows := 0
	for i, unit := range units {
		rows += len(unit)
		marks := unitMarks(uint64(i+1), unit...)
		o.updater.Do(marks...)
		zombie.updater.Do(slices.Clone(marks)...)
		if i%7 == 0 {
			names := placed(uint64(i+1), unit...)
			harness.Eventually(t, time.Minute, func() error { return zombie.updater.Recover(t.Context(), "main", names) })
		}
	}
	o.await(rows)
	zombie.await(rows)
	cancel()
	chaos.Wait()

	harness.Eventually(t, time.Minute, func() error {
		if got := o.one(`SELECT count(*)::text FROM outbox_cdc.tally_left`); got != "0" {
			o.mark(leftMarks(slices.Concat(units...)...)...)
			return fmt.Errorf("%s rows are left", got)
		}
		return nil
	})
	t.Logf("%+v, %s requeued", o.updater.Stats(), o.one(`SELECT count(*)::text FROM plain WHERE tries = 7`))
	o.want("0", `SELECT count(*)::text FROM plain WHERE (status = 'PENDING') <> (tries = 7)`)
	if _, err := o.db.Conn(t).Exec(t.Context(), sql.TallyAdvance, "orders", "main"); err != nil {
		t.Fatal(err)
	}
	o.want(fmt.Sprint(len(units)), `SELECT unit::text FROM outbox_cdc.tally WHERE NOT EXISTS (SELECT FROM outbox_cdc.tally_unit)`)
}

// another returns a second process on the same database, which believes that it leads.
func (o *once) another(t *testing.T) *bench {
	b := &bench{t: t, db: o.db, table: o.table, answers: mailbox.New[outbox.Marked]()}
	b.updater = New(Config{
		Pool: pool(t, o.db.DSN), Tables: []*outbox.Table{o.table}, Log: zerolog.Nop(), Once: &Once{Stream: "orders", Guard: o.guard},
		BackoffMin: 5 * time.Millisecond, BackoffMax: 50 * time.Millisecond, LockedRetry: 50 * time.Millisecond,
	}, b.answers)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.updater.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return b
}

func unitsAtRandom(r *rand.Rand, rows []*outbox.Row) (units [][]*outbox.Row) {
	for len(rows) > 0 {
		n := min(1+r.IntN(20), len(rows))
		units = append(units, rows[:n:n])
		rows = rows[n:]
	}
	return units
}

// disturbances are run again and again, each on a connection of its own.
func (o *once) disturbances() map[string]func(context.Context, *pgx.Conn, *rand.Rand) error {
	return map[string]func(context.Context, *pgx.Conn, *rand.Rand) error{
		"kill": func(ctx context.Context, conn *pgx.Conn, _ *rand.Rand) error {
			_, err := conn.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity
				WHERE datname = current_database() AND query LIKE '%tally%' AND application_name <> 'chaos' ORDER BY random() LIMIT 1) AS a`)
			return err
		},
		"requeue": func(ctx context.Context, conn *pgx.Conn, _ *rand.Rand) error {
			_, err := conn.Exec(ctx, `UPDATE plain SET status = 'PENDING', tries = 7 WHERE id IN
				(SELECT id FROM plain WHERE status = 'SENT' AND tries = 0 ORDER BY random() LIMIT 2 FOR UPDATE SKIP LOCKED)`)
			return err
		},
		"lock rows": func(ctx context.Context, conn *pgx.Conn, r *rand.Rand) error {
			tx, err := conn.Begin(ctx)
			if err == nil {
				_, err = tx.Exec(ctx, `SELECT FROM plain WHERE id IN (SELECT id FROM plain WHERE status = 'PENDING' ORDER BY random() LIMIT 20) FOR UPDATE SKIP LOCKED`)
				time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond)
				err = errors.Join(err, tx.Rollback(context.WithoutCancel(ctx)))
			}
			return err
		},
		"advance the head": func(ctx context.Context, conn *pgx.Conn, _ *rand.Rand) error {
			_, err := conn.Exec(ctx, sql.TallyAdvance, "orders", "main")
			return err
		},
	}
}
