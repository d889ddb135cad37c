package mapping

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// MaxHeaders is how many headers a JSON object or a side table may give to a row. A header needs more memory
// here than it has bytes there.
const MaxHeaders = 10_000

// appendJSONHeaders reads an object of strings: {"name": "value", …}. null becomes a null value; numbers and
// booleans become their JSON text. Order and duplicates are kept, as Kafka keeps them. Anything else is a
// fault, which says where it is but quotes nothing of the text. The function follows RFC 8259 strictly.
// encoding/json would lose order and duplicates, and allocate. form, if not nil, describes another form than
// an object.
func appendJSONHeaders(list []outbox.Header, text []byte, form *outbox.JSONHeaders, a *Arena) ([]outbox.Header, fault) {
	if form != nil && form.Properties {
		return appendProperties(list, text, form, a)
	}
	s := headerScanner{jsonScanner: jsonScanner{text: text, arena: a, depth: deepest}, list: list, most: len(list) + MaxHeaders}
	what := "a JSON object of strings"
	if form != nil {
		s.form = *form
		what = "JSON with headers"
	}
	if s.form.Name != "" {
		s.each('[', s.item)
	} else {
		s.each('{', func() bool {
			name, ok := s.str("no header name")
			return ok && s.take(':', "no colon after a header name") && s.header(name)
		})
	}
	if s.many {
		return s.list, tooManyHeaders
	}
	if s.problem == "" && !s.end() {
		s.fail("something follows the object")
	}
	if s.problem != "" {
		return s.list, fault("is not " + what + ": " + s.problem + " at byte " + strconv.Itoa(s.at+1) + "; correct the row")
	}
	return s.list, ""
}

var tooManyHeaders = fault("has more than " + strconv.Itoa(MaxHeaders) + " headers: shorten the row's")

// headerScanner reads headers from JSON.
type headerScanner struct {
	jsonScanner
	form outbox.JSONHeaders
	list []outbox.Header
	most int  // largest number of headers
	many bool // there are more than that
}

// jsonScanner reads JSON at text[at]. After a problem it stays there.
type jsonScanner struct {
	text    []byte
	at      int
	arena   *Arena
	problem string
	// strict: \u0000 is malformed. ascii: every escape of a character beyond ASCII is malformed too.
	strict, ascii bool
	depth         int // how many more containers may be nested
	found         span
	// unique: no object has a key twice and the text is valid JSON, so nothing after the place matters.
	unique, done bool
}

func (s *jsonScanner) fail(problem string) {
	if s.problem == "" {
		s.problem = problem
	}
}

// next skips blanks and returns the byte after them; 0 at the end.
func (s *jsonScanner) next() byte {
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

func (s *jsonScanner) end() bool {
	s.next()
	return s.at == len(s.text)
}

// take steps over c. Anything else is a problem.
func (s *jsonScanner) take(c byte, problem string) bool {
	if s.next() != c || s.at == len(s.text) {
		s.fail(problem)
		return false
	}
	s.at++
	return true
}

// each reads an object or an array, which begins with open. It calls item for each of its items. item returns
// false if there is a problem.
func (s *jsonScanner) each(open byte, item func() bool) bool {
	none, endless := "no object", "no comma or end of the object"
	if open == '[' {
		none, endless = "no array", "no comma or end of the array"
	}
	if !s.take(open, none) {
		return false
	}
	last := open + 2 // in ASCII, } and ] are two after { and [
	if s.next() == last {
		s.at++
		return true
	}
	for item() {
		if s.next() == last {
			s.at++
			return true
		}
		if !s.take(',', endless) {
			return false
		}
	}
	return false
}

// header reads the value of a header. If the name is to be left out, the value may have any form.
func (s *headerScanner) header(name []byte) bool {
	if s.form.Excepts(asString(name)) {
		return s.any(nil, false)
	}
	if s.many = len(s.list) == s.most; s.many {
		return false
	}
	value, ok := s.value()
	if ok {
		s.list = append(s.list, outbox.Header{Name: asString(name), Value: value})
	}
	return ok
}

// item reads one header of a list. The value may come before the name, so both are located first and then
// read. Of two equal keys the last counts.
func (s *headerScanner) item() bool {
	begin, nameAt, valueAt := s.at, -1, -1
	ok := s.each('{', func() bool {
		key, ok := s.str("no name")
		if !ok || !s.take(':', "no colon after a name") {
			return false
		}
		s.next()
		switch string(key) {
		case s.form.Name:
			nameAt = s.at
		case s.form.Value:
			valueAt = s.at
		}
		return s.any(nil, false)
	})
	if !ok {
		return false
	}
	end := s.at
	if s.at = begin; nameAt < 0 {
		s.fail("a header without a name")
		return false
	}
	s.at = nameAt
	name, ok := s.str("no header name")
	switch {
	case !ok:
	case valueAt >= 0:
		s.at = valueAt
		ok = s.header(name)
	case !s.form.Excepts(asString(name)):
		if s.many = len(s.list) == s.most; s.many {
			return false
		}
		s.list = append(s.list, outbox.Header{Name: asString(name)})
	}
	if ok {
		s.at = end
	}
	return ok
}

// value reads a value into the arena; nil for null.
func (s *headerScanner) value() ([]byte, bool) {
	c := s.next()
	start := s.at
	switch {
	case c == '"':
		text, ok := s.str("")
		if !ok || !s.form.Base64 {
			return text, ok
		}
		value, fault := s.arena.base64(text)
		if fault != "" {
			s.at = start
			s.fail("a value that is not base64")
		}
		return value, fault == ""
	case c == 'n':
		return nil, s.word("null")
	case s.form.Base64:
		s.fail("a value that is not base64")
		return nil, false
	case c == 't':
		return s.arena.copy([]byte("true")), s.word("true")
	case c == 'f':
		return s.arena.copy([]byte("false")), s.word("false")
	case c == '-' || '0' <= c && c <= '9':
		raw, ok := s.number()
		return s.arena.copy(raw), ok
	case s.form.Nested && (c == '{' || c == '['):
		ok := s.any(nil, false)
		return s.arena.copy(s.text[start:s.at]), ok
	case c == '{':
		s.fail("an object as a header's value")
	case c == '[':
		s.fail("an array as a header's value")
	default:
		s.fail("no header value")
	}
	return nil, false
}

func (s *jsonScanner) word(word string) bool {
	if !bytes.HasPrefix(s.text[s.at:], []byte(word)) {
		s.fail("no header value")
		return false
	}
	s.at += len(word)
	return true
}

// number reads -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?
func (s *jsonScanner) number() ([]byte, bool) {
	start := s.at
	s.one("-")
	if !s.one("0") && !s.digits() {
		return nil, false
	}
	if s.one(".") && !s.digits() {
		return nil, false
	}
	if s.one("eE") {
		s.one("+-")
		if !s.digits() {
			return nil, false
		}
	}
	return s.text[start:s.at], true
}

// one steps over the next byte if it is one of the given ones.
func (s *jsonScanner) one(of string) bool {
	if s.at == len(s.text) || strings.IndexByte(of, s.text[s.at]) < 0 {
		return false
	}
	s.at++
	return true
}

func (s *jsonScanner) digits() bool {
	start := s.at
	for s.at < len(s.text) && '0' <= s.text[s.at] && s.text[s.at] <= '9' {
		s.at++
	}
	if s.at == start {
		s.fail("a malformed number")
	}
	return s.at > start
}

// str reads a string into the arena.
func (s *jsonScanner) str(problem string) ([]byte, bool) {
	raw, escapes, ok := s.raw(problem)
	switch {
	case !ok:
		return nil, false
	case !escapes:
		return s.arena.copy(raw), true
	}
	// A decoded escape is never longer than the escape.
	return appendUnescaped(s.arena.bytes(len(raw))[:0], raw), true
}

// raw steps over a string, and checks its escapes.
func (s *jsonScanner) raw(problem string) (raw []byte, escapes, ok bool) {
	if !s.take('"', problem) {
		return nil, false, false
	}
	start, quote := s.at, -1
	for s.at < len(s.text) {
		if quote < s.at { // not at each escape, so that a long string is not read again and again
			quote = len(s.text)
			if i := bytes.IndexByte(s.text[s.at:], '"'); i >= 0 {
				quote = s.at + i
			}
		}
		s.at += plainBytes(s.text[s.at:quote])
		switch {
		case s.at == len(s.text):
		case s.at == quote:
			s.at++
			return s.text[start:quote], escapes, true
		case s.text[s.at] != '\\':
			s.fail("a control character in a string")
			return nil, false, false
		default:
			decoded, length := unescapeOne(s.text[s.at:])
			if length == 0 || s.strict && decoded == 0 || s.ascii && decoded >= utf8.RuneSelf {
				s.fail("a malformed escape")
				return nil, false, false
			}
			escapes = true
			s.at += length
		}
	}
	s.fail("no end of a string")
	return nil, false, false
}

// plainBytes returns how many bytes come before the first control character or backslash. It checks eight
// bytes at a time. https://graphics.stanford.edu/~seander/bithacks.html#HasLessInWord
func plainBytes(text []byte) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(text); i += 8 {
		x := binary.LittleEndian.Uint64(text[i:])
		y := x ^ ones*'\\'
		if ((x-ones*' ')&^x|(y-ones)&^y)&highs != 0 {
			break
		}
	}
	for i < len(text) && text[i] >= ' ' && text[i] != '\\' {
		i++
	}
	return i
}

// unescapeOne decodes the escape at the beginning of b. A length of 0 means that it is malformed.
func unescapeOne(b []byte) (decoded rune, length int) {
	if len(b) < 2 {
		return 0, 0
	}
	if b[1] == 'u' {
		return unescapeUnicode(b)
	}
	const from, to = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if i := bytes.IndexByte([]byte(from), b[1]); i >= 0 {
		return rune(to[i]), 2
	}
	return 0, 0
}

// unescapeUnicode decodes \u0041, or a surrogate pair such as \ud83d\ude00. Half a pair stands for no
// character.
func unescapeUnicode(b []byte) (decoded rune, length int) {
	high, ok := hex4(b)
	if !ok {
		return 0, 0
	}
	if !utf16.IsSurrogate(high) {
		return high, 6
	}
	low, ok := hex4(b[6:])
	decoded = utf16.DecodeRune(high, low)
	if !ok || decoded == utf8.RuneError {
		return 0, 0
	}
	return decoded, 12
}

// hex4 decodes \uXXXX.
func hex4(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	var two [2]byte
	if !decodeHex(two[:], b[2:6]) {
		return 0, false
	}
	return rune(two[0])<<8 | rune(two[1]), true
}
