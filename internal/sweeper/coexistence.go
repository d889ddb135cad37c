package sweeper

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// This file is about rows that another relay, or the rows' writer, is working on.

// CountNeverReady counts a table's pending rows that nobody will send as they are.
func (s *Sweeper) CountNeverReady(ctx context.Context, t *outbox.Table) (tablesql.NeverReadyCount, error) {
	var found tablesql.NeverReadyCount
	if t.Mapping.Writer.Column == "" {
		return found, nil
	}
	err := s.count(ctx, t, s.cfg.StatementTimeout, "never ready rows", func(r *tablesql.Relation, _ bool) tablesql.Step { return r.CountNeverReady(&found) })
	return found, err
}

// maxTaken is the largest number of rows per table that Recover remembers.
const maxTaken = 10_000

// taken are the rows, by id, that another relay has taken.
type taken map[string]takenRow

// takenRow is the version of a row as last seen, and since when it has been seen, by our clock.
type takenRow struct {
	stamp string
	since time.Time
}

// Recover makes rows PENDING again that another relay took and did not finish. These are the rows that stayed
// unchanged in the relay's processing state for the mapping's RecoverAfter. Call it at intervals: it
// remembers what it saw, and measures the time by our clock. It returns the number of rows that it changed.
// Only one call may run at a time.
func (s *Sweeper) Recover(ctx context.Context, t *outbox.Table) (int, error) {
	if t.Mapping.Status.Processing == "" || t.Mapping.Status.RecoverAfter <= 0 {
		return 0, nil
	}
	recovered := 0
	err := s.fresh(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		if recovered, err = s.recover(ctx, conn, t); err != nil {
			return tablesql.Refusal(t, fmt.Errorf("recovering rows of table %s that another relay left: %w", t, err))
		}
		return nil
	})
	return recovered, err
}

func (s *Sweeper) recover(ctx context.Context, conn *pgx.Conn, t *outbox.Table) (int, error) {
	p, err := s.plan(ctx, conn, t)
	if err != nil {
		return 0, err
	}
	seen, err := s.lookForTaken(ctx, conn, p)
	if err != nil {
		return 0, err
	}
	var ids, stamps []string
	unchangedSince := s.cfg.Now().Add(-t.Mapping.Status.RecoverAfter)
	for id, row := range seen {
		if !row.since.After(unchangedSince) {
			ids, stamps = append(ids, id), append(stamps, row.stamp)
		}
	}
	if len(ids) == 0 {
		return 0, nil
	}
	n := 0
	step, err := p.relation.Recover(ids, stamps)
	if err != nil {
		return 0, err
	}
	step.Each = func([][]byte) error { n++; return nil }
	settings := tablesql.Settings{StatementTimeout: s.cfg.StatementTimeout, LockTimeout: time.Second}
	err = s.send(ctx, conn, settings.Step(nil), step)
	return n, err
}

// lookForTaken reads which rows are taken now, and keeps since when.
func (s *Sweeper) lookForTaken(ctx context.Context, conn *pgx.Conn, p *plan) (taken, error) {
	s.mu.Lock()
	before := s.taken[p.relation.Table]
	s.mu.Unlock()
	now, seen, bytes := s.cfg.Now(), taken{}, 0
	step, err := p.relation.Processing(maxTaken, func(id, stamp string) {
		if bytes > maxIDOrderBytes {
			return // it is seen once there is room again
		}
		bytes += len(id)
		since := now
		if earlier, ok := before[id]; ok && earlier.stamp == stamp {
			since = earlier.since
		}
		seen[id] = takenRow{stamp, since}
	})
	if err != nil {
		return nil, err
	}
	if err := s.send(ctx, conn, s.settings().Step(nil), step); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.taken[p.relation.Table] = seen
	s.mu.Unlock()
	return seen, nil
}
