package tablesql

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

func TestTablesAreReadTogetherAndToldApart(t *testing.T) {
	l := fixture.Im2be()
	db := harness.Postgres(t)
	db.Exec(t, l.DDL)
	db.Exec(t, `CREATE TABLE lacking (aggregate_id uuid); CREATE TABLE second (LIKE outbox)`)
	named := func(name string) *outbox.Table {
		table := *l.Table
		table.Name = name
		return &table
	}
	first, second, gone, lacking := l.Table, named("second"), named("gone"), named("lacking")
	kept := NewRelationCache([]*outbox.Table{first, gone, second, lacking}, func(r *Relation) (*Relation, error) { return r, nil })
	conn := db.Conn(t)
	get := func(table *outbox.Table) *Relation {
		t.Helper()
		r, err := kept.Get(t.Context(), conn, table)
		if err != nil || r.Table != table || r.Column("aggregate_id") == nil {
			t.Fatalf("table %s: %+v, %v", table, r, err)
		}
		return r
	}
	refused := func(table *outbox.Table, problem string) {
		t.Helper()
		var unusable *MappingError
		if _, err := kept.Get(t.Context(), conn, table); !errors.As(err, &unusable) || unusable.Table != table || !strings.Contains(err.Error(), problem) {
			t.Fatalf("table %s: %v", table, err)
		}
	}
	get(first)
	other, known := kept.Known(second)
	if !known || other.OID == get(first).OID || len(other.Columns) != len(get(first).Columns) {
		t.Fatalf("the second table, read with the first: %+v, %v", other, known)
	}
	refused(gone, "does not exist")
	refused(lacking, `has no column`)
	db.Exec(t, `CREATE TABLE gone (LIKE outbox); ALTER TABLE outbox ADD more text; ALTER TABLE second ADD more text`)
	get(gone)
	if !kept.Forget(first) || kept.Forget(first) {
		t.Error("a table is forgotten once")
	}
	if get(first).Column("more") == nil || get(second) != other {
		t.Error("what was forgotten is read again, the others stay")
	}
	refused(named("unexpected"), "does not exist")
}

// What could not be prepared is in nobody's way, on the same connection too.
func TestPreparingIsRefusedForOneTable(t *testing.T) {
	l := fixture.Im2be()
	db := harness.Postgres(t)
	db.Exec(t, l.DDL)
	conn := db.Conn(t)
	found := 0
	count := Step{SQL: `SELECT count(*) FROM public.outbox`, Each: func([][]byte) error { found++; return nil }}
	gone := Step{SQL: `SELECT count(*) FROM gone`}
	s := Settings{StatementTimeout: time.Minute}
	for range 2 {
		if err := Prepare(t.Context(), conn, s, []Step{count, gone}); FaultOf(err) != TableRefused {
			t.Fatal(err)
		}
		if err := Run(t.Context(), conn, Step{SQL: "ROLLBACK"}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		steps := []Step{count, count}
		if err := Prepare(t.Context(), conn, s, steps); err != nil {
			t.Fatal(err)
		}
		if err := Run(t.Context(), conn, steps...); err != nil {
			t.Fatal(err)
		}
	}
	if found != 4 {
		t.Errorf("%d of 4 steps were run", found)
	}
}
