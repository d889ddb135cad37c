package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// localTimes makes the native table one of an application that writes local times, and counts milliseconds.
func (w *world) localTimes() {
	w.t.Helper()
	w.db.Exec(w.t, `ALTER TABLE outbox ALTER created_at DROP DEFAULT, ALTER created_at TYPE timestamp, ALTER available_after TYPE timestamp, ALTER sent_at TYPE bigint USING NULL`)
	w.db.Exec(w.t, `ALTER TABLE outbox ALTER created_at SET DEFAULT clock_timestamp() AT TIME ZONE 'America/New_York'`)
	w.table["time_zone"], w.table["epoch"], w.table["timestamp"] = "America/New_York", "ms", "created_at"
}

// recordTimes returns the records' own times.
func (w *world) recordTimes() map[string]time.Time {
	w.t.Helper()
	at := map[string]time.Time{}
	for _, r := range w.kafka.Records(w.t, w.topic) {
		ref, _, _, _ := history.ParseValue(r.Value)
		at[ref] = r.Timestamp
	}
	return at
}

// Local times and epochs are the times they mean, whether a row comes by the WAL, waits for its time or is swept: records bear
// them, a row that is due in another zone's hours waits, and what is written is as the application would.
func TestLocalTimesAndEpochs(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	w.localTimes()
	scheduled := func(key, in string) history.Insert {
		return w.insertAs(w.rowOf(key), `INSERT INTO outbox (topic, key, payload, available_after)
			SELECT topic, key, value, (clock_timestamp() + interval '`+in+`') AT TIME ZONE 'America/New_York' FROM rows`)
	}
	p := w.run().streaming()
	far, soon := scheduled("far", "1 h"), scheduled("soon", "3 s")
	w.insertNow(w.topic, "k", 20, 10)
	w.becomes(soon, history.Sent, 30*time.Second)
	p.stop()
	w.insertNow(w.topic, "k", 20, 10)
	w.dropSlot()
	p = w.run().streaming()
	w.awaitSQL(30*time.Second, `SELECT count(*) = 1 FROM outbox WHERE status = 'PENDING'`)
	w.becomes(far, history.Pending, 0)
	p.stop()
	at, n := w.recordTimes(), 0
	err := w.query(`SELECT split_part(convert_from(payload, 'UTF8'), '|', 1), created_at AT TIME ZONE 'America/New_York', to_timestamp(sent_at / 1000.0),
		coalesce(available_after AT TIME ZONE 'America/New_York', '-infinity') <= to_timestamp(sent_at / 1000.0 + 0.001) FROM outbox WHERE status = 'SENT'`, func(rows pgx.Rows) error {
		var ref string
		var created, sent time.Time
		var due bool
		if err := rows.Scan(&ref, &created, &sent, &due); err != nil {
			return err
		}
		if n++; !at[ref].Equal(created.Truncate(time.Millisecond)) || sent.Sub(created) < -time.Millisecond || sent.Sub(created) > time.Minute || !due {
			t.Errorf("row %s, created %v, has a record of %v and was sent at %v, due: %t", ref, created, at[ref], sent, due)
		}
		return nil
	})
	if err != nil || n != 41 {
		t.Error(n, err)
	}
}

// A row that is older than its topic takes fails no more. With timestamp_refused: now it goes out with the time of producing, among
// others that keep theirs; otherwise it waits, with its key and at no cost, until the topic takes it.
func TestTimesThatTheTopicRefuses(t *testing.T) {
	for _, delivery := range []string{"at_least_once", "exactly_once"} {
		for _, refused := range []string{"now", "wait"} {
			t.Run(delivery+" "+refused, func(t *testing.T) { timesThatTheTopicRefuses(t, delivery, refused) })
		}
	}
}

func timesThatTheTopicRefuses(t *testing.T, delivery, refused string) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{noTopic: true, noInit: true})
	w.topic = "times." + w.db.Name
	bound := "message.timestamp.before.max.ms"
	w.kafka.CreateTopic(t, w.topic, 1, map[string]string{bound: "600000"})
	w.table["timestamp"], w.table["timestamp_refused"] = "created_at", refused
	if delivery == "exactly_once" {
		w.exactlyOnce()
	} else {
		w.init()
	}
	old := func(key string) history.Insert {
		return w.insertAs(w.rowOf(key), `INSERT INTO outbox (topic, key, payload, created_at) SELECT topic, key, value, clock_timestamp() - interval '1 h' FROM rows`)
	}
	w.insertNow(w.topic, "k", 5, 10)
	bad := []history.Insert{old("k"), old("k"), old("another")}
	w.insertNow(w.topic, "k", 5, 10)
	swept := old("swept")
	began := time.Now()
	p := w.run().streaming()
	if refused == "wait" {
		p.Await(30*time.Second, "Kafka refused the row", "unless timestamp_refused is now")
		w.becomes(w.insertNow(w.topic, "other", 1, 10)[0], history.Sent, 30*time.Second)
		for _, row := range append(bad, swept) {
			w.becomes(row, history.Pending, 0)
		}
		p.stop()
		p = w.run().streaming()
		w.becomes(w.insertNow(w.topic, "other", 1, 10)[0], history.Sent, 30*time.Second)
		w.kafka.ConfigureTopic(t, w.topic, map[string]string{bound: "86400000"})
	}
	old("late")
	w.settled(60 * time.Second)
	p.stop()
	w.judge(history.Rules{})
	if n := harness.One[int](t, w.db, `SELECT count(*) FROM outbox WHERE attempts > 0`); n > 0 {
		t.Errorf("%d rows were charged", n)
	}
	at := w.recordTimes()
	err := w.query(`SELECT split_part(convert_from(payload, 'UTF8'), '|', 1), created_at FROM outbox`, func(rows pgx.Rows) error {
		var ref string
		var created time.Time
		if err := rows.Scan(&ref, &created); err != nil {
			return err
		}
		isOld := time.Since(created) > 30*time.Minute
		switch got := at[ref]; {
		case refused == "now" && isOld && (got.Before(began.Add(-time.Second)) || got.After(time.Now())),
			!(refused == "now" && isOld) && !got.Equal(created.Truncate(time.Millisecond)):
			return fmt.Errorf("row %s, created %v, has a record of %v", ref, created, got)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
