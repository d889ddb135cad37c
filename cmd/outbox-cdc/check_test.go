package main

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/preflight"
	"github.com/outbox-cdc/outbox-cdc/sql"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// checked runs check --json and returns its report.
func checked(t *testing.T, want int, args ...string) preflight.Report {
	t.Helper()
	out, _ := command(t, want, append([]string{"check", "--json"}, args...)...)
	var r preflight.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v in:\n%s", err, out)
	}
	return r
}

// named returns a report's findings as "LEVEL check subject".
func named(r preflight.Report) string {
	var lines []string
	for _, f := range r.Findings {
		lines = append(lines, string(f.Level)+" "+f.Check+" "+f.Subject)
	}
	return strings.Join(lines, "\n")
}

// check --fix turns an empty database into one without findings.
func TestCheckFixes(t *testing.T) {
	db, kafka := harness.Postgres(t), harness.Kfake(t)
	c := file(t, db.DSN, db.DSN, "")
	rewrite(t, c, `"127.0.0.1:1"`, strconv.Quote(kafka.Addrs[0]))
	rewrite(t, c, "name: orders", "name: orders\n    slot: fixed_"+db.Name)

	out, _ := command(t, exitPermanent, "check", "--config", c)
	mustHave(t, out, "FAIL publication (orders publication fixed_"+db.Name+"): it does not exist", "hint: outbox-cdc init --stream orders",
		"FAIL table (orders public.outbox): it does not exist in this database", "why:", "or: outbox-cdc check --fix", "SKIP")
	_, e := command(t, exitPermanent, "check", "--config", c, "--fix", "--yes")
	mustHave(t, e, "table public.outbox has to be there before its publication")

	without, _, _ := strings.Cut(sql.NativeTable("public", "outbox"), "-- What the sweeper reads")
	db.Exec(t, without)
	_, e = command(t, exitUsage, "check", "--config", c, "--fix")
	mustHave(t, e, "Run this for stream orders? Repeat with --yes")
	if n := harness.One[int](t, db, "SELECT count(*) FROM pg_publication"); n != 0 {
		t.Fatal("it did not wait for the answer")
	}
	out, _ = command(t, exitOK, "check", "--config", c, "--fix", "--yes")
	mustHave(t, out, "orders: made publication", "orders: made slot fixed_"+db.Name, "CREATE INDEX CONCURRENTLY", "orders: made index outbox_due for the sweep", ", 0 FAIL, ")
	r := checked(t, exitOK, "--config", c)
	mustHave(t, named(r), "OK publication publication", "OK slot slot", "OK sweep-index public.outbox", "OK schema schema outbox_cdc")
	_, e = command(t, exitOK, "check", "--config", c, "--fix", "--json")
	mustHave(t, e, "there is nothing that --fix can make")

	db.Exec(t, "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'outbox_due'::regclass")
	out, _ = command(t, exitOK, "check", "--config", c, "--fix", "--yes")
	mustHave(t, out, `DROP INDEX CONCURRENTLY "public"."outbox_due"`, "made index outbox_due")
}

func TestCheckThatCannotLook(t *testing.T) {
	t.Setenv("PGCONNECT_TIMEOUT", "2")
	dsn := "postgres://nobody:hunter2@127.0.0.1:1/nowhere?sslmode=disable"
	r := checked(t, exitFailure, "--config", file(t, dsn, dsn, ""), "--timeout", "2s")
	mustHave(t, named(r), "FAIL connection role nobody", "SKIP wal-level ", "FAIL brokers broker 127.0.0.1:1 of main")
	_, e := command(t, exitUsage, "check", "--config", file(t, dsn, dsn, ""), "--yes")
	mustHave(t, e, "--yes is for --fix")
	_, e = command(t, exitUsage, "check", "--config", file(t, dsn, dsn, ""), "--stream", "other")
	mustHave(t, e, `there is no stream "other"`)
}

func TestValidateAgainstDatabase(t *testing.T) {
	db := harness.Postgres(t)
	c := file(t, db.DSN, db.DSN, "")
	db.Exec(t, `CREATE TABLE outbox (id bigint, event_id uuid, topics text, key text, body bytea, headers jsonb, created_at timestamptz,
		status text CHECK (status IN ('NEW', 'DONE', 'ERROR')), sent_at text, attempts int, error text)`)
	db.Exec(t, "INSERT INTO outbox (id, status) VALUES (1, 'NEW')")
	out, _ := command(t, exitUsage, "config", "validate", "--config", c, "--against-database")
	mustHave(t, out, "orders, public.outbox: ", "differences from profile native",
		`wrong: column "topic" does not exist`, "topic: {column: topics}",
		`wrong: column "available_after" does not exist`, "available_after: null",
		`wrong: column "sent_at" (text) cannot be the time of sending`, `wrong: column "last_error"`, "last_error: error",
		`wrong: id column "id" may be NULL`, `wrong: no unique index`,
		`can never be PENDING`, `cannot be SENT`, "status: {pending: [NEW], sent: DONE, failed: ERROR}",
		"together", "- table: public.outbox")
	var parsed struct {
		Streams []struct {
			Differences []struct{ Override []string }
		}
	}
	text, _ := command(t, exitUsage, "config", "validate", "--config", c, "--against-database", "--json")
	if err := json.Unmarshal([]byte(text), &parsed); err != nil || len(parsed.Streams) != 1 || len(parsed.Streams[0].Differences) < 8 ||
		!slices.Equal(parsed.Streams[0].Differences[0].Override, []string{"topic: {column: topics}"}) {
		t.Fatal(err, text)
	}

	// run reports the same when it starts.
	cfg, err := config.Load(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log := &child{wrote: make(chan struct{}, 1)}
	(&prepared{proofs: []*proof{{}}}).proveAll(ctx, cfg, zerolog.New(log))
	log.await(t, `no unique index`)
	mustHave(t, log.text(), `"override":["topic: {column: topics}"]`, `"stream":"orders"`, "the table does not fit its mapping")
	db.Exec(t, "ALTER TABLE outbox DROP headers")
	log.await(t, `column \"headers\" does not exist`)
	if told := strings.Count(log.text(), `no unique index`); told != 1 {
		t.Errorf("told %d times:\n%s", told, log.text())
	}
	cancel()

	db.Exec(t, "DROP TABLE outbox")
	out, _ = command(t, exitUsage, "config", "validate", "--config", c, "--against-database")
	mustHave(t, out, "it does not exist in this database")
	db.Exec(t, sql.NativeTable("public", "outbox"))
	out, _ = command(t, exitOK, "config", "validate", "--config", c, "--against-database")
	mustHave(t, out, `column "key" may be NULL`)
	dsn := "postgres://nobody:hunter2@127.0.0.1:1/nowhere?sslmode=disable"
	_, e := command(t, exitFailure, "config", "validate", "--config", file(t, dsn, dsn, ""), "--against-database")
	mustHave(t, e, "connect as role nobody", "make sure that PostgreSQL runs")
}

// Equal findings about many tables are reported once, with a list. Findings with another text, hint or stream
// are not equal.
func TestCheckPutsTogetherWhatIsAlike(t *testing.T) {
	finding := func(stream, table, found string) preflight.Finding {
		return preflight.Finding{
			Check: "sweep-index", Level: preflight.Warn, Stream: stream, Subject: table, Found: found, Why: "a sweep of " + table + " reads all of it",
			Hints: []string{"CREATE INDEX CONCURRENTLY ON " + sql.Identifier(strings.Split(table, ".")...) + " (id)"},
		}
	}
	var out strings.Builder
	r := &preflight.Report{Findings: []preflight.Finding{
		finding("orders", "public.a", "no index serves public.a"), finding("orders", "public.b", "no index serves public.b"),
		finding("orders", "public.c", "its index is invalid"), finding("orders", "public.d", "no index serves public.d"),
		finding("bills", "public.e", "no index serves public.e"),
		{Check: "clock", Level: preflight.OK, Found: "alike"},
		{Check: "clock", Level: preflight.OK, Found: "alike"},
	}}
	printCheck(&out, r)
	text := out.String()
	mustHave(t, text, "WARN sweep-index (orders public.a and 2 more): no index serves public.a", "also: public.b, public.d",
		"WARN sweep-index (orders public.c): its index is invalid", "WARN sweep-index (bills public.e)", `ON "public"."a" (id)`)
	if hints, alike := strings.Count(text, "hint:"), strings.Count(text, "alike"); hints != 3 || alike != 2 {
		t.Errorf("%d hints, %d findings without a subject:\n%s", hints, alike, text)
	}
}
