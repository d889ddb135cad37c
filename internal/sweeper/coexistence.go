package sweeper

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// This file is about rows that another relay, or their writer, has.

// NeverReady is rows of a table that are pending, but will be sent by nobody as
// they are: their writer has them, and says not until when, or nothing says
// whose they are.
type NeverReady struct {
	Rows   int64
	Capped bool          // there are more than Rows
	Oldest time.Duration // age of the oldest; 0: none, or the table has no creation time
	Sample string        // id of the oldest, its columns joined by ", "
}

// NeverReady counts them, those that are past their grace: a row may be in this
// state while its writer sends it.
func (s *Sweeper) NeverReady(ctx context.Context, t *outbox.Table) (NeverReady, error) {
	var found NeverReady
	if t.Mapping.Writer.Column == "" {
		return found, nil
	}
	err := s.fresh(func() error {
		return s.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
			p, err := s.plan(ctx, conn, t)
			if err != nil {
				return err
			}
			step := neverReady(p.relation, &found)
			settings := s.settings()
			if err := s.send(ctx, conn, settings.Step(nil), step); err != nil {
				return refusal(t, fmt.Errorf("counting the rows of table %s that never become ready: %w", t, err))
			}
			return nil
		})
	})
	return found, err
}

func neverReady(r *tablesql.Relation, found *NeverReady) tablesql.Step {
	var params tablesql.Params
	where := r.NeverDue()
	if older := r.Older(&params, r.Table.Mapping.Grace); older != "" {
		where += " AND " + older
	}
	from := " FROM " + r.Name() + " AS t WHERE " + where
	sql := fmt.Sprintf("SELECT (SELECT count(*) FROM (SELECT 1%[1]s LIMIT %[2]d) AS counted), %[3]s, %[4]s%[1]s ORDER BY %[5]s LIMIT 1",
		from, maxCounted+1, r.Age(), r.IDColumns(), strings.Join(r.Order(), ", "))
	return tablesql.Step{SQL: sql, Args: params, Each: func(row [][]byte) error { return found.read(r, row) }}
}

func (n *NeverReady) read(r *tablesql.Relation, row [][]byte) (err error) {
	*n = NeverReady{}
	if n.Rows, err = strconv.ParseInt(string(row[0]), 10, 64); err != nil {
		return fmt.Errorf("reading a count: %w", err)
	}
	if n.Rows > maxCounted {
		n.Rows, n.Capped = maxCounted, true
	}
	if n.Oldest, err = readAge(row[1]); err != nil {
		return err
	}
	parts, err := r.ReadID(row[2:])
	n.Sample = strings.Join(parts, ", ")
	return err
}

// maxTaken bounds the rows of a table that Recover remembers.
const maxTaken = 10_000

// taken are rows that another relay has, by id: the version that was seen of
// each, and since when by our clock.
type taken map[string]sighting

type sighting struct {
	stamp string
	since time.Time
}

// Recover makes rows of a table pending again that another relay took and left:
// those that were seen unchanged, in its processing state, for as long as the
// mapping's RecoverAfter. It is to be called now and then; what it saw is
// remembered, and the time is measured by our clock. It returns how many rows it
// wrote. One call at a time.
func (s *Sweeper) Recover(ctx context.Context, t *outbox.Table) (int, error) {
	if t.Mapping.Status.Processing == "" || t.Mapping.Status.RecoverAfter <= 0 {
		return 0, nil
	}
	recovered := 0
	err := s.fresh(func() error {
		return s.with(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
			recovered, err = s.recover(ctx, conn, t)
			if err != nil {
				return refusal(t, fmt.Errorf("recovering rows of table %s that another relay left: %w", t, err))
			}
			return nil
		})
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
	ids, stamps := seen.left(s.cfg.Now().Add(-t.Mapping.Status.RecoverAfter))
	if len(ids) == 0 {
		return 0, nil
	}
	sql, err := p.relation.Recover()
	if err != nil {
		return 0, err
	}
	args, err := p.relation.RowArrays(len(ids), func(i int) *outbox.Row { return &outbox.Row{ID: ids[i]} })
	if err != nil {
		return 0, err
	}
	args.BindArray(&stamps, "text")
	n := 0
	settings := tablesql.Settings{StatementTimeout: s.cfg.StatementTimeout, LockTimeout: time.Second}
	err = s.send(ctx, conn, settings.Step(nil), tablesql.Step{
		SQL: sql, Args: args, Each: func([][]byte) error { n++; return nil },
	})
	return n, err
}

// lookForTaken reads which rows are taken now, and keeps since when.
func (s *Sweeper) lookForTaken(ctx context.Context, conn *pgx.Conn, p *plan) (taken, error) {
	sql, err := p.relation.Processing(maxTaken)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	before := s.taken[p.relation.Table]
	s.mu.Unlock()
	now, seen := s.cfg.Now(), taken{}
	settings := s.settings()
	err = s.send(ctx, conn, settings.Step(nil), tablesql.Step{SQL: sql, Each: func(row [][]byte) error {
		parts, err := p.relation.ReadID(row)
		if err != nil {
			return err
		}
		id, now := outbox.JoinID(parts...), sighting{string(row[len(parts)]), now}
		if earlier, ok := before[id]; ok && earlier.stamp == now.stamp {
			now.since = earlier.since
		}
		seen[id] = now
		return nil
	}})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.taken[p.relation.Table] = seen
	s.mu.Unlock()
	return seen, nil
}

// left are the ids of rows that have not changed since the time, and the
// versions that were seen of them as an array.
func (t taken) left(since time.Time) (ids []string, stamps tablesql.Array) {
	for id, s := range t {
		if !s.since.After(since) {
			ids = append(ids, id)
			stamps.Add(s.stamp)
		}
	}
	return ids, stamps
}
