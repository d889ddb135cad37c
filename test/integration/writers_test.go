package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// load says how applications write.
type load struct {
	writers   int     // connections
	keys      int     // of them one in ten gets half of the rows
	rate      float64 // transactions per second and writer; 0: as fast as it goes
	rollbacks float64 // share of transactions that are rolled back
	savepoint float64 // share of inserts that are rolled back to a savepoint
	unkeyed   float64 // share of inserts without a key
	inserts   int     // statements of a transaction, at most
	rows      int     // of a statement, at most
	pad       int     // bytes of a value, about
	topic     string  // empty: the world's
	patient   bool    // errors of the database are expected
}

// steady returns a load that a small machine can bear in addition to everything else.
func steady() load {
	return load{writers: 6, keys: 40, rate: 25, rollbacks: 0.05, savepoint: 0.05, unkeyed: 0.05, inserts: 3, rows: 3, pad: 120}
}

// refs are drawn once per process, so that they are unique among tests, too.
var refs atomic.Int64

// writers are applications at work.
type writers struct {
	w      *world
	load   load
	cancel context.CancelFunc
	group  sync.WaitGroup
	budget atomic.Int64 // rows still to be written; negative: no limit
}

// write starts writers, which go on until stop.
func (w *world) write(l load) *writers { return w.startWriters(l, -1) }

// writeRows writes about that many rows.
func (w *world) writeRows(l load, rows int) {
	w.t.Helper()
	w.startWriters(l, int64(rows)).group.Wait()
}

func (w *world) startWriters(l load, budget int64) *writers {
	w.t.Helper()
	if l.topic == "" {
		l.topic = w.topic
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	ws := &writers{w: w, load: l, cancel: cancel}
	ws.budget.Store(budget)
	for i := range l.writers {
		ws.group.Go(func() { ws.session(ctx, rand.New(rand.NewPCG(uint64(i), 7))) })
	}
	w.t.Cleanup(ws.stop)
	return ws
}

// stop ends the writers; each finishes its transaction.
func (ws *writers) stop() {
	ws.cancel()
	ws.group.Wait()
}

// wrote waits until n more rows were committed.
func (ws *writers) wrote(n int, within time.Duration) {
	ws.w.t.Helper()
	before := ws.w.log.Count(history.Committed)
	harness.Eventually(ws.w.t, within, func() error {
		if got := ws.w.log.Count(history.Committed) - before; got < n {
			return fmt.Errorf("%d rows written, wanted %d", got, n)
		}
		return nil
	})
}

// session is one connection's transactions. Each is finished, so that its
// outcome is known.
func (ws *writers) session(ctx context.Context, r *rand.Rand) {
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			_ = conn.Close(context.WithoutCancel(ctx))
		}
	}()
	var tick <-chan time.Time
	if ws.load.rate > 0 {
		ticker := time.NewTicker(time.Duration(float64(time.Second) / ws.load.rate))
		defer ticker.Stop()
		tick = ticker.C
	}
	for ctx.Err() == nil && ws.budget.Load() != 0 {
		var err error
		if conn == nil || conn.IsClosed() {
			conn, err = pgx.Connect(ctx, ws.w.db.Own())
		}
		if err == nil {
			err = ws.transaction(conn, r)
		}
		if err != nil && !ws.load.patient && ctx.Err() == nil {
			ws.w.t.Errorf("an application's transaction: %v", err)
			return
		}
		next := tick
		if err != nil {
			next = time.After(20 * time.Millisecond) // and again
		}
		if next != nil {
			select {
			case <-next:
			case <-ctx.Done():
			}
		}
	}
}

// transaction inserts into a few keys, in the keys' order so that writers do
// not wait for one another in a circle.
func (ws *writers) transaction(conn *pgx.Conn, r *rand.Rand) error {
	l := ws.load
	var rows []history.Insert
	outcome := history.RolledBack // until COMMIT was sent
	defer func() {
		for i := range rows {
			if rows[i].Outcome == history.Unknown {
				rows[i].Outcome = outcome
			}
		}
		ws.w.log.Add(rows...)
	}()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ws.w.t.Context()), 30*time.Second)
	defer cancel()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx)
	for _, key := range ws.pickKeys(r) {
		n := 1 + r.IntN(max(l.rows, 1))
		undo := r.Float64() < l.savepoint
		part := tx
		if undo {
			if part, err = tx.Begin(ctx); err != nil {
				return err
			}
		}
		inserted, err := ws.w.insert(ctx, part, l.topic, key, n, r.IntN(2*l.pad+1))
		if err != nil {
			return err
		}
		if undo {
			for i := range inserted {
				inserted[i].Outcome = history.RolledBack
			}
			err = part.Rollback(ctx)
		}
		rows = append(rows, inserted...)
		if err != nil {
			return err
		}
	}
	if r.Float64() < l.rollbacks {
		return tx.Rollback(ctx)
	}
	outcome = history.Unknown
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	outcome = history.Committed
	ws.spend(len(rows))
	return nil
}

func (ws *writers) spend(rows int) {
	for {
		left := ws.budget.Load()
		if left < 0 || ws.budget.CompareAndSwap(left, max(0, left-int64(rows))) {
			return
		}
	}
}

// pickKeys returns keys in their order; nil is no key.
func (ws *writers) pickKeys(r *rand.Rand) (keys []*string) {
	l := ws.load
	var names []string
	for range 1 + r.IntN(max(l.inserts, 1)) {
		switch {
		case r.Float64() < l.unkeyed:
			keys = append(keys, nil)
		case r.IntN(2) == 0:
			names = append(names, fmt.Sprintf("k%d", r.IntN(max(1, l.keys/10))))
		default:
			names = append(names, fmt.Sprintf("k%d", r.IntN(l.keys)))
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		keys = append(keys, &name)
	}
	return keys
}

// querier is a transaction or a connection.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// insert writes n rows of one key; nil is a row without key. The place of the
// last row is counted in a row that stays locked until the transaction ends.
func (w *world) insert(ctx context.Context, q querier, topic string, key *string, n, pad int) ([]history.Insert, error) {
	ref := fmt.Sprintf("r%d", refs.Add(1))
	sql := `WITH place AS (INSERT INTO places AS p VALUES ($1 || '/' || $2, $4) ON CONFLICT (lane) DO UPDATE SET n = p.n + $4 RETURNING n),
		rows AS (SELECT $1::text AS topic, $2::text AS key, convert_to(concat_ws('|', $3 || '.' || i, n - $4 + i, $2, $5::int, repeat('x', $5)), 'UTF8') AS value
			FROM place, generate_series(1, $4::int) i),
		done AS (` + w.layout.insert + `)
		SELECT n FROM place`
	if key == nil {
		sql = `WITH rows AS (SELECT $1::text AS topic, $2::text AS key, convert_to(concat_ws('|', $3 || '.' || i, 0, '', $5::int, repeat('x', $5)), 'UTF8') AS value
				FROM generate_series(1, $4::int) i),
			done AS (` + w.layout.insert + `)
			SELECT 0::bigint`
	}
	var last int64
	if err := q.QueryRow(ctx, sql, topic, key, ref, n, pad).Scan(&last); err != nil {
		return nil, err
	}
	rows := make([]history.Insert, n)
	for i := range rows {
		rows[i] = history.Insert{Ref: fmt.Sprintf("%s.%d", ref, i+1), Table: w.tableName(), Topic: topic}
		if key != nil {
			rows[i].Key, rows[i].Keyed, rows[i].Seq = *key, true, last-int64(n)+int64(i)+1
		}
	}
	return rows, nil
}

// insertNow commits n rows of a key, and records them.
func (w *world) insertNow(topic, key string, n, pad int) []history.Insert {
	w.t.Helper()
	rows, err := w.insert(w.t.Context(), w.db.Pool(w.t), topic, &key, n, pad)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range rows {
		rows[i].Outcome = history.Committed
	}
	w.log.Add(rows...)
	return rows
}
