package tablesql

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
)

// Step is one statement with its bound values. Results come in text form.
type Step struct {
	SQL  string
	Args Params
	// Each is called for each row of the result; nil: rows are ignored. The row's memory is valid only during
	// the call. A NULL is nil. An error from Each ends the Run.
	Each func(row [][]byte) error

	settles  bool   // made by Settings.Step
	prepared string // the name under which the connection keeps it prepared
}

// Run sends the steps in one round trip and reads the results. The steps are one transaction, which is
// committed when Run returns without error, unless they contain transaction commands. After an error that
// does not come from the server, the outcome is unknown; see Unknown.
func Run(ctx context.Context, conn *pgx.Conn, steps ...Step) error {
	pg := conn.PgConn()
	// Outside of our transactions, a pooler may use any session, with any settings. Steps that begin with
	// BEGIN set their own.
	if !postgres.Pinned(pg) && pg.TxStatus() == 'I' && !steps[0].settles && !strings.HasPrefix(steps[0].SQL, "BEGIN") {
		steps = append([]Step{Settings{}.Step(nil)}, steps...)
	}
	batch := &pgconn.Batch{}
	for _, s := range steps {
		if s.prepared == "" {
			batch.ExecParams(s.SQL, s.Args.values, nil, s.Args.formats, nil)
		} else {
			batch.ExecPrepared(s.prepared, s.Args.values, s.Args.formats, nil)
		}
	}
	postgres.Used(pg) // triggers and other code of the table's owner may have changed the session
	reader := pg.ExecBatch(ctx, batch)
	err := read(reader, steps)
	if _, is := errors.AsType[*longError](err); is { // do not wait for the rest of the result
		_ = pg.CancelRequest(ctx) // otherwise the rest would still be sent
		_ = reader.Close()
		return err
	}
	if closeErr := reader.Close(); closeErr != nil {
		// The server's own error is reported rather than that of reading its answer.
		return closeErr
	}
	return err
}

// preparedKey is the key under which a connection records its prepared statements.
const preparedKey = "outbox-cdc/tablesql: prepared"

// prepared records the statements that a connection keeps.
type prepared struct {
	names map[string]string // by the statement's text
	named int               // number of names used so far, including those of failed attempts
}

// Prepare makes the steps run as prepared statements. It prepares those that the connection does not keep
// yet, in one round trip. It does so under settings, so that the wait for a locked table is bounded here too.
func Prepare(ctx context.Context, conn *pgx.Conn, s Settings, steps []Step) error {
	data := conn.PgConn().CustomData()
	p, ok := data[preparedKey].(*prepared)
	if !ok {
		p = &prepared{names: make(map[string]string)}
		data[preparedKey] = p
	}
	var missing []string
	for i := range steps {
		if sql := steps[i].SQL; p.names[sql] == "" {
			missing = append(missing, sql)
		}
	}
	if err := p.prepare(ctx, conn, s, missing); err != nil {
		return err // the caller's pool drops a connection whose transaction has failed
	}
	for i := range steps {
		steps[i].prepared = p.names[steps[i].SQL]
	}
	return nil
}

func (p *prepared) prepare(ctx context.Context, conn *pgx.Conn, s Settings, statements []string) error {
	if len(statements) == 0 {
		return nil
	}
	pipeline := conn.PgConn().StartPipeline(ctx)
	pipeline.SendQueryParams("BEGIN", nil, nil, nil, nil)
	s.Guard = nil // preparing reads and writes no rows
	pipeline.SendQueryParams(s.Step(nil).SQL, nil, nil, nil, nil)
	names := make([]string, len(statements))
	for i, sql := range statements {
		p.named++
		names[i] = "outbox_cdc_" + strconv.Itoa(p.named)
		pipeline.SendPrepare(names[i], sql, nil)
	}
	pipeline.SendQueryParams("COMMIT", nil, nil, nil, nil)
	if err := pipeline.Sync(); err != nil {
		return err
	}
	if err := pipeline.Close(); err != nil {
		return err
	}
	for i, sql := range statements {
		p.names[sql] = names[i]
	}
	return nil
}

// Prepares reports whether a pool's connections may keep prepared statements. Behind a pooler in transaction
// mode, the configuration forbids it (default_query_exec_mode=exec).
func Prepares(cfg *pgx.ConnConfig) bool {
	return cfg.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement
}

func read(reader *pgconn.MultiResultReader, steps []Step) error {
	for i := 0; reader.NextResult(); i++ {
		result := reader.ResultReader()
		for result.NextRow() {
			if steps[i].Each == nil {
				continue
			}
			if err := steps[i].Each(result.Values()); err != nil {
				return err
			}
		}
		if _, err := result.Close(); err != nil {
			return err
		}
	}
	return nil
}
