package integration

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/statement/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

func deferredMessages() layout {
	return layout{
		ddl: fixture.Deferred().DDL,
		config: fields{
			"table": "public.deferred_message", "profile": "jeap", "grace": "1h", "shedlock": nil, "retention_lock": nil,
			"headers_table": fields{
				"table": "public.deferred_message_header", "parent": "deferred_message_id", "order": "header_index",
				"name": "header_name", "value": "header_value",
			},
		},
	}
}

// A message goes out by the log with the headers of its side table; one that its
// writer was to send goes out when its time has passed, though that was set by an
// UPDATE and it is far younger than the grace; one that cannot be a record fails
// at once; one that is asked for again goes out again.
func TestDeferredMessages(t *testing.T) {
	l := deferredMessages()
	w := newWorld(t, surroundings{layout: &l})
	p := w.run().streaming()
	insert := func(id int, topic string, immediately bool, then string) {
		w.db.Exec(t, fmt.Sprintf(`BEGIN;
			INSERT INTO deferred_message (id, message, "key", topic, message_id, message_idempotence_id, message_type_name, created, send_immediately, resend)
			VALUES (%d, convert_to('m%[1]d', 'UTF8'), 'k', '%s', 'm', 'i', 'T', now(), %v, false); %s; COMMIT`, id, topic, immediately, then))
	}
	insert(1, w.topic, false, `INSERT INTO deferred_message_header VALUES (1, 1, 'b', '2'), (1, 0, 'a', '1')`)
	insert(2, w.topic, true, `UPDATE deferred_message SET schedule_after = clock_timestamp() + interval '2 s' WHERE id = 2`)
	insert(3, "no topic!", false, ``)
	insert(4, w.topic, true, `UPDATE deferred_message SET schedule_after = clock_timestamp() + interval '1 h' WHERE id = 4`)
	w.awaitSQL(20*time.Second, `SELECT count(*) = 2 FROM deferred_message WHERE sent_scheduled IS NOT NULL`)
	w.awaitSQL(20*time.Second, `SELECT failed IS NOT NULL AND fail_reason LIKE '%no topic!%' FROM deferred_message WHERE id = 3`)
	late := harness.One[float64](t, w.db, `SELECT extract(epoch FROM sent_scheduled - schedule_after)::float8 FROM deferred_message WHERE id = 2`)
	if t.Logf("the writer's message went out %.2f s after its time", late); late <= 0 {
		t.Error("it went out too early")
	}
	w.db.Exec(t, `UPDATE deferred_message SET resend = true, sent_immediately = now(), created = now() - interval '2 h' WHERE id = 4`)
	w.awaitSQL(20*time.Second, `SELECT sent_scheduled IS NOT NULL AND NOT resend FROM deferred_message WHERE id = 4`)

	// Kafka takes no record without a key into a compacted topic: that fails no
	// message of this layout, however often.
	compacted := w.topic + "-compacted"
	w.kafka.CreateTopic(t, compacted, 1, map[string]string{"cleanup.policy": "compact"})
	w.db.Exec(t, `INSERT INTO deferred_message (id, message, topic, message_id, message_idempotence_id, message_type_name, created, send_immediately, resend)
		VALUES (6, 'm6', $1, 'm', 'i', 'T', now(), false, false)`, compacted)
	p.Await(20*time.Second, "Kafka refused the row", "failed the validation")
	p.Await(20*time.Second, "Kafka refused the row", "failed the validation")
	w.awaitSQL(time.Second, `SELECT failed IS NULL AND sent_scheduled IS NULL AND fail_reason IS NULL FROM deferred_message WHERE id = 6`)
	w.kafka.ConfigureTopic(t, compacted, map[string]string{"cleanup.policy": "delete"})
	w.awaitSQL(30*time.Second, `SELECT sent_scheduled IS NOT NULL FROM deferred_message WHERE id = 6`)
	p.stop()

	got := map[string]string{}
	for _, r := range w.kafka.Records(t, w.topic) {
		got[string(r.Value)] += fmt.Sprint(len(r.Headers), string(r.Header("a")), string(r.Header("b")))
	}
	if fmt.Sprint(got) != "map[m1:212 m2:0 m4:0]" {
		t.Error(got)
	}
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
