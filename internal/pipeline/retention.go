package pipeline

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/shedlock"
	"github.com/outbox-cdc/outbox-cdc/internal/sweeper"
	"github.com/outbox-cdc/outbox-cdc/internal/wait"
)

// retention deletes rows past their retention, in a goroutine of its own.
type retention struct {
	*questions
	cfg     *Config
	core    *checkpoint.Core // used in the driver's loop only
	sweeper *sweeper.Sweeper
}

// run deletes rows past their retention until ctx ends. Deleting may take long, so nothing waits for it.
// Finding the rows may mean reading whole tables, so at most a twentieth of the time is spent on that.
func (r *retention) run(ctx context.Context) error {
	if r.cfg.Shadow || !slices.ContainsFunc(r.cfg.Tables, (*outbox.Table).Retains) {
		return nil
	}
	for next := retentionEvery; wait.Sleep(ctx, next) == nil; {
		var finding time.Duration
		var errs []error
		for _, t := range r.cfg.Tables {
			if t.Retains() {
				took, err := r.retainUnderLock(ctx, t)
				finding += took
				errs = append(errs, err)
			}
		}
		next = max(retentionEvery, 20*finding)
		r.retried(ctx, errors.Join(errs...), next, "could not delete rows past their retention")
	}
	return nil
}

// retainUnderLock deletes a table's rows past their retention, and returns how long it took to find them. It
// does so under the lock of the application's own housekeeping, if there is one. If the application holds the
// lock, the next round tries again.
func (r *retention) retainUnderLock(ctx context.Context, t *outbox.Table) (finding time.Duration, err error) {
	if t.Mapping.RetentionLock.Name == "" {
		return r.retainTable(ctx, t)
	}
	lock := shedlock.New(shedlock.Config{Pool: r.pool, Lock: t.Mapping.RetentionLock, Holder: "outbox-cdc " + r.cfg.Name, Log: r.log})
	_, err = lock.While(ctx, func(ctx context.Context) (err error) {
		finding, err = r.retainTable(ctx, t)
		return err
	})
	return finding, err
}

func (r *retention) retainTable(ctx context.Context, t *outbox.Table) (finding time.Duration, err error) {
	var keepsUnsent bool  // retention spares all rows that were not sent,
	var inFlight []string // or only those with these ids
	if t.Mapping.RetentionUnsent > 0 {
		err = r.inLoop(ctx, func() { keepsUnsent, inFlight = r.core.KeepsUnsent(t), r.core.InFlight(t) })
		if err != nil {
			return 0, err
		}
	}
	n := 0
	if keepsUnsent {
		n, finding, err = r.sweeper.RetainSent(ctx, t)
	} else {
		n, finding, err = r.sweeper.Retain(ctx, t, inFlight)
	}
	if n > 0 {
		r.log.Info().Int("rows", n).Stringer("table", t).Msg("deleted rows past their retention")
	}
	return finding, err
}
