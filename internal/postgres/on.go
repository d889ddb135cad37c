package postgres

import (
	"cmp"
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Batcher is a pool or a connection of pgx.
type Batcher interface {
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
}

// DB runs single statements. Each runs in a transaction of its own, which is set up for it, in one round
// trip.
type DB struct {
	on     Batcher
	first  string // runs before each statement, in its transaction; empty: none
	others bool   // statements may run other people's code
}

// On returns a DB for statements other than those of package tablesql.
func On(b Batcher) DB { return DB{on: b} }

// OnOthers is On for statements on the application's tables, whose triggers may leave something in the
// session.
func OnOthers(pool *pgxpool.Pool) DB { return DB{on: pool, others: true} }

// After makes sql run before each statement, in its transaction.
func (db DB) After(sql string) DB {
	db.first = sql
	return db
}

var localSelect = "SELECT " + strings.Join(Calls(), ", ")

func (db DB) send(ctx context.Context, questions ...Question) (pgx.BatchResults, error) {
	batch, before := &pgx.Batch{}, []string{localSelect}
	send := db.on.SendBatch
	if pool, ok := db.on.(*pgxpool.Pool); ok {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return pgx.FailedBatchResults(batch, err), err
		}
		pg := conn.Conn().PgConn()
		if Pinned(pg) {
			before = nil // our own sessions in a pool are set up and clean
		}
		if db.others {
			Used(pg)
		}
		send = func(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
			return &lent{conn.SendBatch(ctx, batch), conn}
		}
	}
	if db.first != "" {
		before = append(before, db.first)
	}
	for _, sql := range before {
		batch.Queue(sql)
	}
	for _, q := range questions {
		batch.Queue(q.SQL, q.Args...)
	}
	results := send(ctx, batch)
	for range before {
		if _, err := results.Exec(); err != nil {
			return results, err
		}
	}
	return results, nil
}

// lent returns its connection when it is closed.
type lent struct {
	pgx.BatchResults
	conn *pgxpool.Conn
}

func (l *lent) Close() error {
	err := l.BatchResults.Close()
	Release(l.conn)
	return err
}

// Exec is like pgx's Exec.
func (db DB) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	results, err := db.send(ctx, Question{SQL: sql, Args: args})
	var tag pgconn.CommandTag
	if err == nil {
		tag, err = results.Exec()
	}
	return tag, cmp.Or(err, results.Close()) // the commit may still fail
}

// Query is like pgx's Query. The rows must be closed, or read to their end.
func (db DB) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	results, err := db.send(ctx, Question{SQL: sql, Args: args})
	if err == nil {
		var found pgx.Rows
		if found, err = results.Query(); err == nil {
			return &rows{Rows: found, results: results}, nil
		}
	}
	return nil, cmp.Or(err, results.Close())
}

// Question is one of several queries that are sent together.
type Question struct {
	SQL  string
	Args []any
	// Read reads the rows to their end. If there are none, err says what failed.
	Read func(pgx.Rows, error) error
}

// Ask sends all questions in one transaction and one round trip. If one fails, the later ones have no answer.
func (db DB) Ask(ctx context.Context, questions ...Question) error {
	results, err := db.send(ctx, questions...)
	for _, q := range questions {
		var found pgx.Rows
		if err == nil {
			found, err = results.Query()
		}
		if err = q.Read(found, err); err != nil {
			break
		}
	}
	return cmp.Or(err, results.Close())
}

// Collect returns the rows of a query.
func Collect[T any](ctx context.Context, db DB, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	found, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, scan)
}

// QueryRow is like pgx's QueryRow.
func (db DB) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	found, err := db.Query(ctx, sql, args...)
	return row{found, err}
}

// rows ends the batch when the rows end.
type rows struct {
	pgx.Rows
	results pgx.BatchResults
	closed  bool
	err     error
}

func (r *rows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *rows) Close() {
	if r.closed {
		return
	}
	r.closed = true
	r.Rows.Close()
	r.err = cmp.Or(r.Rows.Err(), r.results.Close())
}

func (r *rows) Err() error {
	if r.closed {
		return r.err
	}
	return r.Rows.Err()
}

type row struct {
	rows pgx.Rows
	err  error
}

func (r row) Scan(to ...any) error {
	if r.err != nil {
		return r.err
	}
	if !r.rows.Next() {
		return cmp.Or(r.rows.Err(), pgx.ErrNoRows)
	}
	err := r.rows.Scan(to...)
	r.rows.Close()
	return cmp.Or(err, r.rows.Err())
}
