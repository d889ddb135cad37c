package mapping

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// envelopePlan is a table whose rows have everything in one JSON column.
func envelopePlan(tb testing.TB) (*Plan, []Value) {
	tb.Helper()
	table := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
		ID:      []string{"id"},
		Cluster: outbox.ClusterMapping{Default: "main"},
		Rows:    []outbox.RowCondition{{Column: "broker", Values: []string{"kafka"}}},
		Topic: outbox.Template{Literals: []string{"", ""}, Columns: []outbox.Expr{{
			Column: "doc", Pointer: []string{"type"},
			Map: &outbox.ValueMap{Exact: map[string]string{"OrderPlaced": "orders"}, Beginnings: []outbox.Beginning{{With: "com.", Text: "com"}}},
		}}},
		Key:     &outbox.Expr{Column: "doc", Pointer: []string{"headers", "key"}, Or: []outbox.Expr{{Column: "id"}}},
		Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "doc", Pointer: []string{"value"}}},
		Headers: []outbox.HeaderMapping{
			{JSON: "doc", Pointer: []string{"headers"}},
			{Name: "raw", Column: "doc", Pointer: []string{"raw"}, Base64: true, OmitNull: true},
		},
		Published: outbox.PublishedDelete,
	}}
	plan, err := Compile(nil, table, []Column{{Name: "id", OID: oidInt8}, {Name: "broker", OID: oidText}, {Name: "doc", OID: oidJSON}})
	if err != nil {
		tb.Fatal(err)
	}
	text := func(s string) Value { return Value{Data: []byte(s), Format: Text} }
	return plan, []Value{text("7"), text("kafka"), text(`{"type":"OrderPlaced","headers":{"key":"k\u00e9","n":1},"value":{"a": [1, 2]},"raw":"AP8="}`)}
}

func TestARowOfOneDocument(t *testing.T) {
	t.Parallel()
	plan, values := envelopePlan(t)
	r := plan.Row(values, new(Arena))
	if r.Err != nil || r.Topic != "orders" || string(r.Key) != "ké" || string(r.Value) != `{"a": [1, 2]}` || len(r.Headers) != 3 {
		t.Fatalf("%+v", r)
	}
	if h := r.Headers; h[0].Name != "key" || string(h[0].Value) != "ké" || string(h[1].Value) != "1" || string(h[2].Value) != "\x00\xff" {
		t.Errorf("headers %q", r.Headers)
	}
	for _, test := range []struct{ doc, err string }{
		{`{"type":"com.x","headers":{},"value":"text"}`, ""},
		{`{"type":"com.x","value":"text"}`, ""},
		{`{"type":"Other","value":1}`, `column "doc" has "Other", for which topic.map has no topic: add it there, or topic.otherwise`},
		{`{"type":{},"value":1}`, `column "doc" has an object where the pointer leads, not a text`},
		{`{"type":"com.x","headers":{"key":[]},"value":1}`, `column "doc" has an array where the pointer leads, not a text`},
		{`{"type":"com.x","headers":3,"value":1}`, `column "doc" is not a JSON object of strings: no object at byte 1`},
		{`{"type":"com.x"}`, `column "doc" is NULL, but holds the payload`},
		{`{"value":1}`, `column "doc" is NULL, but names the topic`},
		{`{"type":"com.x","value":1,"raw":"?"}`, `column "doc" is not base64`},
		{`{"type":"com.x","value":1`, `column "doc" is not JSON that can be read: no comma or end of an object or array at byte 26`},
		{`{"type":"com.x","value":1,"d":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`, `column "doc" is not JSON that can be read: it is nested too deep at byte 62`},
	} {
		values[2] = Value{Data: []byte(test.doc), Format: Text}
		switch r := plan.Row(values, new(Arena)); {
		case test.err == "" && (r.Err != nil || r.Topic != "com" || string(r.Value) != "text" || string(r.Key) != "7"):
			t.Errorf("%s: %+v", test.doc, r)
		case test.err != "" && (r.Err == nil || !saysFirst(r.Err.Error(), test.err)):
			t.Errorf("%s: %v, wanted %s", test.doc, r.Err, test.err)
		}
	}
	for broker, want := range map[string]bool{"kafka": true, "sns": false} {
		values[1].Data = []byte(broker)
		if plan.Ours(values, new(Arena)) != want {
			t.Errorf("rows of %s are ours: %v", broker, !want)
		}
	}
}

func TestPathsAndMapsAllocateNextToNothing(t *testing.T) {
	plan, values := envelopePlan(t)
	arena := new(Arena)
	const rows = 1000
	perRow := testing.AllocsPerRun(20, func() {
		for range rows {
			if r := plan.Row(values, arena); r.Err != nil || !plan.Ours(values, arena) {
				t.Fatal(r.Err)
			}
		}
	}) / rows
	if perRow >= 0.1 {
		t.Errorf("%.3f allocations per row", perRow)
	}
}

// keyedBy makes rows with a key of the values.
func keyedBy(t *testing.T, arena *Arena, key *outbox.Expr) func(values ...string) *outbox.Row {
	t.Helper()
	table := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
		ID: []string{"id"}, Cluster: outbox.ClusterMapping{Default: "main"}, Topic: outbox.Template{Literals: []string{"orders"}},
		Key: key, Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "id"}}, Published: outbox.PublishedDelete,
	}}
	columns := []Column{{Name: "id", OID: oidInt8}, {Name: "tenant", OID: oidText}, {Name: "n", OID: oidInt4}, {Name: "at", OID: oidTimestamp}}
	columns = slices.DeleteFunc(columns, func(c Column) bool { return c.Name != "id" && !slices.Contains(key.Names(), c.Name) })
	plan, err := Compile(nil, table, columns)
	if err != nil {
		t.Fatal(err)
	}
	return func(values ...string) *outbox.Row {
		row := []Value{{Data: []byte("7"), Format: Text}}
		for _, text := range values {
			row = append(row, Value{Data: []byte(text), Format: Text})
			if text == "NULL" {
				row[len(row)-1] = Value{Format: Null}
			}
		}
		return plan.Row(row, arena)
	}
}

func TestKeysOfSeveralColumns(t *testing.T) {
	t.Parallel()
	row := keyedBy(t, new(Arena), &outbox.Expr{Column: "tenant", Parts: &outbox.Template{Literals: []string{"", ":", ""}, Columns: []outbox.Expr{{Column: "tenant"}, {Column: "n"}}}})
	if r := row("a", "-7"); r.Err != nil || string(r.Key) != "a:-7" {
		t.Errorf("%q, %v", r.Key, r.Err)
	}
	if r := row("", "7"); r.Err != nil || string(r.Key) != ":7" {
		t.Errorf("%q, %v", r.Key, r.Err)
	}
	if r := row("NULL", "7"); r.Key != nil || r.Err == nil {
		t.Errorf("%q, %v", r.Key, r.Err)
	}
	if r := row("a", "NULL"); r.Key != nil || r.Err == nil || !saysFirst(r.Err.Error(), `column "n" is NULL, but is a part of the key`) {
		t.Errorf("%q, %v", r.Key, r.Err)
	}
}

// The first column that is not NULL is the key. A column that cannot be read is not skipped.
func TestKeysOfTheFirstOfSeveralColumns(t *testing.T) {
	t.Parallel()
	row := keyedBy(t, new(Arena), &outbox.Expr{Column: "tenant", Or: []outbox.Expr{{Column: "n"}}})
	for _, test := range []struct {
		tenant, n string
		want      []byte
	}{{"a", "7", []byte("a")}, {"", "7", []byte{}}, {"NULL", "7", []byte("7")}, {"NULL", "NULL", nil}} {
		if r := row(test.tenant, test.n); r.Err != nil || !reflect.DeepEqual(r.Key, test.want) {
			t.Errorf("%s, %s: %q, %v", test.tenant, test.n, r.Key, r.Err)
		}
	}
	plan := oneColumn(t, nil, oidText, func(m *outbox.Mapping) { m.Key = &outbox.Expr{Column: "c", Or: []outbox.Expr{{Column: "id"}}} })
	if r := plan.Row([]Value{textValue("7"), {Format: Unchanged}}, new(Arena)); r.Err == nil || r.Key != nil {
		t.Errorf("%q, %v", r.Key, r.Err)
	}
}

// A uuid of a document is its 16 bytes.
func TestUUIDsInDocuments(t *testing.T) {
	t.Parallel()
	plan := oneColumn(t, nil, oidJSONB, func(m *outbox.Mapping) {
		m.Key = &outbox.Expr{Column: "c", Pointer: []string{"a"}, Encoding: outbox.EncodingUUID}
	})
	for document, want := range map[string]string{
		`{"a":"` + uuid1 + `"}`: "\x12\x3e\x45\x67\xe8\x9b\x12\xd3\xa4\x56\x42\x66\x14\x17\x40\x00",
		`{}`:                    "", `{"a":"x"}`: "an error", `{"a":{}}`: "an error", `{"a":`: "an error",
	} {
		r := plan.Row([]Value{textValue("1"), textValue(document)}, new(Arena))
		if fails := want == "an error"; fails != (r.Err != nil) || fails && r.Key != nil || !fails && string(r.Key) != want || want == "" && r.Key != nil {
			t.Errorf("%s: %q, %v", document, r.Key, r.Err)
		}
	}
}

func TestKeysOfSeveralColumnsAllocateNextToNothing(t *testing.T) {
	table := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
		ID: []string{"id"}, Cluster: outbox.ClusterMapping{Default: "main"}, Topic: outbox.Template{Literals: []string{"orders"}},
		Key:     &outbox.Expr{Column: "tenant", Parts: &outbox.Template{Literals: []string{"", ":", ""}, Columns: []outbox.Expr{{Column: "tenant"}, {Column: "id"}}}},
		Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "id"}}, Published: outbox.PublishedDelete,
	}}
	plan, err := Compile(nil, table, []Column{{Name: "id", OID: oidInt8}, {Name: "tenant", OID: oidText}})
	if err != nil {
		t.Fatal(err)
	}
	values := []Value{{Data: []byte("7"), Format: Text}, {Data: []byte("acme"), Format: Text}}
	arena := new(Arena)
	const rows = 1000
	if perRow := testing.AllocsPerRun(20, func() {
		for range rows {
			if r := plan.Row(values, arena); r.Err != nil || string(r.Key) != "acme:7" {
				t.Fatal(r.Err)
			}
		}
	}) / rows; perRow >= 0.1 {
		t.Errorf("%.3f allocations per row", perRow)
	}
}

func TestKeyEncodings(t *testing.T) {
	t.Parallel()
	if r := keyedBy(t, new(Arena), &outbox.Expr{Column: "n", Encoding: outbox.EncodingInt64})("-2"); r.Err != nil || string(r.Key) != "\xff\xff\xff\xff\xff\xff\xff\xfe" {
		t.Errorf("%q, %v", r.Key, r.Err)
	}
	row := keyedBy(t, new(Arena), &outbox.Expr{Column: "at", Encoding: outbox.EncodingRFC3339})
	if r := row("2026-01-31 10:00:00.5"); r.Err != nil || string(r.Key) != "2026-01-31T10:00:00.5Z" {
		t.Errorf("%q, %v", r.Key, r.Err)
	}
	if r := row("NULL"); r.Err != nil || r.Key != nil {
		t.Errorf("%q, %v", r.Key, r.Err)
	}
	if r := row("infinity"); r.Err == nil || r.Key != nil {
		t.Errorf("%q, %v", r.Key, r.Err)
	}
}

func BenchmarkRowOfOneDocument(b *testing.B) {
	plan, values := envelopePlan(b)
	arena := new(Arena)
	b.ReportAllocs()
	for b.Loop() {
		plan.Row(values, arena)
	}
}

// In every text, a pointer leads to nothing, or to a part of the text.
func FuzzLocate(f *testing.F) {
	for _, text := range []string{`{"a":{"b":[1,"x\u00e9"]}}`, `[[[]]]`, `{"a":1,"a":"\ud83d\ude00"}`, `"`} {
		f.Add([]byte(text), "a", "b")
	}
	f.Fuzz(func(t *testing.T, text []byte, one, two string) {
		var a Arena
		s := jsonScanner{text: text, arena: &a, strict: true, depth: maxDepth}
		p, fault := s.locate([]string{one, two})
		if fault != "" && p.kind != 0 || p.from > p.to || p.to > len(text) {
			t.Fatalf("%q: %+v, %s", text, p, fault)
		}
		textAt(text, p, &a)
	})
}

// Our reading agrees with encoding/json on what is JSON, and on what /a/1 leads to, also in texts that differ
// from JSON in a few bytes. (Half a surrogate pair, which encoding/json replaces, is refused here.)
func TestPointersAgreeWithEncodingJSON(t *testing.T) {
	t.Parallel()
	texts := []string{
		`{"a":["x",{"b":[1,"deep"]}],"c":true}`, `{"a":[null,"z"],"a":[0,"last"]}`, `{"a":{"0":"zero","1":"one","01":"o"}}`, `{"a":[1,-2.5e+3,3],"n":null}`,
		`{"b":false,"\u0061":[0,"\u00e9\n\"\\\/"]}`, ` [ { } , [ ] , "a" ] `, `"a"`, `true`, `{"a":["",""],"a":1}`,
	}
	r := rand.New(rand.NewPCG(1, 2))
	const alphabet = `{}[]:,""\\ue08a1b/ -.tfn` + "\n"
	for range 20_000 {
		text := []byte(texts[r.IntN(len(texts))])
		for range r.IntN(3) {
			at, c := r.IntN(len(text)), alphabet[r.IntN(len(alphabet))]
			switch r.IntN(3) {
			case 0:
				text = slices.Insert(text, at, c)
			case 1:
				text[at] = c
			default:
				text = slices.Delete(text, at, at+1)
			}
			text = append(text, ' ') // one byte is there
		}
		var a Arena
		s := jsonScanner{text: text, arena: &a, depth: deepest}
		p, fault := s.locate([]string{"a", "1"})
		got := textAt(text, p, &a)
		if json.Valid(text) != (fault == "") {
			t.Fatalf("%q: %s", text, fault)
		}
		var document, want any
		numbers := json.NewDecoder(bytes.NewReader(text))
		numbers.UseNumber()
		_ = numbers.Decode(&document)
		if fault != "" {
			continue
		}
		object, _ := document.(map[string]any)
		switch of := object["a"].(type) {
		case map[string]any:
			want = of["1"]
		case []any:
			if len(of) > 1 {
				want = of[1]
			}
		}
		if s, ok := want.(string); ok && string(got) != s || (want == nil) != (got == nil) {
			t.Fatalf("%q: %q, want %v", text, got, want)
		}
	}
}

func TestHeaderEncodings(t *testing.T) {
	t.Parallel()
	table := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
		ID: []string{"id"}, Cluster: outbox.ClusterMapping{Default: "main"}, Topic: outbox.Template{Literals: []string{"orders"}},
		Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "u"}},
		Headers: []outbox.HeaderMapping{
			{Name: "x-sequence", Column: "id", Encoding: outbox.EncodingInt64},
			{Name: "ce_time", Column: "at", Encoding: outbox.EncodingRFC3339},
			{Name: "uuid", Column: "u", Encoding: outbox.EncodingUUID},
		},
		Published: outbox.PublishedDelete,
	}}
	plan, err := Compile(nil, table, []Column{{Name: "id", OID: oidInt4}, {Name: "at", OID: oidTimestamptz}, {Name: "u", OID: oidUUID}})
	if err != nil {
		t.Fatal(err)
	}
	row := func(id, at string) *outbox.Row {
		text := func(s string) Value { return Value{Data: []byte(s), Format: Text} }
		return plan.Row([]Value{text(id), text(at), text(uuid1)}, new(Arena))
	}
	r := row("-2", "2026-01-31 12:00:00.5+02")
	if r.Err != nil || string(r.Headers[0].Value) != "\xff\xff\xff\xff\xff\xff\xff\xfe" || string(r.Headers[1].Value) != "2026-01-31T10:00:00.5Z" || len(r.Headers[2].Value) != 16 {
		t.Errorf("%v, %q", r.Err, r.Headers)
	}
	if r := row("1", "infinity"); r.Err == nil || r.Err.Error() != `column "at" is a time that RFC 3339 cannot say: correct the row, or take encoding out of the mapping` {
		t.Error(r.Err)
	}
}

// A bytea column may hold base64, in text and in binary form.
func TestBase64InBytea(t *testing.T) {
	table := &outbox.Table{Mapping: outbox.Mapping{
		ID: []string{"id"}, Cluster: outbox.ClusterMapping{Default: "main"}, Topic: outbox.Template{Literals: []string{"t"}},
		Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "payload", Base64: true}}, Published: outbox.PublishedDelete,
	}}
	plan, err := Compile(nil, table, []Column{{Name: "id", OID: oidInt8}, {Name: "payload", OID: oidBytea}})
	if err != nil {
		t.Fatal(err)
	}
	for _, payload := range []Value{{Data: []byte("AP8="), Format: Binary}, {Data: []byte(`\x4150383d`), Format: Text}} {
		r := plan.Row([]Value{{Data: []byte("1"), Format: Text}, payload}, new(Arena))
		if r.Err != nil || string(r.Value) != "\x00\xff" {
			t.Errorf("%v: %q", r.Err, r.Value)
		}
	}
}
