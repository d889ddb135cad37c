package statement

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Step is one statement with its bound values. Results come in text form.
type Step struct {
	SQL  string
	Args Params
	// Each takes a row of the result, whose memory is valid during the call
	// only; a NULL is nil. Its error ends the Run. It may be nil.
	Each func(row [][]byte) error
	// Prepare keeps the statement prepared on the connection; see Prepares and
	// the function Prepare.
	Prepare bool
}

// Run sends the steps in one round trip and reads what comes back. Unless they
// hold transaction commands, they are one transaction, which is committed when
// Run returns without error. After an error that is not the server's the
// outcome is unknown, see Unknown.
func Run(ctx context.Context, conn *pgx.Conn, steps ...Step) error {
	batch := &pgconn.Batch{}
	for i := range steps {
		if err := steps[i].queue(ctx, conn, batch); err != nil {
			return err
		}
	}
	reader := conn.PgConn().ExecBatch(ctx, batch)
	err := read(reader, steps)
	if closeErr := reader.Close(); closeErr != nil {
		// What the server says comes before what our reading of it says.
		return closeErr
	}
	return err
}

func (s *Step) queue(ctx context.Context, conn *pgx.Conn, batch *pgconn.Batch) error {
	if !s.Prepare {
		batch.ExecParams(s.SQL, s.Args.values, nil, s.Args.formats, nil)
		return nil
	}
	prepared, err := conn.Prepare(ctx, s.SQL, s.SQL)
	if err != nil {
		return err
	}
	batch.ExecPrepared(prepared.Name, s.Args.values, s.Args.formats, nil)
	return nil
}

// preparedKey is where a connection notes which statements it keeps.
const preparedKey = "outbox-cdc/statement: prepared"

// Prepare has the steps run by prepared statements, and prepares those that the
// connection does not keep yet, under settings, so that waiting for a locked
// table has its limit there too.
func Prepare(ctx context.Context, conn *pgx.Conn, s Settings, steps []Step) error {
	kept, _ := conn.PgConn().CustomData()[preparedKey].(map[string]bool)
	var missing []string
	for i := range steps {
		steps[i].Prepare = true
		if sql := steps[i].SQL; !kept[sql] {
			missing = append(missing, sql)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if err := Run(ctx, conn, Step{SQL: "BEGIN"}, s.Step(nil)); err != nil {
		return err
	}
	for _, sql := range missing {
		if _, err := conn.Prepare(ctx, sql, sql); err != nil {
			return err // the caller's pool drops a connection in a failed transaction
		}
	}
	if err := Run(ctx, conn, Step{SQL: "COMMIT"}); err != nil {
		return err
	}
	if kept == nil {
		kept = make(map[string]bool)
		conn.PgConn().CustomData()[preparedKey] = kept
	}
	for _, sql := range missing {
		kept[sql] = true
	}
	return nil
}

// Prepares says whether a pool's connections may keep prepared statements.
// Behind a pooler that passes transactions its configuration forbids it
// (default_query_exec_mode=exec).
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
