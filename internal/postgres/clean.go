package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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

// cleaned makes a connection that goes back to the pool as it was when it was made,
// while nobody waits for it; false: it is to be closed. Prepared statements stay,
// since to prepare ours again would cost a round trip per batch. A trigger that drops one of
// them costs us the connection; one that replaces it could write the same rows itself.
func cleaned(role string) func(*pgx.Conn) bool {
	if role == "" {
		role = "RESET ROLE;\n" // the connection string's
	}
	return func(conn *pgx.Conn) bool {
		pg := conn.PgConn()
		if pg.CustomData()[usedKey] != true {
			return true
		}
		delete(pg.CustomData(), usedKey)
		// As sessionText, for a session that was used. The user comes first: it decides
		// which role may be set.
		text := "SET SESSION AUTHORIZATION DEFAULT;\n" + role + "RESET ALL;\nUNLISTEN *;\nCLOSE ALL;\nDISCARD TEMP;\nDISCARD SEQUENCES;\n" +
			sessionText(pg.ParameterStatus("server_version")) + "SELECT pg_advisory_unlock_all();\n"
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // a session that gives no answer is closed
		defer cancel()
		_, err := pg.Exec(ctx, text).ReadAll()
		return err == nil
	}
}
