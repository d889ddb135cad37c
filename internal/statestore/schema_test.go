package statestore

import (
	"flag"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/test/stable"
)

var update = flag.Bool("update", false, "record what is new in the schema outbox_cdc")

// Two versions 1.x work on one schema, in either order.
func TestSchemaIsStable(t *testing.T) {
	_, pool := database(t)
	rows, _ := pool.Query(t.Context(), `
		SELECT format('%s.%s: %s%s%s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN ' NOT NULL' END,
		              CASE WHEN a.atthasdef THEN ' with a default' END)
		  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
		 WHERE c.relnamespace = 'outbox_cdc'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND a.attnum > 0 AND NOT a.attisdropped`)
	now, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	stable.Compare(t, "schema", now, *update)
}
