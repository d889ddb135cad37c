package tablesql

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// twins are a table's rows as package mapping and as the server reads them.
type twins struct {
	t    *testing.T
	conn *pgx.Conn
}

// read is what the server says of each row, and what package mapping does: whether it
// is ours, its topic, and its key.
func (w *twins) read(m outbox.Mapping) (sql, mapped []string) {
	w.t.Helper()
	table := &outbox.Table{Schema: "public", Name: "twins", Mapping: m}
	r, err := Load(w.t.Context(), w.conn, table)
	if err != nil {
		w.t.Fatal(err)
	}
	plan, err := mapping.Compile(r.Charset, table, r.MappingColumns())
	if err != nil {
		w.t.Fatal(err)
	}
	key := "NULL"
	if m.Key != nil {
		expression, _, _ := r.key()
		key = formatted(expression, "")
	}
	list := []string{r.ofOurs("true") + " IS TRUE", r.topic(), key}
	for _, i := range plan.Wanted() {
		list = append(list, Ref(r.Columns[i].Name))
	}
	var arena mapping.Arena
	err = Run(w.t.Context(), w.conn, Step{
		SQL: "SELECT " + strings.Join(list, ", ") + " FROM " + r.Name() + " AS t ORDER BY id",
		Each: func(row [][]byte) error {
			sql = append(sql, fmt.Sprintf("ours %s, topic %q, key %q, NULL %v", row[0], row[1], row[2], row[2] == nil))
			values := make([]mapping.Value, len(row)-3)
			for i, text := range row[3:] {
				values[i] = mapping.Value{Data: text, Format: mapping.Text}
				if text == nil {
					values[i].Format = mapping.Null
				}
			}
			ours := "f"
			if plan.Ours(values, &arena) {
				ours = "t"
			}
			made := plan.Row(values, &arena)
			k := made.Key
			if m.Key != nil && r.Column(m.Key.Column).OID == oidBytea && m.Key.Plain() && k != nil {
				k = fmt.Appendf(nil, `\x%x`, k)
			}
			mapped = append(mapped, fmt.Sprintf("ours %s, topic %q, key %q, NULL %v", ours, made.Topic, k, made.Key == nil))
			return nil
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return sql, mapped
}

// agree compares the two for each row.
func (w *twins) agree(name string, m outbox.Mapping) {
	w.t.Helper()
	sql, mapped := w.read(m)
	if len(sql) == 0 {
		w.t.Fatal("no rows")
	}
	for i := range sql {
		if sql[i] != mapped[i] {
			w.t.Errorf("%s, row %d: SQL says %s; package mapping %s", name, i+1, sql[i], mapped[i])
		}
	}
}

// word is a topic by a column's value.
func word(column string, m *outbox.ValueMap) outbox.Template {
	return outbox.Template{Literals: []string{"", ""}, Columns: []outbox.Expr{{Column: column, Map: m}}}
}

// What a row's topic is, and whether it is ours, is said in SQL as package mapping says it.
func TestMapsAndConditionsHaveTwins(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, `CREATE TYPE mood AS ENUM ('sad', 'it''s', 'com.acme.X');
		CREATE TABLE twins (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, a text, v varchar(40), c char(20), n int, b boolean, u uuid, e mood);
		INSERT INTO twins (a, v, c, n, b, u, e)
			SELECT a, a, left(a, 20), (ARRAY[1, 2, NULL])[i % 3 + 1], (ARRAY[true, false, NULL])[i % 3 + 1],
				(ARRAY['123e4567-e89b-12d3-a456-426614174000', NULL]::uuid[])[i % 2 + 1], (ARRAY['sad', 'it''s', 'com.acme.X', NULL]::mood[])[i % 4 + 1]
			FROM unnest(ARRAY['OrderPlaced', 'orderplaced', 'OrderPlaced ', ' OrderPlaced', '', NULL, 'com.acme.X', 'com.acme', 'com.acme.', 'com.acmeX',
				'ü€𝄞', 'it''s', 'back\slash', '%', '_', 'a%b', 'İ', 'ß', 'SS', 'x' || chr(10) || 'y', 'sad', '1', 't', 'true']) WITH ORDINALITY AS x(a, i)`)
	w := twins{t, db.Conn(t)}
	base := outbox.Mapping{
		ID: []string{"id"}, Cluster: outbox.ClusterMapping{Default: "main"}, Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "a"}},
		Published: outbox.PublishedDelete, Order: []string{"id"},
	}
	maps := map[string]*outbox.ValueMap{
		"exact":     {Exact: map[string]string{"OrderPlaced": "orders", "it's": "its", "ü€𝄞": "wide", `back\slash`: "back", "": "empty", "1": "one", "sad": "sad"}},
		"beginning": {Exact: map[string]string{"com.acme.X": "x"}, Beginnings: []outbox.Beginning{{With: "com.acme.", Text: "acme"}, {With: "%", Text: "percent"}, {With: "_", Text: "low"}}},
		"otherwise": {Exact: map[string]string{"OrderPlaced": "orders"}, Otherwise: "others"},
		"leave":     {Exact: map[string]string{"OrderPlaced": "orders"}, Beginnings: []outbox.Beginning{{With: "com.", Text: "com"}}, Leave: true},
	}
	for name, words := range maps {
		for _, column := range []string{"a", "v", "c", "n", "u", "e"} {
			m := base
			m.Topic = word(column, words)
			w.agree(name+" of "+column, m)
		}
	}
	conditions := map[string][]string{
		"a": {"OrderPlaced", "", "it's", `back\slash`, "ü€𝄞"}, "v": {"OrderPlaced "}, "c": {"OrderPlaced", " OrderPlaced"}, "n": {"1"},
		"b": {"true"}, "u": {"123e4567-e89b-12d3-a456-426614174000"}, "e": {"sad", "it's", "unheard of"},
	}
	for column, texts := range conditions {
		for i := range 8 {
			condition := outbox.RowCondition{Column: column, Values: texts, Null: i&1 > 0, Not: i&2 > 0}
			if i&4 > 0 {
				condition.Values, condition.Null = nil, true
			}
			m := base
			m.Topic = word("a", nil)
			m.Rows = []outbox.RowCondition{condition}
			w.agree(fmt.Sprintf("%+v", condition), m)
		}
	}
}
