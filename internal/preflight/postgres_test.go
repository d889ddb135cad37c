package preflight

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sql"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

func TestGoodOrder(t *testing.T) {
	k := harness.Kfake(t)
	k.CreateTopic(t, "orders", 3, nil)
	w := made(t, harness.Postgres(t), k.Addrs...)
	w.db.Exec(t, "INSERT INTO outbox (topic, key, payload) VALUES ('orders', 'k', 'hello')")
	r := w.check()
	for _, f := range r.Findings {
		if f.Level == Fail || f.Unseen {
			t.Errorf("%+v", f)
		}
	}
	expect(t, find(t, r, "backlog", "public.outbox"), OK, "1 row waits")
	expect(t, find(t, r, "topics", "topic orders"), OK, "3 partitions")
	expect(t, find(t, r, "status-values", ""), OK, "rows have PENDING")
	if r.MustAct() || r.Incomplete() {
		t.Error(show(r))
	}
	if n := harness.One[int](t, w.db, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"); n != 0 {
		t.Errorf("%d locks are left", n)
	}
}

// The database is empty: nothing was made.
func TestNothingMade(t *testing.T) {
	w := newWorld(t, harness.Postgres(t))
	other := w.db.Conn(t)
	if _, err := other.Exec(t.Context(), "BEGIN; SELECT pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	r := w.check()
	for check, level := range map[string]Level{"slot": Warn, "publication": Fail, "schema": Fail, "table": Fail, "columns": Skip, "row-filter": Skip} {
		expect(t, find(t, r, check, ""), level)
	}
	expect(t, find(t, r, "table", ""), Fail, "it does not exist", "outbox-cdc init --native-table --stream orders")
	if f := find(t, r, "slot-creation", ""); !strings.Contains(f.Found, "1 open transaction") {
		t.Errorf("%+v", f)
	}
	if !r.MustAct() {
		t.Error("nobody must act")
	}
}

// Each fault of a table is reported by itself, with what fixes it.
func TestTablesAsTheyAre(t *testing.T) {
	long(t)
	db := harness.Postgres(t)
	generated := []string{"columns", "before PostgreSQL 18", "DROP EXPRESSION"}
	if db.Major(t) >= 18 {
		generated = []string{"publication-tables", `leaves out the generated column "payload"`, "publish_generated_columns = stored"}
	}
	for name, c := range map[string]struct {
		sql   string
		check string
		level Level
		want  []string
	}{
		"unlogged":          {"DROP PUBLICATION outbox_cdc_orders; ALTER TABLE outbox SET UNLOGGED", "table", Fail, []string{"unlogged", `ALTER TABLE "public"."outbox" SET LOGGED;`}},
		"view":              {"ALTER TABLE outbox RENAME TO real; CREATE VIEW outbox AS SELECT * FROM real", "table", Fail, []string{"is no table"}},
		"missing column":    {"ALTER TABLE outbox RENAME topic TO topics", "columns", Fail, []string{`column "topic" does not exist`, "topic: {column: topics}"}},
		"wrong type":        {"ALTER TABLE outbox ALTER sent_at TYPE text", "columns", Fail, []string{`"sent_at" (text)`, "status: {sent_at: null}"}},
		"generated":         {"ALTER TABLE outbox DROP payload; ALTER TABLE outbox ADD payload text GENERATED ALWAYS AS (topic) STORED", generated[0], Fail, generated[1:]},
		"not unique":        {"ALTER TABLE outbox DROP CONSTRAINT outbox_pkey", "identity", Fail, []string{"CREATE UNIQUE INDEX CONCURRENTLY"}},
		"no sweep index":    {"DROP INDEX outbox_due", "sweep-index", Warn, []string{`WHERE "status" = 'PENDING';`}},
		"no index of times": {"DROP INDEX outbox_due; CREATE INDEX outbox_pending ON outbox (id) WHERE status = 'PENDING'", "sweep-index", Warn, []string{`CREATE INDEX CONCURRENTLY ON "public"."outbox" ("available_after", "id") WHERE "status" = 'PENDING';`}},
		"no status index":   {"DROP INDEX outbox_due, outbox_failed; ALTER TABLE outbox RESET (fillfactor)", "status-index", Warn, []string{"fillfactor is 100"}},
		"whole index":       {"CREATE INDEX by_status ON outbox (status, created_at)", "status-index", Warn, []string{`DROP INDEX CONCURRENTLY "public"."by_status"`}},
		"trigger":           {"CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; CREATE TRIGGER audit BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION f()", "triggers", Warn, []string{"audit (public.f)", `DISABLE TRIGGER "audit"`, `ALTER FUNCTION public.f() SET search_path`}},
		"other trigger":     {"CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; CREATE TRIGGER audit BEFORE UPDATE OF topic ON outbox FOR EACH ROW EXECUTE FUNCTION f()", "triggers", OK, nil},
		"update published":  {"ALTER TABLE outbox REPLICA IDENTITY NOTHING; CREATE PUBLICATION dbz FOR TABLE outbox", "replica-identity", Fail, []string{`ALTER PUBLICATION "dbz" SET (publish = 'insert');`}},
		"published twice, as version 14 lists it": {`CREATE TABLE above (LIKE outbox) PARTITION BY RANGE (id); DROP PUBLICATION outbox_cdc_orders; ALTER TABLE outbox ALTER id DROP IDENTITY IF EXISTS, REPLICA IDENTITY NOTHING;
			ALTER TABLE above ATTACH PARTITION outbox FOR VALUES FROM (0) TO (1000); CREATE PUBLICATION dbz FOR TABLE above, outbox`, "replica-identity", Fail, []string{`ALTER PUBLICATION "dbz" SET (publish = 'insert');`}},
		"identity full":         {"ALTER TABLE outbox REPLICA IDENTITY FULL; CREATE PUBLICATION dbz FOR TABLE outbox", "replica-identity", Warn, []string{"REPLICA IDENTITY DEFAULT"}},
		"old rows":              {"INSERT INTO outbox (topic, created_at) SELECT 'orders', now() - interval '3 days' FROM generate_series(1, 5)", "backlog", Warn, []string{"5 rows wait, the oldest for 3 days"}},
		"not published":         {"ALTER PUBLICATION outbox_cdc_orders DROP TABLE outbox", "publication-tables", Fail, []string{`ALTER PUBLICATION "outbox_cdc_orders" ADD TABLE "public"."outbox";`}},
		"a column that refuses": {"ALTER TABLE outbox ADD CONSTRAINT few CHECK (attempts < 10)", "writes", Fail, []string{"giving a row up after its last attempt would be refused", `"few" on attempts`}},
		"local times": {`DROP INDEX outbox_due; ALTER TABLE outbox ALTER created_at TYPE timestamp;
			INSERT INTO outbox (topic, created_at) VALUES ('orders', now() AT TIME ZONE 'UTC' + interval '2 hours')`, "times", Warn, []string{`"created_at" has no time zone`, "ahead: its writers", "TYPE timestamptz"}},
		"times in UTC":      {"ALTER TABLE outbox ALTER created_at TYPE timestamp; INSERT INTO outbox (topic, created_at) VALUES ('orders', now() AT TIME ZONE 'UTC')", "times", OK, nil},
		"children":          {"CREATE TABLE outbox_orders (extra text) INHERITS (outbox)", "publication-tables", Fail, []string{"inherit from public.outbox (public.outbox_orders)", "NO INHERIT"}},
		"more than inserts": {"ALTER PUBLICATION outbox_cdc_orders SET (publish = 'insert, update')", "publication", Warn, []string{"SET (publish = 'insert');"}},
		"no inserts":        {"ALTER PUBLICATION outbox_cdc_orders SET (publish = 'truncate')", "publication", Fail, nil},
		"row filter":        {"ALTER PUBLICATION outbox_cdc_orders SET TABLE outbox WHERE (id > 5)", "row-filter", Warn, []string{"(id > 5)"}},
		"share lost":        {"CREATE PUBLICATION dbz FOR TABLE outbox WHERE ((hash_array(ARRAY[key]) & 2147483647) % 2 = 0) WITH (publish = 'insert')", "share", Warn, []string{"every row", "publication dbz"}},
		"column list":       {"ALTER PUBLICATION outbox_cdc_orders SET TABLE outbox (id, topic, status)", "publication-tables", Fail, []string{"lacks columns", "headers", "payload"}},
		"all tables":        {"DROP PUBLICATION outbox_cdc_orders; CREATE PUBLICATION outbox_cdc_orders FOR ALL TABLES WITH (publish = 'insert')", "publication", Warn, []string{"FOR ALL TABLES"}},
		"other words":       {"ALTER TABLE outbox DROP CONSTRAINT outbox_status_check; ALTER TABLE outbox ADD CHECK (status IN ('PENDING', 'DELIVERED', 'ERROR'))", "status-values", Fail, []string{"cannot be SENT", "status: {pending: [PENDING], sent: DELIVERED, failed: ERROR}"}},
		"enum": {`CREATE TYPE st AS ENUM ('NEW', 'DONE', 'DEAD'); DROP INDEX outbox_due, outbox_failed; ALTER TABLE outbox DROP CONSTRAINT outbox_status_check;
			ALTER TABLE outbox ALTER status DROP DEFAULT; ALTER TABLE outbox ALTER status TYPE st USING 'NEW'`, "status-values", Fail, []string{"can never be PENDING", "pending: [NEW], sent: DONE, failed: DEAD"}},
		"partitioned, by their own names": {`CREATE TABLE parts (LIKE outbox INCLUDING DEFAULTS INCLUDING GENERATED) PARTITION BY RANGE (id); ALTER TABLE parts ADD PRIMARY KEY (id);
			CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (1000);
			ALTER TABLE outbox RENAME TO old; ALTER TABLE parts RENAME TO outbox;
			DROP PUBLICATION outbox_cdc_orders; CREATE PUBLICATION outbox_cdc_orders FOR TABLE outbox WITH (publish = 'insert')`, "publication-tables", Fail, []string{"publish_via_partition_root = true"}},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(c.sql, "WHERE (") || strings.Contains(c.sql, "(id, topic") {
				needs(t, db, 150_000)
			}
			w := newWorld(t, db)
			db.Exec(t, `DROP SCHEMA public CASCADE; CREATE SCHEMA public; DROP PUBLICATION IF EXISTS outbox_cdc_orders; DROP PUBLICATION IF EXISTS dbz;`+
				sql.NativeTable("public", "outbox")+
				`CREATE PUBLICATION outbox_cdc_orders FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = true);`+
				c.sql)
			r := w.check()
			expect(t, worst(t, r.Findings, c.check), c.level, c.want...)
			for _, f := range r.Findings {
				if f.Unseen || strings.Count(f.Found, "dbz") > 1 {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}

// An archive that was made LIKE the outbox has its constraint on the status, too.
func TestTheConstraintsOfAnArchive(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, `CREATE SCHEMA old; CREATE TABLE outbox (id bigint PRIMARY KEY CHECK (id > 0), status text CHECK (status IN ('PENDING', 'FAILED')));
		CREATE TABLE old."the archive" (LIKE outbox INCLUDING ALL)`)
	conn := db.Conn(t)
	facts, brief := TableFacts{Table: Table{Table: native()}}, gathering{brief: true}
	for archive, want := range map[string]string{"the archive": "[FAILED PENDING]", "": "[]"} {
		facts.Table.Mapping.Archive = outbox.ArchiveTable{Schema: "old", Name: archive}
		if err := brief.catalogues(t.Context(), conn, []*TableFacts{&facts}); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(allowedWords(&Catalogue{StatusRules: facts.Catalogue.ArchiveRules})); got != want {
			t.Errorf("archive %q: %s", archive, got)
		}
	}
}

// If a probe failed, its partial result does not count as the whole.
func TestAProbeThatFailsSawNothing(t *testing.T) {
	g := gathering{o: Options{}.withDefaults(), facts: &Facts{Missing: map[string]string{}}}
	role := seen(t.Context(), &g, nil, "role", func(context.Context, *pgconn.PgConn) (Role, error) {
		return Role{User: "cdc"}, errors.New("connection lost")
	})
	if role != nil || g.facts.Missing["role"] != "connection lost" {
		t.Errorf("%+v %v", role, g.facts.Missing)
	}
}

// long leaves a test out of the short form.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("not in the short form")
	}
}

func needs(t *testing.T, db *harness.DB, version int) {
	t.Helper()
	if got := harness.One[int](t, db, "SELECT current_setting('server_version_num')::int"); got < version {
		t.Skipf("needs version %d", version)
	}
}

// The two roles that init makes have exactly the rights that they need. Then each right is missing, or there
// is one too many.
func TestRoles(t *testing.T) {
	long(t)
	db := harness.PrivatePostgres(t, localpg.Options{})
	w := newWorld(t, db)
	db.Exec(t, sql.NativeTable("public", "outbox"))
	w.init(replication.Setup{StreamRole: "streamer", WriteRole: "writer"})
	db.Exec(t, "ALTER ROLE writer PASSWORD 'x'; ALTER ROLE streamer PASSWORD 'x'")
	w.stream.DSN, w.stream.Replication.DSN = db.Server.DSNAs(db.Name, "writer", "x"), db.Server.DSNAs(db.Name, "streamer", "x")
	r := w.check()
	for _, f := range r.Findings {
		if f.Level == Fail || f.Level == Warn && f.Check != "wal-keep-size" || f.Unseen {
			t.Errorf("%+v", f)
		}
	}
	for _, c := range []struct {
		do, undo, check string
		level           Level
		want            []string
	}{
		{"REVOKE UPDATE (status) ON outbox FROM writer", "GRANT UPDATE (status) ON outbox TO writer", "table-privileges", Fail, []string{`GRANT UPDATE ("status") ON "public"."outbox" TO "writer";`}},
		{"REVOKE SELECT ON outbox FROM writer", "GRANT SELECT ON outbox TO writer", "table-privileges", Fail, []string{"SELECT is missing"}},
		{"GRANT DELETE, INSERT ON outbox TO writer", "REVOKE DELETE, INSERT ON outbox FROM writer", "least-privilege", Warn, []string{`REVOKE INSERT, DELETE ON "public"."outbox" FROM "writer";`}},
		{"GRANT UPDATE (topic) ON outbox TO writer", "REVOKE UPDATE (topic) ON outbox FROM writer", "least-privilege", Warn, []string{`REVOKE UPDATE ("topic")`}},
		{"ALTER ROLE writer REPLICATION BYPASSRLS", "ALTER ROLE writer NOREPLICATION NOBYPASSRLS", "least-privilege", Warn, []string{"NOREPLICATION", "NOBYPASSRLS"}},
		{"ALTER TABLE outbox OWNER TO writer", "ALTER TABLE outbox OWNER TO postgres", "least-privilege", Warn, []string{"owns it"}},
		{"GRANT SELECT ON outbox TO streamer", "REVOKE SELECT ON outbox FROM streamer", "streaming-role", Warn, []string{`REVOKE ALL ON "public"."outbox" FROM "streamer"`}},
		{"ALTER ROLE streamer NOREPLICATION", "ALTER ROLE streamer REPLICATION", "connection", Fail, []string{"the role that streams", "REPLICATION"}},
		{"ALTER ROLE writer PASSWORD 'y'", "ALTER ROLE writer PASSWORD 'x'", "connection", Fail, []string{"password authentication failed", "correct the password"}},
		{"ALTER ROLE writer CONNECTION LIMIT 6", "ALTER ROLE writer CONNECTION LIMIT -1", "connections", Warn, []string{"CONNECTION LIMIT 14"}},
		{"REVOKE DELETE ON outbox_cdc.park FROM writer", "GRANT DELETE ON outbox_cdc.park TO writer", "schema", Fail, []string{"park: DELETE"}},
		{"ALTER TABLE outbox ENABLE ROW LEVEL SECURITY", "ALTER TABLE outbox DISABLE ROW LEVEL SECURITY", "row-security", Fail, []string{"BYPASSRLS", "so it sees nothing"}},
	} {
		db.Exec(t, c.do)
		r := w.check()
		expect(t, worst(t, r.Findings, c.check), c.level, c.want...)
		if !r.MustAct() && c.level == Fail {
			t.Errorf("%s: nobody must act", c.do)
		}
		db.Exec(t, c.undo)
	}
}

// A server with little of everything, and a slot that it drops.
func TestTightServer(t *testing.T) {
	long(t)
	db := harness.PrivatePostgres(t, localpg.Options{Settings: map[string]string{
		"max_replication_slots": "1", "max_wal_senders": "1", "max_slot_wal_keep_size": "1MB", "max_connections": "20",
		"synchronous_standby_names": "*", "synchronous_commit": "local",
	}})
	w := made(t, db)
	w.stream.PoolConnections = 30
	r := w.check()
	expect(t, find(t, r, "replication-slots", ""), Warn, "1 of 1 slots", "max_replication_slots = 6")
	expect(t, find(t, r, "wal-senders", ""), Warn, "0 of 1", "standby")
	expect(t, find(t, r, "connections", ""), Warn, "a process keeps up to 31", "max_connections = 70")
	expect(t, find(t, r, "wal-keep-size", ""), Warn, "1 MiB", "wal_budget: 64MiB")
	expect(t, find(t, r, "sync-replication", ""), Warn, "counts outbox-cdc itself")

	db.Exec(t, "SELECT pg_logical_emit_message(false, 'x', 'y')")
	db.Exec(t, "SELECT pg_switch_wal()")
	db.Exec(t, "CHECKPOINT")
	expect(t, find(t, w.check(), "slot", ""), Warn, "is lost", "outbox-cdc run")

	var held *pgconn.PgConn
	harness.Eventually(t, 10*time.Second, func() (err error) { // the check's own sender ends a moment after it
		held, err = replication.Open(t.Context(), w.stream.Replication)
		return err
	})
	defer postgres.HangUp(held)
	r = w.check()
	expect(t, find(t, r, "wal-senders", ""), Fail, "1 of 1", "max_wal_senders = 6")
	expect(t, find(t, r, "connection", "postgres"), OK)
	expect(t, worst(t, r.Findings, "connection"), Fail, "the role that streams", "max_wal_senders")
	expect(t, find(t, r, "slot", ""), Warn, "is lost")
}

func TestServerWithoutLogicalDecoding(t *testing.T) {
	long(t)
	db := harness.PrivatePostgres(t, localpg.Options{Settings: map[string]string{"wal_level": "replica"}})
	r := newWorld(t, db).check()
	if db.Major(t) >= 19 {
		expect(t, find(t, r, "wal-level", ""), OK, "effective_wal_level")
		return
	}
	expect(t, find(t, r, "wal-level", ""), Fail, "ALTER SYSTEM SET wal_level = 'logical';", "restart PostgreSQL")
}

func TestForeignSlot(t *testing.T) {
	w := newWorld(t, harness.Postgres(t))
	w.db.Exec(t, "SELECT pg_create_logical_replication_slot($1, 'test_decoding')", w.stream.Replication.Slot)
	expect(t, find(t, w.check(), "slot", ""), Fail, "its output plugin is test_decoding", "another slot name")
}

// Another program reads from the slot with our name.
func TestSlotReadBySomebodyElse(t *testing.T) {
	w := made(t, harness.Postgres(t))
	cfg := w.stream.Replication
	cfg.Name = "debezium"
	other, err := replication.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer postgres.HangUp(other)
	startReading(t, w, other)
	r := w.check()
	expect(t, find(t, r, "slot", cfg.Slot), Fail, "debezium", "does not hold this stream's leadership", fmt.Sprintf("pg_terminate_backend(%d)", other.PID()))

	lead := w.stream.Replication
	conn, err := replication.Lead(t.Context(), lead)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Kill()
	expect(t, find(t, w.check(), "slot", cfg.Slot), OK, "read by the leader")
}

// startReading begins to stream on a replication connection.
func startReading(t *testing.T, w *world, pg *pgconn.PgConn) {
	t.Helper()
	cfg := w.stream.Replication
	text := fmt.Sprintf(`START_REPLICATION SLOT %s LOGICAL 0/0 (proto_version '1', publication_names '%s')`, cfg.Slot, cfg.Publication)
	message := append([]byte{'Q', 0, 0, 0, byte(len(text) + 5)}, text...) // shorter than 256 bytes
	if _, err := pg.Conn().Write(append(message, 0)); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, 10*time.Second, func() error {
		active, err := harness.TryOne[bool](t.Context(), w.db, "SELECT active FROM pg_replication_slots WHERE slot_name = $1", cfg.Slot)
		if err == nil && !active {
			err = fmt.Errorf("nobody reads from %s yet", cfg.Slot)
		}
		return err
	})
}

func TestUnreachable(t *testing.T) {
	w := newWorld(t, harness.Postgres(t))
	w.stream.DSN = "postgres://cdc:secret@127.0.0.1:1/app?sslmode=disable"
	w.stream.Replication.DSN = w.stream.DSN
	r := w.check()
	f := find(t, r, "connection", "cdc")
	expect(t, f, Fail, "refused", "port 1")
	if r.MustAct() || !r.Incomplete() || !f.Unseen || strings.Contains(show(r), "secret") {
		t.Error(show(r))
	}
	w.stream.DSN = strings.Replace(w.db.DSN, w.db.Name, "nowhere", 1)
	f = find(t, w.check(), "connection", "")
	expect(t, f, Fail, `database "nowhere" does not exist`, "correct the database's name")
	if f.Unseen {
		t.Error("waiting would not help")
	}
}

// A probe without an answer ends at its timeout, and says so.
func TestProbesHaveTheirTime(t *testing.T) {
	w := made(t, harness.Postgres(t))
	locked := w.db.Conn(t)
	if _, err := locked.Exec(t.Context(), "BEGIN; LOCK outbox"); err != nil {
		t.Fatal(err)
	}
	r := Run(t.Context(), []Stream{w.stream}, Options{Timeout: time.Second})
	if f := find(t, r, "backlog", ""); f.Level != Skip || !f.Unseen {
		t.Errorf("%+v", f)
	}
	expect(t, find(t, r, "wal-level", ""), OK)
	if r.MustAct() || !r.Incomplete() {
		t.Error(show(r))
	}
}

func TestCompareListsEverything(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, `CREATE TABLE outbox (id uuid, event uuid, topic text, k text NOT NULL, payload text, created timestamp, state text, tries smallint, error text,
		PRIMARY KEY (id, event))`)
	db.Exec(t, "INSERT INTO outbox (id, event, k, state) VALUES (gen_random_uuid(), gen_random_uuid(), 'k', 'OPEN'), (gen_random_uuid(), gen_random_uuid(), 'k', 'DONE')")
	w := newWorld(t, db)
	m := &w.stream.Tables[0].Mapping
	m.Status.Column, m.Status.Attempts, m.Payload.Tombstone = "state", "attempts", false
	m.Topic = outbox.Template{Literals: []string{"app.", ""}, Columns: []outbox.Expr{{Column: "topics"}}}
	found, err := Compare(t.Context(), &w.stream, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var all Overrides
	for _, d := range found {
		all = append(all, d.Override...)
	}
	lines := all.Lines()
	for _, want := range []string{
		`topic: {template: "app.${topic}"}`, "event_id: {header: event-id, columns: [event]}", "available_after: null", "headers: null",
		"created_at: created", "id: [id, event]", "payload: {column: payload, tombstone: true}",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("%q is not in\n%s", want, strings.Join(lines, "\n"))
		}
	}
}

// A proof of one table keeps to one session next to the streaming one.
func TestAProofOfATableTakesOneSession(t *testing.T) {
	w := made(t, harness.Postgres(t))
	pool, err := openPool(&w.stream)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	g := gathering{o: Options{}.withDefaults(), brief: true, facts: &Facts{Stream: &w.stream, Missing: map[string]string{}}}
	g.tableSession(t.Context(), pool)
	g.onTables(t.Context(), pool)
	g.pooler(t.Context(), pool)
	g.rivals(t.Context(), pool)
	if n := pool.Stat().NewConnsCount(); n != 1 || len(g.facts.Missing) > 0 {
		t.Errorf("%d sessions were opened; missing: %v", n, g.facts.Missing)
	}
}

// A pooler in transaction mode gives the session another process while another session has the first one's. A
// pooler in session mode does not.
func TestAPoolerIsTold(t *testing.T) {
	db := harness.Postgres(t)
	w := made(t, db)
	c, err := postgres.Parse(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[string]string{"transaction": "prepared statements do not survive there", "session": "what is used works through it"} {
		w.stream.DSN = harness.PgBouncer(t, db, mode, c.User, c.Password)
		f := gather(t.Context(), &w.stream, Options{}.withDefaults(), true)
		if !slices.ContainsFunc(Judge(f), func(found Finding) bool { return found.Check == "pooler" && strings.Contains(found.Found, want) }) {
			t.Errorf("%s mode: %+v, missing %v", mode, f.Table, f.Missing)
		}
	}
}

// A default partition is found at every level, and one of another table is not.
func TestDefaultPartitionsAreFound(t *testing.T) {
	db := harness.Postgres(t)
	w := made(t, db)
	name := w.stream.Tables[0].Name
	db.Exec(t, `ALTER TABLE `+name+` RENAME TO plain; CREATE TABLE `+name+` (LIKE plain INCLUDING DEFAULTS INCLUDING GENERATED) PARTITION BY RANGE (id);
		CREATE TABLE a PARTITION OF `+name+` FOR VALUES FROM (0) TO (1000) PARTITION BY LIST (topic); CREATE TABLE b PARTITION OF a DEFAULT;
		CREATE TABLE other (n int) PARTITION BY LIST (n); CREATE TABLE c PARTITION OF other DEFAULT`)
	f := gather(t.Context(), &w.stream, Options{}.withDefaults(), false)
	if f.Tables[0].Details == nil || !slices.Equal(f.Tables[0].Details.Defaults, []string{"public.b"}) && !slices.Equal(f.Tables[0].Details.Defaults, []string{"b"}) {
		t.Errorf("%+v, missing %v", f.Tables[0].Details, f.Missing)
	}
}

// A table that a stream has read is recognised by its OID: its new name is proposed, and no other table.
func TestARenamedTableIsKnown(t *testing.T) {
	db := harness.Postgres(t)
	w := made(t, db)
	name := w.stream.Tables[0].String()
	db.Exec(t, `INSERT INTO outbox_cdc.leader (stream, relations) VALUES ($1, jsonb_build_object($2::text, $2::regclass::oid::bigint))
		ON CONFLICT (stream) DO UPDATE SET relations = excluded.relations`, w.stream.Name, name)
	db.Exec(t, `CREATE SCHEMA app; ALTER TABLE outbox SET SCHEMA app; ALTER SCHEMA app RENAME TO shop`)
	expect(t, find(t, w.check(), "table", name), Fail, "it is called shop.outbox now")
	db.Exec(t, `ALTER TABLE shop.outbox SET SCHEMA public; ALTER TABLE outbox RENAME TO "Outbox 2"`)
	expect(t, find(t, w.check(), "table", name), Fail, "it is called public.Outbox 2 now")
	db.Exec(t, `CREATE TABLE outbox ()`) // what is wrong with that one is not its name
	if now := statestore.Renamed(t.Context(), postgres.On(db.Pool(t)), w.stream.Name, name); now != "" {
		t.Errorf("another table has the name, and %s is offered", now)
	}
	db.Exec(t, `DROP TABLE outbox, "Outbox 2"`)
	expect(t, find(t, w.check(), "table", name), Fail, "it does not exist", "init --native-table")
}

// A column is recognised by its number: its new name is proposed.
func TestARenamedColumnIsKnown(t *testing.T) {
	db := harness.Postgres(t)
	w := made(t, db)
	name := w.stream.Tables[0].String()
	remember := func(stream, table, column string) {
		db.Exec(t, `INSERT INTO outbox_cdc.leader (stream, relations)
			SELECT $1, jsonb_build_object($2::text, attrelid::bigint, $3::text, attnum) FROM pg_attribute WHERE attrelid = $2::regclass AND attname = 'topic'
			ON CONFLICT (stream) DO UPDATE SET relations = leader.relations || excluded.relations`, stream, name, statestore.NumberOf(table, column))
	}
	renamed := func(want map[string]string, why string) {
		t.Helper()
		if got := statestore.RenamedColumns(t.Context(), postgres.On(db.Pool(t)), w.stream.Name, name); !maps.Equal(got, want) {
			t.Errorf("%s: %v is offered, not %v", why, got, want)
		}
	}
	remember(w.stream.Name, name, "topic")
	remember(w.stream.Name, name+"2", "elsewhere")
	remember("another stream", name, "others")
	db.Exec(t, `ALTER TABLE outbox RENAME topic TO "to"`)
	renamed(map[string]string{"topic": "to"}, "a column was renamed")
	db.Exec(t, `ALTER TABLE outbox RENAME TO renamed`)
	renamed(nil, "the table was renamed, too")
	db.Exec(t, `ALTER TABLE renamed RENAME TO outbox`)
	expect(t, find(t, w.check(), "columns", name), Fail, `column "topic" does not exist`, `it is called "to" now; map that, or rename it back`)
	db.Exec(t, `ALTER TABLE outbox DROP "to"`)
	expect(t, find(t, w.check(), "columns", name), Fail, `column "topic" does not exist`, "it was dropped; add it again")
	db.Exec(t, `ALTER TABLE outbox ADD topic bytea`) // what is wrong with that one is its type
	renamed(nil, "another column has the name")
}

// A trigger that changes rows after their INSERT is told from triggers that do so before it, that write
// elsewhere, or that are disabled.
func TestTriggersThatChangeInsertedRows(t *testing.T) {
	db := harness.Postgres(t)
	w := made(t, db)
	table := w.stream.Tables[0].String()
	db.Exec(t, `CREATE FUNCTION by_name() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN UPDATE public.`+w.stream.Tables[0].Name+` SET topic = topic WHERE id = NEW.id; RETURN NULL; END';
		CREATE FUNCTION by_variable() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN EXECUTE format(''Update %I SET topic = topic'', TG_TABLE_NAME); RETURN NULL; END';
		CREATE FUNCTION elsewhere() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN UPDATE public.counters SET n = n + 1; RETURN NULL; END';
		CREATE FUNCTION notifies() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_notify(''x'', TG_TABLE_NAME); RETURN NULL; END';
		CREATE TRIGGER a AFTER INSERT ON `+table+` FOR EACH ROW EXECUTE FUNCTION by_name();
		CREATE TRIGGER b AFTER INSERT OR UPDATE ON `+table+` FOR EACH STATEMENT EXECUTE FUNCTION by_variable();
		CREATE TRIGGER c AFTER INSERT ON `+table+` FOR EACH ROW EXECUTE FUNCTION elsewhere();
		CREATE TRIGGER d AFTER INSERT ON `+table+` FOR EACH ROW EXECUTE FUNCTION notifies();
		CREATE TRIGGER e BEFORE INSERT ON `+table+` FOR EACH ROW EXECUTE FUNCTION by_name();
		CREATE TRIGGER f AFTER DELETE ON `+table+` FOR EACH ROW EXECUTE FUNCTION by_name();
		CREATE TRIGGER g AFTER INSERT ON `+table+` FOR EACH ROW EXECUTE FUNCTION by_name(); ALTER TABLE `+table+` DISABLE TRIGGER g`)
	f := gather(t.Context(), &w.stream, Options{}.withDefaults(), false)
	var names []string
	for _, trigger := range f.Tables[0].Details.Completing {
		names = append(names, trigger.Name)
	}
	if !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("triggers %v, missing %v", names, f.Missing)
	}
}
