package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/shedlock"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// This file holds the locks of the application's own relays while the stream
// leads, so that they rest.

// beatEvery keeps the replication connection, which has the leadership, alive
// while somebody else has a lock.
const beatEvery = time.Second

// locks are those of the stream's tables, each once.
type locks []*shedlock.Lock

func newLocks(cfg *Config) locks {
	var all locks
	known := map[outbox.ShedLock]bool{{}: true}
	for _, t := range cfg.Tables {
		name := t.Mapping.ShedLock
		if known[name] || cfg.Shadow {
			continue
		}
		known[name] = true
		all = append(all, shedlock.New(shedlock.Config{
			Pool: cfg.Pool, Lock: name, Holder: cfg.Replication.Name, Log: cfg.Log,
			OnChange: func(h shedlock.Holding) { cfg.Metrics.ShedLock(lockName(h.Lock), h.Ours) },
		}))
	}
	return all
}

func lockName(l outbox.ShedLock) string { return l.Schema + "." + l.Table + "/" + l.Name }

// awaitLocks takes the locks of the application's relays, as a standby waits for
// the lead.
func (s *Stream) awaitLocks(ctx context.Context, conn *replication.Conn) error {
	if len(s.locks) == 0 {
		return nil
	}
	s.works()
	s.cfg.Metrics.Standby()
	return s.locks.take(ctx, conn)
}

// take waits until every lock is held, while conn, which has the leadership, is
// kept alive. It ends with conn.
func (l locks) take(ctx context.Context, conn *replication.Conn) error {
	return whileBeating(ctx, conn, l.acquire)
}

// whileBeating does something else while conn, which does not stream, is kept alive:
// the server ends a session that says nothing. It ends with conn.
func whileBeating(ctx context.Context, conn *replication.Conn, do func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	waiting, done := context.WithCancel(ctx)
	defer done()
	group.Go(func() error {
		defer done()
		return do(ctx)
	})
	group.Go(func() error { return beat(waiting, conn) })
	return group.Wait()
}

func beat(ctx context.Context, conn *replication.Conn) error {
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		// A try that is under way is not interrupted: that would end the connection.
		if err := conn.Beat(context.WithoutCancel(ctx)); err != nil {
			return fmt.Errorf("keeping the lead before the WAL is read: %w", err)
		}
	}
}

// acquire never waits for one lock while it holds another: that one's relay
// would rest, and nobody publish.
func (l locks) acquire(ctx context.Context) error {
	for first := 0; ; {
		if err := l.again(ctx, l[first]); err != nil {
			return err
		}
		missing, err := l.tryOthers(ctx, first)
		if missing < 0 || err != nil {
			return err
		}
		if err := l.release(ctx); err != nil {
			return err
		}
		first = missing
	}
}

// again takes a lock that this process may still hold from a term before.
func (l locks) again(ctx context.Context, lock *shedlock.Lock) error {
	if time.Now().Before(lock.Until()) && lock.Extend(ctx) == nil {
		return nil
	}
	return lock.Acquire(ctx)
}

// tryOthers takes the locks besides the first, and returns one that somebody
// else has, or -1.
func (l locks) tryOthers(ctx context.Context, first int) (int, error) {
	for i, lock := range l {
		if i == first || time.Now().Before(lock.Until()) && lock.Extend(ctx) == nil {
			continue
		}
		held, err := lock.Try(ctx)
		if err != nil || !held {
			return i, err
		}
	}
	return -1, nil
}

// keep extends the locks until keeping ends, which is no error unless ctx has
// ended. It returns an error as soon as one is lost.
func (l locks) keep(keeping, ctx context.Context) error {
	group, each := errgroup.WithContext(keeping)
	for _, lock := range l {
		group.Go(func() error { return lock.Run(each) })
	}
	err := group.Wait()
	if keeping.Err() != nil && !errors.Is(err, shedlock.ErrLost) {
		return ctx.Err()
	}
	return err
}

// giveLocksBack lets the application's own relay go on: everything that was sent
// has been answered and marked.
func (d *driver) giveLocksBack(ctx context.Context) {
	d.stopKeeping()
	<-d.kept
	if err := d.stream.locks.release(ctx); err != nil {
		d.cfg.Log.Warn().Err(err).Msg("could not give the application's locks back: they run out by themselves")
	}
}

// release gives the locks back, so that the relays go on at their next ticks.
func (l locks) release(ctx context.Context) error {
	var errs []error
	for _, lock := range l {
		errs = append(errs, lock.Release(ctx))
	}
	return errors.Join(errs...)
}

// until is when the first of the locks ends, by our monotonic clock: no request
// leaves after it.
func (l locks) until() time.Time {
	ends := make([]time.Time, len(l))
	for i, lock := range l {
		ends[i] = lock.Until()
	}
	return slices.MinFunc(ends, time.Time.Compare)
}
