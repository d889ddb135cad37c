package main

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// From a new table, suggest makes a configuration that is right.
func TestSuggest(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, `CREATE TABLE outbox_events (id uuid PRIMARY KEY, aggregate_id text NOT NULL, event_type text NOT NULL, payload jsonb NOT NULL,
		created_at timestamptz NOT NULL DEFAULT now(), published_at timestamptz);
		INSERT INTO outbox_events VALUES (gen_random_uuid(), 'a', 'OrderPlaced', '{}'), (gen_random_uuid(), 'a', 'OrderCancelled', '{}')`)
	password := passwordOf(t, db)
	t.Setenv("PGPASSWORD", password)
	out, said := command(t, 0, "mapping", "suggest", "--dsn", db.DSN, "--table", "public.outbox_events")
	mustHave(t, out, "- table: public.outbox_events\n", "# which topic? No column names one. It may follow from event_type (OrderCancelled, OrderPlaced). Or for all rows {constant: TOPIC}",
		`topic: {column: event_type, map: {OrderCancelled: "QUESTION: which topic?", OrderPlaced: "QUESTION: which topic?"}, otherwise: fail}`, "key: {column: aggregate_id}", "sent_at: published_at")
	mustHave(t, said, "2 questions to answer")

	// Open questions are refused, each with its place.
	out, _ = command(t, 0, "mapping", "suggest", "--dsn", db.DSN, "--table", "public.outbox_events", "--brokers", "localhost:9092")
	open := filepath.Join(t.TempDir(), "open.yaml")
	if err := os.WriteFile(open, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, refuses := range [][]string{{"config", "validate"}, {"run"}} {
		_, said = command(t, exitUsage, append(refuses, "--config", open)...)
		mustHave(t, said, open+":10:43: streams[0].tables[0].topic.map.OrderCancelled: is still a question: which topic?", open+":10:", "topic.map.OrderPlaced: is still a question")
	}

	out, said = command(t, 0, "mapping", "suggest", "--dsn", db.DSN, "--table", "public.outbox_events", "--topic", "orders", "--brokers", "localhost:9092")
	if said != "" || strings.Contains(out, "QUESTION") {
		t.Error(said, out)
	}
	if password != "" && strings.Contains(out, password) {
		t.Error("the password is in the file")
	}
	file := filepath.Join(t.TempDir(), "outbox-cdc.yaml")
	if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ = command(t, 0, "config", "validate", "--config", file, "--against-database")
	mustHave(t, out, "public.outbox_events: fits its mapping")
	if n := harness.One[int](t, db, "SELECT count(*) FROM outbox_events WHERE published_at IS NULL"); n != 2 {
		t.Error("rows were changed")
	}
}

func passwordOf(t *testing.T, db *harness.DB) string {
	t.Helper()
	to, err := url.Parse(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := to.User.Password()
	return password
}

// A table that cannot be taken over is refused by name. A password is not printed.
func TestSuggestRefuses(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, `CREATE TABLE txno_outbox (id text PRIMARY KEY, invocation text, nextattempttime timestamp, lastattempttime timestamp, uniquerequestid text, processed boolean);
		CREATE VIEW seen AS SELECT * FROM txno_outbox`)
	suggest := func(table string, more ...string) []string {
		return append([]string{"mapping", "suggest", "--dsn", db.DSN, "--table", table}, more...)
	}
	_, said := command(t, exitPermanent, suggest("public.txno_outbox")...)
	mustHave(t, said, "is that of gruelbox transaction-outbox, and cannot be taken over", "calls of Java methods")
	out, _ := command(t, exitPermanent, suggest("public.txno_outbox", "--json")...)
	mustHave(t, out, `"refused": "its rows are calls`, `"questions": []`)
	_, said = command(t, exitPermanent, suggest("public.seen")...)
	mustHave(t, said, "it is no table")
	_, said = command(t, exitUsage, suggest("public.Nothing")...)
	mustHave(t, said, "there is no table public.Nothing", "upper and lower case matter")
	_, said = command(t, exitUsage, suggest("outbox")...)
	mustHave(t, said, "write --table public.outbox")
	_, said = command(t, exitUsage, suggest("public.seen", "--sample", "1000000")...)
	mustHave(t, said, "not between 0 and 10000")
	_, said = command(t, exitUsage, "mapping", "suggest", "--dsn", "postgres://app:secret@localhost:port/x", "--table", "public.outbox")
	if strings.Contains(said, "secret") {
		t.Error(said)
	}
}
