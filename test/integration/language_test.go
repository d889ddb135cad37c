package integration

import (
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// newWorldOf is a world with a table that is given as it is, and a mapping of it
// that may name the topic.
func newWorldOf(t *testing.T, ddl string, config func(topic string) fields) *world {
	t.Helper()
	l := layout{ddl: ddl, config: fields{"table": "public.outbox", "grace": "200ms"}}
	w := newWorld(t, surroundings{layout: &l, noInit: true})
	for key, value := range config(w.topic) {
		w.table[key] = value
	}
	w.init()
	return w
}

// operatorDoes runs a command of operators on the table.
func (w *world) operatorDoes(args ...string) string {
	w.t.Helper()
	out, err := w.command(append(args, "--config", w.file(), "--yes")...)
	if err != nil {
		w.t.Fatalf("outbox-cdc %v: %v\n%s", args, err, out)
	}
	return out
}

// A table with one timestamp and a count of attempts, the commonest that people
// write themselves: a row that can be no record is failed once its count says so,
// its key goes on, and it is published once it is fixed and requeued.
func TestACountAloneSaysThatARowHasFailed(t *testing.T) {
	w := newWorldOf(t, `CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, aggregate_id text, payload jsonb,
			created_at timestamptz NOT NULL DEFAULT clock_timestamp(), published_at timestamptz, attempts int NOT NULL DEFAULT 0, last_error text)`,
		func(topic string) fields {
			return fields{
				"id": "id", "topic": fields{"constant": topic}, "key": fields{"column": "aggregate_id"}, "payload": fields{"column": "payload"},
				"created_at": "created_at", "order": "id",
				"status": fields{"sent_at": "published_at", "attempts": "attempts", "max_attempts": 2, "last_error": "last_error"},
			}
		})
	p := w.run().streaming()
	w.db.Exec(t, `INSERT INTO outbox (aggregate_id, payload, attempts) VALUES ('k', '1', 0), ('k', NULL, 0), ('k', '2', 0), ('k', '9', 2)`)
	w.awaitSQL(20*time.Second, `SELECT count(*) FILTER (WHERE published_at IS NOT NULL) = 2 AND count(*) FILTER (WHERE attempts = 2 AND last_error <> '') = 1 FROM outbox`)
	if got := w.values(); got != "1 2" {
		t.Errorf("published: %q", got)
	}
	w.db.Exec(t, `UPDATE outbox SET payload = '3' WHERE payload IS NULL`)
	w.operatorDoes("failed", "requeue", "--all")
	w.awaitSQL(20*time.Second, `SELECT count(*) = 4 FROM outbox WHERE published_at IS NOT NULL`)
	p.stop()
	if got := harness.One[int](t, w.db, `SELECT count(*) FROM outbox WHERE attempts > 0 OR last_error IS NOT NULL`); got != 0 {
		t.Errorf("%d rows keep a count or an error", got)
	}
}
