package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// This file removes what others' code leaves behind in a session of ours. A trigger runs
// in the session that writes to its table, and settings, advisory locks, temporary tables
// and LISTEN outlive the transaction. The next transaction there may be about another's
// table, or about our own.
//
// A pooler's sessions are not ours to clean. There, each transaction sets what decides
// its result, see local.

const usedKey = "outbox-cdc/postgres: used"

// Used notes that code of others may have run in the session.
func Used(pg *pgconn.PgConn) {
	if Pinned(pg) {
		pg.CustomData()[usedKey] = true
	}
}

// Acquire runs f on a connection of the pool.
func Acquire(ctx context.Context, pool *pgxpool.Pool, f func(*pgx.Conn) error) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer Release(conn)
	return f(conn.Conn())
}

// Release gives a connection back to its pool. A session that was used is cleaned first, which
// takes a round trip, and 5 s where the server gives no answer; those who mark rows do not wait for
// it (go Release).
//
// The pool's AfterRelease would be the place, but with it another goroutine gives every connection
// back: the next statement finds none and opens one more.
// https://github.com/jackc/pgx/issues/2261
func Release(conn *pgxpool.Conn) {
	if pg := conn.Conn().PgConn(); pg.CustomData()[usedKey] == true && clean(pg) != nil {
		HangUp(pg)
	}
	conn.Release()
}

// clean makes a session like new. Prepared statements stay: to prepare ours again would cost a
// round trip per batch. A trigger that drops one of them costs us the connection; one that
// replaces it could write the same rows itself.
func clean(pg *pgconn.PgConn) error {
	delete(pg.CustomData(), usedKey)
	role, _ := pg.CustomData()[pinnedKey].(string)
	if role == "" {
		role = "RESET ROLE;\n" // the connection string's
	}
	// As sessionText, for a session that was used. The user comes first: it decides
	// which role may be set.
	text := "SET SESSION AUTHORIZATION DEFAULT;\n" + role + "RESET ALL;\nUNLISTEN *;\nCLOSE ALL;\nDISCARD TEMP;\nDISCARD SEQUENCES;\n" +
		sessionText(pg.ParameterStatus("server_version")) + "SELECT pg_advisory_unlock_all();\n"
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // one that gives no answer is closed
	defer cancel()
	_, err := pg.Exec(ctx, text).ReadAll()
	return err
}
