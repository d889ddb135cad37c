package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/wait"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// world is the database and the Kafka of a demo, with everything that has to be undone.
type world struct {
	target          Target
	partitions      int
	postgresVersion string
	kafkaVersion    string
	commits         *commits
	insert          string             // the writer's statement
	readOnly        kgo.IsolationLevel // of the checking consumer

	pool  *pgxpool.Pool
	gate  *gate // of the in-process Kafka; nil: a real one is used
	admin *kgo.Client
	undo  []func(context.Context) error // run in reverse order
}

// build makes the world. After an error, too, close the world that it returns.
func build(ctx context.Context, o Options) (*world, error) {
	suffix := strings.ToLower(rand.Text()[:8])
	name := "outbox_cdc_demo_" + suffix
	w := &world{partitions: 6, commits: &commits{}}
	w.target = Target{
		Schema: name, Table: "outbox", Stream: "demo-" + suffix, Slot: name, Publication: name,
		Topic: "outbox-cdc-demo-" + suffix,
	}
	if o.ExactlyOnce {
		w.target.Journal, w.target.Fencing, w.readOnly = w.target.Topic+"-journal", "required", kgo.ReadCommitted()
	}
	for _, step := range []func(context.Context, Options) error{w.startPostgres, w.startKafka, w.prepare} {
		if err := step(ctx, o); err != nil {
			return w, err
		}
	}
	return w, nil
}

// close undoes everything, with a timeout of its own.
func (w *world) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var err error
	for _, undo := range slices.Backward(w.undo) {
		err = errors.Join(err, undo(ctx))
	}
	return err
}

func (w *world) later(undo func(context.Context) error) { w.undo = append(w.undo, undo) }

func (w *world) startPostgres(ctx context.Context, o Options) error {
	w.target.DSN = o.Postgres
	kind := ""
	if o.Postgres == "" {
		server, err := localpg.Start(ctx, localpg.Options{})
		if err != nil {
			return err
		}
		w.later(func(context.Context) error { return server.Close() })
		w.target.DSN, kind = server.DSN("postgres"), " (private)"
	}
	pool, err := postgres.Access{DSN: w.target.DSN}.Pool(nil)
	if err != nil {
		return fmt.Errorf("--postgres: %w", err)
	}
	w.pool = pool
	w.later(func(context.Context) error { pool.Close(); return nil })
	var state replication.State
	err = postgres.Acquire(ctx, pool, func(conn *pgx.Conn) (err error) {
		w.postgresVersion = conn.PgConn().ParameterStatus("server_version")
		state, err = replication.InspectServer(ctx, conn.PgConn())
		return err
	})
	if err != nil {
		return fmt.Errorf("--postgres: %w", err)
	}
	w.postgresVersion, _, _ = strings.Cut(w.postgresVersion, " ")
	w.postgresVersion += kind
	if reason, hints := state.Undecodable(); reason != "" {
		return fmt.Errorf("--postgres: %s (%s)", reason, strings.Join(hints, " "))
	}
	return nil
}

// prepare makes the application's tables, and prepares the database for the stream.
func (w *world) prepare(ctx context.Context, o Options) error {
	t := w.target
	if err := w.noteSchema(ctx); err != nil {
		return err
	}
	schema := sql.Identifier(t.Schema)
	w.later(func(ctx context.Context) error { return w.exec(ctx, "DROP SCHEMA IF EXISTS "+schema+" CASCADE") })
	customer := sql.Identifier(t.Schema, "customer")
	w.insert = fmt.Sprintf(insert, customer, sql.Identifier(t.Schema, t.Table))
	for _, statement := range []string{
		"CREATE SCHEMA " + schema,
		"CREATE TABLE " + customer + " (id int PRIMARY KEY, events int NOT NULL DEFAULT 0) WITH (fillfactor = 50)",
		fmt.Sprintf("INSERT INTO %s SELECT generate_series(1, %d)", customer, customers),
		sql.NativeTable(t.Schema, t.Table),
	} {
		if err := w.exec(ctx, statement); err != nil {
			return err
		}
	}
	w.later(func(ctx context.Context) error {
		if err := w.loseSlot(ctx); err != nil {
			return err
		}
		return w.exec(ctx, "DROP PUBLICATION IF EXISTS "+sql.Identifier(t.Publication))
	})
	if err := o.Init(ctx, t); err != nil {
		return fmt.Errorf("preparing the database: %w", err)
	}
	return nil
}

// noteSchema arranges what is removed at the end: our own schema if the demo made it, otherwise only the
// demo's stream in it.
func (w *world) noteSchema(ctx context.Context) error {
	var there bool
	if err := w.pool.QueryRow(ctx, `SELECT to_regnamespace('outbox_cdc') IS NOT NULL`).Scan(&there); err != nil {
		return err
	}
	w.later(func(ctx context.Context) error {
		if !there {
			return w.exec(ctx, `DROP SCHEMA IF EXISTS outbox_cdc CASCADE`)
		}
		statements := []string{`WITH p AS (DELETE FROM outbox_cdc.park WHERE stream = $1) DELETE FROM outbox_cdc.leader WHERE stream = $1`}
		if w.target.Journal != "" {
			statements = append(statements, `WITH u AS (DELETE FROM outbox_cdc.tally_unit WHERE stream = $1), l AS (DELETE FROM outbox_cdc.tally_left WHERE stream = $1)
				DELETE FROM outbox_cdc.tally WHERE stream = $1`)
		}
		for _, statement := range statements {
			if _, err := w.pool.Exec(ctx, statement, w.target.Stream); err != nil {
				return err
			}
		}
		return nil
	})
	return nil
}

func (w *world) exec(ctx context.Context, statement string) error {
	if _, err := w.pool.Exec(ctx, statement); err != nil {
		line, _, _ := strings.Cut(strings.TrimSpace(statement), "\n")
		return fmt.Errorf("%s: %w", line, err)
	}
	return nil
}

// awaitSlot waits until the stream has taken the slot, or until one of the contexts ends.
func (w *world) awaitSlot(ctx, all context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, giveUpAfter, errors.New("the stream did not begin; --log-level info tells what it does"))
	defer cancel()
	defer context.AfterFunc(all, cancel)()
	for {
		var active bool
		err := w.pool.QueryRow(ctx, `SELECT coalesce(bool_or(active), false) FROM pg_replication_slots WHERE slot_name = $1`, w.target.Slot).Scan(&active)
		if err == nil && active {
			return nil
		}
		if err != nil || wait.Sleep(ctx, 10*time.Millisecond) != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return err
		}
	}
}

// loseSlot drops the slot, if need be while the stream uses it.
func (w *world) loseSlot(ctx context.Context) error {
	for {
		_, err := w.pool.Exec(ctx, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active`, w.target.Slot)
		if err == nil {
			_, err = w.pool.Exec(ctx, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1`, w.target.Slot)
		}
		if err == nil || !postgres.HasCode(err, pgerrcode.ObjectInUse) { // in use: the stream was faster
			return err
		}
		if wait.Sleep(ctx, time.Millisecond) != nil {
			return ctx.Err()
		}
	}
}

func (w *world) table() string { return sql.Identifier(w.target.Schema, w.target.Table) }

// pending counts the PENDING rows. A small index serves the query.
func (w *world) pending(ctx context.Context) (n int, err error) {
	err = w.pool.QueryRow(ctx, `SELECT count(*) FROM `+w.table()+` WHERE status = 'PENDING'`).Scan(&n)
	return n, err
}

// look fills in what the display shows of the database: the PENDING and the SENT rows, and the bytes of WAL
// that the slot holds back; -1: there is no slot.
func (w *world) look(ctx context.Context, f *frame) (err error) {
	if f.pending, err = w.pending(ctx); err != nil {
		return err
	}
	f.sent = max(f.sent, f.inserted-f.pending)
	return w.pool.QueryRow(ctx, `
		SELECT coalesce((SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint
		                   FROM pg_replication_slots WHERE slot_name = $1), -1)`, w.target.Slot).Scan(&f.retained)
}

// count fills in the database's final counts, and returns the number of events of each customer.
func (w *world) count(ctx context.Context, s *Summary) (committed map[int]int, err error) {
	err = w.pool.QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE status = 'SENT'), count(*) FILTER (WHERE status = 'FAILED') FROM `+w.table()).
		Scan(&s.Inserted, &s.Sent, &s.Failed)
	if err != nil {
		return nil, err
	}
	rows, err := w.pool.Query(ctx, `SELECT id, events FROM `+sql.Identifier(w.target.Schema, "customer"))
	if err != nil {
		return nil, err
	}
	committed = map[int]int{}
	var id, count int
	_, err = pgx.ForEachRow(rows, []any{&id, &count}, func() error {
		committed[id] = count
		return nil
	})
	return committed, err
}
