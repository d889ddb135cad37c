package sweeper

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/outbox"
	"github.com/outbox-cdc/outbox-cdc/statement"
)

// Retains says whether rows of the table are ever deleted.
func Retains(t *outbox.Table) bool {
	m := &t.Mapping
	return m.Published == outbox.PublishedStatus && m.Retention > 0 || t.Stateful() && m.RetentionUnsent > 0
}

// Retain deletes the rows of a table whose retention has run out, a page at a
// time, passing over rows that somebody has locked, and returns how many: those
// that were sent, and where the mapping has a period for them also those that
// were not. Of these, rows in flight are left: inFlight are their ids, taken
// before the call. (A row that comes into flight during it may be deleted; it
// is delivered all the same, and its mark finds it gone.)
func (s *Sweeper) Retain(ctx context.Context, t *outbox.Table, inFlight []string) (int, error) {
	deleted := 0
	err := s.fresh(func() error {
		return s.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
			n, err := s.retain(ctx, conn, t, inFlight)
			deleted += n
			if err != nil {
				return refusal(t, fmt.Errorf("deleting rows of table %s past their retention: %w", t, err))
			}
			return nil
		})
	})
	return deleted, err
}

func (s *Sweeper) retain(ctx context.Context, conn *pgx.Conn, t *outbox.Table, inFlight []string) (int, error) {
	p, err := s.plan(ctx, conn, t)
	if err != nil {
		return 0, err
	}
	m, deleted := &t.Mapping, 0
	if m.DropPartitions {
		return s.dropPartitions(ctx, conn, p)
	}
	if m.Retention > 0 && m.Published == outbox.PublishedStatus {
		sql, err := p.relation.Expired(s.cfg.RetainRows)
		if err != nil {
			return 0, err
		}
		age := strconv.AppendInt(nil, m.Retention.Microseconds(), 10)
		if deleted, err = s.inPages(ctx, conn, sql, statement.Texts(age)); err != nil {
			return deleted, err
		}
	}
	if m.RetentionUnsent <= 0 {
		return deleted, nil
	}
	var params statement.Params
	sql, err := p.relation.ExpiredUnsent(&params, m.RetentionUnsent, inFlight, s.cfg.RetainRows)
	if err != nil {
		return deleted, err
	}
	n, err := s.inPages(ctx, conn, sql, params)
	return deleted + n, err
}

// inPages repeats a statement until it does less than a page.
func (s *Sweeper) inPages(ctx context.Context, conn *pgx.Conn, sql string, args statement.Params) (int, error) {
	settings := statement.Settings{StatementTimeout: s.cfg.StatementTimeout, LockTimeout: time.Second}
	for total := 0; ; {
		page := 0
		count := func([][]byte) error { page++; return nil }
		if err := s.send(ctx, conn, settings.Step(nil), statement.Step{SQL: sql, Args: args, Each: count}); err != nil {
			return total, err
		}
		total += page
		if page < s.cfg.RetainRows {
			return total, nil
		}
	}
}

// dropPartitions drops the partitions for all of whose rows retention has run
// out. It tries without waiting long for the locks, since writers wait behind it.
func (s *Sweeper) dropPartitions(ctx context.Context, conn *pgx.Conn, p *plan) (int, error) {
	var found []statement.Partition
	age := p.relation.Table.Mapping.Retention
	step, err := p.relation.ExpiredPartitions(age, &found)
	if err != nil {
		return 0, err
	}
	settings := statement.Settings{StatementTimeout: s.cfg.StatementTimeout}
	if err := s.send(ctx, conn, settings.Step(nil), step); err != nil {
		return 0, err
	}
	dropped := 0
	for i := range found {
		n, err := s.dropPartition(ctx, conn, &found[i], age)
		if err != nil {
			return dropped, fmt.Errorf("dropping partition %s: %w", &found[i], err)
		}
		dropped += n
	}
	return dropped, nil
}

// dropPartition looks before it locks, so that a partition that must stay is
// not locked each time, and again when nobody can write to it any more.
func (s *Sweeper) dropPartition(ctx context.Context, conn *pgx.Conn, leaf *statement.Partition, age time.Duration) (int, error) {
	var rows, kept int64
	count, err := leaf.Count(age, &rows, &kept)
	if err != nil {
		return 0, err
	}
	settings := statement.Settings{StatementTimeout: s.cfg.StatementTimeout, LockTimeout: dropPatience}
	if err := s.send(ctx, conn, settings.Step(nil), count); err != nil || kept > 0 {
		return 0, err
	}
	err = s.send(ctx, conn, statement.Step{SQL: "BEGIN"}, settings.Step(nil), leaf.Lock(), count)
	if err == nil && kept == 0 {
		err = s.send(ctx, conn, leaf.Drop(), statement.Step{SQL: "COMMIT"})
	}
	if err == nil && kept == 0 {
		s.cfg.Log.Info().Stringer("partition", leaf).Int64("rows", rows).Msg("dropped a partition past its retention")
		return int(rows), nil
	}
	if rollback := s.send(ctx, conn, statement.Step{SQL: "ROLLBACK"}); rollback != nil {
		return 0, rollback
	}
	if statement.FaultOf(err) == statement.Locked {
		return 0, nil // the next round tries again
	}
	return 0, err
}

// dropPatience is how long writers of a table may have to wait for the drop of
// a partition that is itself waiting.
const dropPatience = 200 * time.Millisecond
