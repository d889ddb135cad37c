package integration

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// deferredMessages is jEAP's table. The suite's own column tells a message's state
// in one word, which the program knows nothing of.
func deferredMessages() layout {
	return layout{
		ddl: fixture.Deferred().DDL + `
			ALTER TABLE deferred_message ADD COLUMN status text GENERATED ALWAYS AS (CASE WHEN resend THEN 'PENDING'
				WHEN failed IS NOT NULL THEN 'FAILED' WHEN coalesce(sent_immediately, sent_scheduled) IS NOT NULL THEN 'SENT' ELSE 'PENDING' END) STORED`,
		config: fields{
			"table": "public.deferred_message", "profile": "jeap", "grace": "1h", "shedlock": nil, "retention_lock": nil,
			"headers_table": fields{
				"table": "public.deferred_message_header", "parent": "deferred_message_id", "order": "header_index",
				"name": "header_name", "value": "header_value",
			},
		},
		insert:  deferMessage(false),
		payload: "message", status: "status",
	}
}

// deferMessage inserts messages that their writer will try to send, or not.
func deferMessage(immediately bool) string {
	return fmt.Sprintf(`INSERT INTO deferred_message (id, message, "key", topic, message_id, message_idempotence_id, message_type_name, created, send_immediately, resend)
		SELECT nextval('deferred_message_sequence'), value, convert_to(key, 'UTF8'), topic, 'm', 'i', 'T', clock_timestamp(), %v, false FROM rows`, immediately)
}

// schedule makes the message that was just inserted ours after a time.
func schedule(in string) string {
	return `UPDATE deferred_message SET schedule_after = clock_timestamp() + interval '` + in + `' WHERE id = currval('deferred_message_sequence')`
}

// Under load of applications that leave their messages to the WAL, and among the
// messages of their hot keys: one goes out by the WAL with the headers of its side
// table; those that their writers were to send go out when their time has passed,
// though that was set by an UPDATE and they are far younger than the grace; those
// that cannot be records fail at once; those that are asked for again go out again.
// Nobody waits for any of them.
func TestDeferredMessages(t *testing.T) {
	l := deferredMessages()
	w := newWorld(t, surroundings{layout: &l, noTopic: true})
	w.appending()
	p := w.run().streaming()
	load := w.write(steady())
	load.wrote(100, 30*time.Second)
	withHeaders := w.insertAs(w.rowOf("k0"), l.insert,
		`INSERT INTO deferred_message_header SELECT currval('deferred_message_sequence'), 1 - i, chr(98 - i), convert_to((2 - i)::text, 'UTF8') FROM generate_series(0, 1) i`)
	var soon, far, bad []history.Insert
	for i := range 8 { // of which four are hot
		row := w.rowOf(fmt.Sprintf("k%d", i))
		soon = append(soon, w.insertAs(row, deferMessage(true), schedule(fmt.Sprintf("%d ms", 1000+250*i))))
		far = append(far, w.insertAs(row, deferMessage(true), schedule("1 h")))
		w.becomes(w.insertAs(row, l.insert), history.Sent, 10*time.Second)
		row.Topic, row.Refused = "no topic!", true
		bad = append(bad, w.insertAs(row, l.insert))
	}
	for _, row := range bad {
		w.becomes(row, history.Failed, 20*time.Second)
	}
	w.awaitSQL(time.Second, `SELECT bool_and(fail_reason LIKE '%no topic!%') FROM deferred_message WHERE failed IS NOT NULL`)
	for _, row := range soon {
		w.becomes(row, history.Sent, 20*time.Second)
	}
	for _, row := range far {
		w.becomes(row, history.Pending, 0)
	}
	// The writers sent these, and somebody asks for them again.
	w.db.Exec(t, `UPDATE deferred_message SET resend = true, sent_immediately = now(), created = now() - interval '2 h' WHERE schedule_after > now() + interval '30 min'`)
	for _, row := range far {
		w.becomes(row, history.Sent, 20*time.Second)
	}
	w.awaitSQL(time.Second, `SELECT bool_and(sent_scheduled IS NOT NULL) FROM deferred_message WHERE sent_immediately IS NOT NULL`)

	// Kafka takes no record without a key into a compacted topic: that fails no
	// message of this layout, however often.
	compacted := w.topic + "-compacted"
	w.kafka.CreateTopic(t, compacted, 1, map[string]string{"cleanup.policy": "compact"})
	unkeyed := w.insertAs(history.Insert{Topic: compacted}, l.insert)
	p.Await(20*time.Second, "Kafka refused the row", "failed the validation")
	p.Await(20*time.Second, "Kafka refused the row", "failed the validation")
	w.becomes(unkeyed, history.Pending, 0)
	w.awaitSQL(time.Second, `SELECT count(*) = 0 FROM deferred_message WHERE fail_reason IS NOT NULL AND failed IS NULL`)
	w.kafka.ConfigureTopic(t, compacted, map[string]string{"cleanup.policy": "delete"})
	w.recoveredSince(time.Now(), compacted)
	w.becomes(unkeyed, history.Sent, 30*time.Second)
	load.stop()
	w.settled(30 * time.Second)
	p.stop()

	for _, r := range w.kafka.Records(t, w.topic) {
		want := "0"
		if ref, _, _, _ := history.ParseValue(r.Value); ref == withHeaders.Ref {
			want = "212"
		}
		if got := fmt.Sprint(len(r.Headers), string(r.Header("a")), string(r.Header("b"))); got != want {
			t.Errorf("%s has the headers %v", r.Value, r.Headers)
		}
	}
	late := w.punctual("CASE WHEN sent_immediately IS NULL THEN schedule_after END", "sent_scheduled")
	if len(late) != len(soon) {
		t.Errorf("%d messages were scheduled, wanted %d", len(late), len(soon))
	}
	for _, row := range far {
		late[row.Ref] = true
	}
	w.judge(history.Rules{MayFail: refused, Late: func(in history.Insert) bool { return late[in.Ref] }}, w.topic, compacted)
}

func (w *world) awaitSQL(within time.Duration, condition string) {
	w.t.Helper()
	harness.Eventually(w.t, within, func() error {
		if !harness.One[bool](w.t, w.db, condition) {
			return errors.New("not yet: " + condition)
		}
		return nil
	})
}
