package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// This file removes what other people's code leaves behind in our sessions. A trigger runs in the session
// that writes to its table. Settings, advisory locks, temporary tables and LISTEN outlive the transaction.
// The next transaction in that session may be about another application's table, or about our own.
//
// A pooler's sessions are not ours to clean. There, each transaction sets everything that decides its result
// (see local).

const usedKey = "outbox-cdc/postgres: used"

// Used records that code of other people may have run in the session.
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

// Release returns a connection to its pool. A used session is cleaned first. That takes a round trip, and up
// to 5 s if the server does not answer, so callers that mark rows do not wait for it (go Release).
//
// The pool's AfterRelease hook is not used: with it, another goroutine returns every connection, and the next
// statement finds none and opens one more. https://github.com/jackc/pgx/issues/2261
func Release(conn *pgxpool.Conn) {
	if pg := conn.Conn().PgConn(); pg.CustomData()[usedKey] == true && clean(pg) != nil {
		HangUp(pg)
	}
	conn.Release()
}

// clean makes a session like new. Prepared statements are kept, since preparing ours again would cost a round
// trip per batch. If a trigger drops one of them, we lose the connection. If a trigger replaces one, that is
// no worse than what it can do anyway: it can write the same rows itself.
func clean(pg *pgconn.PgConn) error {
	delete(pg.CustomData(), usedKey)
	role, _ := pg.CustomData()[pinnedKey].(string)
	if role == "" {
		role = "RESET ROLE;\n" // the connection string's role
	}
	// This is sessionText for a session that was used. The session user comes first, because it decides which
	// role may be set.
	text := "SET SESSION AUTHORIZATION DEFAULT;\n" + role + "RESET ALL;\nUNLISTEN *;\nCLOSE ALL;\nDISCARD TEMP;\nDISCARD SEQUENCES;\n" +
		sessionText(pg.ParameterStatus("server_version")) + "SELECT pg_advisory_unlock_all();\n"
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // a session that does not answer is closed
	defer cancel()
	_, err := pg.Exec(ctx, text).ReadAll()
	return err
}
