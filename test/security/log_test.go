package security

import (
	"strings"
	"testing"
)

// No payload and no header's value is in the log, nor in what is stored of a row's errors: not of rows that go out, of those
// that are no record, of those that Kafka refuses, and of those whose mark the table refuses, though the
// server's own words for that have the whole row.
func TestTheLogHoldsNoPayload(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.tries(2)
	w.db.Exec(t, `ALTER TABLE outbox ADD CONSTRAINT refused CHECK (status <> 'SENT' OR key <> 'unmarked')`)
	w.kafka.ConfigureTopic(t, w.topic, map[string]string{"max.message.bytes": "10000"})
	p := w.run()
	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload, headers) SELECT $1, key, convert_to(repeat('s3cret', n), 'UTF8'), headers::jsonb FROM (VALUES
		('good', 1, '{"h": "s3cret"}'), ('bad', 1, '{"s": ["s3cret"]}'), ('long', 5000, NULL), ('unmarked', 1, '{"h": "s3cret"}')) AS r(key, n, headers)`, w.topic)
	w.allSent("good", 1)
	w.awaitCount(`SELECT count(*) FROM outbox WHERE status = 'FAILED' AND key IN ('bad', 'long')`, 2)
	w.awaitCount(`SELECT count(*) FROM outbox_cdc.park`, 1)
	w.awaitCount(`SELECT count(*) FROM outbox AS o WHERE last_error LIKE '%s3cret%'`, 0)
	w.awaitCount(`SELECT count(*) FROM outbox_cdc.park AS p WHERE p::text LIKE '%s3cret%'`, 0)
	w.stopped(p)
	if lines := p.Said("s3cret"); len(lines) > 0 {
		t.Errorf("the log says: %s", strings.Join(lines, "\n"))
	}
}
