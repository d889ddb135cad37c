package replication

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// Publications accept the condition of a share for every type of key column, and print it in a form that is
// recognised again. Each row, also one with a NULL key, comes through exactly one of the publications.
func TestSharesOfATable(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t)
	if db.Major(t) < 15 {
		t.Skip("row filters came with PostgreSQL 15")
	}
	db.Exec(t, `CREATE TABLE public.outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, status text, "text" text, "varchar" varchar(40),
		"character" char(40), "uuid" uuid, "bytea" bytea, "bigint" bigint, "integer" int, "smallint" smallint, "Odd ""name" text)`)
	pg := db.Conn(t).PgConn()
	for n, column := range []string{"text", "varchar", "character", "uuid", "bytea", "bigint", "integer", "smallint", `Odd "name`, ""} {
		var cfgs []Config
		for part := 1; part <= 3; part++ {
			table := &outbox.Table{Schema: "public", Name: "outbox", Share: outbox.Share{Part: part, Of: 3}, Mapping: outbox.Mapping{
				ID: []string{"id"}, Status: outbox.StatusMapping{Column: "status"}, Published: outbox.PublishedStatus,
			}}
			if column != "" {
				table.Mapping.Key = &outbox.Expr{Column: column}
			}
			cfgs = append(cfgs, Config{Publication: fmt.Sprintf("share_%d_%d", n, part), Tables: []*outbox.Table{table}})
			if err := MakePublication(t.Context(), pg, cfgs[part-1]); err != nil {
				t.Fatal(err)
			}
			s, err := Inspect(t.Context(), pg, cfgs[part-1])
			if err != nil {
				t.Fatal(err)
			}
			if v := Judge(&s, &cfgs[part-1], Identity{}); len(v.Tables) > 0 || len(v.Add) > 0 || len(v.Warnings) > 0 {
				t.Errorf("%s: %+v", column, v)
			}
		}
		other := cfgs[1]
		other.Publication = cfgs[0].Publication
		s, err := Inspect(t.Context(), pg, other)
		if err != nil {
			t.Fatal(err)
		}
		v := Judge(&s, &other, Identity{})
		if len(v.Tables) != 1 || !strings.Contains(v.Tables[0].Reason, "not part 2 of 3") || !strings.Contains(v.Tables[0].Hint, `SET TABLE "public"."outbox" WHERE (`) {
			t.Errorf("%s: another part's publication: %+v", column, v.Tables)
		}
	}
	db.Exec(t, `INSERT INTO public.outbox ("text", "uuid", "bigint") SELECT nullif(n % 50, 0)::text, gen_random_uuid(), n FROM generate_series(1, 1000) n`)
	for _, column := range []string{"text", "uuid", "bigint", "id"} {
		for of := 2; of <= 5; of++ {
			sum := 0
			for part := 1; part <= of; part++ {
				table := &outbox.Table{Share: outbox.Share{Part: part, Of: of}, Mapping: outbox.Mapping{Key: &outbox.Expr{Column: column}}}
				n := harness.One[int](t, db, `SELECT count(*) FROM outbox t WHERE `+table.Filter("t."))
				if sum += n; n < 1000/of/4 {
					t.Errorf("by %s, part %d of %d has %d of 1000 rows", column, part, of, n)
				}
			}
			if sum != 1000 {
				t.Errorf("by %s, %d parts have %d of 1000 rows together", column, of, sum)
			}
		}
	}
}

// Before version 15 a table cannot be split. That is reported before anything is made.
func TestNoSharesBeforeRowFilters(t *testing.T) {
	t.Parallel()
	table := &outbox.Table{Schema: "public", Name: "outbox", Share: outbox.Share{Part: 1, Of: 2}, Mapping: outbox.Mapping{ID: []string{"id"}}}
	setup := Setup{Config: Config{Slot: "s", Publication: "p", Tables: []*outbox.Table{table}}, Stream: "s"}
	if _, err := InitPlan(&State{Version: 140020}, setup); err == nil || !strings.Contains(err.Error(), "PostgreSQL 15") {
		t.Error(err)
	}
	if plan, err := InitPlan(&State{Version: 150000}, setup); err != nil || !strings.Contains(Script(plan), `"outbox" WHERE ((((hash_array(ARRAY["id"])`) {
		t.Errorf("%v\n%s", err, Script(plan))
	}
}
