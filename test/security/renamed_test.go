package security

import (
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// Rows that are written while their table has another name, and keeps no state, are told as
// lost, also where the table has its own name back at once.
func TestRowsUnderAnotherNameAreTold(t *testing.T) {
	if testing.Short() {
		t.Skip("not in the short form")
	}
	w := worldOn(t, harness.Postgres(t))
	w.db.Exec(t, `CREATE TABLE events (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, topic text NOT NULL, key text, payload bytea)`)
	w.stream["tables"] = []any{fields{
		"table": "public.events", "id": []any{"id"}, "topic": fields{"column": "topic"}, "key": fields{"column": "key"},
		"payload": fields{"column": "payload"}, "published": "none",
	}}
	w.must("init")
	p := w.run()
	w.db.Exec(t, `INSERT INTO events (topic, payload) VALUES ($1, '')`, w.topic)
	w.kafka.AwaitRecords(t, w.topic, 1, 20*time.Second)
	w.db.Exec(t, `BEGIN; ALTER TABLE events RENAME TO events_aside; INSERT INTO events_aside (topic, payload) VALUES ('`+w.topic+`', '');
		ALTER TABLE events_aside RENAME TO events; COMMIT`)
	p.Await(20*time.Second, "error", "public.events_aside", "another name")
	w.stopped(p)
}
