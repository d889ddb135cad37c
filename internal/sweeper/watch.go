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

// Watch looks for pending rows that are due and older than their grace. The rows have only id, scope and
// times: they are read again before they are published. A *TableError names the table that refuses the query.
// Any other error is temporary.
func (s *Sweeper) Watch(ctx context.Context, req outbox.WatchRequest) (outbox.Candidates, error) {
	var found outbox.Candidates
	err := s.fresh(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		found = outbox.Candidates{}
		return s.watch(ctx, conn, req, &found)
	})
	if err != nil {
		return outbox.Candidates{}, err
	}
	return found, nil
}

func (s *Sweeper) watch(ctx context.Context, conn *pgx.Conn, req outbox.WatchRequest, found *outbox.Candidates) error {
	var arena mapping.Arena
	due := func(at time.Time) {
		if found.NextDue.IsZero() || at.Before(found.NextDue) {
			found.NextDue = at
		}
	}
	// The insert position is read last. If it were read before the rows, it could lie before the WAL of one
	// of them, and the stream would still bring that row.
	position := tablesql.Step{SQL: "SELECT pg_current_wal_insert_lsn()::text", Each: func(row [][]byte) (err error) {
		found.Insert, err = outbox.ParseLSN(string(row[0]))
		return err
	}}
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
		r := newReader(p, true, &arena)
		r.most = s.cfg.PageBytes
		limit := req.Limit - len(found.Rows)
		q := p.relation.Page(r.selected(), limit)
		q.AnyOrder()
		if byTime {
			q.ByTime()
		}
		if len(part.Include) > 0 {
			q.Include(part.Include)
		}
		q.Exclude(part.Exclude, part.ExcludeIDs)
		q.Known(part.Known)
		q.Missed()
		steps := []tablesql.Step{s.settings().Step(nil)}
		if step, nothing := q.Step(r.each); limit > 0 && !nothing {
			steps = append(steps, step)
		}
		steps = append(append(steps, p.relation.NextDue(due)...), position)
		if err := s.send(ctx, conn, steps...); err != nil {
			return tablesql.Refusal(part.Table, fmt.Errorf("looking for missed rows of table %s: %w", part.Table, err))
		}
		found.Rows = append(found.Rows, r.rows...)
	}
	if len(found.Rows) > 0 {
		return s.writeWAL(ctx, conn)
	}
	return nil
}
