package mapping

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// appendProperties reads a text that java.util.Properties stored, in the way that its method load does. Each
// property becomes a header, in the order of the text. Comments and blank lines are skipped.
// https://docs.oracle.com/en/java/javase/21/docs/api/java.base/java/util/Properties.html#load(java.io.Reader)
func appendProperties(list []outbox.Header, text []byte, form *outbox.JSONHeaders, a *Arena) ([]outbox.Header, fault) {
	s := propertyScanner{text: text}
	most := len(list) + MaxHeaders
	for s.line() {
		out, split := s.property(a.joined[:0])
		a.joined = out
		switch {
		case s.malformed:
			return list, fault(`is not what java.util.Properties stores: no character is meant by the \u before byte ` + strconv.Itoa(s.at+1) + "; correct the row")
		case form.Excepts(asString(out[:split])):
			continue
		case len(list) == most:
			return list, tooManyHeaders
		}
		list = append(list, outbox.Header{Name: asString(a.copy(out[:split])), Value: a.copy(out[split:])})
	}
	return list, ""
}

// propertyScanner reads properties at text[at].
type propertyScanner struct {
	text      []byte
	at        int
	malformed bool
}

func isBlank(r rune) bool { return r == ' ' || r == '\t' || r == '\f' }

func (s *propertyScanner) skip(of func(rune) bool) {
	for s.at < len(s.text) && of(rune(s.text[s.at])) {
		s.at++
	}
}

func isLineEnd(r rune) bool { return r == '\n' || r == '\r' }

// line goes to the next line with a property.
func (s *propertyScanner) line() bool {
	for {
		s.skip(func(r rune) bool { return isBlank(r) || isLineEnd(r) })
		if s.at == len(s.text) {
			return false
		}
		switch c := s.text[s.at]; {
		case c == '#' || c == '!':
			s.skip(func(r rune) bool { return !isLineEnd(r) })
		case c == '\\' && s.at+1 < len(s.text) && isLineEnd(rune(s.text[s.at+1])): // the line continues and is empty so far
			s.at++
			s.goOn()
		default:
			return true
		}
	}
}

// property appends a name and its value. The value begins at split. Blanks, an equals sign or a colon
// separate them.
func (s *propertyScanner) property(to []byte) (out []byte, split int) {
	split = -1
	signed, inValue := false, false
	for {
		r, escaped, ok := s.next()
		if !ok {
			break
		}
		sign := !escaped && (r == '=' || r == ':')
		switch parts := sign || !escaped && isBlank(r); {
		case split < 0 && parts:
			split, signed = len(to), sign
			continue
		case split >= 0 && !inValue && parts && !(sign && signed):
			signed = signed || sign
			continue
		}
		inValue = split >= 0
		to = utf8.AppendRune(to, r)
	}
	if split < 0 {
		split = len(to)
	}
	return to, split
}

// next returns the next character of a line. A backslash at the end of a line continues it.
func (s *propertyScanner) next() (r rune, escaped, ok bool) {
	for s.at < len(s.text) && !isLineEnd(rune(s.text[s.at])) {
		r, size := utf8.DecodeRune(s.text[s.at:])
		s.at += size
		if r != '\\' {
			return r, false, true
		}
		if s.at == len(s.text) {
			break
		}
		if isLineEnd(rune(s.text[s.at])) {
			s.goOn()
			continue
		}
		r, ok = s.escape()
		return r, true, ok
	}
	return 0, false, false
}

// goOn steps over a line's end and the blanks at the beginning of the next line.
func (s *propertyScanner) goOn() {
	if s.text[s.at] == '\r' && s.at+1 < len(s.text) && s.text[s.at+1] == '\n' {
		s.at++
	}
	s.at++
	s.skip(isBlank)
}

// escape returns the character that a backslash escapes.
func (s *propertyScanner) escape() (rune, bool) {
	r, size := utf8.DecodeRune(s.text[s.at:])
	s.at += size
	if r == 'u' {
		return s.unicode()
	}
	const from, to = "tnrf", "\t\n\r\f"
	if i := strings.IndexRune(from, r); i >= 0 {
		return rune(to[i]), true
	}
	return r, true
}

// unicode returns a character that is written as one or two units of UTF-16.
func (s *propertyScanner) unicode() (rune, bool) {
	r, ok := s.unit()
	if ok && utf16.IsSurrogate(r) {
		low := rune(0)
		if ok = s.at+1 < len(s.text) && s.text[s.at] == '\\' && s.text[s.at+1] == 'u'; ok {
			s.at += 2
			low, ok = s.unit()
		}
		r = utf16.DecodeRune(r, low)
		ok = ok && r != utf8.RuneError
	}
	s.malformed = !ok
	return r, ok
}

func (s *propertyScanner) unit() (rune, bool) {
	if len(s.text)-s.at < 4 {
		return 0, false
	}
	n, err := strconv.ParseUint(asString(s.text[s.at:s.at+4]), 16, 16)
	s.at += 4
	return rune(n), err == nil
}
