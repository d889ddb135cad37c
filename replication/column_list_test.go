package replication

import (
	"slices"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// If a publication's column list lacks a column that the mapping reads, the verdict names the column,
// whatever the mapping uses it for.
func TestColumnListsHaveEveryMappedColumn(t *testing.T) {
	t.Parallel()
	db := harness.Postgres(t)
	for _, l := range []fixture.Layout{fixture.Im2be(), fixture.Deferred(), fixture.Plain()} {
		db.Exec(t, l.DDL)
		r, err := tablesql.Load(t.Context(), db.Conn(t), l.Table)
		if err != nil {
			t.Fatal(err)
		}
		_, columns, err := r.Plan()
		if err != nil {
			t.Fatal(err)
		}
		state := TableState{Table: l.Table, Columns: []string{"none of them"}}
		lacking := lackingColumns(&state)
		for i := range columns {
			if !slices.Contains(lacking, columns[i].Name) {
				t.Errorf("%s: column %q is read, and the publication may lack it", l.Table, columns[i].Name)
			}
		}
	}
}
