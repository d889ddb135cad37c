package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/internal/slots"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// decoded runs a command with --json and decodes its output.
func decoded[T any](t *testing.T, args ...string) T {
	t.Helper()
	out, _ := command(t, 0, append(args, "--json")...)
	var v T
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	return v
}

func nativeRows(t *testing.T) (*harness.DB, string) {
	t.Helper()
	db := harness.Postgres(t)
	c := file(t, db.DSN, db.DSN, `http: {listen: "off"}`)
	command(t, 0, "init", "--config", c, "--native-table")
	db.Exec(t, `INSERT INTO outbox (topic, key, payload, status, attempts, last_error, sent_at, created_at) VALUES
		('orders', 'a', 'secret payload', 'FAILED', 10, 'message too large', NULL, '2026-01-01 10:00Z'),
		('orders', 'a', 'x', 'SENT', 0, NULL, '2026-01-01 10:05Z', '2026-01-01 10:01Z'),
		('orders', 'b', 'x', 'FAILED', 10, 'refused', NULL, '2026-01-01 11:00Z'),
		('bills', NULL, NULL, 'PENDING', 0, NULL, NULL, now())`)
	return db, c
}

// The page reads the slots as the stream's own role, whatever administrator is in the environment.
func TestThePagesSlotsUseNoAdministrator(t *testing.T) {
	_, c := nativeRows(t)
	cfg, err := config.Load(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(adminVariable, "postgres://administrator@127.0.0.1:1/app")
	if _, e := command(t, exitUsage, "slots", "-c", c); !strings.Contains(e, adminVariable+" is for") {
		t.Errorf("the command does not use %s: %s", adminVariable, e)
	}
	for _, server := range pageSlots(t.Context(), cfg) {
		if server.Error != "" || len(server.Slots) == 0 {
			t.Errorf("%+v", server)
		}
	}
}

// A row goes through failed list, show, requeue and discard.
func TestFailedRows(t *testing.T) {
	db, c := nativeRows(t)
	out, _ := command(t, 0, "failed", "list", "-c", c)
	mustHave(t, out, "stream orders, table public.outbox: 2 FAILED rows\n", "message too large", "refused", "2026-01-01 10:00:00Z")
	if strings.Contains(out, "secret") {
		t.Error("a payload is shown")
	}
	l := decoded[listing](t, "failed", "list", "-c", c, "--limit", "1")
	if l.Tables[0].Total.N != 2 || len(l.Tables[0].Rows) != 1 || l.Tables[0].Rows[0].ID[0] != "1" || *l.Tables[0].Rows[0].Key != "a" {
		t.Errorf("%+v", l)
	}
	out, _ = command(t, 0, "failed", "show", "1", "-c", c)
	mustHave(t, out, "state     FAILED", "payload   14 bytes", "error     message too large")
	out, _ = command(t, 0, "failed", "show", "1", "-c", c, "--payload")
	mustHave(t, out, "secret payload")

	out, _ = command(t, 0, "failed", "requeue", "-c", c, "--all")
	mustHave(t, out, "2 FAILED rows match", "order: of 1 of them", "ids 1\n", "nothing was changed: repeat with --yes")
	if n := harness.One[int](t, db, "SELECT count(*) FROM outbox WHERE status = 'FAILED'"); n != 2 {
		t.Fatalf("%d are FAILED", n)
	}
	out, log := command(t, 0, "failed", "requeue", "-c", c, "--key", "a", "--yes", "--log-format", "json")
	mustHave(t, out, "requeued: 1; the stream finds them within about 1")
	mustHave(t, log, `"message":"an operator changed rows"`, `"verb":"requeue"`, `"filter":["key=a"]`, `"ids":["1"]`, `"rows":1`, `"database_user":"postgres"`, `"os_user":`)
	if strings.Contains(log, "secret") {
		t.Error("a payload is logged")
	}
	if out, log = command(t, 0, "failed", "requeue", "-c", c, "--key", "a", "--yes", "--log-format", "json"); strings.Contains(log, "an operator") {
		t.Errorf("nothing was changed, and logged as a change: %s%s", out, log)
	}
	a := decoded[acted](t, "failed", "discard", "-c", c, "--all", "--delete", "--yes", "--log-level", "error")
	if a.DryRun || a.By == nil || a.Tables[0].Result.Changed != 1 || a.Tables[0].Result.IDs[0][0] != "3" {
		t.Errorf("%+v", a)
	}
	if got := harness.One[string](t, db, "SELECT string_agg(id || status || attempts, ' ' ORDER BY id) FROM outbox"); got != "1PENDING0 2SENT0 4PENDING0" {
		t.Error(got)
	}
}

func TestReplayAndPending(t *testing.T) {
	db, c := nativeRows(t)
	db.Exec(t, `INSERT INTO outbox_cdc.park (stream, scope, kind, cluster, topic, cause, reason, since) VALUES ('orders', '\x00', 'topic', 'main', 'bills', 'topic', 'no such topic', now())`)
	out, _ := command(t, 0, "pending", "list", "-c", c)
	mustHave(t, out, "1 PENDING row\n", "topic: no such topic")
	out, _ = command(t, 0, "replay", "-c", c, "--since", "2026-01-01 10:05", "--until", "2026-01-01T10:06:00Z")
	mustHave(t, out, "1 SENT row match", "published once more; nothing was changed")
	a := decoded[acted](t, "failed", "replay", "-c", c, "--since", "2026-01-01", "--yes", "--rows-per-second", "100")
	if a.Tables[0].Result.Changed != 1 || a.Tables[0].Plan.TimeColumn != "sent_at" {
		t.Errorf("%+v", a)
	}
	if n := harness.One[int](t, db, "SELECT count(*) FROM outbox WHERE status = 'PENDING' AND sent_at IS NULL"); n != 2 {
		t.Errorf("%d rows are pending", n)
	}
}

func TestActsRefuseNonsense(t *testing.T) {
	_, c := nativeRows(t)
	for want, args := range map[string][]string{
		"picks no rows":                        {"failed", "requeue"},
		`there is no stream "x"`:               {"failed", "list", "--stream", "x"},
		`there is no table "public.x"`:         {"failed", "list", "--table", "public.x"},
		`cannot have the id "seven"`:           {"failed", "requeue", "--id", "seven"},
		`cannot have the id "1,2"`:             {"failed", "requeue", "--id", `["1","2"]`},
		"--since: \"yesterday\" is not a time": {"replay", "--since", "yesterday"},
		"--until: \"2h\" is not after \"1h\"":  {"replay", "--since", "1h", "--until", "2h"},
		"say either --delete or --status":      {"failed", "discard", "--all"},
		"uses the status \"SENT\" itself":      {"failed", "discard", "--all", "--status", "SENT"},
		"--limit 0 is not between 1 and":       {"failed", "list", "--limit", "0"},
		"--rows-per-second -1":                 {"replay", "--all", "--rows-per-second", "-1"},
		"needs one id":                         {"failed", "show"},
		"unknown flag: --error":                {"replay", "--error", "x"},
	} {
		_, e := command(t, exitUsage, append(args, "-c", c)...)
		mustHave(t, e, want)
	}
	_, e := command(t, exitUsage, "failed", "lists")
	mustHave(t, e, `unknown command "lists" for outbox-cdc failed`)
	_, e = command(t, exitUsage, "stats", "--json")
	mustHave(t, e, `unknown command "stats" for outbox-cdc (did you mean status?)`)
	_, e = command(t, exitFailure, "failed", "show", "4711", "-c", c)
	mustHave(t, e, "table public.outbox has no row with the id 4711")
	_, e = command(t, exitPermanent, "failed", "list", "--error", "(", "-c", c)
	mustHave(t, e, "--error is a regular expression")
}

// One table has no FAILED state, and another one keeps no SENT rows.
func TestTablesWithoutTheState(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, "CREATE TABLE queue (id bigint PRIMARY KEY, topic text, body text)")
	c := file(t, db.DSN, db.DSN, "")
	rewrite(t, c, "{table: public.outbox, profile: native}", "{table: public.queue, id: [id], topic: {column: topic}, payload: {column: body}, order: [id], published: delete}")
	_, e := command(t, exitUsage, "failed", "list", "-c", c)
	mustHave(t, e, "keeps no FAILED rows", "its mapping has no failed state")
	_, e = command(t, exitUsage, "replay", "--all", "-c", c)
	mustHave(t, e, "nothing can be replayed")
	rewrite(t, c, "{table: public.queue", "{table: public.none, profile: native}, {table: public.queue")
	_, e = command(t, exitUsage, "failed", "list", "-c", c)
	mustHave(t, e, "public.none", "does not exist", "public.queue")
	_, e = command(t, 0, "pending", "list", "-c", c)
	mustHave(t, e, "passed over: stream orders: table public.none does not exist")
}

// There are a slot of ours, an orphan, and one of another program.
func TestSlots(t *testing.T) {
	db := harness.PrivatePostgres(t, localpg.Options{})
	c := file(t, db.DSN, db.DSN, "")
	command(t, 0, "init", "-c", c, "--native-table")
	db.Exec(t, "SELECT pg_create_logical_replication_slot('outbox_cdc_old', 'pgoutput')")
	db.Exec(t, "SELECT pg_create_physical_replication_slot('backup', true)")
	db.Exec(t, "SELECT pg_logical_emit_message(false, 'x', repeat('x', 2000000))")
	out, _ := command(t, 0, "slots", "-c", c)
	mustHave(t, out, ": 3 slots; no limit to what they hold back (max_slot_wal_keep_size); wal_level is logical\n", "stream orders", "orphan", "other", "outbox_cdc_old is an orphan", "outbox-cdc slots drop outbox_cdc_old")
	servers := decoded[struct{ Servers []slotServer }](t, "slots", "-c", c).Servers
	found := map[string]slots.Slot{}
	for _, s := range servers[0].Slots {
		found[s.Name] = s
	}
	if s := found["outbox_cdc_orders"]; s.Whose != slots.OfStream || s.Stream != "orders" || s.Retained < 2000000 {
		t.Errorf("%+v", s)
	}

	_, e := command(t, exitUsage, "slots", "drop", "outbox_cdc_older", "-c", c)
	mustHave(t, e, `there is no slot "outbox_cdc_older"`, "outbox_cdc_old")
	_, e = command(t, exitUsage, "slots", "drop", "outbox_cdc_old", "-c", c)
	mustHave(t, e, "dropping it frees", "Repeat with --yes")
	conn, err := replication.Lead(t.Context(), replication.Config{DSN: db.DSN, Name: "outbox-cdc/orders@there", Slot: "outbox_cdc_orders"})
	if err != nil {
		t.Fatal(err)
	}
	_, e = command(t, exitPermanent, "slots", "drop", "outbox_cdc_orders", "-c", c, "--yes")
	mustHave(t, e, "is not dropped: stream orders is led by outbox-cdc/orders@there")
	_, e = command(t, exitPermanent, "destroy", "-c", c, "--yes")
	mustHave(t, e, "outbox-cdc/orders@there leads the stream", "stop that process first")
	conn.Close(t.Context())
	harness.Eventually(t, patience, func() error {
		if n := harness.One[int](t, db, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"); n > 0 {
			return fmt.Errorf("%d locks", n)
		}
		return nil
	})
	db.Exec(t, "CREATE ROLE poor LOGIN PASSWORD 'hunter2'; GRANT CONNECT ON DATABASE app TO poor")
	poor := db.Server.DSNAs(db.Name, "poor", "hunter2")
	_, e = command(t, exitPermanent, "slots", "drop", "outbox_cdc_old", "-c", file(t, poor, poor, ""), "--yes")
	mustHave(t, e, "it takes a role with REPLICATION", adminVariable)
	out, e = command(t, 0, "slots", "drop", "outbox_cdc_old", "-c", c, "--yes", "--log-format", "json")
	mustHave(t, out, "dropped slot outbox_cdc_old")
	mustHave(t, e, `"slot":"outbox_cdc_old"`, `"database_user":"postgres"`, "an operator dropped a slot")
	_, e = command(t, 0, "slots", "drop", "outbox_cdc_orders", "-c", c, "--yes")
	mustHave(t, e, "run re-creates it", "none is lost")
	if n := harness.One[int](t, db, "SELECT count(*) FROM pg_replication_slots"); n != 1 {
		t.Errorf("%d slots are left", n)
	}
}

// destroy leaves everything that init did not make.
func TestDestroy(t *testing.T) {
	db := harness.Postgres(t)
	c := file(t, db.DSN, db.DSN, "")
	_, e := command(t, 0, "destroy", "-c", c, "--yes")
	mustHave(t, e, "nothing is left that init made")
	command(t, 0, "init", "-c", c, "--native-table")
	db.Exec(t, "INSERT INTO outbox_cdc.leader (stream) VALUES ('another')")
	_, e = command(t, exitUsage, "destroy", "-c", c)
	mustHave(t, e, "will remove slot outbox_cdc_orders", "will remove publication outbox_cdc_orders", "that frees", "Repeat with --yes")
	out, log := command(t, 0, "destroy", "-c", c, "--yes", "--log-format", "json")
	mustHave(t, log, `"removed":["slot outbox_cdc_orders"`, "an operator removed what init made")
	mustHave(t, out, "orders: removed slot outbox_cdc_orders", "orders: removed what is kept about stream orders")
	got := harness.One[string](t, db, `SELECT concat_ws(' ', (SELECT count(*) FROM pg_publication), (SELECT count(*) FROM pg_replication_slots WHERE database = current_database()),
		(SELECT string_agg(stream, ',') FROM outbox_cdc.leader), to_regclass('public.outbox'))`)
	if got != "0 0 another outbox" {
		t.Error(got)
	}
	db.Exec(t, "DELETE FROM outbox_cdc.leader; CREATE PUBLICATION outbox_cdc_orders FOR TABLE outbox")
	d := decoded[destroyReport](t, "destroy", "-c", c, "--yes")
	if len(d.Streams) != 1 || len(d.Streams[0].Removed) != 2 || d.Streams[0].By.DatabaseUser != "postgres" {
		t.Errorf("%+v", d)
	}
	if got := harness.One[string](t, db, `SELECT concat_ws(' ', (SELECT count(*) FROM pg_publication), to_regnamespace('outbox_cdc') IS NULL)`); got != "1 t" {
		t.Errorf("%s: a publication that init did not make is gone, or the schema stays", got)
	}
}

func TestAnswers(t *testing.T) {
	for text, yes := range map[string]bool{"y\n": true, "YES\n": true, "n\n": false, "\n": false, "": false, "yes": true} {
		if err := answered(strings.NewReader(text)); (err == nil) != yes {
			t.Errorf("%q: %v", text, err)
		}
	}
}
