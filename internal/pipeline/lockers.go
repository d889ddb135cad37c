package pipeline

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
	"github.com/outbox-cdc/outbox-cdc/internal/sweeper"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// explainWithin bounds a query that only adds an explanation.
const explainWithin = 3 * time.Second

// lockers returns the transactions that have a table locked.
func lockers(ctx context.Context, pool *pgxpool.Pool, t *outbox.Table) (by []replication.Blocker, err error) {
	ctx, cancel := context.WithTimeout(ctx, explainWithin)
	defer cancel()
	err = postgres.Acquire(ctx, pool, func(conn *pgx.Conn) error {
		found, err := replication.LockersOf(ctx, conn.PgConn(), [2]string{t.Schema, t.Name})
		if err == nil {
			by = found[0]
		}
		return err
	})
	return by, err
}

// explain adds to a table's refusal what else is known about its cause.
func (t *telling) explain(ctx context.Context, pool *pgxpool.Pool, stream string, r *sweeper.TableError) {
	r.Err = t.explained(ctx, pool, stream, r.Table, r.Err)
}

// explained returns err with the cause of a table's refusal added: who has the table locked, or the new name
// of the table or of its columns.
func (t *telling) explained(ctx context.Context, pool *pgxpool.Pool, stream string, table *outbox.Table, err error) error {
	if tablesql.FaultOf(err) == tablesql.Locked {
		by, unknown := lockers(ctx, pool, table)
		if unknown != nil || len(by) == 0 { // the lock was released meanwhile
			return err
		}
		for i := range by {
			by[i] = by[i].Lasting()
		}
		return fmt.Errorf("%s: %w", replication.LockedBy(by), err)
	}
	if called := t.called(ctx, pool, stream, table); called != nil {
		return called
	}
	ctx, cancel := context.WithTimeout(ctx, explainWithin)
	defer cancel()
	return tablesql.WithNewNames(err, statestore.RenamedColumns(ctx, postgres.On(pool), stream, table.String()))
}

// called returns, and logs, the new name of a table that was renamed. It returns nil if the table exists, was
// dropped, or was renamed unknown to us.
func (t *telling) called(ctx context.Context, pool *pgxpool.Pool, stream string, table *outbox.Table) error {
	ctx, cancel := context.WithTimeout(ctx, explainWithin)
	defer cancel()
	now := statestore.Renamed(ctx, postgres.On(pool), stream, table.String())
	if now == "" {
		return nil
	}
	t.tellRenamed(table, now)
	return &tablesql.MappingError{Table: table, Problem: "does not exist", Hint: statestore.Called(now)}
}

// tellRenamed logs a table's new name once. Parks that follow from the renaming are then logged quietly.
func (t *telling) tellRenamed(table *outbox.Table, now string) {
	if before, told := t.renamed.Swap(table.String(), now); told && before == now || !table.Stateful() {
		return
	}
	t.log.Error().Stringer("table", table).Str("renamed_to", now).
		Msg("the table was renamed: its rows wait until the configuration has its new name, or it has its old one back")
}

// followsFromRename reports whether a park is for a table whose renaming was logged.
func (t *telling) followsFromRename(p *outbox.Park) (follows bool) {
	t.renamed.Range(func(key, _ any) bool {
		table, _ := key.(string)
		follows = p.Scope.Table == table || strings.HasPrefix(p.Reason, "table "+table+" ")
		return !follows
	})
	return follows
}
