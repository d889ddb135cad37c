package replication

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/sql"
)

// Open makes a replication connection like a leader's and asks for no
// leadership: it is for those who only look, or make things. The caller closes
// it.
func Open(ctx context.Context, cfg Config) (*pgconn.PgConn, error) {
	c, err := connect(ctx, cfg.withDefaults())
	if err != nil {
		return nil, err
	}
	return c.pg, nil
}

// HoldsLocks says whether a connection keeps a session advisory lock from one
// statement to the next, as a leader's must: behind a pooler that passes
// transactions it does not. The lock is a trial one, and is given back.
func HoldsLocks(ctx context.Context, pg *pgconn.PgConn, slot string) (bool, error) {
	trial := LockKey("trial of " + slot)
	for _, text := range []string{"SELECT pg_advisory_lock_shared($1)", "SELECT 1"} {
		if _, err := bindAndRun(ctx, pg, text, trial); err != nil {
			return false, err
		}
	}
	rows, err := bindAndRun(ctx, pg, sql.LockHeld, trial)
	if err != nil {
		return false, err
	}
	_, err = bindAndRun(ctx, pg, "SELECT pg_advisory_unlock_shared($1)", trial)
	return len(rows) == 1 && rows[0][0] == "1", err
}

func bindAndRun(ctx context.Context, pg *pgconn.PgConn, statement string, args ...any) ([][]string, error) {
	text, err := sql.Bind(statement, args...)
	if err != nil {
		return nil, err
	}
	return run(ctx, pg, text)
}

// LeaderOf tells who holds the leadership over a slot; PID is empty: nobody.
func LeaderOf(ctx context.Context, pg *pgconn.PgConn, slot string) (Holder, error) {
	rows, err := bindAndRun(ctx, pg, sql.LockHolder, LockKey(slot))
	return parseHolder(rows), err
}

// RetainedBy is ReadRetained over any connection.
func RetainedBy(ctx context.Context, pg *pgconn.PgConn, slot string) (Retained, error) {
	rows, err := bindAndRun(ctx, pg, sql.Watch, slot, "", [][2]string{})
	if err == nil && len(rows) != 1 {
		err = fmt.Errorf("%w: %d rows", ErrProtocol, len(rows))
	}
	if err != nil {
		return Retained{}, fmt.Errorf("ask how much WAL slot %s holds back: %w", slot, err)
	}
	return parseRetained(rows[0])
}

// BlockersOf lists the open transactions of the whole cluster that have written,
// and the prepared ones, the oldest first.
func BlockersOf(ctx context.Context, pg *pgconn.PgConn) ([]Blocker, error) {
	rows, err := run(ctx, pg, sql.SlotBlockers)
	if err != nil {
		return nil, fmt.Errorf("look for transactions that a new slot waits for: %w", err)
	}
	return parseBlockers(rows), nil
}

// LockersOf lists, for each table, the transactions that keep others from reading
// it, or the one whose wait for its lock does.
func LockersOf(ctx context.Context, pg *pgconn.PgConn, tables ...[2]string) ([][]Blocker, error) {
	rows, err := bindAndRun(ctx, pg, sql.TableLockers, tables)
	if err != nil {
		return nil, fmt.Errorf("look who has tables locked: %w", err)
	}
	of := make([][][]string, len(tables))
	for _, row := range rows {
		place, err := strconv.Atoi(row[7])
		if err != nil || place < 1 || place > len(tables) {
			return nil, fmt.Errorf("%w: place %q of %d tables", ErrProtocol, row[7], len(tables))
		}
		of[place-1] = append(of[place-1], row)
	}
	lockers := make([][]Blocker, len(tables))
	for i := range lockers {
		lockers[i] = parseBlockers(of[i])
	}
	return lockers, nil
}
