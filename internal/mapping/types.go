package mapping

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"time"
)

// The types that are known by OID. Their OIDs are the same in every PostgreSQL
// (src/include/catalog/pg_type.dat).
const (
	oidBool        = 16
	oidBytea       = 17
	oidName        = 19
	oidInt8        = 20
	oidInt2        = 21
	oidInt4        = 23
	oidText        = 25
	oidOID         = 26
	oidJSON        = 114
	oidBpchar      = 1042
	oidVarchar     = 1043
	oidTimestamp   = 1114
	oidTimestamptz = 1184
	oidNumeric     = 1700
	oidUUID        = 2950
	oidJSONB       = 3802
)

// typeNames has the names of those types, and of some types that are only copied as text.
var typeNames = map[uint32]string{
	oidBool: "boolean", oidBytea: "bytea", oidName: "name", oidInt8: "bigint", oidInt2: "smallint",
	oidInt4: "integer", oidText: "text", oidJSON: "json", oidBpchar: "character", oidVarchar: "character varying",
	oidTimestamp: "timestamp", oidTimestamptz: "timestamptz", oidUUID: "uuid", oidJSONB: "jsonb",
	18: `"char"`, oidOID: "oid", 142: "xml", 700: "real", 701: "double precision", 1082: "date", 1083: "time",
	1186: "interval", 1266: "timetz", oidNumeric: "numeric",
}

// BuiltinOID returns the OID of a pg_catalog type by name, for domains over it; 0 for types that are read
// like unknown ones.
func BuiltinOID(name string) uint32 { return builtinOIDs[name] }

var builtinOIDs = map[string]uint32{
	"bool": oidBool, "bytea": oidBytea, "name": oidName, "int8": oidInt8, "int2": oidInt2, "int4": oidInt4,
	"text": oidText, "json": oidJSON, "bpchar": oidBpchar, "varchar": oidVarchar, "timestamp": oidTimestamp,
	"timestamptz": oidTimestamptz, "uuid": oidUUID, "jsonb": oidJSONB, "oid": oidOID, "numeric": oidNumeric,
}

// kind says how a type's values are read.
type kind uint8

const (
	kindOther kind = iota // only the text form can be read
	kindOID               // only the text form too; often the number of a large object, which is not its content
	kindEnum
	kindText
	kindPadded // character(n), whose trailing blanks have no meaning
	kindBytea
	kindUUID
	kindInt2
	kindInt4
	kindInt8
	kindBool
	kindJSON
	kindJSONB
	kindTimestamp
	kindTimestamptz
)

func kindOf(c Column) kind {
	if c.Enum {
		return kindEnum
	}
	return kindsByOID[c.OID]
}

var kindsByOID = map[uint32]kind{
	oidBool: kindBool, oidBytea: kindBytea, oidName: kindText, oidInt8: kindInt8, oidInt2: kindInt2, oidInt4: kindInt4,
	oidText: kindText, oidOID: kindOID, oidJSON: kindJSON, oidBpchar: kindPadded, oidVarchar: kindText, oidTimestamp: kindTimestamp,
	oidTimestamptz: kindTimestamptz, oidUUID: kindUUID, oidJSONB: kindJSONB,
}

// readsBinary reports whether the kind's binary form is understood.
func (k kind) readsBinary() bool { return k != kindOther && k != kindOID }

// hasText reports whether the kind's text may have characters beyond ASCII.
func (k kind) hasText() bool {
	switch k {
	case kindOther, kindEnum, kindText, kindPadded, kindJSON, kindJSONB:
		return true
	}
	return false
}

// binaryLen is the length of a kind's binary form in bytes; 0: it varies.
var binaryLen = [kindTimestamptz + 1]int{
	kindUUID: 16, kindInt2: 2, kindInt4: 4, kindInt8: 8, kindBool: 1,
	kindTimestamp: 8, kindTimestamptz: 8,
}

// free reports whether values of the kind are text of any form.
func (f *field) free() bool {
	return binaryLen[f.kind] == 0 && f.kind != kindBytea
}

// length returns how many bytes a value has in a record, in whichever form it came; 0 for kinds whose values
// are all short.
func (f *field) length(v Value) int64 {
	n := int64(len(v.Data)) + int64(v.Length)
	switch {
	case binaryLen[f.kind] != 0:
		return 0
	case f.kind == kindBytea && (v.Format == Text || v.Format == LongText):
		return max(0, n-2) / 2
	case f.kind == kindJSONB && v.Format == Binary:
		return n - 1
	}
	return n
}

// check reports whether a value is NULL, and what is wrong with its form.
func (f *field) check(v Value) (null bool, _ fault) {
	data := v.Data
	switch {
	case v.Format == Null:
		return true, ""
	case v.Format == Text:
		return false, ""
	case v.Format != Binary:
		return false, faultOfFormat(v.Format)
	case !f.kind.readsBinary():
		return false, "is in binary form, which is not understood for its type"
	case binaryLen[f.kind] != 0 && binaryLen[f.kind] != len(data):
		return false, fault("has " + strconv.Itoa(len(data)) + " bytes in binary form, not " + strconv.Itoa(binaryLen[f.kind]))
	case f.kind == kindJSONB && (len(data) == 0 || data[0] != 1):
		return false, "is jsonb of a version other than 1"
	case f.kind == kindBool && data[0] > 1:
		return false, "is not a boolean"
	}
	return false, ""
}

// text returns the value as PostgreSQL prints it; nil for NULL. The result may be the value's own memory, or
// the arena's scratch.
func (f *field) text(v Value, a *Arena) ([]byte, fault) {
	null, fault := f.check(v)
	switch {
	case null || fault != "":
		return nil, fault
	case v.Format == Binary:
		return f.utf8(f.print(v.Data, a), a)
	}
	return f.utf8(notNil(v.Data), a)
}

// utf8 converts text from the database's encoding to UTF-8.
func (f *field) utf8(text []byte, a *Arena) ([]byte, fault) {
	if f.set == nil {
		return text, ""
	}
	out, ok := f.convert(text, a)
	switch {
	case ok:
		return out, ""
	case f.exact:
		return nil, fault("has bytes that " + f.set.Name() + " cannot turn into UTF-8 and back: correct the row")
	}
	return nil, fault("has bytes that " + f.set.Name() + " cannot turn into UTF-8: correct the row, or store it as bytea")
}

func (f *field) convert(text []byte, a *Arena) (out []byte, ok bool) {
	convert := f.set.Append
	if f.exact {
		convert = f.set.AppendExact
	}
	out, ok = convert(a.converted[:0], text)
	a.converted = out
	return out, ok
}

// escaped returns what an id contains in place of text that cannot be converted to UTF-8. The server accepts
// it as text, and no other row has it as its id.
func (f *field) escaped(v Value, a *Arena) []byte {
	if f.set == nil || v.Format != Text && v.Format != Binary {
		return nil
	}
	out, _ := f.convert(v.Data, a)
	return out
}

// print converts a checked binary value to text.
func (f *field) print(data []byte, a *Arena) []byte {
	out := a.converted[:0]
	switch f.kind {
	case kindBytea:
		out = hex.AppendEncode(append(out, `\x`...), data)
	case kindUUID:
		out = appendUUID(out, data)
	case kindInt2, kindInt4, kindInt8:
		out = strconv.AppendInt(out, binaryInt(data), 10)
	case kindBool:
		out = append(out, "ft"[data[0]])
	case kindTimestamp, kindTimestamptz:
		out = appendTimestamp(out, binaryInt(data), f.kind == kindTimestamptz)
	case kindJSONB:
		return notNil(data[1:])
	default: // text, enum, json: both forms are the same
		return notNil(data)
	}
	a.converted = out
	return out
}

// word returns text for names and states, without the blanks that pad character(n).
func (f *field) word(v Value, a *Arena) ([]byte, fault) {
	text, fault := f.text(v, a)
	if f.kind == kindPadded && text != nil {
		text = bytes.TrimRight(text, " ")
	}
	return text, fault
}

// content returns what goes into a record: the bytes of a bytea, otherwise what PostgreSQL prints; nil for
// NULL. The result is the arena's memory.
func (f *field) content(v Value, a *Arena) ([]byte, fault) {
	if f.kind == kindBytea && v.Format == Binary {
		return a.copy(v.Data), ""
	}
	if f.kind != kindBytea || v.Format != Text {
		text, fault := f.text(v, a)
		if text == nil {
			return nil, fault
		}
		return a.copy(text), fault
	}
	digits, ok := bytes.CutPrefix(v.Data, []byte(`\x`))
	switch {
	case !ok:
		return nil, `is not bytea in hex form (\x…): the session needs bytea_output = hex`
	case len(digits)%2 != 0:
		return nil, "is bytea with an odd number of hex digits"
	}
	out := a.bytes(len(digits) / 2)
	if !decodeHex(out, digits) {
		return nil, "is bytea with something that is not a hex digit"
	}
	return out, ""
}

// uuid returns the 16 bytes of a uuid; nil for NULL. The result is the arena's memory.
func (f *field) uuid(v Value, a *Arena) ([]byte, fault) {
	if f.kind == kindUUID && v.Format == Binary {
		if _, fault := f.check(v); fault != "" {
			return nil, fault
		}
		return a.copy(v.Data), ""
	}
	text, fault := f.word(v, a)
	if text == nil || fault != "" {
		return nil, fault
	}
	return a.uuid(text)
}

func (a *Arena) uuid(text []byte) ([]byte, fault) {
	out := a.bytes(16)
	if !parseUUID(out, text) {
		return nil, "is not a uuid like 123e4567-e89b-12d3-a456-426614174000: correct the row, or take encoding out of the mapping"
	}
	return out, ""
}

// int64 returns the 8 bytes of an integer; nil for NULL. The result is the arena's memory.
func (f *field) int64(v Value, a *Arena) ([]byte, fault) {
	n, null, fault := f.integer(v)
	if null || fault != "" {
		return nil, fault
	}
	out := a.bytes(8)
	binary.BigEndian.PutUint64(out, uint64(n))
	return out, ""
}

// rfc3339 returns a timestamp in UTC; nil for NULL. The result is the arena's memory.
func (f *field) rfc3339(v Value, a *Arena) ([]byte, fault) {
	at, null, fault := f.instant(v, a)
	if null || fault != "" {
		return nil, fault
	}
	t := time.UnixMicro(at).UTC()
	if t.Year() < 1 || t.Year() > 9999 { // the infinities too
		return nil, "is a time that RFC 3339 cannot say: correct the row, or take encoding out of the mapping"
	}
	var text [32]byte
	return a.copy(t.AppendFormat(text[:0], time.RFC3339Nano)), ""
}

// integer returns the value of an integer column.
func (f *field) integer(v Value) (n int64, null bool, fault fault) {
	if null, fault = f.check(v); null || fault != "" {
		return 0, null, fault
	}
	if v.Format == Binary {
		return binaryInt(v.Data), false, ""
	}
	n, err := strconv.ParseInt(asString(v.Data), 10, 64)
	if err != nil {
		return 0, false, "is not an integer"
	}
	return n, false, ""
}

// boolean returns the value of a boolean column; NULL is false.
func (f *field) boolean(v Value) (value, null bool, fault fault) {
	if null, fault = f.check(v); null || fault != "" {
		return false, null, fault
	}
	if v.Format == Binary {
		return v.Data[0] == 1, false, ""
	}
	if len(v.Data) != 1 || v.Data[0] != 't' && v.Data[0] != 'f' {
		return false, false, "is not a boolean"
	}
	return v.Data[0] == 't', false, ""
}

// instant returns the value of a column of times, in microseconds since 1970.
func (f *field) instant(v Value, a *Arena) (micros int64, null bool, fault fault) {
	micros, null, fault = f.written(v, a)
	return utc(micros, f.zone), null, fault
}

// written returns the time in a column as it is stored. A local time is returned as if its zone were UTC.
func (f *field) written(v Value, a *Arena) (micros int64, null bool, fault fault) {
	if null, fault = f.check(v); null || fault != "" {
		return 0, null, fault
	}
	if f.unit != 0 {
		return f.sinceEpoch(v)
	}
	if v.Format == Binary {
		return fromBinary(v.Data), false, ""
	}
	micros, ok := a.clock.parse(v.Data)
	if !ok {
		return 0, false, "is not a timestamp in ISO form: the session needs DateStyle = ISO"
	}
	return micros, false, ""
}

// sinceEpoch reads a time that is stored as a number since 1970. A number beyond all times is infinity.
func (f *field) sinceEpoch(v Value) (micros int64, null bool, fault fault) {
	if isInteger(f.kind) {
		if micros, null, fault = f.integer(v); fault == "" {
			micros = inMicros(micros, f.unit)
		}
		return micros, null, fault
	}
	micros, ok := parseEpoch(v.Data, f.unit)
	if !ok {
		return 0, false, "is not a number"
	}
	return micros, false, ""
}

// binaryInt reads an int2, int4 or int8.
func binaryInt(data []byte) int64 {
	switch len(data) {
	case 2:
		return int64(int16(binary.BigEndian.Uint16(data)))
	case 4:
		return int64(int32(binary.BigEndian.Uint32(data)))
	}
	return int64(binary.BigEndian.Uint64(data))
}

// notNil returns an empty slice in place of nil, which stands for NULL.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

func faultOfFormat(format byte) fault {
	switch format {
	case LongText, LongBinary:
		return "is longer than what is read of a row"
	case Unchanged:
		return "was not sent (an unchanged TOASTed value)"
	}
	return fault("came in the unknown format " + strconv.QuoteRune(rune(format)))
}
