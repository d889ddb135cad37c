package suggest

import (
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// Names and values are other people's: none leaves its place in the YAML, none is
// a reference of the configuration, and none is printed with control characters.
func TestHostileNamesAndValues(t *testing.T) {
	db := harness.Postgres(t)
	f := made(t, db.Conn(t), "hostile", `
		CREATE TYPE s AS ENUM ('pending', E'sent\n- table: public.victims', 'failed: yes # no', '${env:HOME}', E'dead\u202e');
		CREATE TABLE "out.box""
- table: x ${env:PATH}" (
			"i: d} # ""${file:/etc/passwd}" bigint PRIMARY KEY,
			"topic" text NOT NULL DEFAULT '${env:HOME}',
			"Event Type" text NOT NULL,
			"key" text,
			"a_id, b: [c" uuid,
			payload jsonb NOT NULL,
			status s NOT NULL DEFAULT 'pending');
		INSERT INTO "out.box""
- table: x ${env:PATH}" VALUES (1, E'orders\n  password: x', E'\u001b]0;gotcha\u0007\u202e # \n- table: y', 'k', NULL, '{"a\n- b": "\u001b[2J"}', 'pending')`)
	p := Propose(f, Options{})
	for _, problem := range unfit(t, f, p) {
		t.Error(problem)
	}
	for _, line := range strings.Split(p.YAML(), "\n") {
		if strings.Contains(line, "\x1b") || strings.Contains(line, "\u202e") || strings.HasPrefix(strings.TrimSpace(line), "- table: ") && !strings.Contains(line, "hostile") {
			t.Errorf("%q", line)
		}
	}
}

// What does not fit into the bounds is not read, and what cannot be read is said.
func TestBoundsOfASample(t *testing.T) {
	db := harness.Postgres(t)
	conn := db.Conn(t)
	f := made(t, conn, "large", `
		CREATE TABLE outbox (id bigint PRIMARY KEY, event_type text NOT NULL, payload text NOT NULL, created_at timestamptz);
		ALTER TABLE outbox ALTER payload SET STORAGE EXTERNAL;
		INSERT INTO outbox SELECT i, 'type ' || i, repeat('x', CASE WHEN i % 2 = 0 THEN 1000000 ELSE 10 END) FROM generate_series(1, 20) i`)
	if n := len(f.values("payload")); n != 10 {
		t.Errorf("%d payloads were read, want the ten short ones", n)
	}
	if n := len(f.values("event_type")); n != 20 {
		t.Errorf("%d types", n)
	}
	few, err := Read(t.Context(), conn, "large", "outbox", 3)
	if err != nil || len(few.Rows) != 3 || few.values("event_type")[0] != "type 20" {
		t.Errorf("%+v, %v", few, err)
	}
	// A row that cannot be printed: the rest is proposed without rows.
	bad := made(t, db.Conn(t), "locked", `CREATE TABLE outbox (id bigint PRIMARY KEY, event_type text NOT NULL, payload text NOT NULL)`)
	bad.NoRows = "canceling statement due to lock timeout"
	if text := Propose(bad, Options{}).YAML(); !strings.Contains(text, "# Note: no rows could be read: canceling statement due to lock timeout") {
		t.Error(text)
	}
}

// A view and a table with row security would run their owner's code.
func TestNobodysCodeIsRun(t *testing.T) {
	db := harness.Postgres(t)
	conn := db.Conn(t)
	for schema, sql := range map[string]string{
		"viewed": `CREATE TABLE outbox (id bigint PRIMARY KEY, event_type text, payload text);
			CREATE FUNCTION ran() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'it ran'; END $$;
			INSERT INTO outbox VALUES (1, 'a', 'b');
			CREATE TYPE e AS ENUM ('a');
			CREATE FUNCTION printed(e) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'it ran'; END $$;
			CREATE CAST (e AS text) WITH FUNCTION printed(e) AS IMPLICIT;
			ALTER TABLE outbox ADD status e NOT NULL DEFAULT 'a'`,
	} {
		if f := made(t, conn, schema, sql); f.NoRows != "" || len(f.Rows) != 1 {
			t.Errorf("%s: %+v", schema, f)
		}
	}
	if _, err := conn.Exec(t.Context(), "CREATE VIEW viewed.v AS SELECT id, viewed.ran() AS payload FROM viewed.outbox"); err != nil {
		t.Fatal(err)
	}
	f, err := Read(t.Context(), conn, "viewed", "v", 10)
	if err != nil || f.NoRows != "" || len(f.Rows) != 0 {
		t.Errorf("%+v, %v", f, err)
	}
}
