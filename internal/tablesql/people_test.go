package tablesql

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// Patterns of errors ignore the case of every letter, as the database knows letters.
func TestErrorsAreFoundWhateverTheirCase(t *testing.T) {
	shared := harness.Postgres(t)
	db := harness.PlainDatabase(t, shared.Server, "TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C.UTF-8'")
	l := fixture.Im2be()
	db.Exec(t, l.DDL)
	db.Exec(t, `INSERT INTO outbox (aggregate_id, event_id, status, last_error) VALUES (gen_random_uuid(), gen_random_uuid(), 'FAILED', 'UNGÜLTIGE NACHRICHT')`)
	conn := db.Conn(t)
	r, err := Load(t.Context(), conn, l.Table)
	if err != nil {
		t.Fatal(err)
	}
	step, err := r.Counting(&Filter{State: RowsFailed, Error: "ungültig"}, 10)
	if err != nil {
		t.Fatal(err)
	}
	found := ""
	step.Each = func(row [][]byte) error { found = string(row[0]); return nil }
	if err := Run(t.Context(), conn, step); err != nil || found != "1" {
		t.Errorf("%q rows, %v", found, err)
	}
}

// A number in jsonb can have 131,072 digits and takes a dozen bytes: what the server
// cannot print is not printed to learn how long it is.
func TestTheBacklogIsMeasuredWithoutPrintingLongValues(t *testing.T) {
	l := fixture.Stamps()
	db := harness.Postgres(t)
	db.Exec(t, l.DDL)
	db.Exec(t, `ALTER TABLE "Odd ""Schema"."out-box" ALTER COLUMN "pay""load" SET STORAGE EXTERNAL`)
	db.Exec(t, `INSERT INTO "Odd ""Schema"."out-box" ("the topic", "pay""load") SELECT 'x', ('[' || repeat('1e131071,', 1500000) || '1]')::jsonb`)
	conn := db.Conn(t)
	r, err := Load(t.Context(), conn, l.Table)
	if err != nil {
		t.Fatal(err)
	}
	var b Backlog
	if err := Run(t.Context(), conn, r.Backlog(10, &b)); err != nil || b.Largest < 16<<20 {
		t.Errorf("%d bytes, %v", b.Largest, err)
	}
}

// A page of scopes that no row of the table has is empty, also where rows are looked up
// by their ids.
func TestWhatNothingMatchesIsNotWanted(t *testing.T) {
	l := fixture.Plain()
	db := harness.Postgres(t)
	db.Exec(t, l.DDL)
	db.Exec(t, `INSERT INTO plain DEFAULT VALUES`)
	conn := db.Conn(t)
	r, err := Load(t.Context(), conn, l.Table)
	if err != nil {
		t.Fatal(err)
	}
	for name, narrow := range map[string]func(q *PageQuery){
		"of another table only": func(q *PageQuery) { q.Include([]outbox.Scope{{Kind: outbox.ScopeTable, Table: "public.other"}}) },
		"of none":               func(q *PageQuery) { q.Exclude([]outbox.Scope{outbox.StreamScope()}, nil) },
		"of no topic":           func(q *PageQuery) { q.Known([]outbox.Scope{}) },
	} {
		q, err := r.WantedAmong([]string{"1"})
		if err != nil {
			t.Fatal(err)
		}
		narrow(q)
		wanted := ""
		err = Run(t.Context(), conn, q.Among(Selected{list: "1"}, nil, func(row [][]byte) error { wanted = string(row[1]); return nil }))
		if err != nil || wanted != "f" {
			t.Errorf("rows %s: wanted is %q, %v", name, wanted, err)
		}
		page := r.PendingIDs(10)
		narrow(page)
		step, nothing := page.Step(func([][]byte) error { t.Errorf("rows %s: one is selected", name); return nil })
		if err := Run(t.Context(), conn, step); err != nil || !nothing {
			t.Errorf("rows %s: %v, %v", name, nothing, err)
		}
	}
}
