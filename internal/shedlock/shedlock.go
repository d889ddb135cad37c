// Package shedlock holds a lock of an application's own scheduler, so that the application's relay pauses
// while outbox-cdc publishes. The lock is a row in the JDBC table of net.javacrumbs.shedlock. The package
// uses the library's own SQL with the database's clock in UTC (usingDbTime), and its own monotonic clock to
// know until when it may rely on the lock.
//
// The package never takes a lock that somebody else holds, however long that lasts, and changes rows only by
// these statements. The pipeline's driver calls it. https://github.com/lukas-krecan/ShedLock
package shedlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/wait"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// MostAhead is the longest time that a lock is held ahead. After a crash, the application waits no longer
// than this.
const MostAhead = 10 * time.Second

// ErrLost says that the lock is not ours any more. It expired, or somebody changed its row.
var ErrLost = errors.New("the application's lock is lost")

// Config configures a Lock.
type Config struct {
	Pool *pgxpool.Pool
	Lock outbox.ShedLock
	// Holder is written to locked_by for people to read. A random suffix is added, which no other Lock has,
	// and the whole is cut to fit the column.
	Holder string
	// AtMost is how far ahead the lock is held. It is extended every third of this time. Whole milliseconds.
	// Default and maximum: MostAhead.
	AtMost time.Duration
	// OnChange, if set, is called when the lock is taken, given back or lost. During a wait it is called for
	// each new holder. It must return at once.
	OnChange func(Holding)
	// Log gets the same news, and warnings.
	Log zerolog.Logger
}

// Holding says who has a lock, as far as this process knows.
type Holding struct {
	Lock outbox.ShedLock
	// By is locked_by without control characters; empty: nobody holds the lock.
	By   string
	Ours bool
	// Until is when another holder's lock expires, by our clock, unless it is extended or given back earlier.
	// Zero: never, by the present row.
	Until time.Time
}

// Lock is one lock. Any goroutine may call its methods. Only one call of Acquire, Run, While and Release may
// run at a time.
type Lock struct {
	cfg    Config
	holder string // includes the suffix

	mu      sync.Mutex
	until   time.Time // zero: the lock is not held
	holding Holding
	table   *table // nil: not read yet
}

// New returns a Lock that is not held.
func New(cfg Config) *Lock {
	if cfg.AtMost <= 0 || cfg.AtMost > MostAhead {
		cfg.AtMost = MostAhead
	}
	return &Lock{
		cfg: cfg, holder: cfg.Holder + " " + rand.Text()[:8],
		holding: Holding{Lock: cfg.Lock},
	}
}

// Name returns the lock as people write it: table and name.
func (l *Lock) Name() string {
	return l.cfg.Lock.Schema + "." + l.cfg.Lock.Table + "/" + l.cfg.Lock.Name
}

// Until returns when the lock expires unless it is extended, by our monotonic clock as of before the
// statement was sent. So it is never later than in the database. It may be in the past. Zero: the lock is not
// held.
func (l *Lock) Until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

// Acquire takes the lock, and waits for its present holder. It returns an error if it cannot succeed until
// somebody acts (the table or a privilege is missing).
func (l *Lock) Acquire(ctx context.Context) error {
	for {
		held, err := l.Try(ctx)
		switch {
		case held || Refused(err):
			return err
		case err != nil && ctx.Err() == nil:
			l.cfg.Log.Warn().Err(err).Str("lock", l.Name()).Msg("could not take the application's lock: nothing is published until it is taken")
		case err == nil:
			l.observe(ctx)
		}
		pause := 500*time.Millisecond + mathrand.N(500*time.Millisecond) // so that several waiters do not ask at the same time
		if wait.Sleep(ctx, pause) != nil {
			return fmt.Errorf("waiting for lock %s: %w", l.Name(), ctx.Err())
		}
	}
}

// Try tries once to take the lock. False without an error: somebody else has it. After an error the lock may
// be ours unknown to us; it then expires by itself.
func (l *Lock) Try(ctx context.Context) (bool, error) {
	t, err := l.look(ctx)
	if err != nil {
		return false, err
	}
	sent := time.Now()
	n, err := l.exec(ctx, t, t.Take, l.cfg.Lock.Name, l.cfg.AtMost.Milliseconds(), t.fit(l.holder))
	if err != nil || n == 0 {
		return false, err
	}
	l.set(sent.Add(l.cfg.AtMost-t.rounding), Holding{By: l.holder, Ours: true})
	l.cfg.Log.Info().Str("lock", l.Name()).Str("holder", l.holder).Msg("the application's lock is held: its own relay rests")
	return true, nil
}

// Extend holds the lock for AtMost from now on. ErrLost: the lock is not ours.
func (l *Lock) Extend(ctx context.Context) error {
	t, err := l.look(ctx)
	if err != nil {
		return err
	}
	sent := time.Now()
	n, err := l.exec(ctx, t, t.Extend, l.cfg.Lock.Name, l.cfg.AtMost.Milliseconds(), t.fit(l.holder))
	switch {
	case err != nil:
		return err
	case n == 0:
		return l.lost("its row is not ours any more")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.until.IsZero() {
		return fmt.Errorf("%w: %s was given back", ErrLost, l.Name())
	}
	l.until = sent.Add(l.cfg.AtMost - t.rounding)
	return nil
}

// Run extends the lock, which must be held, until ctx ends, and returns the error of ctx. The lock is then
// still held. Run returns ErrLost as soon as the lock is lost or could not be extended in time.
func (l *Lock) Run(ctx context.Context) error {
	next := l.cfg.AtMost / 3
	for {
		until := l.Until()
		left := time.Until(until)
		if left <= 0 {
			return l.lost("it could not be extended in time")
		}
		if wait.Sleep(ctx, min(next, left)) != nil {
			return ctx.Err()
		}
		next = l.cfg.AtMost / 3
		// If a try hangs, there is time left for another one on another connection.
		trying, cancel := context.WithTimeout(ctx, min(time.Until(until), l.cfg.AtMost/4))
		err := l.Extend(trying)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, ErrLost):
			return err
		case err != nil:
			l.cfg.Log.Warn().Err(err).Str("lock", l.Name()).Dur("left", time.Until(until)).Msg("could not extend the application's lock: publishing stops before it runs out")
			next = l.cfg.AtMost / 20
		}
	}
}

// Release gives the lock back if it is held. The application's relay resumes at its next tick. Until is zero
// from the beginning of Release. After an error the lock expires by itself, at most AtMost later.
func (l *Lock) Release(ctx context.Context) error {
	if l.Until().IsZero() {
		return nil
	}
	l.set(time.Time{}, Holding{})
	t, err := l.look(ctx)
	if err != nil {
		return err
	}
	if _, err := l.exec(ctx, t, t.Release, l.cfg.Lock.Name, t.fit(l.holder)); err != nil {
		return fmt.Errorf("giving lock %s back (it ends by itself within %v): %w", l.Name(), l.cfg.AtMost, err)
	}
	l.cfg.Log.Info().Str("lock", l.Name()).Msg("the application's lock was given back")
	return nil
}

// While tries once to take the lock. If it gets it, it calls work, extends the lock meanwhile, and gives it
// back afterwards. The context of work ends when the lock is lost. False: somebody else has the lock, and
// work was not called.
func (l *Lock) While(ctx context.Context, work func(context.Context) error) (bool, error) {
	held, err := l.Try(ctx)
	if !held {
		return false, err
	}
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	var extended error
	var group sync.WaitGroup
	group.Go(func() {
		defer cancel()
		extended = l.Run(working)
	})
	err = work(working)
	cancel()
	group.Wait()
	if errors.Is(extended, ErrLost) {
		err = errors.Join(extended, err)
	}
	giving, stop := context.WithTimeout(context.WithoutCancel(ctx), l.cfg.AtMost)
	defer stop()
	return true, errors.Join(err, l.Release(giving))
}

// lost records that the lock is not ours any more.
func (l *Lock) lost(why string) error {
	l.set(time.Time{}, Holding{})
	return fmt.Errorf("%w: %s: %s", ErrLost, l.Name(), why)
}

// set records who has the lock, and reports it.
func (l *Lock) set(until time.Time, h Holding) {
	h.Lock = l.cfg.Lock
	l.mu.Lock()
	l.until, l.holding = until, h
	l.mu.Unlock()
	if l.cfg.OnChange != nil {
		l.cfg.OnChange(h)
	}
}

// observe finds out who has the lock that is waited for, and reports a change.
func (l *Lock) observe(ctx context.Context) {
	t, err := l.look(ctx)
	if err != nil {
		return // the next try of Acquire reports it
	}
	var r row
	if err := postgres.OnOthers(l.cfg.Pool).QueryRow(ctx, t.Holder, l.cfg.Lock.Name).Scan(&r.by, &r.remaining, &r.age); err != nil {
		return // the lock is free by now, or Acquire reports the fault
	}
	h := r.holding(l.cfg.Lock, time.Now())
	l.mu.Lock()
	news := h.By != l.holding.By
	l.holding = h
	l.mu.Unlock()
	if !news {
		return
	}
	event := l.cfg.Log.Info().Str("lock", l.Name()).Str("holder", h.By)
	if !h.Until.IsZero() {
		event = event.Time("until", h.Until)
	}
	event.Msg("waiting for the application's lock")
	if text := r.suspicion(); text != "" {
		l.cfg.Log.Error().Str("lock", l.Name()).Str("holder", h.By).Msg(text)
	}
	if l.cfg.OnChange != nil {
		l.cfg.OnChange(h)
	}
}

// exec runs one of the table's statements in a transaction of its own. It returns the number of affected
// rows.
func (l *Lock) exec(ctx context.Context, t *table, statement string, args ...any) (int64, error) {
	tag, err := postgres.OnOthers(l.cfg.Pool).Exec(ctx, statement, args...)
	if err != nil {
		l.mu.Lock()
		l.table = nil // the table may have changed: read it again
		l.mu.Unlock()
		return 0, t.withHint(err, l.Name())
	}
	return tag.RowsAffected(), nil
}

// look reads the table's properties, once.
func (l *Lock) look(ctx context.Context) (*table, error) {
	l.mu.Lock()
	t := l.table
	l.mu.Unlock()
	if t != nil {
		return t, nil
	}
	rows, err := postgres.On(l.cfg.Pool).Query(ctx, sql.ShedLockColumns, l.cfg.Lock.Schema, l.cfg.Lock.Table)
	if err != nil {
		return nil, fmt.Errorf("looking at lock table %s.%s: %w", l.cfg.Lock.Schema, l.cfg.Lock.Table, err)
	}
	t, err = readTable(l.cfg.Lock, l.cfg.Pool.Config().ConnConfig.User, rows)
	if err != nil {
		return nil, err
	}
	if t.zoned {
		l.cfg.Log.Warn().Str("lock", l.Name()).
			Msg("the lock's columns are timestamps with time zone: that works with the application only if its database sessions run in UTC or its lock provider uses its own clock")
	}
	l.mu.Lock()
	l.table = t
	l.mu.Unlock()
	return t, nil
}
