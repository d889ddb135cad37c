package sweeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
)

// PendingIn counts the pending rows of the relation that a table was before it
// was swapped out, and says its name now. Empty: it was dropped.
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
