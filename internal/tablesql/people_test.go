package tablesql

import (
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
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

// Compression makes a few hundred bytes of what prints as a hundred megabytes. Such a value does
// not count as short; a brief statement prints none of them.
func TestCompressedValuesAreNotTakenForShort(t *testing.T) {
	l := fixture.Stamps()
	db := harness.Postgres(t)
	db.Exec(t, l.DDL)
	db.Exec(t, `INSERT INTO "Odd ""Schema"."out-box" ("the topic", "pay""load")
		SELECT 'x', ('[' || repeat('1e131071,', n) || '1]')::jsonb FROM unnest(ARRAY[0, 100, 800, 20000]) AS n`)
	r, err := Load(t.Context(), db.Conn(t), l.Table)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		relation    *Relation
		where, want string
	}{
		{r, "jsonb_array_length(" + Ref(`pay"load`) + ") < 10000", "true false false"}, // the last one cannot be printed
		{r.Brief(), "true", "true true false false"},
	} {
		fits, _ := c.relation.Column(`pay"load`).within(4 << 20)
		sql := "SELECT string_agg((" + fits + ")::text, ' ' ORDER BY jsonb_array_length(" + Ref(`pay"load`) + ")) FROM " + r.Name() + " AS t WHERE " + c.where
		if got := harness.One[string](t, db, sql); got != c.want {
			t.Errorf("%s: %s", sql, got)
		}
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

// A key that is a time is found by that time alone, in whichever zone it is written, and shown as its record has it.
func TestKeysThatAreTimes(t *testing.T) {
	db := harness.Postgres(t)
	l := fixture.Plain()
	l.Table.Mapping.Key = &outbox.Expr{Column: "at", Encoding: outbox.EncodingRFC3339}
	db.Exec(t, l.DDL)
	db.Exec(t, `ALTER TABLE plain ADD at timestamp; INSERT INTO plain (at) VALUES ('2026-01-31 10:00:00.5'), ('2026-01-31 08:00:00.5'), ('2026-01-31 08:00:00.500001'), ('2026-01-31 08:00:00'), ('infinity')`)
	for _, sqlType := range []string{"timestamp", "timestamptz USING at AT TIME ZONE 'UTC'"} {
		db.Exec(t, `ALTER TABLE plain ALTER at TYPE `+sqlType)
		conn := db.Conn(t)
		r, err := Load(t.Context(), conn, l.Table)
		if err != nil {
			t.Fatal(err)
		}
		for key, want := range map[string]string{
			"2026-01-31T10:00:00.5+02:00": "2", "2026-01-31T08:00:00.500Z": "2", "2026-01-31T08:00:00.500001Z": "3", "2026-01-31T09:30:00+01:30": "4", "2026-01-31T10:00:00Z": "",
		} {
			found := ""
			step, err := r.PickIDs(&Filter{State: RowsPending, Key: &key}, 10, func(id string) { found += id })
			if err == nil {
				err = Run(t.Context(), conn, step)
			}
			if err != nil || found != want {
				t.Errorf("%s, key %s: rows %q, %v", sqlType, key, found, err)
			}
		}
		for _, key := range []string{"2026-01-31T08:00:00.5000001Z", "2026-01-31T08:00:00.0000000001Z", "2026-01-31 08:00:00", "0001-01-01T00:00:00+01:00", "9999-12-31T23:30:00-01:00", "infinity"} {
			_, err := r.PickIDs(&Filter{State: RowsPending, Key: &key}, 10, nil)
			if err == nil || !strings.Contains(err.Error(), "write it as 2026-01-31T10:00:00.5Z") {
				t.Errorf("%s, key %s: %v", sqlType, key, err)
			}
		}
		shown := ""
		step, err := r.Listing(&Filter{State: RowsPending}, List{Limit: 10, Characters: 100}, func(l *Listed) error { shown += *l.Key + " "; return nil })
		if err == nil {
			err = Run(t.Context(), conn, step)
		}
		if want := "2026-01-31T10:00:00.5Z 2026-01-31T08:00:00.5Z 2026-01-31T08:00:00.500001Z 2026-01-31T08:00:00Z infinity "; err != nil || shown != want {
			t.Errorf("%s: %q, %v", sqlType, shown, err)
		}
	}
}

// A person who writes a key that no row can have is told its form.
func TestTheFormOfAKeyOfSeveralColumns(t *testing.T) {
	r := &Relation{
		Table: &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{Key: &outbox.Expr{Column: "tenant", Parts: &outbox.Template{
			Literals: []string{"", ":", ""}, Columns: []outbox.Expr{{Column: "tenant"}, {Column: "id"}},
		}}}},
		Columns: []Column{{Name: "tenant", OID: oidText}, {Name: "id", OID: oidText}},
	}
	if _, err := r.withKey(&Params{}, "a\x00:b"); err == nil || !strings.Contains(err.Error(), "write it as ${tenant}:${id}") {
		t.Error(err)
	}
}
