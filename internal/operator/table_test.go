package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgerrcode"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

func open(t *testing.T, db *harness.DB, l fixture.Layout) *Table {
	t.Helper()
	db.Exec(t, l.DDL)
	d, err := Open(t.Context(), db.Conn(t), l.Table)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func plan(t *testing.T, d *Table, o Operation) Plan {
	t.Helper()
	p, err := d.Plan(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func do(t *testing.T, d *Table, o Operation) Result {
	t.Helper()
	r, err := d.Do(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const seven = "00000000-0000-0000-0000-00000000000"

func im2be(t *testing.T) (*harness.DB, *Table) {
	t.Helper()
	db := harness.Postgres(t)
	d := open(t, db, fixture.Im2be())
	// Of aggregate 1 a later row was sent, of 2 none. Three are pending or sent.
	db.Exec(t, `INSERT INTO outbox (aggregate_id, event_id, status, topic, payload_bytes, retries, last_error, created_at, sent_at) VALUES
		('`+seven+`1', '`+seven+`1', 'FAILED', 'orders', 'x', 3, 'message too large', '2026-01-01 10:00Z', NULL),
		('`+seven+`1', '`+seven+`2', 'SENT', 'orders', 'x', 0, NULL, '2026-01-01 10:01Z', '2026-01-01 10:02Z'),
		('`+seven+`2', '`+seven+`3', 'FAILED', 'orders', 'x', 3, 'Invalid record', '2026-01-01 11:00Z', NULL),
		('`+seven+`2', '`+seven+`4', 'FAILED', 'bills', 'x', 3, 'Invalid record', '2026-01-01 12:00Z', NULL),
		('`+seven+`3', '`+seven+`5', 'PENDING', 'orders', 'x', 1, 'once', now(), NULL),
		('`+seven+`3', '`+seven+`6', 'ARCHIVED', 'orders', 'x', 0, NULL, now(), NULL)`)
	return db, d
}

func text(s string) *string { return &s }

func TestPicking(t *testing.T) {
	_, d := im2be(t)
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for name, c := range map[string]struct {
		filter tablesql.Filter
		want   string
	}{
		"all":      {tablesql.Filter{}, "134"},
		"id":       {tablesql.Filter{IDs: []string{outbox.JoinID(seven+"1", seven+"1"), outbox.JoinID(seven+"3", seven+"5")}}, "1"},
		"topic":    {tablesql.Filter{Topic: text("bills")}, "4"},
		"key":      {tablesql.Filter{Key: text(seven + "2")}, "34"},
		"error":    {tablesql.Filter{Error: "^invalid"}, "34"},
		"since":    {tablesql.Filter{Since: at("2026-01-01T11:00:00Z")}, "34"},
		"until":    {tablesql.Filter{Until: at("2026-01-01T12:00:00+01:00")}, "1"},
		"together": {tablesql.Filter{Key: text(seven + "2"), Topic: text("orders")}, "3"},
		"sent":     {tablesql.Filter{State: tablesql.RowsSent}, "2"},
		"pending":  {tablesql.Filter{State: tablesql.RowsPending}, "5"},
	} {
		if c.filter.State == 0 {
			c.filter.State = tablesql.RowsFailed
		}
		rows, err := d.List(t.Context(), &c.filter, 10, Shown{})
		if err != nil {
			t.Fatal(name, err)
		}
		got := ""
		for _, r := range rows {
			got += r.ID[1][len(r.ID[1])-1:]
		}
		if n, err := d.Count(t.Context(), &c.filter, 10); err != nil || got != c.want || n.N != int64(len(rows)) {
			t.Errorf("%s: rows %s, count %+v, %v; want %s", name, got, n, err, c.want)
		}
	}
	if n, err := d.Count(t.Context(), &tablesql.Filter{State: tablesql.RowsFailed}, 2); err != nil || n != (Count{2, true}) {
		t.Error(n, err)
	}
}

// The server stops when nobody waits for its answer any longer.
func TestAStatementEndsWithItsAsker(t *testing.T) {
	_, d := im2be(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := d.run(ctx, time.Minute, tablesql.Step{SQL: "SELECT pg_sleep(30)"}); !postgres.HasCode(err, pgerrcode.QueryCanceled) {
		t.Error(err)
	}
}

func TestListedRow(t *testing.T) {
	_, d := im2be(t)
	rows, err := d.List(t.Context(), &tablesql.Filter{State: tablesql.RowsFailed}, 1, Shown{Payload: true})
	if err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	r := rows[0]
	if r.Table != "public.outbox" || r.State != "FAILED" || r.Topic != "orders" || *r.Key != seven+"1" || r.Created != "2026-01-01T10:00:00.000000Z" ||
		r.Attempts != 3 || r.Error != "message too large" || *r.PayloadBytes != 1 || *r.Payload != "x" || r.Sent != "" || r.IDText() != seven+"1,"+seven+"1" {
		t.Errorf("%+v", r)
	}
	parks := []outbox.Park{
		{Scope: outbox.Scope{Kind: outbox.ScopeKey, Table: "public.outbox", Topic: "orders", Key: seven + "3"}, Reason: "waits for its next try"},
		{Scope: outbox.TopicScope("main", "bills"), Reason: "no such topic"},
	}
	rows, err = d.List(t.Context(), &tablesql.Filter{State: tablesql.RowsPending}, 9, Shown{Parks: parks})
	if err != nil || len(rows) != 1 || rows[0].Parked != "key: waits for its next try" || rows[0].Payload != nil {
		t.Errorf("%+v, %v", rows, err)
	}
}

// A requeued row is as if it had never been tried, with another version.
func TestRequeue(t *testing.T) {
	db, d := im2be(t)
	op := Operation{Action: Requeue, Filter: tablesql.Filter{Topic: text("orders")}, Limit: 100}
	p := plan(t, d, op)
	if p.Matched != (Count{2, false}) || p.Taken != 2 || len(p.Sample) != 2 || p.TimeColumn != "created_at" {
		t.Errorf("%+v", p)
	}
	if p.Order.Looked != 2 || p.Order.Overtaken != 1 || !slices.Equal(p.Order.IDs[0], []string{seven + "1", seven + "1"}) {
		t.Errorf("order: %+v", p.Order)
	}
	if n := harness.One[int](t, db, "SELECT count(*) FROM outbox WHERE status = 'FAILED'"); n != 3 {
		t.Fatalf("a plan changed rows: %d are FAILED", n)
	}
	if r := do(t, d, op); r.Changed != 2 || r.Passed != 0 || len(r.IDs) != 2 {
		t.Errorf("%+v", r)
	}
	got := harness.One[string](t, db, `SELECT string_agg(concat_ws(' ', right(event_id::text, 1), status, retries, last_error, version), ', ' ORDER BY event_id) FROM outbox`)
	if want := "1 PENDING 0 1, 2 SENT 0 0, 3 PENDING 0 1, 4 FAILED 3 Invalid record 0, 5 PENDING 1 once 0, 6 ARCHIVED 0 0"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// What was done is what the table has afterwards, whatever its triggers do.
func TestATriggerKeepsRows(t *testing.T) {
	db, d := im2be(t)
	db.Exec(t, `CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF OLD.topic = ''orders'' THEN NEW.status = OLD.status; NEW.retries = OLD.retries; END IF; RETURN NEW; END'`)
	db.Exec(t, `CREATE TRIGGER keep BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION keep()`)
	kept := harness.One[int](t, db, `SELECT count(*) FROM outbox WHERE status = 'FAILED' AND topic = 'orders'`)
	for _, op := range []Operation{{Action: Requeue, Limit: 10}, {Action: Dismiss, Status: "ARCHIVED", Limit: 10}} {
		before := harness.One[int](t, db, `SELECT count(*) FROM outbox WHERE status = 'FAILED'`)
		r := do(t, d, op)
		if after := harness.One[int](t, db, `SELECT count(*) FROM outbox WHERE status = 'FAILED'`); kept == 0 || r.Changed != before-after || r.Passed != kept {
			t.Errorf("%s: %+v, but %d of %d are FAILED, and %d are kept", op.Action, r, after, before, kept)
		}
		db.Exec(t, `UPDATE outbox SET status = 'FAILED', retries = 3 WHERE status IN ('PENDING', 'ARCHIVED') AND topic <> 'orders'`)
	}
}

// With statistics from before anything was sent, the plan would search all SENT rows
// for each row's key, by the index on the state.
func TestTheOrderIsToldWithOldStatistics(t *testing.T) {
	const rows, keys = 20_000, 1000
	const count = `SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'outbox'`
	db := harness.Postgres(t)
	l := fixture.Im2be()
	for _, sql := range []string{
		l.DDL, `ALTER TABLE outbox SET (autovacuum_enabled = off)`,
		`INSERT INTO outbox (aggregate_id, event_id, topic) SELECT gen_random_uuid(), gen_random_uuid(), 'orders' FROM generate_series(1, 2000)`,
		`ANALYZE outbox`,
		fmt.Sprintf(`INSERT INTO outbox (aggregate_id, event_id, topic, status, created_at) SELECT lpad((i %% %d)::text, 32, '0')::uuid, gen_random_uuid(), 'orders',
			CASE WHEN i < %[1]d THEN 'FAILED' ELSE 'SENT' END, now() + i * interval '1 s' FROM generate_series(0, %d) i`, keys, rows-1),
	} {
		db.Exec(t, sql)
	}
	before := harness.One[int](t, db, count)
	conn := db.Conn(t)
	d, err := Open(t.Context(), conn, l.Table)
	if err != nil {
		t.Fatal(err)
	}
	if o := plan(t, d, Operation{Action: Requeue, Limit: keys}).Order; o.Looked != keys || o.Overtaken != keys {
		t.Errorf("%+v", o)
	}
	conn.Close(t.Context()) // a session that ends tells what it read
	harness.Eventually(t, 20*time.Second, func() error {
		read := harness.One[int](t, db, count) - before
		switch {
		case read > 8*rows:
			t.Fatalf("%d rows were read of %d", read, rows)
		case read < rows:
			return fmt.Errorf("%d rows were read, as far as is known", read)
		}
		return nil
	})
}

func TestLimitsAndPaces(t *testing.T) {
	_, d := im2be(t)
	told := ""
	op := Operation{Action: Requeue, Limit: 2, PerSecond: 50, Progress: func(done, of int) { told += fmt.Sprint(done, "/", of, " ") }}
	if p := plan(t, d, op); p.Matched.N != 3 || p.Taken != 2 {
		t.Errorf("%+v", p)
	}
	if r := do(t, d, op); r.Changed != 2 || told != "2/2 " {
		t.Errorf("%+v %s", r, told)
	}
	op.PerSecond, told = 1, ""
	db, d := im2be(t)
	began := time.Now()
	if r := do(t, d, op); r.Changed != 2 || told != "1/2 2/2 " || time.Since(began) < 900*time.Millisecond {
		t.Errorf("%+v %s after %s", r, told, time.Since(began))
	}
	_ = db
}

// A row that somebody has locked, or that is no longer FAILED, is passed over.
func TestRowsOfOthersArePassedOver(t *testing.T) {
	db, d := im2be(t)
	other := db.Conn(t)
	tx, err := other.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), "SELECT FROM outbox WHERE event_id = '"+seven+"3' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	if r := do(t, d, Operation{Action: Requeue, Limit: 100}); r.Changed != 2 || r.Passed != 1 {
		t.Errorf("%+v", r)
	}
	if s := harness.One[string](t, db, "SELECT status FROM outbox WHERE event_id = '"+seven+"3'"); s != "FAILED" {
		t.Errorf("a locked row is %s", s)
	}
}

func TestDiscard(t *testing.T) {
	db, d := im2be(t)
	if r := do(t, d, Operation{Action: Dismiss, Status: "ARCHIVED", Limit: 1}); r.Changed != 1 {
		t.Errorf("%+v", r)
	}
	if r := do(t, d, Operation{Action: Delete, Limit: 100}); r.Changed != 2 {
		t.Errorf("%+v", r)
	}
	got := harness.One[string](t, db, `SELECT string_agg(concat_ws(' ', status, version), ', ' ORDER BY event_id) FROM outbox`)
	if want := "ARCHIVED 1, SENT 0, PENDING 0, ARCHIVED 0"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, status := range []string{"PENDING", "SENT", "FAILED", ""} {
		_, err := d.Plan(t.Context(), Operation{Action: Dismiss, Status: status, Limit: 1})
		var unusable *tablesql.MappingError
		if !errors.As(err, &unusable) {
			t.Errorf("status %q: %v", status, err)
		}
	}
}

func TestReplay(t *testing.T) {
	db, d := im2be(t)
	since := time.Date(2026, 1, 1, 10, 2, 0, 0, time.UTC)
	op := Operation{Action: Replay, Filter: tablesql.Filter{Since: since, Until: since.Add(time.Second)}, Limit: MaxLimit}
	if p := plan(t, d, op); p.Matched.N != 1 || p.TimeColumn != "sent_at" {
		t.Errorf("%+v", p)
	}
	if r := do(t, d, op); r.Changed != 1 {
		t.Errorf("%+v", r)
	}
	if n := harness.One[int](t, db, "SELECT count(*) FROM outbox WHERE status = 'PENDING' AND sent_at IS NULL AND version = 1"); n != 1 {
		t.Errorf("%d rows", n)
	}
}

// State in timestamps, names that need quotes.
func TestStamps(t *testing.T) {
	db := harness.Postgres(t)
	d := open(t, db, fixture.Stamps())
	db.Exec(t, `INSERT INTO "Odd ""Schema"."out-box" ("the topic", "select", "pay""load", "sent at", "failed at", why) VALUES
		('a', 'k', '{}', NULL, '2026-01-01 10:00', 'bad'), ('a', 'k', '{}', '2026-01-01 11:00', NULL, NULL), ('a', 'k', '{}', NULL, NULL, NULL)`)
	op := Operation{Action: Requeue, Filter: tablesql.Filter{Key: text("k"), Since: time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC), Until: time.Date(2026, 1, 1, 10, 0, 1, 0, time.UTC)}, Limit: 10}
	if p := plan(t, d, op); p.Matched.N != 1 || p.TimeColumn != "failed at" || p.Order.Overtaken != 1 || p.Sample[0].Failed != "2026-01-01T10:00:00.000000Z" {
		t.Errorf("%+v", p)
	}
	if r := do(t, d, op); r.Changed != 1 {
		t.Errorf("%+v", r)
	}
	if r := do(t, d, Operation{Action: Replay, Limit: 10}); r.Changed != 1 {
		t.Errorf("%+v", r)
	}
	if n := harness.One[int](t, db, `SELECT count(*) FROM "Odd ""Schema"."out-box" WHERE "sent at" IS NULL AND "failed at" IS NULL AND why IS NULL`); n != 3 {
		t.Errorf("%d rows are pending, want 3", n)
	}
	if _, err := d.Plan(t.Context(), Operation{Action: Dismiss, Status: "X", Limit: 1}); err == nil || !strings.Contains(err.Error(), "no status column") {
		t.Error(err)
	}
}

// Rows can be asked for again by a column of their own, and be sent by others.
func TestResend(t *testing.T) {
	db := harness.Postgres(t)
	d := open(t, db, fixture.Deferred())
	db.Exec(t, `INSERT INTO deferred_message (id, message, key, topic, message_id, message_idempotence_id, message_type_name, created, sent_immediately, sent_scheduled, failed, fail_reason) VALUES
		(1, 'm', 'k', 't', '1', '1', 'n', '2026-01-01Z', NULL, NULL, '2026-01-02Z', 'too large'),
		(2, 'm', 'k', 't', '2', '2', 'n', '2026-01-01Z', '2026-01-03Z', NULL, NULL, NULL),
		(3, 'm', 'k', 't', '3', '3', 'n', '2026-01-01Z', NULL, '2026-01-04Z', NULL, NULL)`)
	op := Operation{Action: Requeue, Filter: tablesql.Filter{Key: text("k"), Since: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)}, Limit: 10}
	if p := plan(t, d, op); p.Matched.N != 1 || p.TimeColumn != "failed" || p.Order.Overtaken != 1 {
		t.Errorf("%+v", p)
	}
	if r := do(t, d, op); r.Changed != 1 {
		t.Errorf("%+v", r)
	}
	replay := Operation{Action: Replay, Filter: tablesql.Filter{Until: time.Date(2026, 1, 4, 0, 0, 0, 0, time.UTC)}, Limit: 10}
	if p := plan(t, d, replay); p.Matched.N != 1 || p.TimeColumn != "sent_scheduled, sent_immediately" {
		t.Errorf("%+v", p)
	}
	if r := do(t, d, replay); r.Changed != 1 {
		t.Errorf("%+v", r)
	}
	got := harness.One[string](t, db, "SELECT string_agg(concat_ws(' ', id, resend, failed IS NOT NULL, sent_immediately IS NOT NULL), ', ' ORDER BY id) FROM deferred_message")
	if want := "1 t t f, 2 t f t, 3 f f f"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if n, err := d.Count(t.Context(), &tablesql.Filter{State: tablesql.RowsPending}, 10); err != nil || n.N != 2 {
		t.Errorf("%+v %v", n, err)
	}
}

// Rows are deleted on success; the count alone tells FAILED ones.
func TestDeletingTable(t *testing.T) {
	db := harness.Postgres(t)
	d := open(t, db, fixture.Deleting())
	db.Exec(t, `INSERT INTO queue (key, body, tries) VALUES ('\x6b00', 'b', 2), ('a', 'b', 1)`)
	if r := do(t, d, Operation{Action: Requeue, Limit: 10}); r.Changed != 1 {
		t.Errorf("%+v", r)
	}
	if n := harness.One[int](t, db, "SELECT count(*) FROM queue WHERE tries = 0"); n != 1 {
		t.Errorf("%d rows", n)
	}
	_, err := d.Plan(t.Context(), Operation{Action: Replay, Limit: 10})
	if err == nil || !strings.Contains(err.Error(), "nothing can be replayed") {
		t.Error(err)
	}
	rows, err := d.List(t.Context(), &tablesql.Filter{State: tablesql.RowsPending, Key: text("a")}, 10, Shown{})
	if err != nil || len(rows) != 1 || *rows[0].Key != "a" {
		t.Errorf("%+v %v", rows, err)
	}
}

// A partitioned table with FAILED rows in one partition.
func TestPartitions(t *testing.T) {
	db := harness.Postgres(t)
	l := fixture.Im2be()
	l.DDL = strings.Replace(l.DDL, "PRIMARY KEY (aggregate_id, event_id))", "PRIMARY KEY (aggregate_id, event_id)) PARTITION BY HASH (aggregate_id)", 1) +
		"; CREATE TABLE p0 PARTITION OF outbox FOR VALUES WITH (MODULUS 2, REMAINDER 0); CREATE TABLE p1 PARTITION OF outbox FOR VALUES WITH (MODULUS 2, REMAINDER 1)"
	d := open(t, db, l)
	db.Exec(t, "INSERT INTO outbox (aggregate_id, event_id, status, topic) SELECT gen_random_uuid(), gen_random_uuid(), 'FAILED', 't' FROM generate_series(1, 1200)")
	if r := do(t, d, Operation{Action: Requeue, Limit: 1100}); r.Changed != 1100 || len(r.IDs) != MaxNamed {
		t.Errorf("%d changed, %d named", r.Changed, len(r.IDs))
	}
	if r := do(t, d, Operation{Action: Delete, Limit: MaxLimit}); r.Changed != 100 {
		t.Errorf("%+v", r)
	}
}

func TestRefusals(t *testing.T) {
	db, d := im2be(t)
	for name, c := range map[string]struct {
		filter tablesql.Filter
		want   string
	}{
		"an id of one part": {tablesql.Filter{IDs: []string{seven + "1"}}, "write the values of aggregate_id, event_id"},
		"an id of no uuid":  {tablesql.Filter{IDs: []string{outbox.JoinID("1", "2")}}, `cannot have the id "1,2"`},
		"a key of no uuid":  {tablesql.Filter{Key: text("seven")}, `cannot have the key "seven"`},
		"a bad pattern":     {tablesql.Filter{Error: "("}, "--error is a regular expression"},
	} {
		_, err := d.Plan(t.Context(), Operation{Action: Requeue, Filter: c.filter, Limit: 1})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	db.Exec(t, "CREATE ROLE nodelete LOGIN PASSWORD 'x'; GRANT SELECT, UPDATE ON outbox TO nodelete")
	defer db.Exec(t, "DROP OWNED BY nodelete; DROP ROLE nodelete")
	role := *db
	role.DSN = db.Server.DSNAs(db.Name, "nodelete", "x")
	poor, err := Open(t.Context(), role.Conn(t), d.Outbox())
	if err != nil {
		t.Fatal(err)
	}
	_, err = poor.Do(t.Context(), Operation{Action: Delete, Limit: 1})
	if err == nil || !strings.Contains(err.Error(), `GRANT DELETE ON "public"."outbox" TO "nodelete"`) {
		t.Error(err)
	}
}
