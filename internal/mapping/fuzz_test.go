package mapping

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// typesOfRows are those that FuzzRows gives to columns.
var typesOfRows = []uint32{oidBool, oidBytea, oidInt8, oidInt2, oidInt4, oidText, oidJSON, oidBpchar, oidVarchar, oidTimestamp, oidTimestamptz, oidUUID, oidJSONB, oidName}

// FuzzRows: a row makes the same record, or has the same error, from values in text form and in binary form.
// Nothing panics, and a record is within Kafka's bounds. Each byte of types is the type of a column. values
// has each column's value after two bytes of length; 0xffff is NULL.
func FuzzRows(f *testing.F) {
	limits := func(bits uint) (list []string) {
		for _, n := range []int64{0, 1, -1, math.MaxInt64 >> (64 - bits), math.MinInt64 >> (64 - bits)} {
			list = append(list, string(binary.BigEndian.AppendUint64(nil, uint64(n))))
		}
		return list
	}
	of := append(append(limits(16), limits(32)...), limits(64)...)
	of = append(of, "", "orders", "PENDING", "a b:c\\:d\x1f", "\xff\xfe", uuid1, "infinity", ".", "..", "x/y",
		`{}`, `{"id":"other"}`, `{"a":"1","a":null,"b":[]}`, `{"a":{"b":{}}}`, `{"\ud800":"\u0000"}`, `{"a":1e999}`)
	for i, value := range of {
		var values, types []byte
		for j := range 13 {
			types = append(types, byte(i+j))
			values = appendPacked(values, value)
		}
		f.Add(types, values, uint8(i))
		f.Add(types, append([]byte{0xff, 0xff}, values...), uint8(i))
		f.Add([]byte{}, values, uint8(i))
	}
	f.Fuzz(func(t *testing.T, types, values []byte, options uint8) {
		table, cols := full()
		table.Mapping.Payload.Tombstone, table.Mapping.Payload.EmptyTombstone = options&1 != 0, options&2 != 0
		if options&4 != 0 {
			table.Mapping.MaxRowBytes = 64
		}
		for i := range min(len(types), len(cols)) {
			cols[i].OID = typesOfRows[int(types[i])%len(typesOfRows)]
		}
		plan, err := Compile(nil, table, cols)
		if err != nil {
			return
		}
		var inText, inBinary []Value
		for _, i := range plan.Wanted() {
			var text, bin Value
			text, bin, values = unpackValue(cols[i].OID, values)
			inText, inBinary = append(inText, text), append(inBinary, bin)
		}
		a, b := plan.Row(inText, new(Arena)), plan.Row(inBinary, new(Arena))
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("text   %+v (%v)\nbinary %+v (%v)", a, a.Err, b, b.Err)
		}
		if a.Table != table || len(outbox.SplitID(a.ID)) != len(table.Mapping.ID) {
			t.Fatalf("the id %q of %d columns has %d parts", a.ID, len(table.Mapping.ID), len(outbox.SplitID(a.ID)))
		}
		switch {
		case a.Err != nil && len(a.Err.Error()) > 600: // 64 bytes of a value, each as \x00, and what to do
			t.Fatalf("a long error: %v", a.Err)
		case a.Err == nil && (!LegalTopic(a.Topic) || a.Cluster == "" || a.Partition < -1 || a.Timestamp < 0 || a.AvailableAt < 0 || a.CreatedAt < 0 || len(a.Headers) > MaxHeaders+8):
			t.Fatalf("published: %+v", a)
		case a.Err == nil && Impersonates(table, a.Headers[0].Value, a.Headers[1:]):
			t.Fatalf("headers %+v", a.Headers)
		}
	})
}

func appendPacked(to []byte, value string) []byte {
	return append(binary.BigEndian.AppendUint16(to, uint16(len(value))), value...)
}

// unpackValue reads a value of a type from the input, and returns both of its forms. For a type of fixed
// length it takes that many bytes, and fills up with zeros.
func unpackValue(oid uint32, from []byte) (text, bin Value, rest []byte) {
	if len(from) < 2 || from[0] == 0xff && from[1] == 0xff {
		return Value{Format: Null}, Value{Format: Null}, from[min(2, len(from)):]
	}
	n := min(int(binary.BigEndian.Uint16(from)), len(from)-2)
	data, rest := from[2:2+n], from[2+n:]
	fixed := make([]byte, 16)
	copy(fixed, data)
	be := binary.BigEndian
	both := func(text, bin []byte) (Value, Value, []byte) {
		return Value{Data: text, Format: Text}, Value{Data: bin, Format: Binary}, rest
	}
	switch oid {
	case oidBytea:
		return both(append([]byte(`\x`), hexOf(data)...), data)
	case oidUUID:
		return both(appendUUID(nil, fixed), fixed)
	case oidInt2:
		return both(strconv.AppendInt(nil, int64(int16(be.Uint16(fixed[6:]))), 10), fixed[6:8])
	case oidInt4:
		return both(strconv.AppendInt(nil, int64(int32(be.Uint32(fixed[4:]))), 10), fixed[4:8])
	case oidInt8:
		return both(strconv.AppendInt(nil, int64(be.Uint64(fixed)), 10), fixed[:8])
	case oidBool:
		return both([]byte{"ft"[fixed[0]&1]}, []byte{fixed[0] & 1})
	case oidTimestamp, oidTimestamptz:
		at := int64(be.Uint64(fixed))
		if at != infinity && at != minusInfinity { // the others are no times that PostgreSQL has
			at = min(max(at, -211813488000000000), 9223371331199999999)
		}
		return both(appendTimestamp(nil, at, oid == oidTimestamptz), be.AppendUint64(nil, uint64(at)))
	}
	data = bytes.ReplaceAll(data, []byte{0}, []byte{1}) // no text of PostgreSQL has it; it separates the parts of an id
	if oid == oidJSONB {
		return both(data, append([]byte{1}, data...))
	}
	return both(data, data)
}

// FuzzEventIDs: rows that differ in a column of their event id differ in the event id and in their id; and
// the event id shows the values that it was made from.
func FuzzEventIDs(f *testing.F) {
	for _, v := range [][4]string{{"a:b", "c", "a", "b:c"}, {`a\`, ":b", `a\:`, "b"}, {"", "", ":", ""}, {"\x1f", "", "", "\x1f"}, {`\`, `\\`, `\\`, `\`}, {"x\x1fy", "z", "x", "y\x1fz"}} {
		f.Add(v[0], v[1], v[2], v[3])
	}
	f.Fuzz(func(t *testing.T, a1, a2, b1, b2 string) {
		for _, s := range []string{a1, a2, b1, b2} {
			if !utf8.ValidString(s) || strings.Contains(s, "\x00") { // no text of PostgreSQL
				return
			}
		}
		table, cols := full()
		for i := range cols {
			if name := cols[i].Name; name == "aggregate_id" || name == "event_id" {
				cols[i].OID = oidText
			}
		}
		one, other := texts(), texts()
		one["aggregate_id"], one["event_id"] = a1, a2
		other["aggregate_id"], other["event_id"] = b1, b2
		a, b := rowOf(t, table, cols, one), rowOf(t, table, cols, other)
		if a.Err != nil || b.Err != nil {
			t.Fatal(a.Err, b.Err)
		}
		same := a1 == b1 && a2 == b2
		if same != (string(a.Headers[0].Value) == string(b.Headers[0].Value)) || same != (a.ID == b.ID) {
			t.Fatalf("event ids %q and %q, ids %q and %q", a.Headers[0].Value, b.Headers[0].Value, a.ID, b.ID)
		}
		if parts := outbox.SplitID(a.ID); !reflect.DeepEqual(parts, []string{a1, a2}) || string(a.Key) != a1 {
			t.Fatalf("id %q, key %q", parts, a.Key)
		}
	})
}

// FuzzManyHeaders: of a JSON object with this many headers, the row has all, or it has an error.
func FuzzManyHeaders(f *testing.F) {
	for _, n := range []uint32{0, 1, MaxHeaders - 1, MaxHeaders, MaxHeaders + 1, 3 * MaxHeaders} {
		f.Add(n, "name")
	}
	f.Fuzz(func(t *testing.T, n uint32, name string) {
		n %= 4 * MaxHeaders
		quoted, err := json.Marshal(name)
		if err != nil || !utf8.ValidString(name) || len(name) > 100 {
			return
		}
		text := []byte{'{'}
		for i := range n {
			if i > 0 {
				text = append(text, ',')
			}
			text = append(append(text, quoted...), `:"v"`...)
		}
		list, fault := appendJSONHeaders(nil, append(text, '}'), nil, new(Arena))
		if (fault == "") != (n <= MaxHeaders) || fault == "" && len(list) != int(n) || n > 0 && list[0].Name != name {
			t.Fatalf("%d headers of %d, %q", len(list), n, fault)
		}
	})
}

// FuzzHeaderForms: text that is accepted as headers, in any form, is JSON.
func FuzzHeaderForms(f *testing.F) {
	f.Add([]byte(`[{"Key":"a","Value":{"b":[1]}},{"Value":"eA==","Key":"x-b"}]`), true, true, false)
	f.Add([]byte(`{"a":[{}], "x-b": "eA==", "b": null}`), false, false, true)
	f.Fuzz(func(t *testing.T, text []byte, list, nested, decoded bool) {
		form := outbox.JSONHeaders{Nested: nested, Base64: decoded, Except: []string{"x-*"}}
		if list {
			form.Name, form.Value = "Key", "Value"
		}
		headers, fault := appendJSONHeaders(nil, text, &form, new(Arena))
		if fault == "" && !json.Valid(text) {
			t.Fatalf("%q is no JSON", text)
		}
		for _, h := range headers {
			if strings.HasPrefix(h.Name, "x-") {
				t.Fatalf("%q is left out", h.Name)
			}
		}
	})
}
