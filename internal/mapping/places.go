package mapping

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// value is a compiled outbox.Expr: the places where a value is read, and what is made of it. How a
// column's bytes are written as text is in types.go.
type value struct {
	field
	pointer []string         // nil: the column itself
	or      []value          // further places
	parts   *templatePlan    // of a key that is joined from columns; nil: it is not
	words   *outbox.ValueMap // nil: what is found itself
	base64  bool
}

// plain says that the value is the column's own.
func (v *value) plain() bool { return v.pointer == nil && v.or == nil && v.parts == nil && !v.base64 }

// long says that one of the columns was too long to be read.
func (v *value) long(values []Value) bool {
	long := func(v value) bool { return values[v.at].long() }
	return values[v.at].long() || slices.ContainsFunc(v.or, long) || v.parts != nil && slices.ContainsFunc(v.parts.columns, long)
}

// name is a value as names are read; nil: NULL. It may be the value's own memory or
// scratch.
func (r *reading) name(v *value) ([]byte, fault) {
	text, fault := r.word(v)
	if v.words == nil || fault != "" || text == nil {
		return text, fault
	}
	if mapped := lookUp(v.words, text); mapped != "" {
		return unsafe.Slice(unsafe.StringData(mapped), len(mapped)), "" // no copy: it is only read
	}
	return nil, unmapped(text)
}

// word is the text of a name, before it is mapped.
func (r *reading) word(v *value) ([]byte, fault) {
	if v.plain() {
		return v.word(r.values[v.at], r.arena)
	}
	return r.scalar(v, (*field).word)
}

// bytes are what a value brings into a record; nil: NULL. They are the arena's. whole:
// objects and arrays, too.
func (r *reading) bytes(v *value, whole bool) ([]byte, fault) {
	if v.plain() {
		return v.content(r.values[v.at], r.arena)
	}
	plain := (*field).text
	if v.base64 { // a bytea column holds the base64 as its bytes
		plain = (*field).content
	}
	text, kind, fault := r.first(v, plain)
	switch {
	case fault != "" || text == nil:
		return nil, fault
	case !whole && (kind == '{' || kind == '['):
		return nil, notScalar(kind)
	case v.base64:
		return r.arena.base64(text)
	}
	return r.arena.copy(text), ""
}

// scalar is first, but an object or array is a fault.
func (r *reading) scalar(v *value, plain reader) ([]byte, fault) {
	text, kind, fault := r.first(v, plain)
	if kind == '{' || kind == '[' {
		return nil, notScalar(kind)
	}
	return text, fault
}

// first reads the first place that has a value. kind is the value's first byte in
// JSON. plain reads a column that is the value itself.
func (r *reading) first(v *value, plain reader) (text []byte, kind byte, fault fault) {
	text, kind, fault = r.at(v, plain)
	for i := 0; i < len(v.or) && text == nil && fault == ""; i++ {
		text, kind, fault = r.at(&v.or[i], plain)
	}
	return text, kind, fault
}

func (r *reading) at(v *value, plain reader) (text []byte, kind byte, fault fault) {
	if v.pointer == nil {
		text, fault = plain(&v.field, r.values[v.at], r.arena)
		return text, 0, fault
	}
	document, fault := v.document(r.values[v.at], r.arena)
	if document == nil || fault != "" {
		return nil, 0, fault
	}
	s := jsonScanner{text: document, arena: r.arena, depth: deepest}
	switch {
	case v.kind == kindJSONB:
		s.unique = true
	case v.exact: // PostgreSQL has to turn the place into text of the database
		s.strict, s.ascii, s.depth = true, v.set != nil, maxDepth
	}
	p, fault := s.locate(v.pointer)
	if fault != "" {
		return nil, 0, fault
	}
	return textAt(document, p, r.arena), p.kind, ""
}

// document is a column's text, of bytea also. It may be the value's own memory or scratch.
func (f *field) document(v Value, a *Arena) ([]byte, fault) {
	if f.kind != kindBytea {
		return f.text(v, a)
	}
	data := v.Data
	if v.Format == Text {
		digits, ok := bytes.CutPrefix(data, []byte(`\x`))
		if !ok {
			return nil, `is not bytea in hex form (\x…): the session needs bytea_output = hex`
		}
		data = slices.Grow(a.converted[:0], len(digits)/2)[:len(digits)/2]
		a.converted = data
		if len(digits)%2 != 0 || !decodeHex(data, digits) {
			return nil, "is bytea with something that is not a hex digit"
		}
	}
	switch {
	case v.Format == Null:
		return nil, ""
	case v.Format != Text && v.Format != Binary:
		return nil, faultOfFormat(v.Format)
	case !utf8.Valid(data) || f.exact && f.set != nil && !isASCII(data):
		return nil, "is no text that can be read: it is not UTF-8, or not ASCII where the database is not UTF-8; correct the row"
	}
	return notNil(data), ""
}

func isASCII(text []byte) bool {
	return !slices.ContainsFunc(text, func(c byte) bool { return c >= utf8.RuneSelf })
}

func notScalar(kind byte) fault {
	if kind == '{' {
		return "has an object where the pointer leads, not a text: let path lead to one of its members"
	}
	return "has an array where the pointer leads, not a text: let path lead to one of its items, such as /0"
}

// base64 decodes a text of the standard alphabet.
func (a *Arena) base64(text []byte) ([]byte, fault) {
	out := a.bytes(base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Strict().Decode(out, text)
	if err != nil {
		return nil, "is not base64: correct the row, or take decode out of the mapping"
	}
	return out[:n], ""
}

// lookUp is the text that the map gives for another; empty: none.
func lookUp(m *outbox.ValueMap, text []byte) string {
	if found, ok := m.Exact[string(text)]; ok {
		return found
	}
	for i := range m.Beginnings {
		if b := &m.Beginnings[i]; strings.HasPrefix(asString(text), b.With) {
			return b.Text
		}
	}
	return m.Otherwise
}

// condition is a compiled outbox.RowCondition, or a value that the map has to know.
type condition struct {
	value
	texts    []string // as PostgreSQL prints them
	null     bool     // NULL is among them
	excludes bool     // rows with one of them are not ours
}

// Ours says whether a row is ours by its mapping's conditions. No record is to be made
// of others. A value that cannot be read equals no text of a condition.
func (p *Plan) Ours(values []Value, a *Arena) bool {
	r := reading{plan: p, values: values, arena: a}
	for i := range p.rows {
		if !r.holds(&p.rows[i]) {
			return false
		}
	}
	return true
}

func (r *reading) holds(c *condition) bool {
	text, fault := r.word(&c.value)
	switch {
	case c.words != nil:
		return fault == "" && text != nil && lookUp(c.words, text) != ""
	case fault != "":
		return c.excludes
	case text == nil:
		return c.null != c.excludes
	}
	return slices.Contains(c.texts, asString(text)) != c.excludes
}
