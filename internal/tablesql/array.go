package tablesql

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Array is an array to be bound. Its elements are in the text form of their type. The zero Array is empty.
type Array struct{ elements []string }

// Add appends an element.
func (a *Array) Add(element string) { a.elements = append(a.elements, element) }

// AddInt appends a number.
func (a *Array) AddInt(n int64) { a.Add(strconv.FormatInt(n, 10)) }

// The formats of bound values.
// https://www.postgresql.org/docs/current/protocol-overview.html#PROTOCOL-FORMAT-CODES
const (
	textFormat   int16 = 0
	binaryFormat int16 = 1
)

// Literal returns the array in text form.
func (a *Array) Literal() string { return string(textArray(len(a.elements), a.at)) }

func (a *Array) at(i int) string { return a.elements[i] }

var arrayEscapes = strings.NewReplacer(`"`, `\"`, `\`, `\\`)

// textArray returns an array in text form, such as {"a","b"}.
// https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO
func textArray(n int, element func(i int) string) []byte {
	text := []byte{'{'}
	for i := range n {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, '"')
		text = append(text, arrayEscapes.Replace(element(i))...)
		text = append(text, '"')
	}
	return append(text, '}')
}

// binaryArray returns an array in the form that array_recv reads (src/backend/utils/adt/arrayfuncs.c). It
// returns false if an element is not in the type's own text form.
func binaryArray(form binaryForm, n int, element func(i int) string) ([]byte, bool) {
	if n == 0 || n > math.MaxInt32 {
		return nil, false
	}
	size := n * form.size
	if form.size == 0 {
		for i := range n {
			size += len(element(i))
		}
	}
	value := newArray(form.oid, n, size)
	for i := range n {
		start := len(value)
		value = append(value, 0, 0, 0, 0)
		var ok bool
		if value, ok = form.append(value, element(i)); !ok {
			return nil, false
		}
		binary.BigEndian.PutUint32(value[start:], uint32(len(value)-start-4))
	}
	return value, true
}

// newArray begins the binary form of an array of n elements with size bytes in total.
func newArray(oid uint32, n, size int) []byte {
	const header = 5 * 4
	value := make([]byte, 0, header+n*4+size)
	value = binary.BigEndian.AppendUint32(value, 1) // number of dimensions
	value = binary.BigEndian.AppendUint32(value, 0) // there is no NULL
	value = binary.BigEndian.AppendUint32(value, oid)
	value = binary.BigEndian.AppendUint32(value, uint32(n)) // #nosec G115 -- the rows of a batch
	return binary.BigEndian.AppendUint32(value, 1)          // the first subscript
}

// microsTo2000 are the microseconds from 1970 to 2000, when PostgreSQL's timestamps begin.
const microsTo2000 = 10_957 * 86_400 * 1_000_000

// createdArray returns the rows' creation times: for timestamp columns as PostgreSQL counts them, otherwise
// as outbox.Row does. An unknown time is -infinity, or the lowest number.
func createdArray(oid uint32, n int, row func(i int) *outbox.Row) []byte {
	value, from := newArray(oid, n, n*8), int64(microsTo2000)
	if oid == oidInt8 {
		from = 0
	}
	for i := range n {
		at := int64(math.MinInt64)
		if created := row(i).CreatedAt; created != 0 {
			at = created - from
		}
		value = binary.BigEndian.AppendUint32(value, 8)
		value = binary.BigEndian.AppendUint64(value, uint64(at)) // #nosec G115 -- the same bits
	}
	return value
}

// writerArray returns the ids of the transactions that inserted the rows, as integers with the same bits,
// since xid = integer compares these.
func writerArray(n int, row func(i int) *outbox.Row) []byte {
	value := newArray(oidInt4, n, n*4)
	for i := range n {
		value = binary.BigEndian.AppendUint32(value, 4)
		value = binary.BigEndian.AppendUint32(value, row(i).XID)
	}
	return value
}

// binaryForm says how values of a type are sent in binary form.
type binaryForm struct {
	oid    uint32
	size   int // bytes; 0: the size varies
	append func(to []byte, text string) ([]byte, bool)
}

// binaryForms are the binary forms by the types' SQL names.
var binaryForms = map[string]binaryForm{
	"uuid":              {oidUUID, 16, appendUUID},
	"smallint":          {oidInt2, 2, appendInt(16)},
	"integer":           {oidInt4, 4, appendInt(32)},
	"bigint":            {oidInt8, 8, appendInt(64)},
	"text":              {oidText, 0, appendText},
	"character varying": {oidVarchar, 0, appendText},
}

func appendText(to []byte, text string) ([]byte, bool) { return append(to, text...), true }

func appendInt(bits int) func(to []byte, text string) ([]byte, bool) {
	return func(to []byte, text string) ([]byte, bool) {
		n, err := strconv.ParseInt(text, 10, bits)
		if err != nil {
			return to, false
		}
		var be [8]byte
		binary.BigEndian.PutUint64(be[:], uint64(n))
		return append(to, be[8-bits/8:]...), true
	}
}

// appendUUID appends the bytes of a uuid written as 00112233-4455-6677-8899-aabbccddeeff.
func appendUUID(to []byte, text string) ([]byte, bool) {
	if len(text) != 36 || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return to, false
	}
	var digits [32]byte
	n := copy(digits[:], text[:8])
	n += copy(digits[n:], text[9:13])
	n += copy(digits[n:], text[14:18])
	n += copy(digits[n:], text[19:23])
	copy(digits[n:], text[24:])
	to, err := hex.AppendDecode(to, digits[:])
	return to, err == nil
}
