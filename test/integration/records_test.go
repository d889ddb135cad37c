package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// insertRefused commits a row that a topic with a small limit refuses.
func (w *world) insertRefused(key string) history.Insert {
	w.t.Helper()
	rows, err := w.insert(w.t.Context(), w.db.Pool(w.t), w.topic, &key, 1, tooLarge)
	if err != nil {
		w.t.Fatal(err)
	}
	rows[0].Outcome, rows[0].Refused = history.Committed, true
	w.log.Add(rows...)
	return rows[0]
}

// statusOf returns what the table says of a row.
func (w *world) statusOf(row history.Insert) (string, error) {
	return harness.TryOne[string](w.t.Context(), w.db, `SELECT `+w.layout.status+` FROM `+w.tableName()+`
		WHERE split_part(convert_from(`+w.layout.payload+`, 'UTF8'), '|', 1) = $1`, row.Ref)
}

// becomes waits until the table says that of the row.
func (w *world) becomes(row history.Insert, status history.Status, within time.Duration) {
	w.t.Helper()
	harness.Eventually(w.t, within, func() error {
		got, err := w.statusOf(row)
		if err == nil && got != string(status) {
			err = fmt.Errorf("row %s is %s, wanted %s", row.Ref, got, status)
		}
		return err
	})
}

// A record that is too large among good ones of the same key, under load: only it
// FAILED, after its tries, and the others follow, in order.
func TestARefusedRecordFailsAlone(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{noTopic: true})
	w.refusing(20_000)
	w.table["status"] = fields{"max_attempts": 3}
	p := w.run().streaming()
	load := w.write(steady())
	w.insertNow(w.topic, "k", 3, 10)
	bad := w.insertRefused("k")
	behind := w.insertNow(w.topic, "k", 3, 10)
	other := w.insertNow(w.topic, "other", 1, 10)
	w.becomes(other[0], history.Sent, 10*time.Second)
	p.Await(10*time.Second, "Kafka refused the row", w.topic, "too large")
	w.becomes(bad, history.Failed, 20*time.Second)
	p.Await(10*time.Second, "the row is FAILED")
	w.becomes(behind[2], history.Sent, 10*time.Second)
	w.insertNow(w.topic, "k", 3, 10)
	load.stop()
	w.settled(20 * time.Second)
	p.stop()
	w.judge(history.Rules{MayFail: refused})
	if got := harness.One[string](t, w.db, `SELECT attempts || ' ' || last_error FROM outbox WHERE status = 'FAILED'`); !strings.HasPrefix(got, "3 ") || !strings.Contains(got, "too large") {
		t.Errorf("attempts and last error of the FAILED row: %q", got)
	}
}

// Kafka 4.4 can bound what a record is when decompressed. It refuses the batch and names no
// record: the rows around the one that is too large do not pay for it.
func TestARecordThatInflatesTooFar(t *testing.T) {
	for _, delivery := range []string{"at_least_once", "exactly_once"} {
		t.Run(delivery, func(t *testing.T) {
			t.Parallel() // it mostly waits
			recordThatInflatesTooFar(t, delivery)
		})
	}
}

func recordThatInflatesTooFar(t *testing.T, delivery string) {
	if v := harness.KafkaVersion(); v < "4.4" {
		t.Skipf("Kafka %s may not know max.decompressed.message.bytes", v)
	}
	w := newWorld(t, surroundings{noTopic: true, noInit: true})
	if w.kafka.Fake != nil {
		t.Skip("kfake has no such limit")
	}
	w.topic = "inflates." + w.db.Name
	w.kafka.CreateTopic(t, w.topic, 2, map[string]string{"max.decompressed.message.bytes": "20000"})
	w.cluster["compression"] = "gzip"
	w.table["status"] = fields{"max_attempts": 2}
	if delivery == "exactly_once" {
		w.exactlyOnce()
	} else {
		w.init()
	}
	p := w.run().streaming()
	load := w.write(steady())
	w.insertNow(w.topic, "k", 3, 10)
	bad := w.insertRefused("k")
	behind := w.insertNow(w.topic, "k", 3, 10)
	w.becomes(bad, history.Failed, 20*time.Second)
	w.becomes(behind[2], history.Sent, 10*time.Second)
	load.stop()
	w.settled(20 * time.Second)
	p.stop()
	w.judge(history.Rules{MayFail: refused})
	if got := harness.One[string](t, w.db, `SELECT string_agg(attempts || ' ' || last_error, '; ') FROM outbox WHERE attempts > 0`); !strings.HasPrefix(got, "2 ") || strings.Contains(got, "; ") {
		t.Errorf("attempts and last error of the one row that was charged: %q", got)
	}
}

// With on_failed: block the key waits for the operator, also over a restart under
// load, and goes on when the row is out of the way; other keys do not wait.
func TestAFailedRecordBlocksItsKey(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{noTopic: true})
	w.refusing(20_000)
	w.table["status"] = fields{"max_attempts": 2}
	w.table["on_failed"] = "block"
	p := w.run().streaming()
	load := w.write(steady())
	bad := w.insertRefused("k")
	behind := w.insertNow(w.topic, "k", 3, 10)
	w.becomes(bad, history.Failed, 20*time.Second)
	p.stop()
	p = w.run().streaming()
	w.insertNow(w.topic, "k", 2, 10)
	w.becomes(w.insertNow(w.topic, "other", 1, 10)[0], history.Sent, 10*time.Second)
	for _, row := range behind {
		if got, err := w.statusOf(row); err != nil || got != "PENDING" {
			t.Fatalf("a row behind the FAILED one is %s, %v", got, err)
		}
	}
	w.kafka.ConfigureTopic(t, w.topic, map[string]string{"max.message.bytes": "200000"})
	w.db.Exec(t, `UPDATE outbox SET status = 'PENDING', attempts = 0 WHERE status = 'FAILED'`)
	requeued := time.Now()
	w.becomes(behind[2], history.Sent, 20*time.Second)
	w.recovery = time.Since(requeued)
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.db.Exec(t, `DELETE FROM rewrites WHERE was = 'FAILED' AND became = 'PENDING'`) // the operator's
	w.judge(history.Rules{})
}

// A topic that does not exist costs its rows no attempt and holds nobody else
// up; once it is there everything is delivered, in order, also when the program
// is killed in between.
func TestAMissingTopic(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	w.small()
	missing := "missing." + w.db.Name
	p := w.run().streaming()
	load := w.write(steady())
	for range 5 {
		w.insertNow(missing, "a", 2, 10)
		w.insertNow(missing, "b", 1, 10)
	}
	line := p.Await(30*time.Second, "parked", missing)
	for _, part := range []string{"does not exist", "create it"} {
		if !strings.Contains(line, part) {
			t.Errorf("%q is not in %s", part, line)
		}
	}
	load.wrote(100, 30*time.Second)
	w.becomes(w.insertNow(w.topic, "meanwhile", 1, 10)[0], history.Sent, 10*time.Second)
	p.Kill()
	p = w.run().streaming()
	w.insertNow(missing, "a", 2, 10)
	w.kafka.CreateTopic(t, missing, 2, nil)
	w.recoveredSince(time.Now(), missing)
	w.insertNow(missing, "a", 2, 10)
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{Duplicates: window}, w.topic, missing)
	if n := harness.One[int](t, w.db, `SELECT count(*) FROM outbox WHERE attempts > 0`); n > 0 {
		t.Errorf("the missing topic was charged to %d rows", n)
	}
}

// A row that somebody sets back to PENDING is published again, soon, while others
// are written.
func TestARequeuedRowIsPublishedAgain(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	p := w.run().streaming()
	row := w.insertNow(w.topic, "k", 1, 10)[0]
	w.settled(10 * time.Second)
	load := w.write(steady())
	w.db.Exec(t, `UPDATE outbox SET status = 'PENDING', attempts = 0 WHERE key = 'k' AND status = 'SENT'`)
	w.becomes(row, history.Sent, 10*time.Second)
	after := w.insertNow(w.topic, "k", 1, 10)[0]
	w.becomes(after, history.Sent, 10*time.Second)
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.db.Exec(t, `DELETE FROM rewrites WHERE was = 'SENT' AND became = 'PENDING'`)
	h := w.judge(history.Rules{Duplicates: 1})
	if n := duplicates(h); n != 1 {
		t.Errorf("%d duplicates, wanted the requeued one", n)
	}
}

// Under load, somebody sets rows back to PENDING as soon as they are SENT, the
// same ones again and again, so that requeues race with marks that are under way.
// Each requeue makes one more record and nothing else does, nothing is lost, and
// the order of first publications stays.
func TestRowsAreRequeuedUnderLoad(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{partitions: 3})
	p := w.run().streaming()
	load := w.write(steady())
	requeued := 0
	conn := w.db.Conn(t)
	for end := time.Now().Add(scaled(5*time.Second, 30*time.Second)); time.Now().Before(end); {
		tag, err := conn.Exec(t.Context(), `UPDATE outbox SET status = 'PENDING', attempts = 0, sent_at = NULL
			WHERE id IN (SELECT id FROM outbox WHERE status = 'SENT' ORDER BY id DESC LIMIT 3)`)
		if err != nil {
			t.Fatal(err)
		}
		requeued += int(tag.RowsAffected())
		waitUntil(t, time.Now().Add(50*time.Millisecond))
	}
	load.stop()
	w.settled(60 * time.Second)
	p.stop()
	w.db.Exec(t, `DELETE FROM rewrites WHERE was = 'SENT' AND became = 'PENDING'`)
	h := w.judge(history.Rules{Duplicates: requeued})
	if n := duplicates(h); n != requeued {
		t.Errorf("%d rows were requeued, and %d records repeat one", requeued, n)
	}
	t.Logf("%d rows, %d requeued", len(h.Inserts), requeued)
}
