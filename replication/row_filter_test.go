package replication

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

func filtered(conditions ...outbox.RowCondition) *outbox.Table {
	return &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
		ID: []string{"id"}, Rows: conditions, Status: outbox.StatusMapping{Column: "status"}, Published: outbox.PublishedStatus,
	}}
}

// There is one publication per condition. The server accepts the condition, prints it in a form that is
// recognised again, and has it only where a row filter can express it.
func TestRowFiltersOfMappings(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t)
	if db.Major(t) < 15 {
		t.Skip("row filters came with PostgreSQL 15")
	}
	db.Exec(t, `CREATE TYPE kind AS ENUM ('a'); CREATE DOMAIN word AS text; CREATE COLLATION own (provider = icu, locale = 'und', deterministic = false);
		CREATE TABLE public.outbox (id bigint, status text, "Odd ""name" text, "varchar" varchar(40), "character" char(40), "uuid" uuid, "bigint" bigint,
			"smallint" smallint, "boolean" boolean, kind kind, word word, own text COLLATE own,
			PRIMARY KEY (id)) PARTITION BY RANGE (id);
		CREATE TABLE public.outbox_1 PARTITION OF public.outbox DEFAULT`)
	in := func(column string, values ...string) outbox.RowCondition {
		return outbox.RowCondition{Column: column, Values: values}
	}
	not := func(c outbox.RowCondition, null bool) outbox.RowCondition {
		c.Not, c.Null = true, null
		return c
	}
	leaves := filtered()
	leaves.Mapping.Topic = outbox.Template{Literals: []string{"", ""}, Columns: []outbox.Expr{{Column: "varchar", Map: &outbox.ValueMap{
		Exact: map[string]string{"OrderPlaced": "orders"}, Beginnings: []outbox.Beginning{{With: `App\Billing\`, Text: "billing"}}, Leave: true,
	}}}}
	split := filtered(in("status", "kafka"))
	split.Share = outbox.Share{Part: 1, Of: 2}
	tables := map[string]*outbox.Table{
		"(status = 'kafka')":                      filtered(in("status", "kafka")),
		"((status = 'a') OR (status = 'b'))":      filtered(in("status", "a", "b")),
		`starts_with((varchar)`:                   leaves,
		"hash_array(ARRAY[id])":                   split,
		"IS NOT TRUE":                             filtered(not(in("status", "failed", `it's \ "q" (x)`), false)),
		"(status IS NULL)":                        filtered(not(in("status", "failed"), true)),
		`("Odd ""name" = 'x  y')`:                 filtered(in(`Odd "name`, "x  y"), in("varchar", "E'")),
		"(character = 'x')":                       filtered(in("character", "x   ")),
		"(uuid = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd": filtered(in("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
		"(bigint = 99999999999)":                  filtered(in("bigint", "99999999999", "-7", "-99999999999", "0", "007")),
		"(smallint = 7)":                          filtered(in("smallint", "7", "-7", "99999999")),
		"(boolean = true)":                        filtered(in("boolean", "TRUE")),
		"":                                        filtered(in("status", "größe"), in("kind", "a"), in("word", "a"), in("own", "a"), in("smallint", "x"), not(in("bigint", "007"), false)),
	}
	pg := db.Conn(t).PgConn()
	bare := strings.NewReplacer("::text", "", "::bpchar", "", "::bigint", "", "'99999999999'", "99999999999", `"`, "")
	for n, want := range slices.Sorted(maps.Keys(tables)) {
		table := tables[want]
		cfg := Config{Publication: fmt.Sprintf("filter_%d", n), Tables: []*outbox.Table{table}}
		if err := MakePublication(t.Context(), pg, cfg); err != nil {
			t.Fatalf("%q: %v", want, err)
		}
		s, err := Inspect(t.Context(), pg, cfg)
		if err != nil {
			t.Fatal(err)
		}
		v := Judge(&s, &cfg, Identity{})
		found := &s.Tables[0]
		if found.FilterFit() != FilterFits || len(v.Tables) > 0 || len(v.Warnings) > 0 || len(filterSteps(&s, &cfg)) > 0 {
			t.Errorf("%q: the server has\n%q, not\n%q: %+v", want, found.RowFilter, found.Filter(), v)
		}
		if !strings.Contains(bare.Replace(found.RowFilter), bare.Replace(want)) || want == "" && found.RowFilter != "" {
			t.Errorf("the filter is %q, without %q", found.RowFilter, want)
		}
	}
}

// A filter with other conditions, or one that somebody else made, is reported. init replaces it if the
// publication is ours and the table has state.
func TestRowFiltersAreReplaced(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t)
	if db.Major(t) < 15 {
		t.Skip("row filters came with PostgreSQL 15")
	}
	db.Exec(t, `CREATE TABLE public.outbox (id bigint PRIMARY KEY, status text, broker text); CREATE TABLE public.other (id bigint PRIMARY KEY)`)
	pg := db.Conn(t).PgConn()
	table := filtered()
	cfg := Config{Publication: "p", Tables: []*outbox.Table{table}}
	if err := MakePublication(t.Context(), pg, cfg); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, `ALTER PUBLICATION p ADD TABLE public.other`)
	look := func(fit FilterFit, warns bool) (*State, []Step) {
		t.Helper()
		s, err := Inspect(t.Context(), pg, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if v := Judge(&s, &cfg, Identity{}); s.Tables[0].FilterFit() != fit || (len(v.Warnings) > 0) != warns || len(v.Tables) > 0 {
			t.Errorf("filter %q: %d, %+v", s.Tables[0].RowFilter, s.Tables[0].FilterFit(), v)
		}
		return &s, filterSteps(&s, &cfg)
	}
	replace := func(fit FilterFit, warns bool) {
		t.Helper()
		before, steps := look(fit, warns)
		if len(steps) != 1 {
			t.Fatal(steps)
		}
		if err := Apply(t.Context(), pg, Setup{Config: cfg}, steps, Progress{}); err != nil {
			t.Fatal(err)
		}
		after, steps := look(FilterFits, false)
		if len(steps) > 0 || Damage(before.Publication.Mark, after.Publication.Mark) == "" {
			t.Errorf("steps %v; a running stream sees nothing of it", steps)
		}
	}
	if _, steps := look(FilterFits, false); len(steps) > 0 {
		t.Error(steps)
	}
	table.Mapping.Rows = []outbox.RowCondition{{Column: "broker", Values: []string{"kafka"}}}
	replace(FilterMissing, false)
	table.Mapping.Rows[0].Values = []string{"kafka", "redpanda"}
	replace(FilterDiffers, true)
	db.Exec(t, `ALTER PUBLICATION p SET TABLE public.outbox WHERE (broker = 'ka fka' OR broker = 'redpanda'), public.other`)
	replace(FilterDiffers, true)
	table.Mapping.Published = outbox.PublishedNone
	table.Mapping.Rows = nil
	stateless, steps := look(FilterDiffers, true)
	if warnings := Judge(stateless, &cfg, Identity{}).Warnings; len(steps) > 0 || !strings.Contains(warnings[0], "never published") || strings.Contains(warnings[0], "sweeper") ||
		!strings.Contains(warnings[0], `ALTER PUBLICATION "p" SET TABLE "public"."outbox";`) {
		t.Errorf("of a table without state: %v, %q", steps, warnings)
	}
	table.Mapping.Published = outbox.PublishedStatus
	replace(FilterDiffers, true)
	table.Mapping.Rows = []outbox.RowCondition{{Column: "broker", Null: true}}
	db.Exec(t, `ALTER PUBLICATION p SET (publish = 'insert, update')`)
	if s, steps := look(FilterFits, true); len(steps) > 0 || s.Tables[0].Filter() != "" {
		t.Errorf("the application's updates would be refused: %v", steps)
	}
	db.Exec(t, `ALTER PUBLICATION p SET (publish = 'insert'); COMMENT ON PUBLICATION p IS 'of the team'`)
	if _, steps := look(FilterMissing, false); len(steps) > 0 {
		t.Errorf("of somebody else's publication: %v", steps)
	}
	if got := harness.One[int](t, db, `SELECT count(*) FROM pg_publication_tables WHERE pubname = 'p'`); got != 2 {
		t.Errorf("%d tables are left in it", got)
	}
}
