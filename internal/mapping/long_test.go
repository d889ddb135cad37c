package mapping

import (
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"pgregory.net/rapid"
)

// bounded is a table whose rows may have 100 bytes.
func bounded(t *testing.T) *Plan {
	t.Helper()
	table := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
		ID:          []string{"id"},
		Cluster:     outbox.ClusterMapping{Default: "main"},
		Topic:       outbox.Template{Literals: []string{"", ""}, Columns: []outbox.Expr{{Column: "topic"}}},
		Key:         &outbox.Expr{Column: "key"},
		Payload:     outbox.PayloadMapping{Expr: outbox.Expr{Column: "payload"}},
		Headers:     []outbox.HeaderMapping{{JSON: "headers"}},
		Published:   outbox.PublishedDelete,
		MaxRowBytes: 100,
	}}
	plan, err := Compile(nil, table, []Column{
		{Name: "id", OID: oidInt8},
		{Name: "topic", OID: oidText},
		{Name: "key", OID: oidText},
		{Name: "payload", OID: oidBytea},
		{Name: "headers", OID: oidJSONB},
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func TestLongRow(t *testing.T) {
	t.Parallel()
	plan := bounded(t)
	id, topic, key := Value{Data: []byte("123"), Format: Text}, Value{Data: []byte("orders"), Format: Text}, Value{Data: []byte("abcd"), Format: Text}
	null := Value{Format: Null}
	binary := func(n int) Value { return Value{Data: make([]byte, n), Format: Binary} }
	text := func(n int) Value { return Value{Data: []byte(`\x` + strings.Repeat("00", n)), Format: Text} }
	id8 := Value{Data: make([]byte, 8), Format: Binary}
	for name, c := range map[string]struct {
		values []Value
		err    string
		key    string
	}{
		"as long as it may be":          {[]Value{id, topic, key, text(90), null}, "", "abcd"},
		"in binary form":                {[]Value{id8, topic, key, binary(90), null}, "", "abcd"},
		"too long":                      {[]Value{id, topic, key, text(91), null}, `column "payload" has 91 bytes, which makes the row 101 bytes long: more than max_row_bytes, which is 100`, "abcd"},
		"too long in binary form":       {[]Value{id8, topic, key, binary(91), null}, `column "payload" has 91 bytes`, "abcd"},
		"left out":                      {[]Value{id, topic, key, {Format: LongText, Length: 202}, null}, `column "payload" has 100 bytes`, "abcd"},
		"left out of the binary log":    {[]Value{id, topic, key, {Format: LongBinary, Length: 200}, null}, `column "payload" has 200 bytes`, "abcd"},
		"left out next to shorter ones": {[]Value{id, topic, key, null, {Format: LongText, Length: 10}}, `column "headers" is longer than max_row_bytes, which is 100`, "abcd"},
		"a key that was left out":       {[]Value{id, topic, {Format: LongText, Length: 200}, text(1), null}, `column "key" has 200 bytes`, ""},
		"a topic that was left out":     {[]Value{id, {Format: LongText, Length: 200}, key, text(1), null}, `column "topic" has 200 bytes`, ""},
	} {
		row := plan.Row(c.values, new(Arena))
		switch {
		case c.err == "" && (row.Err != nil || row.Value == nil):
			t.Errorf("%s: %v", name, row.Err)
		case c.err != "" && (row.Err == nil || !strings.Contains(row.Err.Error(), c.err) || row.Value != nil || row.Headers != nil):
			t.Errorf("%s: %v, %d bytes", name, row.Err, len(row.Value))
		case string(row.Key) != c.key:
			t.Errorf("%s: key %q", name, row.Key)
		}
	}
}

func TestManyHeaders(t *testing.T) {
	t.Parallel()
	object := func(n int) []byte { return []byte("{" + strings.Repeat(`"":"",`, n-1) + `"":""}`) }
	if list, fault := appendJSONHeaders(nil, object(MaxHeaders), nil, new(Arena)); fault != "" || len(list) != MaxHeaders {
		t.Errorf("%d headers: %s", len(list), fault)
	}
	if _, fault := appendJSONHeaders(nil, object(MaxHeaders+1), nil, new(Arena)); !saysFirst(string(fault), "has more than 10000 headers") {
		t.Errorf("%q", fault)
	}
}

// keyed is a table whose event id has these columns.
func keyed(t *testing.T, columns ...Column) *Plan {
	t.Helper()
	table := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
		ID:        []string{"id"},
		Cluster:   outbox.ClusterMapping{Default: "main"},
		Topic:     outbox.Template{Literals: []string{"orders"}},
		Payload:   outbox.PayloadMapping{Expr: outbox.Expr{Column: "payload"}, Tombstone: true},
		Headers:   []outbox.HeaderMapping{{JSON: "headers"}},
		EventID:   outbox.EventID{Name: "event-id"},
		Published: outbox.PublishedDelete,
	}}
	for _, c := range columns {
		table.Mapping.EventID.Columns = append(table.Mapping.EventID.Columns, c.Name)
	}
	plan, err := Compile(nil, table, append([]Column{{Name: "id", OID: oidInt8}, {Name: "payload", OID: oidBytea}, {Name: "headers", OID: oidJSONB}}, columns...))
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func eventRow(plan *Plan, headers string, event ...string) *outbox.Row {
	values := []Value{{Data: []byte("1"), Format: Text}, {Format: Null}, {Format: Null}}
	if headers != "" {
		values[2] = Value{Data: []byte(headers), Format: Text}
	}
	for _, text := range event {
		values = append(values, Value{Data: []byte(text), Format: Text})
	}
	return plan.Row(values, new(Arena))
}

// Two rows have one event id only if all its columns are the same, and the ids of
// rows without the separator in free text are what they always were.
func TestEventIDs(t *testing.T) {
	t.Parallel()
	two := keyed(t, Column{Name: "a", OID: oidText}, Column{Name: "b", OID: oidText})
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.RuneFrom([]rune(`a:\`)))
		a, b, c, d := text.Draw(t, "a"), text.Draw(t, "b"), text.Draw(t, "c"), text.Draw(t, "d")
		one, other := eventRow(two, "", a, b).Headers[0].Value, eventRow(two, "", c, d).Headers[0].Value
		if (string(one) == string(other)) != (a == c && b == d) {
			t.Fatalf("%q %q is %q, and %q %q is %q", a, b, one, c, d, other)
		}
	})
	uuid := "123e4567-e89b-12d3-a456-426614174000"
	for want, got := range map[string]*outbox.Row{
		"a b:c":        eventRow(two, "", "a b", "c"),
		uuid + `:a:\b`: eventRow(keyed(t, Column{Name: "a", OID: oidUUID}, Column{Name: "b", OID: oidText}), "", uuid, `a:\b`),
		"a:b":          eventRow(keyed(t, Column{Name: "a", OID: oidText}), "", "a:b"),
		"7:2026-01-02 03:04:05": eventRow(keyed(t, Column{Name: "a", OID: oidInt8}, Column{Name: "b", OID: oidTimestamp}), "",
			"7", "2026-01-02 03:04:05"),
	} {
		if id := string(got.Headers[0].Value); id != want || got.Err != nil {
			t.Errorf("%q, not %q: %v", id, want, got.Err)
		}
	}
}

func TestHeadersCannotBeTheEventID(t *testing.T) {
	t.Parallel()
	plan := keyed(t, Column{Name: "a", OID: oidText})
	for headers, refused := range map[string]bool{
		`{"event-id": "x"}`: true, `{"event-id": null}`: true, `{"b": "c", "event-id": "a"}`: false, `{"Event-Id": "x"}`: false, ``: false,
	} {
		row := eventRow(plan, headers, "a")
		if (row.Err != nil) != refused || string(row.Headers[0].Value) != "a" {
			t.Errorf("%s: %v", headers, row.Err)
		}
	}
}
