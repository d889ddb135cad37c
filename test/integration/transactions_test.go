package integration

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// One transaction of many rows, far more than memory may hold, while others
// write next to it: it arrives whole, in order, within the bound of memory.
func TestALargeTransaction(t *testing.T) {
	const keys = 50
	rows := scaled(200_000, 1_000_000)
	w := newWorld(t, surroundings{partitions: 3})
	p := w.run().streaming()
	load := w.write(load{writers: 2, keys: 20, rate: 10, inserts: 1, rows: 2, pad: 100})
	w.inOneTransaction(keys, rows, 100)
	load.stop()
	began := time.Now()
	w.settled(2 * time.Minute)
	t.Logf("%d rows settled %v after their commit", rows, time.Since(began).Round(time.Millisecond))
	peak := p.Peak()
	p.stop()
	w.judge(history.Rules{})
	t.Logf("peak memory %d MiB", peak>>20)
	if limit := int64(96 << 20); peak > limit {
		t.Errorf("peak memory is %d MiB, at most %d were wanted", peak>>20, limit>>20)
	}
}

// inOneTransaction writes so many rows, with values of about pad bytes.
func (w *world) inOneTransaction(keys, rows, pad int) {
	w.t.Helper()
	tx, err := w.db.Conn(w.t).Begin(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	var inserted []history.Insert
	for k := range keys {
		key := fmt.Sprintf("large%d", k)
		part, err := w.insert(w.t.Context(), tx, w.topic, &key, rows/keys, pad)
		if err != nil {
			w.t.Fatal(err)
		}
		inserted = append(inserted, part...)
	}
	if err := tx.Commit(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	for i := range inserted {
		inserted[i].Outcome = history.Committed
	}
	w.log.Add(inserted...)
}

// A bulk load has more WAL than the budget. Whether it is read from the WAL or from the table, also by the process that
// goes on after a kill, that ends: the slot is made again once for each at most, and rows stream again.
func TestATransactionLargerThanTheBudget(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{partitions: 3})
	w.small()
	w.stream["wal_budget"] = "64MiB"
	p := w.run().streaming()
	w.inOneTransaction(50, scaled(40_000, 300_000), 2000)
	harness.Eventually(t, time.Minute, func() error {
		sent, err := harness.TryOne[int](t.Context(), w.db, `SELECT count(*) FROM (SELECT FROM outbox WHERE status = 'SENT' LIMIT 1000) AS s`)
		if err == nil && sent == 0 {
			err = errors.New("no row is SENT yet")
		}
		return err
	})
	p.Kill()
	next := w.run()
	w.settled(3 * time.Minute)
	load := w.write(steady())
	load.wrote(200, 30*time.Second)
	load.stop()
	w.settled(30 * time.Second)
	next.Await(time.Minute, `"mode":"stream"`)
	for _, q := range []*process{p, next} {
		if n := q.logged("gave the slot up"); n > 1 {
			t.Errorf("the slot was given up %d times", n)
		}
	}
	next.stop()
	w.judge(history.Rules{Duplicates: window})
}

// Transactions that overlap in every way, with rollbacks and savepoints inside
// savepoints, next to other applications' on hot keys: what was rolled back is not in the topic, the rest is, per key in
// commit order.
func TestInterleavedTransactions(t *testing.T) {
	const sessions = 50
	w := newWorld(t, surroundings{partitions: 3})
	p := w.run().streaming()
	load := w.write(steady())
	r := rand.New(rand.NewPCG(1, 2))
	conns := make([]*pgx.Conn, sessions)
	for i := range conns {
		conns[i] = w.db.Conn(t)
	}
	for range scaled(3, 30) {
		w.interleave(r, conns)
	}
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}

// interleaved is one open transaction: its savepoints, and what was inserted
// in each of them.
type interleaved struct {
	txs  []pgx.Tx // the transaction and its savepoints
	rows [][]history.Insert
	key  string
}

// interleave opens a transaction on each connection, and does something on
// one of them, chosen at random, until all have ended. Each has keys of its own,
// else they would wait for each other.
func (w *world) interleave(r *rand.Rand, conns []*pgx.Conn) {
	w.t.Helper()
	must := func(err error) {
		if err != nil {
			w.t.Helper()
			w.t.Fatal(err)
		}
	}
	open := make([]*interleaved, len(conns))
	for i := range open {
		tx, err := conns[i].Begin(w.t.Context())
		must(err)
		open[i] = &interleaved{txs: []pgx.Tx{tx}, rows: [][]history.Insert{nil}, key: fmt.Sprintf("s%d", i)}
	}
	for len(open) > 0 {
		i := r.IntN(len(open))
		s := open[i]
		top := len(s.txs) - 1
		switch dice := r.IntN(10); {
		case dice < 5:
			rows, err := w.insert(w.t.Context(), s.txs[top], w.topic, &s.key, 1+r.IntN(3), 50)
			must(err)
			s.rows[top] = append(s.rows[top], rows...)
		case dice < 7 && top < 4:
			tx, err := s.txs[top].Begin(w.t.Context())
			must(err)
			s.txs, s.rows = append(s.txs, tx), append(s.rows, nil)
		default:
			committed := r.IntN(2) == 0
			if committed {
				must(s.txs[top].Commit(w.t.Context()))
			} else {
				must(s.txs[top].Rollback(w.t.Context()))
			}
			switch {
			case !committed:
				w.conclude(s.rows[top], history.RolledBack)
			case top == 0:
				w.conclude(s.rows[0], history.Committed)
			default: // the savepoint's rows are its parent's now
				s.rows[top-1] = append(s.rows[top-1], s.rows[top]...)
			}
			s.txs, s.rows = s.txs[:top], s.rows[:top]
			if top == 0 {
				open = slices.Delete(open, i, i+1)
			}
		}
	}
}

func (w *world) conclude(rows []history.Insert, o history.Outcome) {
	for i := range rows {
		rows[i].Outcome = o
	}
	w.log.Add(rows...)
}

// A transaction stays open across a lost slot and its hand-back, and commits
// after it: its rows are not lost between sweep and stream.
func TestATransactionOpenAcrossAHandBack(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	p := w.run().streaming()
	load := w.write(steady())
	before, err := w.db.Conn(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	key := "open"
	rows, err := w.insert(t.Context(), before, w.topic, &key, 5, 10)
	if err != nil {
		t.Fatal(err)
	}
	w.dropSlot()
	p.Await(20*time.Second, "slot", "wait") // making a slot waits for open transactions
	load.wrote(100, 30*time.Second)
	w.isPublished(load.w.insertNow(w.topic, "meanwhile", 1, 10)[0]) // and the sweeper publishes
	if err := before.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.conclude(rows, history.Committed)
	p.Await(20*time.Second, "handed back to the stream", "stream")
	load.wrote(100, 30*time.Second)
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}

// Transactions are prepared (two-phase commit) under load, and stay so across a
// clean restart and a kill. Not one of their rows is published before COMMIT
// PREPARED, none of ROLLBACK PREPARED ever, and what is written to their keys
// afterwards follows them.
func TestPreparedTransactions(t *testing.T) {
	t.Parallel() // it mostly waits
	const prepared = 12
	db := harness.PrivatePostgres(t, localpg.Options{})
	w := newWorld(t, surroundings{db: db, partitions: 3})
	w.small()
	p := w.run().streaming()
	load := w.write(steady())
	rows := make([][]history.Insert, prepared)
	for i := range rows {
		rows[i] = w.prepare(i)
	}
	conclude := func(from, to int) {
		for i := from; i < to; i++ {
			verb, outcome := "COMMIT", history.Committed
			if i%3 == 0 {
				verb, outcome = "ROLLBACK", history.RolledBack
			}
			w.db.Exec(t, fmt.Sprintf(`%s PREPARED 'p%d'`, verb, i))
			w.conclude(rows[i], outcome)
			w.insertNow(w.topic, preparedKey(i), 2, 10)
		}
	}
	load.wrote(100, 30*time.Second)
	conclude(0, prepared/3)
	p.stop()
	p = w.run().streaming()
	load.wrote(100, 30*time.Second)
	conclude(prepared/3, 2*prepared/3)
	p.Kill()
	p = w.run()
	w.recovered()
	load.wrote(100, 30*time.Second)
	w.unpublished(rows[2*prepared/3:])
	conclude(2*prepared/3, prepared)
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{Duplicates: window})
}

func preparedKey(i int) string { return fmt.Sprintf("prepared%d", i) }

// prepare inserts into a key of its own and prepares the transaction as p and i.
func (w *world) prepare(i int) []history.Insert {
	w.t.Helper()
	tx, err := w.db.Conn(w.t).Begin(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	key := preparedKey(i)
	rows, err := w.insert(w.t.Context(), tx, w.topic, &key, 3, 50)
	if err == nil {
		_, err = tx.Exec(w.t.Context(), fmt.Sprintf(`PREPARE TRANSACTION 'p%d'`, i))
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return rows
}

// unpublished fails the test if one of the rows is in the topic.
func (w *world) unpublished(transactions [][]history.Insert) {
	w.t.Helper()
	there := map[string]bool{}
	for _, r := range w.kafka.Records(w.t, w.topic) {
		ref, _, _, _ := history.ParseValue(r.Value)
		there[ref] = true
	}
	for _, rows := range transactions {
		for _, row := range rows {
			if there[row.Ref] {
				w.t.Errorf("row %s is published, and not committed", row.Ref)
			}
		}
	}
}

// isPublished waits until the row is in the topic.
func (w *world) isPublished(row history.Insert) {
	w.t.Helper()
	f := w.kafka.Follow(w.t, row.Topic)
	harness.Eventually(w.t, 20*time.Second, func() error {
		for _, r := range f.Records() {
			if ref, _, _, _ := history.ParseValue(r.Value); ref == row.Ref {
				return nil
			}
		}
		return fmt.Errorf("row %s is not in topic %s", row.Ref, row.Topic)
	})
}
