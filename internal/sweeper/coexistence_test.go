package sweeper

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// ready is jEAP's own predicate, unchanged.
const ready = `SELECT id::text FROM deferred_message WHERE sent_immediately IS NULL AND sent_scheduled IS NULL AND failed IS NULL
	AND (send_immediately = false OR (send_immediately = true AND CURRENT_TIMESTAMP > schedule_after)) OR resend = true ORDER BY deferred_message.id`

// anyDeferred inserts n rows in every state that the columns can hold.
const anyDeferred = `INSERT INTO deferred_message
	(id, message, key, topic, message_id, message_idempotence_id, message_type_name, created, send_immediately, schedule_after,
	 sent_immediately, sent_scheduled, failed, resend)
	SELECT nextval('deferred_message_sequence'), convert_to(n::text, 'UTF8'), convert_to((n %% 7)::text, 'UTF8'), 'events', 'm' || n, 'i' || n, 'T',
		now() - interval '1 h', (ARRAY[true, false, NULL])[1 + floor(random() * 3)],
		(ARRAY[now() - interval '1 min', now() + interval '1 h', NULL, 'infinity', '-infinity'])[1 + floor(random() * 5)],
		CASE WHEN random() < .3 THEN now() END, CASE WHEN random() < .3 THEN now() END, CASE WHEN random() < .3 THEN now() END,
		(ARRAY[true, false, false, NULL])[1 + floor(random() * 4)]
	FROM generate_series(1, %d) n`

// The WAL, the sweep, the watch and the replaced relay must all mean the same rows.
func TestReadyIsWhatTheReplacedRelayTakesForReady(t *testing.T) {
	b := newBench(t, fixture.Deferred())
	b.db.Exec(t, fmt.Sprintf(anyDeferred, 600))
	want := harness.One[[]string](t, b.db, `SELECT array_agg(id) FROM (`+ready+`) AS r`)
	if len(want) < 50 {
		t.Fatalf("only %d rows are ready", len(want))
	}
	page := b.sweep(b.everything(1000))
	if got := ids(page.Rows); !slices.Equal(got, want) {
		t.Errorf("swept %v\nwant %v", got, want)
	}
	if got := b.ready(t); !slices.Equal(got, want) {
		t.Errorf("from the WAL %v\nwant %v", got, want)
	}
	never := harness.One[int64](t, b.db, `SELECT count(*) FROM deferred_message WHERE sent_immediately IS NULL AND sent_scheduled IS NULL AND failed IS NULL
		AND (send_immediately IS NULL OR send_immediately AND schedule_after IS NULL) AND resend IS NOT TRUE`)
	if n, err := b.sweeper.CountNeverReady(t.Context(), b.table); err != nil || n.Rows != never || never == 0 || n.Oldest < time.Hour || n.Sample == "" {
		t.Errorf("never ready: %+v %v, want %d", n, err, never)
	}
}

// A page of a few thousand rows reads only its own headers, not the whole side table.
func TestAPageLooksItsHeadersUp(t *testing.T) {
	b := newBench(t, fixture.Deferred())
	b.db.Exec(t, fmt.Sprintf(anyDeferred, 3000))
	b.db.Exec(t, `UPDATE deferred_message SET resend = true`)
	b.db.Exec(t, `INSERT INTO deferred_message_header SELECT id, n, 'h' || n, convert_to('v' || n, 'UTF8') FROM deferred_message, generate_series(1, 2) n ORDER BY n DESC`)
	b.db.Exec(t, `ANALYZE`)
	page := b.sweep(b.everything(2000))
	if len(page.Rows) != 2000 {
		t.Fatalf("%d rows", len(page.Rows))
	}
	for _, r := range page.Rows {
		var names []string
		for _, h := range r.Headers[len(r.Headers)-int(r.SideHeaders):] {
			names = append(names, h.Name+string(h.Value))
		}
		if !slices.Equal(names, []string{"h1v1", "h2v2"}) {
			t.Fatalf("row %s has headers %q", r.ID, names)
		}
	}
	b.sweeper.cfg.Pool.Reset() // sessions that end tell what they read
	harness.Eventually(t, 20*time.Second, func() error {
		scanned := harness.One[int](t, b.db, `SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'deferred_message_header'`)
		found := harness.One[int](t, b.db, `SELECT idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'deferred_message_header'`)
		if scanned > 0 {
			t.Fatalf("%d headers were read by a scan", scanned)
		}
		if found < 4000 {
			return fmt.Errorf("%d headers were looked up, as far as is known", found)
		}
		return nil
	})
}

func ids(rows []*outbox.Row) (out []string) {
	for _, r := range rows {
		out = append(out, r.ID)
	}
	return out
}

// ready maps every row of the table as if the WAL had brought it.
func (b *bench) ready(t *testing.T) (out []string) {
	t.Helper()
	r, err := tablesql.Load(t.Context(), b.db.Conn(t), b.table)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := mapping.Compile(nil, b.table, r.MappingColumns())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, i := range plan.Wanted() {
		names = append(names, `"`+r.Columns[i].Name+`"::text`)
	}
	rows, err := b.db.Conn(t).Query(t.Context(), "SELECT "+strings.Join(names, ", ")+" FROM "+b.table.String()+" AS t ORDER BY t.id")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var arena mapping.Arena
	now := time.Now().UnixMicro()
	for rows.Next() {
		row := logged(t, rows.RawValues(), plan, &arena)
		if row.Pending && row.AvailableAt <= now {
			out = append(out, row.ID)
		}
	}
	return out
}

func logged(t *testing.T, raw [][]byte, plan *mapping.Plan, arena *mapping.Arena) *outbox.Row {
	t.Helper()
	values := make([]mapping.Value, len(raw))
	for i, v := range raw {
		values[i] = mapping.Value{Format: mapping.Null}
		if v != nil {
			values[i] = mapping.Value{Data: v, Format: mapping.Text}
		}
		if len(v) > 0 && (string(v) == "true" || string(v) == "false") { // a cast writes booleans in full
			values[i].Data = v[:1]
		}
	}
	row := plan.Row(values, arena)
	if row.Err != nil {
		t.Fatal(row.Err)
	}
	return row
}

func TestAWritersRowIsSweptOnceItsTimeHasPassed(t *testing.T) {
	l := fixture.Deferred()
	l.Table.Mapping.HeadersTable = outbox.HeadersTable{}
	b := newBench(t, l)
	due := time.Now().Add(time.Hour).Truncate(time.Second)
	b.db.Exec(t, fmt.Sprintf(anyDeferred, 1))
	b.db.Exec(t, `UPDATE deferred_message SET send_immediately = true, schedule_after = to_timestamp(`+strconv.FormatInt(due.Unix(), 10)+`),
		sent_immediately = NULL, sent_scheduled = NULL, failed = NULL, resend = false`)
	found := b.watch(outbox.SweepPart{})
	if len(found.Rows) != 0 || !found.NextDue.Equal(due.Add(time.Microsecond)) {
		t.Fatalf("%v, due %v", ids(found.Rows), found.NextDue)
	}
	l.Table.Mapping.Grace = 2 * time.Hour
	b.db.Exec(t, `UPDATE deferred_message SET schedule_after = now()`)
	if found = b.watch(outbox.SweepPart{}); len(found.Rows) != 1 || !found.NextDue.IsZero() {
		t.Fatalf("%v, due %v", ids(found.Rows), found.NextDue)
	}
	b.db.Exec(t, `UPDATE deferred_message SET schedule_after = now() + interval '1 h', resend = true`)
	if found = b.watch(outbox.SweepPart{}); len(found.Rows) != 1 {
		t.Fatal("a row that is asked for again waits for its writer")
	}
}

func TestHeadersOfASideTable(t *testing.T) {
	b := newBench(t, fixture.Deferred())
	b.db.Exec(t, fmt.Sprintf(anyDeferred, 3)+`;
		UPDATE deferred_message SET send_immediately = false, sent_immediately = NULL, sent_scheduled = NULL, failed = NULL, resend = false,
			trace_id = 1, span_id = 2;
		INSERT INTO deferred_message_header VALUES (2, 1, 'second', 'b'), (2, 0, 'first', '\x00ff'), (1, 0, 'null', NULL), (1, 1, 'empty', '')`)
	const trace = `traceparent="00-00000000000000000000000000000001-0000000000000002-01"`
	want := []string{trace + ` null=nil empty=""`, trace + ` first="\x00\xff" second="b"`, trace}
	page := b.sweep(b.everything(10))
	for i, r := range page.Rows {
		if got := headers(r); got != want[i] {
			t.Errorf("row %s: %s, want %s", r.ID, got, want[i])
		}
		r.Headers, r.SideHeaders = r.Headers[:1], 0 // as it comes from the WAL
	}
	for range 2 { // a row may be looked up twice
		answers, err := b.sweeper.Check(t.Context(), page.Rows)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range page.Rows {
			if got := headers(answers[i].Now); got != want[i] {
				t.Errorf("row %s looked at: %s, want %s", r.ID, got, want[i])
			}
		}
	}
	b.db.Exec(t, `ALTER TABLE deferred_message_header ALTER header_value TYPE text USING 'ü'`)
	page = b.sweep(b.everything(10))
	if got := headers(page.Rows[1]); got != trace+` first="ü" second="ü"` {
		t.Error(got)
	}
	b.db.Exec(t, `ALTER TABLE deferred_message_header ALTER header_name DROP NOT NULL; UPDATE deferred_message_header SET header_name = NULL WHERE deferred_message_id = 2`)
	page = b.sweep(b.everything(10))
	if err := page.Rows[1].Err; err == nil || err.Error() != "table public.deferred_message_header has a header without a name for it" || page.Rows[0].Err != nil {
		t.Error(err)
	}
	b.db.Exec(t, `DROP TABLE deferred_message_header`)
	if _, err := b.sweeper.Sweep(t.Context(), b.everything(10)); err == nil || !strings.Contains(err.Error(), "deferred_message_header") {
		t.Error(err)
	}
}

// If there is no room for a row's headers, a page ends there, and a lookup asks again.
func TestHeadersThatAreTooManyAtOnce(t *testing.T) {
	b := newBench(t, fixture.Deferred())
	b.db.Exec(t, fmt.Sprintf(anyDeferred, 12)+`;
		UPDATE deferred_message SET send_immediately = false, sent_immediately = NULL, sent_scheduled = NULL, failed = NULL, resend = false;
		INSERT INTO deferred_message_header SELECT n, 0, 'large', convert_to(repeat('x', 1000000), 'UTF8') FROM generate_series(1, 11) n`)
	page := b.sweep(b.everything(20))
	if n := len(page.Rows); n < 8 || n > 10 || !page.More || page.Rows[n-1].SideHeaders != 1 {
		t.Fatalf("%d rows, more %v", n, page.More)
	}
	rows := slices.Clone(page.Rows)
	for id := len(rows) + 1; id <= 12; id++ {
		rows = append(rows, &outbox.Row{Table: b.table, ID: fmt.Sprint(id)})
	}
	answers, err := b.sweeper.Check(t.Context(), rows)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range answers {
		want := outbox.CheckPending
		if i >= len(page.Rows) && i < 11 { // the last row has none
			want = outbox.CheckAgain
		}
		if a.State != want || (a.State == outbox.CheckAgain) != (a.Now == nil) {
			t.Errorf("row %s is %v, want %v", a.Row.ID, a.State, want)
		}
	}
}

func headers(r *outbox.Row) string {
	var texts []string
	for _, h := range r.Headers {
		value := "nil"
		if h.Value != nil {
			value = strings.ReplaceAll(fmt.Sprintf("%q", h.Value), `\u00fc`, "ü")
		}
		texts = append(texts, h.Name+"="+value)
	}
	return strings.Join(texts, " ")
}

func notify(b *bench, values ...string) {
	for _, v := range values {
		b.db.Exec(b.t, `INSERT INTO notification_outbox (idempotency_key, topic, payload, status, created_at) VALUES (gen_random_uuid()::text, 't', '{}', `+v+`)`)
	}
}

func TestAHeadStartIsLeftToTheOtherRelay(t *testing.T) {
	l := fixture.Notification()
	l.Table.Mapping.HeadStart = time.Minute
	b := newBench(t, l)
	notify(b, "'PENDING', now() - interval '2 min'", "'PENDING', now()", "'PENDING', now() + interval '1 h'")
	if got := ids(b.sweep(b.everything(10)).Rows); !slices.Equal(got, []string{"1", "3"}) {
		t.Errorf("swept %v", got)
	}
	if got := ids(b.watch(outbox.SweepPart{}).Rows); !slices.Equal(got, []string{"1", "3"}) {
		t.Errorf("watched %v", got)
	}
	request := b.everything(10)
	request.ForHandback = true
	if got := ids(b.sweep(request).Rows); !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("a hand-back must have every row: %v", got)
	}
}

func TestRowsThatAnotherRelayLeftAreRecovered(t *testing.T) {
	b := newBench(t, fixture.Notification())
	now := time.Now()
	b.sweeper.cfg.Now = func() time.Time { return now }
	old := "now() - interval '1 d'" // the row's age has no influence
	notify(b, "'PROCESSING', "+old, "'PROCESSING', "+old, "'PENDING', "+old, "'DELIVERED', "+old, "'PROCESSING', "+old)
	recover := func(want int) {
		t.Helper()
		if n, err := b.sweeper.Recover(t.Context(), b.table); err != nil || n != want {
			t.Fatalf("recovered %d (%v), want %d", n, err, want)
		}
	}
	recover(0)
	now = now.Add(4 * time.Minute)
	b.db.Exec(t, `UPDATE notification_outbox SET version = version + 1 WHERE id = 2`) // the other relay is alive
	recover(0)
	now = now.Add(time.Minute)
	conn := b.db.Conn(t)
	if _, err := conn.Exec(t.Context(), `BEGIN; SELECT FROM notification_outbox WHERE id = 5 FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	recover(1)
	if got := harness.One[string](t, b.db, `SELECT string_agg(id || status || version, ' ' ORDER BY id) FROM notification_outbox`); got != "1PENDING1 2PROCESSING1 3PENDING0 4DELIVERED0 5PROCESSING0" {
		t.Fatal(got)
	}
	if _, err := conn.Exec(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	recover(1)
	now = now.Add(4 * time.Minute)
	recover(1)
	recover(0)
}

func TestRetentionOfRowsThatWereNeverSent(t *testing.T) {
	l := fixture.Deferred()
	l.Table.Mapping.Retention, l.Table.Mapping.RetentionUnsent = 2*time.Hour, 20*time.Hour
	b := newBench(t, l)
	b.db.Exec(t, `INSERT INTO deferred_message (id, message, topic, message_id, message_idempotence_id, message_type_name, created, sent_immediately, sent_scheduled, failed, resend)
		SELECT id, 'x', what, id::text, id::text, 'T', now() - created, now() - immediately, now() - scheduled, now() - failed, resend
		FROM (VALUES
			(1, 'fresh', interval '1 h', interval '1 h', NULL::interval, NULL::interval, false),
			(2, 'gone', '3 h', '3 h', NULL, NULL, false),
			(3, 'gone', '3 h', NULL, '3 h', NULL, NULL),
			(4, 'lately', '9 h', '9 h', '1 h', NULL, false),
			(5, 'waits', '19 h', NULL, NULL, NULL, false),
			(6, 'gone', '21 h', NULL, NULL, NULL, false),
			(7, 'gone', '21 h', NULL, NULL, '20 h', false),
			(8, 'again', '21 h', NULL, NULL, '20 h', true),
			(9, 'again', '21 h', '20 h', NULL, NULL, true),
			(10, 'flies', '21 h', NULL, NULL, NULL, false)
		) v (id, what, created, immediately, scheduled, failed, resend)`)
	if n, _, err := b.sweeper.RetainSent(t.Context(), b.table); err != nil || n != 2 {
		t.Fatal(n, err)
	}
	if n, _, err := b.sweeper.Retain(t.Context(), b.table, []string{"10", "none"}); err != nil || n != 2 {
		t.Fatal(n, err)
	}
	if got := harness.One[string](t, b.db, `SELECT string_agg(id || topic, ' ' ORDER BY id) FROM deferred_message`); got != "1fresh 4lately 5waits 8again 9again 10flies" {
		t.Fatal(got)
	}
}

func TestPartitionsAreDroppedOnceAllTheirRowsMayGo(t *testing.T) {
	l := fixture.Plain()
	l.Table.Mapping.Retention, l.Table.Mapping.DropPartitions = 24*time.Hour, true
	l.DDL = strings.NewReplacer("PRIMARY KEY", "", "sent_at timestamptz);", `sent_at timestamptz, PRIMARY KEY (id, created_at)) PARTITION BY RANGE (created_at);
		CREATE TABLE gone PARTITION OF plain FOR VALUES FROM (MINVALUE) TO ('2026-01-01');
		CREATE TABLE empty PARTITION OF plain FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
		CREATE TABLE waits PARTITION OF plain FOR VALUES FROM ('2026-02-01') TO ('2026-03-01');
		CREATE TABLE lately PARTITION OF plain FOR VALUES FROM ('2026-03-01') TO ('2026-04-01');
		CREATE TABLE used PARTITION OF plain FOR VALUES FROM ('2026-04-01') TO ('2026-05-01');
		CREATE TABLE now PARTITION OF plain FOR VALUES FROM ('2026-05-01') TO (MAXVALUE);
		CREATE TABLE others PARTITION OF plain DEFAULT;`, "GENERATED ALWAYS", "GENERATED BY DEFAULT").Replace(l.DDL)
	l.DDL = strings.Replace(l.DDL, "id bigint GENERATED BY DEFAULT AS IDENTITY", "id bigserial", 1) // before PostgreSQL 17
	b := newBench(t, l)
	b.db.Exec(t, `INSERT INTO plain (status, created_at, sent_at) VALUES
		('SENT', '2025-06-01', '2025-06-02'), ('SENT', '2025-06-01', '2025-06-02'),
		('PENDING', '2026-02-01', NULL), ('SENT', '2026-02-01', '2026-02-02'), ('SENT', '2026-03-01', now()), ('SENT', '2026-04-01', '2026-04-02'),
		('SENT', now() - interval '3 d', now() - interval '3 d')`)
	conn := b.db.Conn(t)
	// A reader keeps one partition from being dropped. A locked partition does not keep other ones from being
	// dropped.
	if _, err := conn.Exec(t.Context(), `BEGIN; SELECT FROM used; LOCK TABLE gone, now`); err != nil {
		t.Fatal(err)
	}
	if n, _, err := b.sweeper.Retain(t.Context(), b.table, nil); err != nil || n != 0 {
		t.Fatal(n, err)
	}
	const left = `SELECT string_agg(inhrelid::regclass::text, ' ' ORDER BY inhrelid::regclass::text) FROM pg_inherits WHERE inhparent = 'plain'::regclass`
	if got := harness.One[string](t, b.db, left); got != "gone lately now others used waits" {
		t.Fatal(got)
	}
	if _, err := conn.Exec(t.Context(), `COMMIT; BEGIN; SELECT FROM used`); err != nil {
		t.Fatal(err)
	}
	if n, _, err := b.sweeper.Retain(t.Context(), b.table, nil); err != nil || n != 2 {
		t.Fatal(n, err)
	}
	if got := harness.One[string](t, b.db, left); got != "lately now others used waits" {
		t.Fatal(got)
	}
	if _, err := conn.Exec(t.Context(), `ROLLBACK`); err != nil {
		t.Fatal(err)
	}
	if n, _, err := b.sweeper.Retain(t.Context(), b.table, nil); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if got := harness.One[string](t, b.db, left); got != "lately now others waits" {
		t.Fatal(got)
	}
	if rows := harness.One[int](t, b.db, `SELECT count(*) FROM plain`); rows != 4 {
		t.Error("rows of partitions that stay were deleted:", rows)
	}
}

// Lookups of states cover all rows, however long these are.
func TestStatesOfLongRows(t *testing.T) {
	l := fixture.Plain()
	l.Table.Mapping.LookFirst = true
	b := newBench(t, l)
	b.sweeper.cfg.PageBytes = 1000
	b.db.Exec(t, `INSERT INTO plain (body, status) SELECT repeat('x', 2000), CASE n WHEN 3 THEN 'SENT' ELSE 'PENDING' END FROM generate_series(1, 4) n`)
	var rows []*outbox.Row
	for id := range 4 {
		rows = append(rows, &outbox.Row{Table: b.table, ID: fmt.Sprint(id + 1)})
	}
	want := []outbox.CheckState{outbox.CheckPending, outbox.CheckPending, outbox.CheckSettled, outbox.CheckPending}
	answers, err := b.sweeper.States(t.Context(), rows)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range answers {
		if a.Row != rows[i] || a.State != want[i] || a.Now != nil {
			t.Errorf("row %s is %v, want %v", a.Row.ID, a.State, want[i])
		}
	}
	if answers, err = b.sweeper.Check(t.Context(), rows); err != nil || answers[0].State != outbox.CheckPending || answers[3].State != outbox.CheckAgain {
		t.Errorf("a look at what they are now: %+v, %v", answers, err)
	}
}
