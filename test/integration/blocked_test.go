package integration

import (
	"fmt"
	"maps"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// With on_failed: block a key waits for each of its FAILED rows, and a hot key
// under load is no exception. Of k0 and k1 two rows fail at a time, since they go
// to two clusters, of which each refuses its own; two of k2 are FAILED from the
// time when the table had on_failed: skip. The operator deals with the one that
// the key's park remembers, by discarding it or by requeueing it: the key waits
// on, over a restart, too, and goes on in order when the other one is gone.
func TestAKeyWaitsForAllOfItsFailedRows(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{noTopic: true})
	w.refusing(20_000)
	w.sampled()
	w.twoClusters()
	w.table["status"] = fields{"max_attempts": 1}
	w.stream["postgres"] = fields{"dsn": w.db.DSN, "wal_sender_timeout": "1m"} // longer than it is stopped
	p := w.run().streaming()
	load := w.write(steady())
	early := [2]history.Insert{w.insertRefused("k2"), w.insertRefused("k2")}
	for _, row := range early {
		w.becomes(row, history.Failed, 20*time.Second)
	}
	p.stop()

	w.table["on_failed"] = "block"
	p = w.run().streaming()
	keys := []*waiting{{key: "k0"}, {key: "k1"}, {key: "k2", failed: early}}
	w.atOnce(p, func() {
		for _, k := range keys[:2] {
			k.failed = w.insertRefusedByTwo(k.key)
		}
	})
	// Two clusters keep no order between them, and on_failed: skip lets a key go on.
	late := map[string]bool{keys[0].failed[1].Ref: true, keys[1].failed[1].Ref: true, early[0].Ref: true, early[1].Ref: true}
	for _, k := range keys {
		for _, row := range k.failed {
			w.becomes(row, history.Failed, 20*time.Second)
		}
		k.behind = w.insertNow(w.topic, k.key, 3, 10)
	}
	// What a park remembers is the last one that failed, or at a start the first.
	for _, k := range keys[:2] {
		w.lastFirst(p, k)
	}
	for _, k := range keys {
		w.remembers(k.key, k.failed[0])
	}

	w.kafka.ConfigureTopic(t, w.topic, map[string]string{"max.message.bytes": "200000"})
	w.discard(keys[0].failed[0])
	w.requeue(keys[1].failed[0])
	w.discard(keys[2].failed[0])
	for _, k := range keys {
		w.remembers(k.key, k.failed[1])
	}
	w.allWait(keys)
	p.stop()
	p = w.run().streaming()
	w.allWait(keys)
	w.becomes(keys[1].failed[0], history.Pending, 0) // requeued, and behind the other one

	w.requeue(keys[0].failed[1])
	w.discard(keys[1].failed[1])
	w.requeue(keys[2].failed[1])
	began := time.Now()
	for _, k := range keys {
		w.becomes(k.behind[2], history.Sent, 20*time.Second)
	}
	w.recovery = time.Since(began)
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.db.Exec(t, `DELETE FROM rewrites WHERE was = 'FAILED' AND became = 'PENDING'`) // the operator's
	if n := w.takeBack(0); n != 3 {
		t.Errorf("%d rows are gone, wanted the three that were discarded", n)
	}
	w.judge(history.Rules{Late: func(in history.Insert) bool { return late[in.Ref] }})
}

// waiting is a key with two FAILED rows, and rows behind them.
type waiting struct {
	key    string
	failed [2]history.Insert
	behind []history.Insert
}

// twoClusters has rows go to a second Kafka cluster if they say so. It is the same
// one, with a producer of its own, so that topics are the same, too.
func (w *world) twoClusters() {
	w.config["kafka"] = fields{"default": "main", "clusters": fields{"main": w.cluster, "other": maps.Clone(w.cluster)}}
	w.table["cluster"] = fields{"column": "cluster"}
	w.db.Exec(w.t, `ALTER TABLE outbox ADD COLUMN cluster text`)
}

// atOnce stops the program until all that is committed meanwhile is there for it to
// read: it then sends rows of a key to both clusters before either has answered.
func (w *world) atOnce(p *process, commit func()) {
	w.t.Helper()
	p.Signal(syscall.SIGSTOP)
	defer p.Signal(syscall.SIGCONT)
	commit()
	end := harness.One[string](w.t, w.db, `SELECT pg_current_wal_lsn()::text`)
	harness.Eventually(w.t, 10*time.Second, func() error {
		sent, err := harness.TryOne[bool](w.t.Context(), w.db, `SELECT coalesce(bool_or(sent_lsn >= $1::pg_lsn), false)
			FROM pg_stat_replication JOIN pg_replication_slots ON pid = active_pid WHERE slot_name = $2`, end, w.stream["slot"])
		if err == nil && !sent {
			err = fmt.Errorf("the WAL has not been sent as far as %s", end)
		}
		return err
	})
}

// insertRefusedByTwo commits two rows of a key in one transaction, of which the
// second goes to the other cluster. Both are refused.
func (w *world) insertRefusedByTwo(key string) (both [2]history.Insert) {
	w.t.Helper()
	tx, err := w.db.Pool(w.t).Begin(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	defer tx.Rollback(w.t.Context())
	other := *w
	other.layout.insert = `INSERT INTO outbox (topic, key, payload, cluster) SELECT topic, key, value, 'other' FROM rows`
	for i, to := range []*world{w, &other} {
		rows, err := to.insert(w.t.Context(), tx, w.topic, &key, 1, tooLarge)
		if err != nil {
			w.t.Fatal(err)
		}
		both[i] = rows[0]
		both[i].Refused = true
	}
	if err := tx.Commit(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	w.conclude(both[:], history.Committed)
	return both
}

// idOf returns a row's id.
func (w *world) idOf(row history.Insert) string {
	w.t.Helper()
	return harness.One[string](w.t, w.db, `SELECT id::text FROM outbox WHERE starts_with(convert_from(payload, 'UTF8'), $1 || '|')`, row.Ref)
}

// lastFirst puts the row of a key that became FAILED last before the other one.
// The program's log has them in their order.
func (w *world) lastFirst(p *process, k *waiting) {
	w.t.Helper()
	said := func(row history.Insert) string { return fmt.Sprintf(`"id":[%q]`, w.idOf(row)) }
	first, second := said(k.failed[0]), said(k.failed[1])
	harness.Eventually(w.t, 10*time.Second, func() error {
		at := map[string]int{}
		for i, line := range p.Said("the row is FAILED") {
			for _, id := range []string{first, second} {
				if strings.Contains(line, id) {
					at[id] = i
				}
			}
		}
		if len(at) < 2 {
			return fmt.Errorf("of the FAILED rows %s and %s the log has %v", first, second, at)
		}
		if at[first] > at[second] {
			return nil
		}
		k.failed[0], k.failed[1] = k.failed[1], k.failed[0]
		return nil
	})
}

// remembers waits until the park of a key says that it waits for that FAILED row.
func (w *world) remembers(key string, row history.Insert) {
	w.t.Helper()
	want := w.idOf(row)
	harness.Eventually(w.t, 20*time.Second, func() error {
		got, err := harness.TryOne[string](w.t.Context(), w.db, `SELECT concat_ws(' ', cause, row_id[1]) FROM outbox_cdc.park WHERE kind = 'key' AND key = convert_to($1, 'UTF8')`, key)
		if err == nil && got != "blocked "+want {
			err = fmt.Errorf("key %s is parked as %s, wanted blocked %s", key, got, want)
		}
		return err
	})
}

// allWait fails the test if a row behind the FAILED ones is not PENDING, when a
// row of another key that is committed now is SENT.
func (w *world) allWait(keys []*waiting) {
	w.t.Helper()
	w.becomes(w.insertNow(w.topic, "another", 1, 10)[0], history.Sent, 10*time.Second)
	for _, k := range keys {
		for _, row := range k.behind {
			w.becomes(row, history.Pending, 0)
		}
	}
}

// requeue and discard are what an operator does with a FAILED row.
func (w *world) requeue(row history.Insert) { w.operate(row, "requeue") }
func (w *world) discard(row history.Insert) { w.operate(row, "discard", "--delete") }

func (w *world) operate(row history.Insert, args ...string) {
	w.t.Helper()
	args = append(append([]string{"failed"}, args...), "--id", w.idOf(row), "--yes", "--config", w.file())
	if out, err := w.command(args...); err != nil {
		w.t.Fatalf("outbox-cdc %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
