package sweeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// Bounds of the result of Failed for one table.
const (
	maxFailed      = 100_000
	maxFailedBytes = 256 << 20
)

// Failed returns one FAILED row of every key that has one, for tables where a FAILED row blocks its key
// (on_failed: block). Rows without a key block nothing and are left out. The rows have only id, scope and
// times. Each table that refuses the query, or has too many such rows, adds a *TableError to the joined
// error. The rows of the other tables are returned with it.
func (s *Sweeper) Failed(ctx context.Context) ([]*outbox.Row, error) {
	var rows []*outbox.Row
	var refused []error
	var arena mapping.Arena
	var wait lockWait
	for _, t := range s.cfg.Tables {
		failed, err := s.failedOf(ctx, t, &arena, &wait)
		if err != nil && !isRefusal(err) {
			return nil, err
		}
		rows, refused = append(rows, failed...), append(refused, err)
	}
	return rows, errors.Join(refused...)
}

func (s *Sweeper) failedOf(ctx context.Context, t *outbox.Table, arena *mapping.Arena, wait *lockWait) (rows []*outbox.Row, err error) {
	if t.Mapping.OnFailed != outbox.OnFailedBlock || t.Mapping.Key == nil || !t.Stateful() {
		return nil, nil
	}
	err = s.fresh(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		rows, err = s.failed(ctx, conn, t, arena, wait)
		return tablesql.Refusal(t, err)
	})
	return rows, err
}

func (s *Sweeper) failed(ctx context.Context, conn *pgx.Conn, t *outbox.Table, arena *mapping.Arena, wait *lockWait) ([]*outbox.Row, error) {
	p, err := s.plan(ctx, conn, t)
	if err != nil {
		return nil, err
	}
	r := newReader(p, true, arena)
	r.most = maxFailedBytes
	if err := wait.send(ctx, s, conn, p.relation.FailedOfKeys(r.selected(), maxFailed+1, r.each)); err != nil {
		return nil, fmt.Errorf("reading the failed rows of table %s: %w", t, err)
	}
	if len(r.rows) > maxFailed || r.full {
		return nil, &TableError{Table: t, Err: &tablesql.MappingError{
			Table: t, Problem: fmt.Sprintf("has FAILED rows of more than %d keys, or of keys that take more than %d MiB, and each blocks its key", maxFailed, maxFailedBytes>>20),
			Hint: "requeue or discard them, or set on_failed: skip",
		}}
	}
	// A row whose key cannot be read counts as one without a key, and blocks nothing.
	return slices.DeleteFunc(r.rows, func(row *outbox.Row) bool { return row.Key == nil }), nil
}

// CountPending counts a table's pending rows, due or not.
func (s *Sweeper) CountPending(ctx context.Context, t *outbox.Table) (tablesql.PendingCount, error) {
	var p tablesql.PendingCount
	err := s.count(ctx, t, s.cfg.StatementTimeout, "pending rows", func(r *tablesql.Relation, byTime bool) tablesql.Step { return r.CountPending(byTime, &p) })
	return p, err
}

// CountFailed counts a table's FAILED rows. If that takes longer than Config.FailedTimeout, the server
// cancels the query, and that is the error.
func (s *Sweeper) CountFailed(ctx context.Context, t *outbox.Table) (tablesql.FailedCount, error) {
	var f tablesql.FailedCount
	err := s.count(ctx, t, min(s.cfg.StatementTimeout, s.cfg.FailedTimeout), "failed rows", func(r *tablesql.Relation, _ bool) tablesql.Step { return r.CountFailed(&f) })
	return f, err
}

func (s *Sweeper) count(ctx context.Context, t *outbox.Table, timeout time.Duration, what string, step func(r *tablesql.Relation, byTime bool) tablesql.Step) error {
	return s.fresh(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		p, err := s.plan(ctx, conn, t)
		if err != nil {
			return err
		}
		byTime, err := s.byTime(ctx, conn, p)
		if err != nil {
			return err
		}
		if err := s.send(ctx, conn, tablesql.Reading(timeout).Step(nil), step(p.relation, byTime)); err != nil {
			return tablesql.Refusal(t, fmt.Errorf("counting the %s of table %s: %w", what, t, err))
		}
		return nil
	})
}

// PendingIn counts the pending rows of the relation that was the table before the table was swapped out. It
// returns the relation's present name; "" if it was dropped.
func (s *Sweeper) PendingIn(ctx context.Context, t *outbox.Table, relation uint32) (name string, rows int64, err error) {
	old := *t
	const named = `SELECT n.nspname::text, c.relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1`
	err = postgres.On(s.cfg.Pool).QueryRow(ctx, named, relation).Scan(&old.Schema, &old.Name)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", 0, nil
	}
	if err != nil {
		return "", 0, fmt.Errorf("look for relation %d, which table %s was: %w", relation, t, err)
	}
	cfg := s.cfg
	cfg.Tables = []*outbox.Table{&old}
	one, err := New(cfg)
	if err != nil {
		return "", 0, err
	}
	p, err := one.CountPending(ctx, &old)
	return old.String(), p.Rows, err
}
