package mapping

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"pgregory.net/rapid"
)

func objectOf(tb testing.TB, members []outbox.Member, oids map[string]uint32) func(values map[string]any) *outbox.Row {
	tb.Helper()
	table := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
		ID: []string{"id"}, Cluster: outbox.ClusterMapping{Default: "main"}, Topic: outbox.Template{Literals: []string{"orders"}},
		Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "id"}, Object: members}, Published: outbox.PublishedDelete,
	}}
	cols := []Column{{Name: "id", OID: oidInt8}}
	for name, oid := range oids {
		cols = append(cols, Column{Name: name, OID: oid})
	}
	plan, err := Compile(nil, table, cols)
	if err != nil {
		tb.Fatal(err)
	}
	arena := new(Arena)
	return func(values map[string]any) *outbox.Row {
		var list []Value
		for _, i := range plan.Wanted() {
			switch v := values[cols[i].Name].(type) {
			case string:
				list = append(list, Value{Data: []byte(v), Format: Text})
			case Value:
				list = append(list, v)
			default:
				list = append(list, Value{Format: Null})
			}
		}
		return plan.Row(list, arena)
	}
}

func TestPayloadOfColumns(t *testing.T) {
	t.Parallel()
	row := objectOf(t, []outbox.Member{
		{Name: "specversion", Value: `1.0"`},
		{Name: "id", Column: "id", Form: outbox.MemberNumber},
		{Name: "type", Column: "type", Form: outbox.MemberString},
		{Name: "time", Column: "at", Form: outbox.MemberTime, OmitNull: true},
		{Name: "data", Column: "doc", Form: outbox.MemberJSON},
		{Name: "data_base64", Column: "raw", Form: outbox.MemberBase64, OmitNull: true},
		{Name: "replayed", Column: "flag", Form: outbox.MemberBoolean},
	}, map[string]uint32{"type": oidText, "at": oidTimestamptz, "doc": oidText, "raw": oidBytea, "flag": oidBool})
	for _, test := range []struct {
		values    map[string]any
		want, err string
	}{
		{
			map[string]any{"id": "7", "type": "a\"\\/\b\t\n\f\r\x01\x1f\x7f<>&\u2028ü", "at": "2026-01-02 03:04:05.6+01", "doc": ` { "a" : [1.0] } `, "raw": `\x00ff`, "flag": "t"},
			`{"specversion":"1.0\"","id":7,"type":"a\"\\/\b\t\n\f\r\u0001\u001f` + "\x7f<>&\u2028" + `ü","time":"2026-01-02T02:04:05.6Z","data": { "a" : [1.0] } ,"data_base64":"AP8=","replayed":true}`, "",
		},
		{map[string]any{"id": "7"}, `{"specversion":"1.0\"","id":7,"type":null,"data":null,"replayed":null}`, ""},
		{map[string]any{"id": "7", "raw": binaryOf(0, 255), "flag": binaryOf(0)}, `{"specversion":"1.0\"","id":7,"type":null,"data":null,"data_base64":"AP8=","replayed":false}`, ""},
		{map[string]any{"id": "7", "doc": `{"a":`}, "", `column "doc" is not JSON that can be read`},
		{map[string]any{"id": "7", "doc": `1} x`}, "", `column "doc" is not JSON that can be read`},
		{map[string]any{"id": "7", "at": "infinity"}, "", `column "at" is a time that RFC 3339 cannot say`},
	} {
		r := row(test.values)
		switch {
		case test.err == "" && (r.Err != nil || string(r.Value) != test.want || !json.Valid(r.Value)):
			t.Errorf("%v: %v\n%s, want\n%s", test.values, r.Err, r.Value, test.want)
		case test.err != "" && (r.Err == nil || !strings.Contains(r.Err.Error(), test.err)):
			t.Errorf("%v: %v, want %s", test.values, r.Err, test.err)
		}
	}
	number := objectOf(t, []outbox.Member{{Name: "n", Column: "n", Form: outbox.MemberNumber}}, map[string]uint32{"n": 1700})
	for text, ok := range map[string]bool{"-0.50": true, "1e+20": true, "NaN": false, "Infinity": false, "": false, "1 ": false, "01": false} {
		if r := number(map[string]any{"id": "1", "n": text}); (r.Err == nil) != ok || ok && string(r.Value) != `{"n":`+text+`}` {
			t.Errorf("%q: %v, %s", text, r.Err, r.Value)
		}
	}
}

// Whatever the columns contain, the payload is JSON with the same values, or the row has an error.
func TestPayloadOfColumnsIsJSON(t *testing.T) {
	t.Parallel()
	row := objectOf(t, []outbox.Member{
		{Name: "a \"quoted\"", Column: "s", Form: outbox.MemberString},
		{Name: "j", Column: "j", Form: outbox.MemberJSON},
		{Name: "b", Column: "b", Form: outbox.MemberString},
		{Name: "n", Column: "n", Form: outbox.MemberNumber},
	}, map[string]uint32{"s": oidText, "j": oidText, "b": oidBytea, "n": oidText})
	rapid.Check(t, func(t *rapid.T) {
		text, raw := rapid.String().Draw(t, "text"), rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		doc := rapid.OneOf(rapid.String(), rapid.Just(`{"a":[1]}`), rapid.StringMatching(`[\[\]{}",:0-9a ]{0,12}`)).Draw(t, "document")
		n := rapid.OneOf(rapid.StringMatching(`-?[0-9.eE+]{1,6}`), rapid.Just("1.5")).Draw(t, "number")
		r := row(map[string]any{"id": "1", "s": text, "j": doc, "b": binaryOf(raw...), "n": n})
		if r.Err != nil {
			return
		}
		var got map[string]any
		decoder := json.NewDecoder(bytes.NewReader(r.Value))
		decoder.UseNumber() // JSON has numbers that a float64 has not
		if err := decoder.Decode(&got); err != nil || decoder.More() || got[`a "quoted"`] != text || got["b"] != string(raw) {
			t.Fatalf("%v: %s of %q, %q", err, r.Value, text, raw)
		}
	})
}

func TestPayloadOfColumnsAllocatesNextToNothing(t *testing.T) {
	row := objectOf(t, []outbox.Member{{Name: "a", Column: "s", Form: outbox.MemberString}, {Name: "j", Column: "j", Form: outbox.MemberJSON}}, map[string]uint32{"s": oidText, "j": oidText})
	values := map[string]any{"id": "1", "s": "text \"", "j": `{"a":"b"}`}
	perRow := testing.AllocsPerRun(200, func() { row(values) })
	if perRow > 9 { // those of the test itself: the list and the values' bytes
		t.Errorf("%.1f allocations per row", perRow)
	}
}

func binaryOf(data ...byte) Value { return Value{Data: data, Format: Binary} }
