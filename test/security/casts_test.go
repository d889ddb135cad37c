package security

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// The owner of a column's type can have a function of their own cast it to text. Swept rows have the
// bytes of the type all the same, as streamed ones have.
func TestACastChangesNoByte(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("not in the short form")
	}
	// Of another encoding than UTF8: text is selected by an expression then.
	db := *harness.PrivatePostgres(t, localpg.Options{})
	db.Exec(t, `CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'`)
	db.DSN, db.Name = strings.Replace(db.DSN, "/"+db.Name, "/latin", 1), "latin"
	w := worldOn(t, &db)
	w.must("init", "--native-table")
	w.db.Exec(t, fmt.Sprintf(`CREATE TYPE word AS ENUM ('good'); CREATE TYPE place AS ENUM ('%s'); CREATE TYPE state AS ENUM ('PENDING', 'SENT', 'FAILED');
		CREATE TABLE cast_outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, topic place NOT NULL, key word NOT NULL, payload word NOT NULL,
			status state NOT NULL DEFAULT 'PENDING', created_at timestamptz NOT NULL DEFAULT now());
		ALTER PUBLICATION outbox ADD TABLE cast_outbox`, w.topic))
	for _, name := range []string{"word", "place", "state"} {
		for _, to := range []string{"text", "varchar"} {
			w.db.Exec(t, fmt.Sprintf(`CREATE FUNCTION hijack_%[2]s(%[1]s) RETURNS %[2]s LANGUAGE sql IMMUTABLE AS $$ SELECT 'hijacked'::%[2]s $$;
				CREATE CAST (%[1]s AS %[2]s) WITH FUNCTION hijack_%[2]s(%[1]s) AS ASSIGNMENT`, name, to))
		}
	}
	w.stream["tables"] = []any{fields{
		"table": "public.cast_outbox", "id": []any{"id"}, "topic": fields{"column": "topic"}, "key": fields{"column": "key"}, "payload": fields{"column": "payload"}, "created_at": "created_at",
		"status": fields{"column": "status", "pending": "PENDING", "sent": "SENT", "failed": "FAILED"}, "grace": "200ms",
	}}
	insert := func() {
		w.db.Exec(t, `INSERT INTO cast_outbox (topic, key, payload) VALUES ($1::text::place, 'good', 'good')`, w.topic)
	}
	insert() // swept: there is no slot yet
	p := w.run()
	insert()
	for _, r := range w.kafka.AwaitRecords(t, w.topic, 2, 30*time.Second) {
		if string(r.Key) != "good" || string(r.Value) != "good" {
			t.Errorf("key %q, payload %q", r.Key, r.Value)
		}
	}
	w.awaitCount(`SELECT count(*) FROM cast_outbox WHERE status = 'SENT'`, 2)
	w.stopped(p)
}
