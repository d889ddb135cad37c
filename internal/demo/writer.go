package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/wait"
)

// The application's behaviour.
const (
	writers       = 4   // connections
	customers     = 200 // keys
	rollbackEvery = 20  // one in this many transactions is rolled back
	fastRows      = 100 // rows of a transaction if no rate is set
)

// writer is an application. Several connections change customers and insert order events in the same
// transactions. Some transactions are rolled back.
//
// Each customer counts its events in a row that the transaction locks. So the number in an event is its
// position in the commit order of its key. The checker judges by these numbers.
type writer struct {
	world *world
	rows  atomic.Int64 // committed
	begun atomic.Int64 // committed or in progress, counted against Rows
}

// inserted returns the number of committed rows.
func (w *writer) inserted() int { return int(w.rows.Load()) }

// write inserts until there are this many rows, this much time has passed, or ctx ends. 0 means no limit.
func (w *writer) write(ctx context.Context, rows, rate int, duration time.Duration) error {
	if duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, duration)
		defer cancel()
	}
	group, groupCtx := errgroup.WithContext(context.WithoutCancel(ctx))
	for i := range writers {
		group.Go(func() error {
			return w.session(ctx, groupCtx, newRand(i), rows, float64(rate)/writers)
		})
	}
	return group.Wait()
}

// session runs the transactions of one connection. It checks ctx only between them: each is finished, so that
// it is known what was committed.
func (w *writer) session(ctx, work context.Context, r *rand.Rand, rows int, rate float64) error {
	conn, err := postgres.Access{DSN: w.world.target.DSN}.Connect(work)
	if err != nil {
		return fmt.Errorf("an application's connection: %w", err)
	}
	defer conn.Close(context.WithoutCancel(work))
	began, written := time.Now(), 0
	for ctx.Err() == nil {
		n := size(r, rate)
		if rows > 0 {
			before := int(w.begun.Add(int64(n))) - n
			n = min(n, rows-before)
		}
		if n <= 0 {
			return nil
		}
		if r.IntN(rollbackEvery) == 0 { // the events are written, rolled back, and written again
			err = w.transaction(work, conn, r, n, false)
		}
		if err == nil {
			err = w.transaction(work, conn, r, n, true)
		}
		if err != nil {
			return fmt.Errorf("the application's insert: %w", err)
		}
		written += n
		if rate > 0 {
			due := began.Add(time.Duration(float64(written) / rate * float64(time.Second)))
			_ = wait.Sleep(ctx, time.Until(due))
		}
	}
	return nil
}

// newRand returns a generator with a fixed seed, so that demos repeat.
func newRand(seed int) *rand.Rand { return rand.New(rand.NewPCG(uint64(seed), 7)) }

// size returns how many rows a transaction has. With a rate it is few, so that rows come evenly.
func size(r *rand.Rand, rate float64) int {
	if rate == 0 {
		return fastRows
	}
	return 1 + r.IntN(max(1, min(8, int(rate/10))))
}

// insert advances the customer's count of events and writes the events, in one statement.
const insert = `
WITH customer AS (
    UPDATE %[1]s SET events = events + $2::int WHERE id = $1::int RETURNING events
), written AS (
    INSERT INTO %[2]s (topic, key, payload, headers)
    SELECT $3::text, 'customer-' || $1::int,
           convert_to(format('{"no":%%s,"customer":%%s,"order":"%%s","item":"article %%s","amount":"%%s.90 EUR","note":"%%s"}',
               events - $2::int + n, $1::int, gen_random_uuid(), n, 10 + n, $4::text), 'UTF8'),
           '{"source": "demo"}'
      FROM customer, generate_series(1, $2::int) n
)
SELECT events FROM customer`

// note makes a row as large as a typical event.
const note = "please leave it at the neighbour's if nobody answers the door, thank you"

// events are a transaction's events of one customer: the last number, and how many there are.
type events struct{ customer, last, count int }

// transaction writes n rows for one to three customers, and commits or rolls back.
func (w *writer) transaction(ctx context.Context, conn *pgx.Conn, r *rand.Rand, n int, commit bool) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	parts := split(r, n)
	batch := &pgx.Batch{}
	for i := range parts {
		batch.Queue(w.world.insert, parts[i].customer, parts[i].count, w.world.target.Topic, note).
			QueryRow(func(row pgx.Row) error { return row.Scan(&parts[i].last) })
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	if !commit {
		return tx.Rollback(ctx)
	}
	w.world.commits.note(parts, time.Now())
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	w.rows.Add(int64(n))
	return nil
}

// split divides n rows among one to three customers. These are in ascending order, so that transactions
// cannot deadlock.
func split(r *rand.Rand, n int) []events {
	count := min(n, 1+r.IntN(3))
	chosen := r.Perm(customers)[:count]
	slices.Sort(chosen)
	parts := make([]events, count)
	for i, c := range chosen {
		parts[i] = events{customer: c + 1, count: n / count}
	}
	parts[0].count += n % count
	return parts
}

// commits records when the COMMIT of each event was sent, by customer and number.
type commits struct {
	mu sync.Mutex
	at [customers + 1][]time.Time // index: the event's number minus one
}

// note is called before COMMIT is sent, while the customers' rows are locked.
func (c *commits) note(parts []events, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range parts {
		first := p.last - p.count // index of the first event
		before := c.at[p.customer][:min(first, len(c.at[p.customer]))]
		c.at[p.customer] = append(before, slices.Repeat([]time.Time{at}, p.count)...)
	}
}

// when returns the time of an event's COMMIT. ok is false if there was none.
func (c *commits) when(customer, no int) (at time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if customer < 1 || customer > customers || no < 1 || no > len(c.at[customer]) {
		return at, false
	}
	return c.at[customer][no-1], true
}
