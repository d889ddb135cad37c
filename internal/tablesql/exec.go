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
	// Each takes a row of the result, whose memory is valid during the call
	// only; a NULL is nil. Its error ends the Run. It may be nil.
	Each func(row [][]byte) error

	settles  bool   // it is made by Settings.Step
	prepared string // the name that Prepare gave it on the connection
}

// Run sends the steps in one round trip and reads what comes back. Unless they
// hold transaction commands, they are one transaction, which is committed when
// Run returns without error. After an error that is not the server's the
// outcome is unknown, see Unknown.
func Run(ctx context.Context, conn *pgx.Conn, steps ...Step) error {
	pg := conn.PgConn()
	// Outside of our transactions a pooler may give us any session, with any settings. Steps that
	// BEGIN have settings of their own.
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
	postgres.Used(pg) // the table's triggers, and other code of its owner
	reader := pg.ExecBatch(ctx, batch)
	err := read(reader, steps)
	if _, is := errors.AsType[*longError](err); is { // the rest is not waited for
		_ = pg.CancelRequest(ctx) // else it is read and thrown away
		_ = reader.Close()
		return err
	}
	if closeErr := reader.Close(); closeErr != nil {
		// The server's error comes before that of reading its answer.
		return closeErr
	}
	return err
}

// preparedKey is where a connection notes which statements it keeps.
const preparedKey = "outbox-cdc/tablesql: prepared"

// prepared is what a connection keeps.
type prepared struct {
	names map[string]string // by their text
	named int               // names that were given, those of failed attempts too
}

// Prepare makes the steps run as prepared statements. Those that the connection
// does not keep yet it prepares in one round trip, under settings, so that
// waiting for a locked table has its limit there too.
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
		return err // the caller's pool drops a connection in a failed transaction
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
	s.Guard = nil // nothing is read or written
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
