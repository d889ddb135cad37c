package pipeline

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/shedlock"
)

// This file holds the locks of the application's own relays while the stream leads, so that these relays
// pause.

// locks are the locks of the stream's tables, each once.
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
			OnChange: func(h shedlock.Holding) {
				cfg.Metrics.ShedLock(h.Lock.Schema+"."+h.Lock.Table+"/"+h.Lock.Name, h.Ours)
			},
		}))
	}
	return all
}

// acquire takes all locks. It never waits for one lock while it holds another: the relay of the held lock
// would pause, and nobody would publish its rows.
func (l locks) acquire(ctx context.Context) error {
	for first := 0; ; {
		if lock := l[first]; !keeps(ctx, lock) {
			if err := lock.Acquire(ctx); err != nil {
				return err
			}
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

// keeps reports whether this process still holds the lock from an earlier term, and extends it.
func keeps(ctx context.Context, lock *shedlock.Lock) bool {
	return time.Now().Before(lock.Until()) && lock.Extend(ctx) == nil
}

// tryOthers tries to take all locks except the first. It returns the index of a lock that another process
// holds, or -1.
func (l locks) tryOthers(ctx context.Context, first int) (int, error) {
	for i, lock := range l {
		if i == first || keeps(ctx, lock) {
			continue
		}
		held, err := lock.Try(ctx)
		if err != nil || !held {
			return i, err
		}
	}
	return -1, nil
}

// keep extends the locks until keeping ends. It returns nil then, unless ctx has ended. It returns an error
// as soon as a lock is lost.
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

// giveBackWithin bounds giving the locks back at a stop, in case the database does not answer.
const giveBackWithin = 5 * time.Second

// giveLocksBack gives the locks back, so that the application's own relays resume. Everything that was sent
// has been answered and marked by now.
func (d *driver) giveLocksBack(ctx context.Context) {
	d.stopKeeping()
	<-d.kept
	ctx, cancel := context.WithTimeout(ctx, giveBackWithin)
	defer cancel()
	if err := d.locks.release(ctx); err != nil {
		d.log.Warn().Err(err).Msg("could not give the application's locks back: they run out by themselves")
	}
}

// release gives the locks back. The relays resume at their next ticks.
func (l locks) release(ctx context.Context) error {
	var errs []error
	for _, lock := range l {
		errs = append(errs, lock.Release(ctx))
	}
	return errors.Join(errs...)
}

// until returns when the first of the locks expires, by our monotonic clock. No request leaves after that.
func (l locks) until() time.Time {
	ends := make([]time.Time, len(l))
	for i, lock := range l {
		ends[i] = lock.Until()
	}
	return slices.MinFunc(ends, time.Time.Compare)
}
