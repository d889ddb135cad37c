package mapping

import (
	"strings"
	"unsafe"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// value is a compiled outbox.Expr.
type value struct {
	field
	words *outbox.ValueMap // nil: what the column says
}

// name is a value as names are read; nil: NULL. It may be the value's own memory or
// scratch.
func (r *reading) name(v *value) ([]byte, fault) {
	text, fault := v.word(r.values[v.at], r.arena)
	if v.words == nil || fault != "" || text == nil {
		return text, fault
	}
	if mapped := lookUp(v.words, text); mapped != "" {
		return asBytes(mapped), ""
	}
	return nil, unmapped(text)
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

// asBytes is s without a copy, for those who only read it.
func asBytes(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// condition is a compiled outbox.RowCondition, or a value that the map has to know.
type condition struct {
	value
	texts    []string // as PostgreSQL prints them
	null     bool     // NULL is among them
	excludes bool     // rows with one of them are not ours
}

// Ours says whether a row is ours by its mapping's conditions. Of others nothing is
// to be made. What cannot be read is no text that a condition names.
func (p *Plan) Ours(values []Value, a *Arena) bool {
	for i := range p.rows {
		if !p.rows[i].holds(values, a) {
			return false
		}
	}
	return true
}

func (c *condition) holds(values []Value, a *Arena) bool {
	text, fault := c.word(values[c.at], a)
	switch {
	case c.words != nil:
		return fault == "" && text != nil && lookUp(c.words, text) != ""
	case fault != "":
		return c.excludes
	case text == nil:
		return c.null != c.excludes
	}
	for _, t := range c.texts {
		if string(text) == t {
			return !c.excludes
		}
	}
	return c.excludes
}
