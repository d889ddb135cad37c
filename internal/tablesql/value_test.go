package tablesql

import (
	"fmt"
	"math/rand/v2"
	"os"
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
		w.t.Fatal(w.culprit(r, list, err))
	}
	return sql, mapped
}

// culprit is the row that makes a statement fail.
func (w *twins) culprit(r *Relation, list []string, err error) error {
	for id := 1; id < 1000; id++ {
		row := fmt.Sprintf(" FROM %s AS t WHERE id = %d", r.Name(), id)
		if one := Run(w.t.Context(), w.conn, Step{SQL: "SELECT " + strings.Join(list, ", ") + row}); one != nil {
			var text string
			_ = Run(w.t.Context(), w.conn, Step{SQL: "SELECT left(t::text, 300)" + row, Each: func(row [][]byte) error { text = string(row[0]); return nil }})
			return fmt.Errorf("row %d, %s: %w", id, text, one)
		}
	}
	return err
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

// found compares which rows the server finds by the key of each row with those that have it.
func (w *twins) found(name string, m outbox.Mapping) {
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
	ids := map[string]string{} // by key
	var list []string
	for _, i := range plan.Wanted() {
		list = append(list, Ref(r.Columns[i].Name))
	}
	err = Run(w.t.Context(), w.conn, Step{SQL: "SELECT " + strings.Join(list, ", ") + " FROM " + r.Name() + " AS t ORDER BY id", Each: func(row [][]byte) error {
		values := make([]mapping.Value, len(row))
		for i, text := range row {
			if values[i] = (mapping.Value{Data: text, Format: mapping.Text}); text == nil {
				values[i].Format = mapping.Null
			}
		}
		if made := plan.Row(values, new(mapping.Arena)); made.Key != nil {
			ids[string(made.Key)] += made.ID + " "
		}
		return nil
	}})
	if err != nil || len(ids) < 2 {
		w.t.Fatalf("%s: %d keys, %v", name, len(ids), err)
	}
	for key, want := range ids {
		got, p := "", Params{}
		where, _ := r.covering(&p, []outbox.Scope{{Kind: outbox.ScopeKey, Topic: m.Topic.Literals[0], Key: key}})
		if where == "" {
			where = "false"
		}
		step := Step{SQL: "SELECT id FROM " + r.Name() + " AS t WHERE " + where + " ORDER BY id", Args: p, Each: func(row [][]byte) error { got += string(row[0]) + " "; return nil }}
		if err := Run(w.t.Context(), w.conn, step); err != nil || got != want {
			w.t.Errorf("%s: the key %q is found in rows %s, and %swere read with it: %v", name, key, got, want, err)
		}
	}
}

// Rows are found by keys of several columns, and of columns in other encodings.
func TestKeysHaveTwins(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, `CREATE TYPE mood AS ENUM ('sad', 'it''s');
		CREATE TABLE twins (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, a text, v varchar(40), c char(5), n int, s smallint, l bigint, u uuid, e mood, z timestamptz, y timestamp);
		INSERT INTO twins (a, v, c, n, s, l, u, e, z, y)
			SELECT a, v, left(a, 5), n, n::bigint % 30000, n::bigint * 4294967295, (ARRAY['123e4567-e89b-12d3-a456-426614174000', '123e4567-e89b-12d3-a456-426614174001', NULL]::uuid[])[abs(n::bigint) % 3 + 1], (ARRAY['sad', 'it''s', NULL]::mood[])[abs(n::bigint) % 3 + 1], z, z AT TIME ZONE 'UTC'
			FROM unnest(ARRAY['', ':', 'a', 'a:', '\', 'ü€𝄞', 'it''s ', NULL]) AS a, unnest(ARRAY['', 'a', ':a', NULL]) AS v,
				unnest(ARRAY[0, 1, -1, 2147483647, -2147483648], ARRAY['infinity', '2026-01-31 10:00:00.123456+00', '0001-01-01 00:00+00', '0001-01-01 BC', '9999-12-31 23:59:59.999999+00']::timestamptz[]) AS x(n, z)
		UNION ALL SELECT 'k', 'k', 'k', NULL, NULL, NULL, NULL, NULL, z, z AT TIME ZONE 'UTC' FROM unnest(ARRAY[NULL, '2026-01-31 10:00:00.12+00', '2026-01-31 11:00:00.12+01', '1969-12-31 23:59:59.9+00', '10000-01-01 00:00+00', '-infinity', '4713-01-01 BC']::timestamptz[]) AS z`)
	w := twins{t, db.Conn(t)}
	m := outbox.Mapping{
		ID: []string{"id"}, Cluster: outbox.ClusterMapping{Default: "main"}, Topic: outbox.Template{Literals: []string{"orders"}},
		Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "a"}}, Published: outbox.PublishedDelete, Order: []string{"id"},
	}
	for _, columns := range [][]string{{"a", "v"}, {"v", "a"}, {"a", "n", "u"}, {"c", "v"}, {"e", "l"}, {"s"}} {
		parts := outbox.Template{Literals: []string{"it's "}}
		for _, name := range columns {
			parts.Columns, parts.Literals = append(parts.Columns, outbox.Expr{Column: name}), append(parts.Literals, ":")
		}
		m.Key = &outbox.Expr{Column: columns[0], Parts: &parts}
		w.agree(fmt.Sprint(columns), m)
		w.found(fmt.Sprint(columns), m)
	}
	for column, encoding := range map[string]outbox.Encoding{"n": "int64", "s": "int64", "l": "int64", "z": "rfc3339", "y": "rfc3339", "u": "uuid", "a": "text", "c": "text"} {
		m.Key = &outbox.Expr{Column: column, Encoding: encoding}
		w.found(column, m)
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

// documents are texts of all kinds: what is no JSON, and what PostgreSQL does not turn into
// text, among them.
func documents(r *rand.Rand, n int) []string {
	fixed := []string{
		"", " ", "null", "1", `"x"`, "[]", "{}", `{"a":1}`, `{"a":"x"}`, `{"a":null}`, `{"a":{}}`, `{"a":[]}`, `{"b":1}`, `{"a":true}`, `{"a":1.0e2}`, `{"a":-0}`, `{"a":1e400}`,
		`{"a":"1","a":"2"}`, `{"a":{"b":1},"a":{"c":2}}`, `{"a":{"b":"deep"}}`, `{"a":["x","y",["z"]]}`, `{"a":{"0":"zero","1":"one","-1":"less","01":"o"}}`, `[["x"],{"a":"y"}]`,
		`{"a":"\u0000"}`, `{"x":"\u0000","a":"y"}`, `{"\u0000":1,"a":"y"}`, `{"a":"\ud800"}`, `{"a":"\ud83d\ude00"}`, `{"a":"\ude00\ud83d"}`, `{"x":"\udc00","a":1}`, `{"a":"\\u0000"}`,
		`{"a":"ü€𝄞"}`, `{"\u0061":"escaped name"}`, `{"a\/b":"slash","a~b":"tilde"}`, `{"":"empty name"}`, `{"a":"\b\f\n\r\t\"\\\/"}`, `{"a":"\x"}`, `{"a":"\u12"}`, "{\"a\":\"\t\"}", "{\"a\":\"\u007f\u0080\"}",
		`{"a":01}`, `{"a":1.}`, `{"a":.5}`, `{"a":+1}`, `{"a":1e}`, `{"a":- 1}`, `{"a":1 2}`, `{"a":tr ue}`, `{"a":truefalse}`, `{"a":NaN}`, `{'a':1}`, `{"a":1,}`, `{,}`, `[1,]`, `[,1]`, `{"a"}`, `{"a":}`, `{a:1}`, `{1:1}`,
		`{"a":1}x`, `{"a":1} {"a":2}`, `{"a":"x" "y"}`, `{"a":""}`, `{"a":"""}`, `{"a":"\u0000b" , "c":1}`, "\ufeff{\"a\":1}", "{\"a\":\v1}", "\n{\r\"a\"\t: \"x\" }\n", `"a`, `{"a":"x`, `{"a":"x\`, `{"a":"x\u`, "[", "{", `{"a":[}`, `{"a":(1)}`,
		`{"a":"123e4567-e89b-12d3-a456-426614174000"}`, `{"a":"123E4567-E89B-12D3-A456-426614174000"}`,
		strings.Repeat("[", 31) + strings.Repeat("]", 31), strings.Repeat("[", 33) + strings.Repeat("]", 33), `{"a":"x","d":` + strings.Repeat("[", 31) + strings.Repeat("]", 31) + "}",
		`{"a":"x","d":` + strings.Repeat("[", 32) + strings.Repeat("]", 32) + "}", strings.Repeat("[", 2000), strings.Repeat(`{"a":`, 2000), strings.Repeat("[", 2000) + strings.Repeat("]", 2000),
	}
	const alphabet = `{}[]:,""\\ue0d8a1b/ -.tfn` + "\n"
	for range n {
		text := []rune(fixed[r.IntN(len(fixed)-6)])
		for range 1 + r.IntN(3) {
			at, c := r.IntN(len(text)+1), rune(alphabet[r.IntN(len(alphabet))])
			switch {
			case r.IntN(2) == 0 || at == len(text):
				text = append(text[:at:at], append([]rune{c}, text[at:]...)...)
			case r.IntN(2) == 0:
				text[at] = c
			default:
				text = append(text[:at:at], text[at+1:]...)
			}
		}
		fixed = append(fixed, string(text))
	}
	return fixed
}

// What a pointer leads to is said in SQL as package mapping says it, and no document makes a
// statement fail.
func TestPointersHaveTwins(t *testing.T) {
	mutations := 100
	if os.Getenv("OUTBOX_TEST_LONG") == "1" {
		mutations = 2000
	}
	db := harness.Postgres(t)
	db.Exec(t, `CREATE TABLE twins (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, a text, b bytea, j json, jb jsonb, other text)`)
	conn := db.Conn(t)
	texts := documents(rand.New(rand.NewPCG(1, 2)), mutations)
	for _, setup := range []string{
		`CREATE FUNCTION pg_temp.try(text) RETURNS json LANGUAGE plpgsql AS $$ BEGIN RETURN $1::json; EXCEPTION WHEN others THEN RETURN NULL; END $$`,
		`CREATE FUNCTION pg_temp.tryb(text) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN $1::jsonb; EXCEPTION WHEN others THEN RETURN NULL; END $$`,
	} {
		if _, err := conn.Exec(t.Context(), setup); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.Exec(t.Context(), `INSERT INTO twins (a, b, j, jb, other) SELECT x, convert_to(x, 'UTF8'), pg_temp.try(x), pg_temp.tryb(x), CASE WHEN n % 2 = 0 THEN 'o' || n END
		FROM unnest($1::text[]) WITH ORDINALITY AS x(x, n)`, texts); err != nil {
		t.Fatal(err)
	}
	for _, raw := range []string{"\xff", "{\"a\":\"\xff\"}", "{\"a\":\"\xc0\x80\"}", "{\"a\":\"\xed\xa0\x80\"}", "{\"a\":\"\xf4\x90\x80\x80\"}", "{\"a\":\"\x00\"}", "{\"a\":1}\x00", "{\"a\":\"\xe2\x82\"}", "{\"a\":\"\xf0\x9d\x84\x9e\"}"} {
		if _, err := conn.Exec(t.Context(), `INSERT INTO twins (b) VALUES ($1)`, []byte(raw)); err != nil {
			t.Fatal(err)
		}
	}
	w := twins{t, conn}
	base := outbox.Mapping{
		ID: []string{"id"}, Cluster: outbox.ClusterMapping{Default: "main"}, Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "id"}},
		Published: outbox.PublishedDelete, Order: []string{"id"}, MaxRowBytes: 1 << 20,
	}
	for _, column := range []string{"a", "b", "j", "jb"} {
		for _, pointer := range []string{"/a", "/a/b", "/a/01", "/a/2/0", "/0/0", "/", "/a~1b"} {
			parts, err := outbox.ParsePointer(pointer)
			if err != nil {
				t.Fatal(err)
			}
			place := outbox.Expr{Column: column, Pointer: parts}
			m := base
			m.Topic = outbox.Template{Literals: []string{"", ""}, Columns: []outbox.Expr{place}}
			m.Key = &place
			w.agree(column+" "+pointer, m)
			if len(parts) > 1 {
				continue
			}
			m.Topic = word("other", nil)
			m.Key = &outbox.Expr{Column: column, Pointer: parts, Or: []outbox.Expr{{Column: column, Pointer: []string{"b"}}, {Column: "other"}}}
			w.agree("first of "+column+" "+pointer, m)
		}
		m := base
		m.Topic = word(column, &outbox.ValueMap{Exact: map[string]string{"x": "ex", "1": "one"}, Beginnings: []outbox.Beginning{{With: "\n", Text: "line"}}, Leave: true})
		m.Topic.Columns[0].Pointer = []string{"a"}
		w.agree("map of "+column, m)
	}
}
