package sweeper

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// Watch looks for pending rows, due and past their grace. The rows have id, scope and times only: code that publishes them reads them
// again. A *TableError says which table refuses; other errors pass.
func (s *Sweeper) Watch(ctx context.Context, req outbox.WatchRequest) (outbox.Candidates, error) {
	var found outbox.Candidates
	err := s.fresh(func() error {
		found = outbox.Candidates{}
		return s.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
			return s.watch(ctx, conn, req, &found)
		})
	})
	if err != nil {
		return outbox.Candidates{}, err
	}
	return found, nil
}

func (s *Sweeper) watch(ctx context.Context, conn *pgx.Conn, req outbox.WatchRequest, found *outbox.Candidates) error {
	var arena mapping.Arena
	for i := range req.Parts {
		part := &req.Parts[i]
		p, err := s.plan(ctx, conn, part.Table)
		if err != nil {
			return err
		}
		byTime, err := s.byTime(ctx, conn, p)
		if err != nil {
			return err
		}
		w := watch{found: found, byTime: byTime, reader: newReader(p, true, &arena)}
		w.reader.most = s.cfg.PageBytes
		if err := s.send(ctx, conn, w.steps(s, part, req.Limit-len(found.Rows))...); err != nil {
			return tablesql.Refusal(part.Table, fmt.Errorf("looking for missed rows of table %s: %w", part.Table, err))
		}
		found.Rows = append(found.Rows, w.reader.rows...)
	}
	if len(found.Rows) > 0 {
		return s.writeWAL(ctx, conn)
	}
	return nil
}

// watch is one table being watched.
type watch struct {
	found  *outbox.Candidates
	byTime bool
	reader *reader
}

// steps read the rows, when the next one becomes due, and then the insert
// position: read before the rows it could lie before one that the log is about
// to bring.
func (w *watch) steps(s *Sweeper, part *outbox.SweepPart, limit int) []tablesql.Step {
	relation := w.reader.plan.relation
	steps := []tablesql.Step{s.settings().Step(nil)}
	q := relation.Page(w.reader.selected(), limit)
	q.AnyOrder()
	if w.byTime {
		q.ByTime()
	}
	if len(part.Include) > 0 {
		q.Include(part.Include)
	}
	q.Exclude(part.Exclude, part.ExcludeIDs)
	q.Known(part.Known)
	q.Missed()
	if step, nothing := q.Step(w.reader.each); limit > 0 && !nothing {
		steps = append(steps, step)
	}
	steps = append(steps, relation.NextDue(w.due)...)
	return append(steps, tablesql.Step{SQL: "SELECT pg_current_wal_insert_lsn()::text", Each: w.position})
}

func (w *watch) due(at time.Time) {
	if w.found.NextDue.IsZero() || at.Before(w.found.NextDue) {
		w.found.NextDue = at
	}
}

func (w *watch) position(row [][]byte) (err error) {
	w.found.Insert, err = outbox.ParseLSN(string(row[0]))
	return err
}
