package config

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/operator"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/preflight"
	"github.com/outbox-cdc/outbox-cdc/internal/sweeper"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// originals are tables that are made and filled by the SQL of the software that a profile is for, each with
// what a stream would write to it.
var originals = []struct{ name, table string }{
	{"im2be", `{table: public.outbox, profile: im2be}`},
	{"advert-market", `{table: public.notification_outbox, profile: advert-market}`},
	{"jeap", `{table: public.deferred_message, profile: jeap}`},
	{"debezium", `{table: public.outbox, profile: debezium}`},
	{"debezium-delete", `{table: public.outbox, profile: debezium, published: delete, order: [created_at]}`},
	{"debezium-status", `
        table: public.outbox
        profile: debezium
        topic: {template: "events.${aggregatetype}.v1"}
        headers: [{name: eventType, column: type}, {name: aggregate, column: aggregatetype}]
        partition: part
        payload: {column: payload, tombstone: true, empty_tombstone: true}
        published: status
        created_at: created_at
        order: [created_at]
        status: {column: status, pending: PENDING, sent: SENT, failed: FAILED, last_error: last_error, max_attempts: 1}
`},
}

// Each of the profiles fits its table without a finding. The table's rows become the same records through the
// WAL and through a sweep: those in testdata/originals/NAME.want.
func TestProfilesOnOriginalTables(t *testing.T) {
	for _, o := range originals {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			table := load(t, oneTable+o.table).Streams[0].Tables[0].Outbox
			ddl, inserts := fixture.Original(o.name)
			db := harness.Postgres(t)
			db.Exec(t, ddl+"; CREATE PUBLICATION p FOR TABLE "+table.String()+" WITH (publish = 'insert')")
			db.Exec(t, "SELECT pg_create_logical_replication_slot('"+slotOf(o.name)+"', 'pgoutput')")
			defer db.Exec(t, "SELECT pg_drop_replication_slot('"+slotOf(o.name)+"')")
			db.Exec(t, inserts)
			logged, swept := fromLog(t, db, table, slotOf(o.name)), swept(t, db, table)
			if table.Stateful() && !slices.EqualFunc(due(logged), swept, sameRow) {
				t.Errorf("from the WAL:\n%s\nswept:\n%s", show(due(logged)), show(swept))
			}
			previewed(t, db, table, logged)
			golden(t, "testdata/originals/"+o.name+".want", show(logged)+fate(t, db, table, logged))
		})
	}
}

// previewed: a preview shows the same records.
func previewed(t *testing.T, db *harness.DB, table *outbox.Table, logged []*outbox.Row) {
	t.Helper()
	if table.Mapping.HeadersTable.Name != "" {
		return // the WAL has no headers of another table
	}
	d, err := operator.Open(t.Context(), db.Conn(t), table)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := d.Preview(t.Context(), &tablesql.Filter{State: tablesql.RowsAny}, 1000, 1<<20)
	if err != nil || len(rows) != len(logged) {
		t.Fatalf("%d rows of %d, %v", len(rows), len(logged), err)
	}
	for _, r := range rows {
		if !slices.ContainsFunc(logged, func(l *outbox.Row) bool { return sameRow(l, r) }) {
			t.Errorf("a preview shows another record than the WAL brings:\n%s", show([]*outbox.Row{r}))
		}
	}
}

func slotOf(name string) string { return "original_" + strings.ReplaceAll(name, "-", "_") }

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func fromLog(t *testing.T, db *harness.DB, table *outbox.Table, slot string) (rows []*outbox.Row) {
	t.Helper()
	frames, err := db.Conn(t).Query(t.Context(), "SELECT data FROM pg_logical_slot_get_binary_changes($1, NULL, NULL, 'proto_version', '1', 'publication_names', 'p')", slot)
	if err != nil {
		t.Fatal(err)
	}
	defer frames.Close()
	d, batch := decoder.New([]*outbox.Table{table}), new(decoder.Batch)
	for frames.Next() {
		if err := d.Decode(slices.Clone(frames.RawValues()[0]), batch); err != nil {
			t.Fatal(err)
		}
	}
	if frames.Err() != nil {
		t.Fatal(frames.Err())
	}
	for e := range batch.All() {
		if e.Err != nil {
			t.Fatal(e.Err)
		}
		for _, r := range e.Rows {
			r.XID, r.Commit, r.CommitTime = 0, 0, 0
			rows = append(rows, r)
		}
	}
	return rows
}

func swept(t *testing.T, db *harness.DB, table *outbox.Table) []*outbox.Row {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), db.Own())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	s, err := sweeper.New(sweeper.Config{Pool: pool, Tables: []*outbox.Table{table}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	conn := db.Conn(t)
	described, err := tablesql.Describe(t.Context(), conn, []*outbox.Table{table})
	if err != nil {
		t.Fatal(err)
	}
	r, err := preflight.Inspect(t.Context(), conn, table, described[0], time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Findings {
		t.Errorf("finding: %+v", f)
	}
	if !table.Stateful() {
		return nil
	}
	page, err := s.Sweep(t.Context(), outbox.SweepRequest{
		Parts: []outbox.SweepPart{{Table: table, Include: []outbox.Scope{outbox.StreamScope()}}}, Limit: 100,
		ForHandback: true, // every age
	})
	if err != nil {
		t.Fatal(err)
	}
	return page.Rows
}

// fate charges the rows that cannot become records until their budgets are used up, and returns what is in
// the table then.
func fate(t *testing.T, db *harness.DB, table *outbox.Table, rows []*outbox.Row) string {
	t.Helper()
	if !table.Stateful() {
		return ""
	}
	conn := db.Conn(t)
	relation, err := tablesql.Load(t.Context(), conn, table)
	if err != nil {
		t.Fatal(err)
	}
	marking, err := relation.Marking()
	if err != nil {
		t.Fatal(err)
	}
	if marking.Attempt == "" {
		return "nothing is kept of a failure\n"
	}
	var out strings.Builder
	for _, r := range due(rows) {
		if r.Err == nil {
			continue
		}
		if state := charge(t, db, conn, relation, marking, r); state != string(tablesql.Failed) {
			t.Fatalf("row %s is in state %q", r.ID, state)
		}
		fmt.Fprintf(&out, "%s: FAILED, of %d attempts%s\n", strings.Join(outbox.SplitID(r.ID), "/"), table.Mapping.Status.MaxAttempts, told(t, db, table, r))
	}
	return out.String()
}

// charge charges the last attempt of the row's budget.
func charge(t *testing.T, db *harness.DB, conn *pgx.Conn, relation *tablesql.Relation, marking tablesql.Marking, r *outbox.Row) (state string) {
	t.Helper()
	s := &r.Table.Mapping.Status
	before := 0
	if marking.Counted {
		before = s.MaxAttempts - 1
		db.Exec(t, fmt.Sprintf("UPDATE %s SET %s = %d", r.Table, s.Attempts, before))
	}
	args, err := relation.AttemptArrays(1, func(int) tablesql.Attempt {
		return tablesql.Attempt{Row: r, Reason: r.Err.Error(), Expected: int64(before)}
	})
	if err != nil {
		t.Fatal(err)
	}
	step := tablesql.Step{SQL: marking.Attempt, Args: args, Each: func(row [][]byte) error { state = string(row[2]); return nil }}
	if err := tablesql.Run(t.Context(), conn, step); err != nil {
		t.Fatal(err)
	}
	return state
}

// told is the reason as it is in the row.
func told(t *testing.T, db *harness.DB, table *outbox.Table, r *outbox.Row) string {
	t.Helper()
	column := table.Mapping.Status.LastError
	if column == "" {
		return ", and no column for the reason"
	}
	id := outbox.SplitID(r.ID)
	return fmt.Sprintf(", %s = %q", column, harness.One[string](t, db,
		fmt.Sprintf("SELECT %s FROM %s WHERE %s::text = $1", column, table, table.Mapping.ID[0]), id[0]))
}

func due(rows []*outbox.Row) (out []*outbox.Row) {
	for _, r := range rows {
		if r.Pending && r.AvailableAt <= time.Now().UnixMicro() {
			out = append(out, r)
		}
	}
	return out
}

func sameRow(a, b *outbox.Row) bool {
	if fmt.Sprint(a.Err) != fmt.Sprint(b.Err) {
		return false
	}
	x, y := *a, *b
	x.Err, y.Err = nil, nil
	return reflect.DeepEqual(x, y)
}

// show returns what becomes of rows, one line each.
func show(rows []*outbox.Row) string {
	var out strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&out, "%s:", strings.Join(outbox.SplitID(r.ID), "/"))
		switch {
		case !r.Pending:
			out.WriteString(" not pending\n")
			continue
		case r.AvailableAt == outbox.Never:
			out.WriteString(" never ready\n")
			continue
		case r.AvailableAt > time.Now().UnixMicro():
			out.WriteString(" the writer's\n")
			continue
		case r.Err != nil:
			fmt.Fprintf(&out, " fails: %v\n", r.Err)
			continue
		}
		fmt.Fprintf(&out, " to %s, topic %s", r.Cluster, r.Topic)
		if r.Partition >= 0 {
			fmt.Fprintf(&out, ", partition %d", r.Partition)
		}
		fmt.Fprintf(&out, ", key %s, value %s", bytesOrNull(r.Key), bytesOrNull(r.Value))
		for _, h := range r.Headers {
			fmt.Fprintf(&out, ", %s=%s", h.Name, bytesOrNull(h.Value))
		}
		out.WriteString("\n")
	}
	return out.String()
}

func bytesOrNull(b []byte) string {
	if b == nil {
		return "null"
	}
	return fmt.Sprintf("%q", b)
}
