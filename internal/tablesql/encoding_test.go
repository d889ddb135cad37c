package tablesql

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// A key of a document in bytea is what the server finds again, also in a database that is not UTF-8.
func TestDocumentsInByteaOfOtherEncodingsHaveTwins(t *testing.T) {
	db := harness.PlainDatabase(t, harness.Postgres(t).Server, "TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'")
	db.Exec(t, `CREATE TABLE twins (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, b bytea);
		INSERT INTO twins (b) SELECT convert_to(x, 'UTF8') FROM unnest(ARRAY['{"a":"u"}', '{"a":"' || chr(252) || '"}', '{"a":"x","b":"' || chr(252) || '"}', '{"a":1}', NULL]) AS x`)
	w := twins{t, db.Conn(t)}
	m := outbox.Mapping{
		ID: []string{"id"}, Cluster: outbox.ClusterMapping{Default: "main"}, Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "id"}},
		Topic: outbox.Template{Literals: []string{"orders"}}, Key: &outbox.Expr{Column: "b", Pointer: []string{"a"}},
		Published: outbox.PublishedDelete, Order: []string{"id"}, MaxRowBytes: 1 << 20,
	}
	w.agree("key", m)
	w.found("key", m)
}
