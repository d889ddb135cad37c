package mapping

import (
	"encoding/binary"
	"encoding/json"
	"reflect"
	"strconv"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"pgregory.net/rapid"
)

// both draws a value of a type in the two forms that PostgreSQL sends.
func both(t *rapid.T, label string, oid uint32) (text, bin Value) {
	if rapid.IntRange(0, 9).Draw(t, label+" NULL") == 0 {
		return Value{Format: Null}, Value{Format: Null}
	}
	inText, inBinary := forms(t, label, oid)
	return Value{Data: inText, Format: Text}, Value{Data: inBinary, Format: Binary}
}

func forms(t *rapid.T, label string, oid uint32) (inText, inBinary []byte) {
	be := binary.BigEndian
	switch oid {
	case oidBytea:
		b := rapid.SliceOf(rapid.Byte()).Draw(t, label)
		return append([]byte(`\x`), hexOf(b)...), b
	case oidUUID:
		b := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, label)
		return appendUUID(nil, b), b
	case oidInt2:
		n := rapid.Int16().Draw(t, label)
		return strconv.AppendInt(nil, int64(n), 10), be.AppendUint16(nil, uint16(n))
	case oidInt4:
		n := rapid.Int32().Draw(t, label)
		return strconv.AppendInt(nil, int64(n), 10), be.AppendUint32(nil, uint32(n))
	case oidInt8:
		n := rapid.Int64().Draw(t, label)
		return strconv.AppendInt(nil, n, 10), be.AppendUint64(nil, uint64(n))
	case oidBool:
		n := rapid.IntRange(0, 1).Draw(t, label)
		return []byte{"ft"[n]}, []byte{byte(n)}
	case oidTimestamp, oidTimestamptz:
		n := rapid.OneOf(rapid.Int64Range(-211813488000000000, 9223371331199999999), rapid.SampledFrom([]int64{infinity, minusInfinity})).Draw(t, label)
		return appendTimestamp(nil, n, oid == oidTimestamptz), be.AppendUint64(nil, uint64(n))
	case oidJSON, oidJSONB:
		b := jsonOf(t, label)
		if oid == oidJSONB {
			return b, append([]byte{1}, b...)
		}
		return b, b
	}
	b := []byte(rapid.OneOf(rapid.SampledFrom([]string{"", "orders", "PENDING", "side", "a b"}), rapid.String()).Draw(t, label))
	return b, b
}

func hexOf(b []byte) (digits []byte) {
	for _, c := range b {
		digits = append(digits, "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
	}
	return digits
}

func jsonOf(t *rapid.T, label string) []byte {
	object := rapid.MapOfN(rapid.String(), rapid.OneOf(rapid.String().AsAny(), rapid.Int().AsAny(), rapid.Just[any](nil)), 0, 4).Draw(t, label)
	b, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// typesOf says which types each column of full may have.
var typesOf = map[string][]uint32{
	"status": {oidText, oidVarchar, oidBpchar, oidBool, oidInt4}, "aggregate_id": {oidUUID, oidText, oidInt8, oidBytea, oidTimestamptz, oidTimestamp, oidBool},
	"event_id": {oidInt8, oidInt2, oidUUID, oidName}, "cluster": {oidText, oidVarchar, oidBpchar}, "topic": {oidText, oidVarchar, oidUUID, oidInt4},
	"payload": {oidBytea, oidJSON, oidJSONB, oidText, oidInt8}, "trace": {oidText, oidBytea, oidUUID, oidTimestamptz}, "type": {oidVarchar, oidBool, oidJSONB},
	"headers": {oidJSON, oidJSONB, oidText}, "partition": {oidInt2, oidInt4, oidInt8}, "at": {oidTimestamp, oidTimestamptz},
	"created_at": {oidTimestamp, oidTimestamptz}, "due": {oidTimestamp, oidTimestamptz},
}

// The stream may read a row in binary form and the sweep in text form. The same row must make the same
// record, and the same error.
func TestTextAndBinaryGiveTheSameRow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		table, cols := full()
		table.Mapping.Payload.Tombstone = rapid.Bool().Draw(t, "tombstone")
		for i := range cols {
			if types := typesOf[cols[i].Name]; types != nil {
				cols[i].OID = rapid.SampledFrom(types).Draw(t, cols[i].Name+"'s type")
			}
		}
		plan, err := Compile(nil, table, cols)
		if err != nil {
			t.Fatal(err)
		}
		var inText, inBinary []Value
		for _, i := range plan.Wanted() {
			a, b := both(t, cols[i].Name, cols[i].OID)
			inText, inBinary = append(inText, a), append(inBinary, b)
		}
		fromText, fromBinary := plan.Row(inText, new(Arena)), plan.Row(inBinary, new(Arena))
		if !reflect.DeepEqual(fromText, fromBinary) {
			t.Fatalf("text   %+v (%v)\nbinary %+v (%v)", fromText, fromText.Err, fromBinary, fromBinary.Err)
		}
	})
}

// Whatever values come, there is a row with its ID. Either it can be published, or it says why not.
func TestAnyValuesMakeARow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		table, cols := full()
		plan, err := Compile(nil, table, cols)
		if err != nil {
			t.Fatal(err)
		}
		values := make([]Value, len(plan.Wanted()))
		for i := range values {
			values[i] = Value{
				Data:   rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "data"),
				Format: rapid.SampledFrom([]byte{Null, Text, Text, Binary, Unchanged, 0}).Draw(t, "format"),
			}
		}
		publishable(t, table, plan.Row(values, new(Arena)))
	})
}

func publishable(t *rapid.T, table *outbox.Table, r *outbox.Row) {
	if r.Table != table || len(outbox.SplitID(r.ID)) < 2 {
		t.Fatalf("id %q", r.ID)
	}
	if r.Err != nil {
		if len(r.Err.Error()) > 400 {
			t.Fatalf("a long error: %v", r.Err)
		}
		return
	}
	if !LegalTopic(r.Topic) || r.Cluster == "" || r.Value == nil || r.Partition < -1 || r.Timestamp < 0 || r.AvailableAt < 0 || r.CreatedAt < 0 {
		t.Fatalf("published: %+v", r)
	}
}

func TestEnumInBinary(t *testing.T) {
	t.Parallel()
	table, cols := full()
	cols[1] = Column{Name: "status", OID: 16444, Enum: true}
	values := texts()
	values["status"] = Value{Data: []byte("PENDING"), Format: Binary}
	if r := rowOf(t, table, cols, values); !r.Pending || r.Err != nil {
		t.Errorf("%+v", r)
	}
	if plan, err := Compile(nil, table, cols); err != nil || plan.Binary() != nil {
		t.Error(err, plan.Binary())
	}
	cols[1].Enum = false
	plan, err := Compile(nil, table, cols)
	const want = `table public.outbox: column "status" (type with OID 16444) cannot be read in binary form: let the server send text`
	if err != nil || plan.Binary() == nil || plan.Binary().Error() != want {
		t.Error(err, plan.Binary())
	}
	if r := rowOf(t, table, cols, values); !r.Pending || r.Err == nil {
		t.Errorf("a type that is not known must not be guessed: %+v", r)
	}
}
