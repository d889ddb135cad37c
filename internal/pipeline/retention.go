package pipeline

import (
	"context"
	"errors"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/shedlock"
)

// retainUnderLock deletes a table's rows past their retention, and says how long it took to
// find them. It holds the lock of the application's own housekeeping meanwhile, where there
// is one; if the application has it, the next round tries again.
func (d *driver) retainUnderLock(ctx context.Context, t *outbox.Table) (finding time.Duration, err error) {
	if t.Mapping.RetentionLock.Name == "" {
		return d.retainTable(ctx, t)
	}
	lock := shedlock.New(shedlock.Config{Pool: d.cfg.Pool, Lock: t.Mapping.RetentionLock, Holder: "outbox-cdc " + d.cfg.Name, Log: d.cfg.Log})
	_, err = lock.While(ctx, func(ctx context.Context) (err error) {
		finding, err = d.retainTable(ctx, t)
		return err
	})
	return finding, err
}

func (d *driver) retainTable(ctx context.Context, t *outbox.Table) (finding time.Duration, err error) {
	var unsent unsentRows
	if t.Mapping.RetentionUnsent > 0 {
		err = d.inLoop(ctx, func() { unsent = unsentRows{d.core.KeepsUnsent(t), d.core.InFlight(t)} })
		if err != nil {
			return 0, err
		}
	}
	n := 0
	if unsent.kept {
		n, finding, err = d.sweeper.RetainSent(ctx, t)
	} else {
		n, finding, err = d.sweeper.Retain(ctx, t, unsent.inFlight)
	}
	if n > 0 {
		d.cfg.Log.Info().Int("rows", n).Stringer("table", t).Msg("deleted rows past their retention")
	}
	return finding, err
}

// unsentRows says which rows of a table retention must leave alone though they are old
// enough: all that were not sent, or those with the ids.
type unsentRows struct {
	kept     bool
	inFlight []string
}

// recover makes rows pending again that another relay took and left.
func (d *driver) recover(ctx context.Context) error {
	var errs []error
	for _, t := range d.cfg.Tables {
		n, err := d.sweeper.Recover(ctx, t)
		errs = append(errs, err)
		if n > 0 {
			d.cfg.Metrics.Recovered(t, n)
			d.cfg.Log.Warn().Int("rows", n).Stringer("table", t).Stringer("after", t.Mapping.Status.RecoverAfter).
				Msg("another relay took rows and left them: they are pending again")
		}
	}
	return errors.Join(errs...)
}

// countNeverReady reports rows that neither their writer nor anybody else will
// send as they are: a line in the log when their number changes.
func (d *driver) countNeverReady(ctx context.Context, t *outbox.Table, before int64) int64 {
	if t.Mapping.Writer.Column == "" {
		return 0
	}
	found, err := d.sweeper.CountNeverReady(ctx, t)
	if err != nil {
		d.uncounted(ctx, t, err, pendingEvery, "could not count the rows that never become ready: their gauge stays at the last count")
		return before
	}
	d.cfg.Metrics.NeverReady(t, found.Rows)
	if found.Rows == before {
		return before
	}
	line := d.cfg.Log.Info()
	if found.Rows > before {
		line = d.cfg.Log.Warn()
	}
	line.Int64("rows", found.Rows).Stringer("table", t).Dur("oldest", found.Oldest).Str("id", found.Sample).
		Msgf("rows that never become ready: %s is NULL, or true while %s is NULL; set one of them", t.Mapping.Writer.Column, t.Mapping.Writer.Until)
	return found.Rows
}
