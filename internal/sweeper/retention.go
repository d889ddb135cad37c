package sweeper

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// Retain deletes a table's rows whose retention has expired, one page at a time: rows that were sent, and, if
// the mapping has a period for them, rows that were not. It skips rows that other sessions have locked, and
// unsent rows in flight, whose ids were taken before the call (inFlight). A row that comes into flight during
// the call may be deleted: it is published all the same, and its mark finds it gone. Retain returns how many
// rows it deleted, and how long it took to find them. Without a fitting index it reads the whole table each
// time.
func (s *Sweeper) Retain(ctx context.Context, t *outbox.Table, inFlight []string) (int, time.Duration, error) {
	return s.retain(ctx, t, t.Mapping.RetentionUnsent, inFlight)
}

// RetainSent is Retain for rows that were sent, and no others.
func (s *Sweeper) RetainSent(ctx context.Context, t *outbox.Table) (int, time.Duration, error) {
	return s.retain(ctx, t, 0, nil)
}

func (s *Sweeper) retain(ctx context.Context, t *outbox.Table, unsent time.Duration, inFlight []string) (int, time.Duration, error) {
	r := retention{Sweeper: s, table: t, began: time.Now(), told: time.Now()}
	err := s.fresh(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		if err := r.run(ctx, conn, unsent, inFlight); err != nil {
			return tablesql.Refusal(t, fmt.Errorf("deleting rows of table %s past their retention: %w", t, err))
		}
		return nil
	})
	return r.deleted, r.finding, err
}

// retention is the removal of one table's rows.
type retention struct {
	*Sweeper
	table   *outbox.Table
	deleted int
	finding time.Duration

	began, told time.Time
}

// toldEvery is how often a long round logs its progress.
const toldEvery = 10 * time.Second

func (r *retention) tell(now time.Time) {
	if now.Sub(r.told) < toldEvery {
		return
	}
	r.told = now
	r.cfg.Log.Info().Stringer("table", r.table).Int("deleted", r.deleted).Float64("rows_per_second", float64(r.deleted)/now.Sub(r.began).Seconds()).
		Msg("deleting rows past their retention")
}

func (r *retention) run(ctx context.Context, conn *pgx.Conn, unsent time.Duration, inFlight []string) error {
	p, err := r.plan(ctx, conn, r.table)
	if err != nil {
		return err
	}
	m := &r.table.Mapping
	if m.DropPartitions {
		return r.dropPartitions(ctx, conn, p)
	}
	if m.Retention > 0 && m.Published == outbox.PublishedStatus {
		expired, err := p.relation.Expired(m.Retention)
		if err == nil {
			err = r.remove(ctx, conn, expired)
		}
		if err != nil {
			return err
		}
	}
	if unsent <= 0 {
		return nil
	}
	expired, err := p.relation.ExpiredUnsent(unsent, inFlight)
	if err != nil {
		return err
	}
	return r.remove(ctx, conn, expired)
}

// foundPages is how many pages of ids one search finds, which take some megabytes. A search may read the
// whole table.
const foundPages = 100

// remove finds and deletes rows until none is left that can be deleted now.
func (r *retention) remove(ctx context.Context, conn *pgx.Conn, removal *tablesql.Removal) error {
	settings := tablesql.Settings{StatementTimeout: r.cfg.StatementTimeout, LockTimeout: time.Second}
	byID := settings
	byID.ByIndex = true
	for {
		var ids []string
		bytes := 0
		began := time.Now()
		find := removal.Find(foundPages*r.cfg.RetainRows, func(id string) {
			if bytes <= maxIDOrderBytes { // the next round finds the others
				ids = append(ids, id)
			}
			bytes += len(id)
		})
		if err := r.send(ctx, conn, settings.Step(nil), find); err != nil {
			return err
		}
		r.finding += time.Since(began)
		before := r.deleted
		for page := range slices.Chunk(ids, r.cfg.RetainRows) {
			step, err := removal.Delete(page, func([][]byte) error { r.deleted++; return nil })
			if err == nil {
				err = r.send(ctx, conn, byID.Step(nil), step)
			}
			if err != nil {
				return err
			}
			r.tell(time.Now())
		}
		if len(ids) < foundPages*r.cfg.RetainRows || r.deleted == before {
			return nil
		}
	}
}

// dropPartitions drops each partition for whose rows retention has expired. It waits only briefly for locks,
// because writers queue behind it.
func (r *retention) dropPartitions(ctx context.Context, conn *pgx.Conn, p *plan) error {
	var found []tablesql.Partition
	age := r.table.Mapping.Retention
	step, err := p.relation.ExpiredPartitions(age, &found)
	if err != nil {
		return err
	}
	if err := r.send(ctx, conn, r.settings().Step(nil), step); err != nil {
		return err
	}
	for i := range found {
		n, err := r.dropPartition(ctx, conn, &found[i], age)
		if err != nil {
			return fmt.Errorf("dropping partition %s: %w", &found[i], err)
		}
		r.deleted += n
	}
	return nil
}

// dropPartition checks the partition's rows before it takes the lock, so that a partition that has to stay is
// not locked each time. It checks again under the lock, when nobody can write to the partition any more.
func (s *Sweeper) dropPartition(ctx context.Context, conn *pgx.Conn, leaf *tablesql.Partition, age time.Duration) (int, error) {
	var rows, kept int64
	count, err := leaf.Count(age, &rows, &kept)
	if err != nil {
		return 0, err
	}
	settings := tablesql.Settings{StatementTimeout: s.cfg.StatementTimeout, LockTimeout: dropLockTimeout}
	err = s.send(ctx, conn, settings.Step(nil), count)
	if tablesql.FaultOf(err) == tablesql.Locked {
		return 0, nil // the next round tries again
	}
	if err != nil || kept > 0 {
		return 0, err
	}
	err = s.send(ctx, conn, tablesql.Step{SQL: "BEGIN"}, settings.Step(nil), leaf.Lock(), count)
	if err == nil && kept == 0 {
		err = s.send(ctx, conn, leaf.Drop(), tablesql.Step{SQL: "COMMIT"})
	}
	if err == nil && kept == 0 {
		s.cfg.Log.Info().Stringer("partition", leaf).Int64("rows", rows).Msg("dropped a partition past its retention")
		return int(rows), nil
	}
	if rollback := s.send(ctx, conn, tablesql.Step{SQL: "ROLLBACK"}); rollback != nil {
		return 0, rollback
	}
	if tablesql.FaultOf(err) == tablesql.Locked {
		return 0, nil // the next round tries again
	}
	return 0, err
}

// dropLockTimeout is how long a drop waits for its locks. The table's writers queue behind it meanwhile.
const dropLockTimeout = 200 * time.Millisecond
