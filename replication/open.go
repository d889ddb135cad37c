package replication

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/sql"
)

// Open makes a replication connection like a leader's, but does not ask for leadership. Commands that only
// inspect, or that make objects, use it. The caller closes it.
func Open(ctx context.Context, cfg Config) (*pgconn.PgConn, error) {
	c, err := connect(ctx, cfg.withDefaults())
	if err != nil {
		return nil, err
	}
	return c.pg, nil
}

// HoldsLocks reports whether the connection keeps a session advisory lock from one statement to the next, as
// a leader must. It does not behind a pooler in transaction mode. HoldsLocks takes a lock under a key of its
// own and releases it.
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

// LeaderOf reads which session holds the leadership of a slot. The Holder's PID is empty where no session
// does.
func LeaderOf(ctx context.Context, pg *pgconn.PgConn, slot string) (Holder, error) {
	rows, err := bindAndRun(ctx, pg, sql.LockHolder, LockKey(slot))
	return parseHolder(rows), err
}

// RetainedBy is ReadRetained over a plain connection.
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

// BlockersOf returns the open transactions of the whole cluster that have written, and the prepared ones,
// oldest first.
func BlockersOf(ctx context.Context, pg *pgconn.PgConn) ([]Blocker, error) {
	rows, err := run(ctx, pg, sql.SlotBlockers)
	if err != nil {
		return nil, fmt.Errorf("look for transactions that a new slot waits for: %w", err)
	}
	return parseBlockers(rows), nil
}

// LockersOf returns, for each table, the transactions whose lock keeps others from reading it. If no lock is
// held yet, it returns the transaction whose waiting request blocks the others.
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
