package pipeline

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/metrics"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/internal/sweeper"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// How often rows are counted.
const (
	pendingEvery = 15 * time.Second
	failedEvery  = 5 * time.Minute // at the latest; sooner where the last count was quick
	failedShare  = 1000            // counting FAILED rows takes at most 1/failedShare of the time
	failedRarely = time.Hour       // after a count that took too long
)

// backlog counts waiting and FAILED rows, in a goroutine of its own.
type backlog struct {
	*questions
	tables  []*outbox.Table
	sweeper *sweeper.Sweeper
	recount chan struct{} // a value asks for the FAILED rows to be counted now
}

// count counts waiting and FAILED rows until ctx ends. The counts are for metrics and status only, so errors
// are only logged.
func (b *backlog) count(ctx context.Context) error {
	tick := time.Tick(pendingEvery)
	failedAt := map[*outbox.Table]time.Time{}
	never, noID := map[*outbox.Table]int64{}, map[*outbox.Table]int64{}
	rarely := map[*outbox.Table]bool{} // tables whose count takes long
	gaveUp := changing(func() uint64 { return b.metrics.Rows().Failed })
	for {
		for _, t := range b.tables {
			if !t.Stateful() {
				continue
			}
			noID[t] = b.countPending(ctx, t, noID[t])
			never[t] = b.countNeverReady(ctx, t, never[t])
			if now := time.Now(); !now.Before(failedAt[t]) {
				next := b.countFailed(ctx, t)
				failedAt[t], rarely[t] = now.Add(next), next > failedEvery
			}
		}
		again := true
		select {
		case <-b.recount:
		case <-ctx.Done():
			return nil
		case <-tick:
			again = gaveUp()
		}
		if again { // count the FAILED rows too, where that is quick
			maps.DeleteFunc(failedAt, func(t *outbox.Table, _ time.Time) bool { return !rarely[t] })
		}
	}
}

// changing returns a function that says whether the count has changed since that function's last call.
func changing(count func() uint64) func() bool {
	last := count()
	return func() bool {
		was := last
		last = count()
		return last != was
	}
}

// countPending counts a table's waiting rows. It returns how many of them have an unreadable id, and logs
// that number if it has grown from before.
func (b *backlog) countPending(ctx context.Context, t *outbox.Table, before int64) (noID int64) {
	began := time.Now()
	p, err := b.sweeper.CountPending(ctx, t)
	if err != nil {
		b.uncounted(ctx, t, err, pendingEvery, "could not count the pending rows: their gauges stay at the last count")
		return before
	}
	b.tracker.counted(t, func(s *status.Table) {
		s.Pending, s.PendingCapped, s.Oldest, s.CountedAt = &p.Rows, p.Capped, p.Oldest.Seconds(), time.Now().UTC()
	})
	b.metrics.Pending(t, metrics.Backlog{Rows: p.Rows, Ready: p.Ready, Oldest: p.Oldest, Took: time.Since(began)})
	if p.NoID > before {
		b.log.Warn().Int64("rows", p.NoID).Stringer("table", t).
			Msg("pending rows are never swept: their id is NULL or longer than max_row_bytes; find them with outbox-cdc pending list, then correct or delete them, and make the id unique and NOT NULL")
	}
	return p.NoID
}

// countNeverReady counts rows that nobody sends as they are, neither their writer nor this stream. It returns
// their number, and logs it if it differs from before.
func (b *backlog) countNeverReady(ctx context.Context, t *outbox.Table, before int64) int64 {
	if t.Mapping.Writer.Column == "" {
		return 0
	}
	found, err := b.sweeper.CountNeverReady(ctx, t)
	if err != nil {
		b.uncounted(ctx, t, err, pendingEvery, "could not count the rows that never become ready: their gauge stays at the last count")
		return before
	}
	b.metrics.NeverReady(t, found.Rows)
	if found.Rows == before {
		return before
	}
	line := b.log.Info()
	if found.Rows > before {
		line = b.log.Warn()
	}
	line.Int64("rows", found.Rows).Stringer("table", t).Dur("oldest", found.Oldest).Str("id", found.Sample).
		Msgf("rows that never become ready: %s is NULL, or true while %s is NULL; set one of them", t.Mapping.Writer.Column, t.Mapping.Writer.Until)
	return found.Rows
}

// countFailed counts a table's FAILED rows and returns when to count them again.
func (b *backlog) countFailed(ctx context.Context, t *outbox.Table) (next time.Duration) {
	began := time.Now()
	f, err := b.sweeper.CountFailed(ctx, t)
	switch {
	case err == nil:
		next = min(failedShare*time.Since(began), failedEvery)
		b.metrics.Failed(t, f.Rows, f.Resend)
		if f.Kept {
			b.tracker.counted(t, func(s *status.Table) {
				s.Failed, s.FailedCapped, s.FailedAt, s.FailedUnknown = &f.Rows, f.Capped, time.Now().UTC(), false
			})
		}
	case postgres.HasCode(err, pgerrcode.QueryCanceled):
		b.tracker.counted(t, func(s *status.Table) { s.FailedUnknown = true })
		b.log.Debug().Stringer("table", t).Dur("next_in", failedRarely).
			Msg("counting failed rows takes too long: no index serves it")
		return failedRarely
	default:
		b.uncounted(ctx, t, err, failedEvery, "could not count the failed rows: their gauge stays at the last count")
	}
	return cmp.Or(next, failedEvery)
}

// uncounted logs that the gauges are out of date, and when the next try is.
func (b *backlog) uncounted(ctx context.Context, t *outbox.Table, err error, retry time.Duration, what string) {
	if ctx.Err() != nil {
		return
	}
	b.wal.closeOnShutdown(err)
	b.metrics.Uncounted(t)
	level := zerolog.WarnLevel
	_, unfit := errors.AsType[*tablesql.MappingError](err)
	if _, unmapped := errors.AsType[*mapping.Error](err); unfit || unmapped { // the table's park tells it
		level = zerolog.DebugLevel
	} else if refusalOf(err) != nil { // the usual kind of error here
		level = zerolog.InfoLevel
	}
	b.log.WithLevel(level).Err(err).Stringer("table", t).Dur("retry_in", retry).Msg(what)
}
