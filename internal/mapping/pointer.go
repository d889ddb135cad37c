package mapping

import (
	"bytes"
	"strconv"
	"unicode/utf8"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// span is the place in a JSON text that a JSON Pointer (RFC 6901) leads to: text[from:to]. kind is the first
// byte of the value there; 0: there is no value.
type span struct {
	from, to int
	kind     byte
}

// maxDepth is the greatest nesting of JSON from which a topic, a key or a condition is read: package tablesql
// reads the same in SQL with a bounded effort. deepest bounds all other JSON.
const (
	maxDepth = outbox.MaxJSONDepth
	deepest  = 10_000
)

// locate reads a whole JSON text by RFC 8259, and finds the place that the pointer leads to. Of two equal
// keys the last counts, as in PostgreSQL. encoding/json would allocate.
func (s *jsonScanner) locate(pointer []string) (span, fault) {
	if s.any(pointer, true) && !s.done && !s.end() {
		s.fail("something follows the value")
	}
	if s.problem != "" {
		return span{}, fault("is not JSON that can be read: " + s.problem + " at byte " + strconv.Itoa(s.at+1) + "; correct the row")
	}
	return s.found, ""
}

// any reads a value. on: the value is where the rest of the pointer starts from.
func (s *jsonScanner) any(pointer []string, on bool) (ok bool) {
	kind := s.next()
	from := s.at
	switch kind {
	case '{', '[':
		if s.depth--; s.depth < 0 {
			s.fail("it is nested too deep")
			return false
		}
		if ok = s.container(kind, pointer, on); ok {
			s.depth++
		}
	case '"':
		_, _, ok = s.raw("")
	default:
		ok = s.scalar(kind)
	}
	if ok && on && len(pointer) == 0 {
		s.found = span{from: from, to: s.at, kind: kind}
	}
	return ok
}

func (s *jsonScanner) scalar(kind byte) bool {
	switch kind {
	case 'n':
		return s.word("null")
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		_, ok := s.number()
		return ok
	}
	s.fail("no value")
	return false
}

func (s *jsonScanner) container(kind byte, pointer []string, on bool) bool {
	s.at++
	last := kind + 2 // in ASCII, } and ] are two after { and [
	if s.next() == last {
		s.at++
		return true
	}
	on = on && len(pointer) > 0
	for n := 0; ; n++ {
		var here bool
		if kind == '[' {
			var digits [20]byte
			here = on && string(strconv.AppendInt(digits[:0], int64(n), 10)) == pointer[0]
		} else {
			name, escapes, ok := s.raw("no name")
			if !ok || !s.take(':', "no colon after a name") {
				return false
			}
			here = on && s.same(name, escapes, pointer[0])
		}
		rest := pointer
		if here {
			rest, s.found = pointer[1:], span{}
		}
		if !s.any(rest, here) {
			return false
		}
		if s.done = s.done || here && s.unique; s.done {
			return true
		}
		if s.next() == last {
			s.at++
			return true
		}
		if !s.take(',', "no comma or end of an object or array") {
			return false
		}
	}
}

// same compares a name with a part of the pointer.
func (s *jsonScanner) same(name []byte, escapes bool, part string) bool {
	if !escapes {
		return string(name) == part
	}
	s.arena.decoded = appendUnescaped(s.arena.decoded[:0], name)
	return string(s.arena.decoded) == part
}

// appendUnescaped appends a string's text with its escapes decoded.
func appendUnescaped(to, raw []byte) []byte {
	for len(raw) > 0 {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return append(to, raw...)
		}
		decoded, length := unescapeOne(raw[i:])
		to = utf8.AppendRune(append(to, raw[:i]...), decoded)
		raw = raw[i+max(length, 1):]
	}
	return to
}

// textAt returns the text at the place: the text of a string, or any other value as it is written. nil: the
// value is null, or there is none. The result may lie in text, or in scratch.
func textAt(text []byte, p span, a *Arena) []byte {
	switch p.kind {
	case 0, 'n':
		return nil
	case '"':
		raw := text[p.from+1 : p.to-1]
		if bytes.IndexByte(raw, '\\') < 0 {
			return notNil(raw)
		}
		a.decoded = appendUnescaped(a.decoded[:0], raw)
		return a.decoded
	}
	return text[p.from:p.to]
}
