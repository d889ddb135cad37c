package pipeline

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/sweeper"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// lockers looks who has a table locked. It only explains, so it may not take long.
func lockers(ctx context.Context, pool *pgxpool.Pool, t *outbox.Table) (by []replication.Blocker, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
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

// tellLockers has the refusal of a locked table say who has locked it.
func tellLockers(ctx context.Context, pool *pgxpool.Pool, r *sweeper.TableError) {
	if !r.Locked() {
		return
	}
	if by, err := lockers(ctx, pool, r.Table); err == nil && len(by) > 0 { // else it ended meanwhile
		for i := range by {
			by[i] = by[i].Lasting()
		}
		r.Err = fmt.Errorf("%s: %w", replication.LockedBy(by), r.Err)
	}
}
