package mapping

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/charset"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// oneColumn is the plan of a table in which only column c matters.
func oneColumn(t *testing.T, set *charset.Set, oid uint32, change func(*outbox.Mapping)) *Plan {
	t.Helper()
	table := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
		ID: []string{"id"}, Cluster: outbox.ClusterMapping{Default: "main"}, Topic: outbox.Template{Literals: []string{"orders"}},
		Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "id"}}, Published: outbox.PublishedDelete,
	}}
	change(&table.Mapping)
	plan, err := Compile(set, table, []Column{{Name: "id", OID: oidInt8}, {Name: "c", OID: oid}})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func textValue(s string) Value { return Value{Data: []byte(s), Format: Text} }

// Conditions select rows like IN and NOT IN, with two differences: NULL is compared like a value, and a value
// that cannot be read equals no text in a condition.
func TestRowsThatAreOurs(t *testing.T) {
	t.Parallel()
	null, unreadable := Value{Format: Null}, Value{Format: Unchanged}
	for name, test := range map[string]struct {
		oid  uint32
		rows outbox.RowCondition
		in   []Value
		out  []Value
	}{
		"text":                       {oid: oidText, rows: outbox.RowCondition{Values: []string{"kafka", "both"}}, in: []Value{textValue("kafka"), textValue("both")}, out: []Value{textValue(""), textValue("Kafka"), null, unreadable}},
		"and NULL":                   {oid: oidText, rows: outbox.RowCondition{Values: []string{"kafka"}, Null: true}, in: []Value{textValue("kafka"), null}, out: []Value{textValue(""), unreadable}},
		"NULL":                       {oid: oidText, rows: outbox.RowCondition{Null: true}, in: []Value{null}, out: []Value{textValue("")}},
		"true":                       {oid: oidBool, rows: outbox.RowCondition{Values: []string{"TRUE"}}, in: []Value{textValue("t"), {Data: []byte{1}, Format: Binary}}, out: []Value{textValue("f"), {Data: []byte{0}, Format: Binary}, {Data: []byte{2}, Format: Binary}}},
		"false":                      {oid: oidBool, rows: outbox.RowCondition{Values: []string{"false"}}, in: []Value{textValue("f"), {Data: []byte{0}, Format: Binary}}, out: []Value{textValue("t"), null}},
		"padded":                     {oid: oidBpchar, rows: outbox.RowCondition{Values: []string{"ab  "}}, in: []Value{textValue("ab   "), textValue("ab")}, out: []Value{textValue(" ab"), null}},
		"text that ends with blanks": {oid: oidText, rows: outbox.RowCondition{Values: []string{"true", "ab "}}, in: []Value{textValue("ab "), textValue("true")}, out: []Value{textValue("ab"), textValue("t")}},
	} {
		for _, not := range []bool{false, true} {
			plan := oneColumn(t, nil, test.oid, func(m *outbox.Mapping) {
				test.rows.Column, test.rows.Not = "c", not
				m.Rows = []outbox.RowCondition{test.rows}
			})
			for _, v := range test.in {
				if plan.Ours([]Value{textValue("1"), v}, new(Arena)) == not {
					t.Errorf("%s, not %v: %q is among the values", name, not, v.Data)
				}
			}
			for _, v := range test.out {
				if plan.Ours([]Value{textValue("1"), v}, new(Arena)) != not {
					t.Errorf("%s, not %v: %q (%c) is not among the values", name, not, v.Data, v.Format)
				}
			}
		}
	}
}

// A map of topics may leave rows to others: those for which it has no topic.
func TestRowsThatTheTopicsMapLeaves(t *testing.T) {
	t.Parallel()
	plan := oneColumn(t, nil, oidText, func(m *outbox.Mapping) {
		m.Topic = outbox.Template{Literals: []string{"", ""}, Columns: []outbox.Expr{{
			Column: "c", Map: &outbox.ValueMap{Exact: map[string]string{"OrderPlaced": "orders"}, Leave: true},
		}}}
	})
	for _, test := range []struct {
		value Value
		ours  bool
	}{{textValue("OrderPlaced"), true}, {textValue("Other"), false}, {Value{Format: Null}, false}, {Value{Format: Unchanged}, false}} {
		if plan.Ours([]Value{textValue("1"), test.value}, new(Arena)) != test.ours {
			t.Errorf("%q: ours %v", test.value.Data, !test.ours)
		}
	}
}

// A document in bytea is read like one of text, in both forms.
func TestDocumentsInBytea(t *testing.T) {
	t.Parallel()
	win1252, err := charset.Of("WIN1252")
	if err != nil {
		t.Fatal(err)
	}
	const unreadable = "is no text that can be read"
	for _, test := range []struct {
		value Value
		set   *charset.Set
		key   string
		err   string
	}{
		{textValue(`\x7b2261223a22c3bc227d`), nil, "ü", ""}, // {"a":"ü"}
		{Value{Data: []byte(`{"a":"ü"}`), Format: Binary}, nil, "ü", ""},
		{Value{Data: []byte(`{"a":"u"}`), Format: Binary}, win1252, "u", ""},
		{Value{Data: []byte(`{"a":"ü"}`), Format: Binary}, win1252, "", unreadable}, // the server would not find it again
		{Value{Data: []byte("{\"a\":\"\xff\"}"), Format: Binary}, nil, "", unreadable},
		{textValue(`\x7b2261223a22ff227d`), nil, "", unreadable},
		{Value{Format: Null}, nil, "", ""},
		{Value{Format: Unchanged}, nil, "", "was not sent"},
		{textValue(`\x7b7`), nil, "", "is bytea with something that is not a hex digit"},
		{textValue(`\x7b7g`), nil, "", "is bytea with something that is not a hex digit"},
		{textValue(`{"a":"u"}`), nil, "", "is not bytea in hex form"},
		{textValue(`/x7b7d`), nil, "", "is not bytea in hex form"},
		{textValue(`\y7b7d`), nil, "", "is not bytea in hex form"},
		{textValue(`\`), nil, "", "is not bytea in hex form"},
		{textValue(`\x`), nil, "", "is not JSON that can be read"},
	} {
		plan := oneColumn(t, test.set, oidBytea, func(m *outbox.Mapping) { m.Key = &outbox.Expr{Column: "c", Pointer: []string{"a"}} })
		row := plan.Row([]Value{textValue("1"), test.value}, new(Arena))
		switch {
		case test.err == "" && (row.Err != nil || string(row.Key) != test.key):
			t.Errorf("%q: %q, %v", test.value.Data, row.Key, row.Err)
		case test.err != "" && (row.Err == nil || row.Key != nil || !saysFirst(row.Err.Error(), `column "c" `+test.err)):
			t.Errorf("%q: %q, %v, wanted %s", test.value.Data, row.Key, row.Err, test.err)
		}
	}
}

// A key or header with an encoding is NULL, exactly these bytes, or an error.
func TestEncodedValues(t *testing.T) {
	t.Parallel()
	const id = "123e4567-e89b-12d3-a456-426614174000"
	raw := "\x12\x3e\x45\x67\xe8\x9b\x12\xd3\xa4\x56\x42\x66\x14\x17\x40\x00"
	no := "an error"
	for _, test := range []struct {
		encoding outbox.Encoding
		oid      uint32
		value    Value
		want     string
	}{
		{outbox.EncodingUUID, oidUUID, textValue(id), raw},
		{outbox.EncodingUUID, oidText, textValue(id), raw},
		{outbox.EncodingUUID, oidText, Value{Data: []byte(id), Format: Binary}, raw},
		{outbox.EncodingUUID, oidUUID, Value{Data: []byte(raw), Format: Binary}, raw},
		{outbox.EncodingUUID, oidUUID, Value{Data: []byte(raw[1:]), Format: Binary}, no},
		{outbox.EncodingUUID, oidText, textValue("123e4567+e89b-12d3-a456-426614174000"), no},
		{outbox.EncodingUUID, oidText, textValue("123e4567-e89b+12d3-a456-426614174000"), no},
		{outbox.EncodingUUID, oidText, textValue("123e4567-e89b-12d3+a456-426614174000"), no},
		{outbox.EncodingUUID, oidText, textValue("123e4567-e89b-12d3-a456+426614174000"), no},
		{outbox.EncodingUUID, oidText, textValue(""), no},
		{outbox.EncodingInt64, oidInt4, textValue("-2"), "\xff\xff\xff\xff\xff\xff\xff\xfe"},
		{outbox.EncodingInt64, oidInt4, textValue("x"), no},
		{outbox.EncodingRFC3339, oidTimestamp, textValue("9999-12-31 23:59:59"), "9999-12-31T23:59:59Z"},
		{outbox.EncodingRFC3339, oidTimestamp, textValue("0001-01-01 00:00:00"), "0001-01-01T00:00:00Z"},
		{outbox.EncodingRFC3339, oidTimestamp, textValue("10000-01-01 00:00:00"), no},
		{outbox.EncodingRFC3339, oidTimestamp, textValue("0001-12-31 00:00:00 BC"), no},
		{outbox.EncodingRFC3339, oidTimestamp, textValue("infinity"), no},
		{outbox.EncodingRFC3339, oidTimestamp, textValue("-infinity"), no},
		{outbox.EncodingRFC3339, oidTimestamp, textValue("x"), no},
	} {
		plan := oneColumn(t, nil, test.oid, func(m *outbox.Mapping) { m.Key = &outbox.Expr{Column: "c", Encoding: test.encoding} })
		for _, v := range []Value{test.value, {Format: Null}, {Format: Unchanged}} {
			want := test.want
			switch v.Format {
			case Null:
				want = ""
			case Unchanged:
				want = no
			}
			row := plan.Row([]Value{textValue("1"), v}, new(Arena))
			if fails := want == no; fails != (row.Err != nil) || (row.Key == nil) != (fails || v.Format == Null) || !fails && string(row.Key) != want {
				t.Errorf("%s of %q (%c): %q, %v", test.encoding, v.Data, v.Format, row.Key, row.Err)
			}
		}
	}
}

// The text around the columns of a topic's template is part of the topic.
func TestTopicsOfTemplates(t *testing.T) {
	t.Parallel()
	column := outbox.Expr{Column: "c"}
	for want, literals := range map[string][]string{"orders": {"", ""}, "orders.v1": {"", ".v1"}, "outbox.orders": {"outbox.", ""}, "orders-orders": {"", "-", ""}} {
		plan := oneColumn(t, nil, oidText, func(m *outbox.Mapping) {
			m.Topic = outbox.Template{Literals: literals, Columns: []outbox.Expr{column, column}[:len(literals)-1]}
		})
		if r := plan.Row([]Value{textValue("1"), textValue("orders")}, new(Arena)); r.Err != nil || r.Topic != want {
			t.Errorf("%s, %v, want %s", r.Topic, r.Err, want)
		}
	}
}

func TestNULLAsAStatus(t *testing.T) {
	t.Parallel()
	for _, pending := range []bool{true, false} {
		plan := oneColumn(t, nil, oidText, func(m *outbox.Mapping) {
			m.Published, m.Status = outbox.PublishedStatus, outbox.StatusMapping{Column: "c", Pending: []string{"NEW", ""}, PendingNull: pending}
		})
		for status, want := range map[string]bool{"NULL": pending, "NEW": true, "": true, "SENT": false} {
			v := textValue(status)
			if status == "NULL" {
				v = Value{Format: Null}
			}
			if r := plan.Row([]Value{textValue("1"), v}, new(Arena)); r.Err != nil || r.Pending != want {
				t.Errorf("%s: pending %v, %v", status, r.Pending, r.Err)
			}
		}
	}
}

// The last value that is allowed, and the first one that is not.
func TestPartitionsAndTimesOfRecords(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		oid   uint32
		value string
		want  int64 // -1: an error
		of    func(*outbox.Mapping)
		got   func(*outbox.Row) int64
	}{
		{oidInt8, "0", 0, ofPartition, partitionOf},
		{oidInt8, "2147483647", 2147483647, ofPartition, partitionOf},
		{oidInt8, "2147483648", -1, ofPartition, partitionOf},
		{oidInt8, "-1", -1, ofPartition, partitionOf},
		{oidTimestamp, "1970-01-01 00:00:00.001", 1, ofTimestamp, timestampOf},
		{oidTimestamp, "1970-01-01 00:00:00.000999", -1, ofTimestamp, timestampOf},
		{oidTimestamp, "infinity", -1, ofTimestamp, timestampOf},
		{oidTimestamp, "1970-01-01 00:00:00.000001", 1, ofCreation, creationOf},
		{oidTimestamp, "1969-12-31 23:59:59", 0, ofCreation, creationOf}, // nothing is measured with it
		{oidTimestamp, "infinity", 0, ofCreation, creationOf},
		{oidTimestamp, "x", 0, ofCreation, creationOf},
	} {
		r := oneColumn(t, nil, test.oid, test.of).Row([]Value{textValue("1"), textValue(test.value)}, new(Arena))
		if fails := test.want < 0; fails != (r.Err != nil) || !fails && test.got(r) != test.want {
			t.Errorf("%s: %d, %v", test.value, test.got(r), r.Err)
		}
	}
}

func ofPartition(m *outbox.Mapping)   { m.Partition = "c" }
func partitionOf(r *outbox.Row) int64 { return int64(r.Partition) }
func ofTimestamp(m *outbox.Mapping)   { m.Timestamp = "c" }
func timestampOf(r *outbox.Row) int64 { return r.Timestamp }
func ofCreation(m *outbox.Mapping)    { m.CreatedAt = "c" }
func creationOf(r *outbox.Row) int64  { return r.CreatedAt }

// A payload of bytea comes in hexadecimal form, or the session has another setting.
func TestByteaThatIsNotHex(t *testing.T) {
	t.Parallel()
	plan := oneColumn(t, nil, oidBytea, func(m *outbox.Mapping) { m.Payload.Column = "c" })
	for _, text := range []string{"", `\`, `/x00`, `\y00`, `ab`, `\x0`, `\x0g`} {
		if r := plan.Row([]Value{textValue("1"), textValue(text)}, new(Arena)); r.Err == nil || r.Value != nil {
			t.Errorf("%s is %q", text, r.Value)
		}
	}
}
