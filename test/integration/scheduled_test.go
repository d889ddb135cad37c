package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// appending makes the world's topic one whose records bear the time at which the
// broker took them.
func (w *world) appending() {
	w.topic = "appending." + w.db.Name
	w.kafka.CreateTopic(w.t, w.topic, 3, map[string]string{"message.timestamp.type": "LogAppendTime"})
}

// punctuality is how late a scheduled row may be SENT on a machine that has much
// else to do.
const punctuality = 10 * time.Second

// punctual fails the test for rows that came before they were due, or were marked too
// long after it. due and sent are expressions of the table's columns; due is NULL
// of rows that were not scheduled. It gives those that were.
func (w *world) punctual(due, sent string) map[string]bool {
	w.t.Helper()
	came := map[string]time.Time{}
	for _, r := range w.kafka.Records(w.t, w.topic) {
		ref, _, _, _ := history.ParseValue(r.Value)
		if at, ok := came[ref]; !ok || r.Timestamp.Before(at) {
			came[ref] = r.Timestamp
		}
	}
	scheduled := map[string]bool{}
	latest := time.Duration(0)
	sql := fmt.Sprintf(`SELECT split_part(convert_from(%s, 'UTF8'), '|', 1), %s, %s FROM %s WHERE (%[2]s) IS NOT NULL`, w.layout.payload, due, sent, w.tableName())
	err := w.query(sql, func(rows pgx.Rows) error {
		var ref string
		var due, sent time.Time
		if err := rows.Scan(&ref, &due, &sent); err != nil {
			return err
		}
		scheduled[ref] = true
		if at, ok := came[ref]; !ok || at.Before(due.Truncate(time.Millisecond)) { // Kafka's clock has no finer hands
			w.t.Errorf("row %s was due at %v and came at %v", ref, due, at)
		}
		latest = max(latest, sent.Sub(due))
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Logf("of %d scheduled rows the latest was marked %.2f s after it was due", len(scheduled), latest.Seconds())
	if latest > punctuality {
		w.t.Errorf("a scheduled row was marked %v after it was due", latest)
	}
	return scheduled
}

// Rows with available_after, among the others of hot keys and of others under
// load, are delivered once and when due, and hold nobody up: those that are due in
// an hour are still PENDING when all others are SENT, and after a restart. When
// somebody brings them forward they are delivered soon.
func TestScheduledRows(t *testing.T) {
	w := newWorld(t, surroundings{noTopic: true})
	w.appending()
	p := w.run().streaming()
	load := w.write(steady())
	load.wrote(100, 30*time.Second)
	scheduled := func(key, in string) history.Insert {
		return w.insertAs(w.rowOf(key), `INSERT INTO outbox (topic, key, payload, available_after)
			SELECT topic, key, value, clock_timestamp() + interval '`+in+`' FROM rows`)
	}
	var far []history.Insert
	for i := range 8 { // of which four are hot
		far = append(far, scheduled(fmt.Sprintf("k%d", i), "1 h"))
	}
	const soon = 48
	for i := range soon {
		key := fmt.Sprintf("k%d", i%8)
		scheduled(key, fmt.Sprintf("%d ms", 100*i))
		w.insertAs(w.rowOf(key), w.layout.insert)
	}
	load.wrote(200, 30*time.Second)
	load.stop()
	w.awaitSQL(30*time.Second, `SELECT count(*) = 0 FROM outbox WHERE status = 'PENDING' AND (available_after IS NULL OR available_after < now() + interval '30 min')`)
	for _, row := range far {
		w.becomes(row, history.Pending, 0)
	}
	load = w.write(steady())
	p.stop()
	p = w.run().streaming()
	load.wrote(100, 30*time.Second)
	for _, row := range far {
		w.becomes(row, history.Pending, 0)
	}
	w.db.Exec(t, `UPDATE outbox SET available_after = clock_timestamp() WHERE status = 'PENDING' AND available_after > now()`)
	forward := time.Now()
	for _, row := range far {
		w.becomes(row, history.Sent, 20*time.Second)
	}
	w.recovery = time.Since(forward)
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	late := w.punctual("available_after", "sent_at")
	if n := soon + len(far); len(late) != n {
		t.Errorf("%d rows were scheduled, wanted %d", len(late), n)
	}
	w.judge(history.Rules{Late: func(in history.Insert) bool { return late[in.Ref] }})
}
