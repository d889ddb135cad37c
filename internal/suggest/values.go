package suggest

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// This file examines sampled values. They are other people's text, so they are only printed through shown.

// shown returns a name or a value for a comment: in one line, of bounded length, without control characters.
// A text that is not a plain word is quoted.
func shown(text string) string {
	text = cut(text, 60)
	quoted := strconv.Quote(text)
	if quoted[1:len(quoted)-1] == text && text != "" && !strings.ContainsAny(text, " ,#") {
		return text
	}
	return quoted
}

func cut(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most]) + "…"
}

// fieldsOf returns the fields of a JSON object that are texts or numbers. ok: the text is an object. plain:
// no field is an object or an array.
func fieldsOf(text string) (names []string, ok, plain bool) {
	if digits, isHex := strings.CutPrefix(text, `\x`); isHex {
		content, _ := hex.DecodeString(digits)
		text = string(content)
	}
	var object map[string]any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if d.Decode(&object) != nil || object == nil {
		return nil, false, false
	}
	plain = true
	for name, v := range object {
		switch v.(type) {
		case string, json.Number:
			names = append(names, name)
		case bool, nil:
		default:
			plain = false
		}
	}
	return names, true, plain
}

// allShown joins names or values in the form of shown.
func allShown(texts []string, separator string) string {
	all := make([]string, len(texts))
	for i, text := range texts {
		all[i] = shown(text)
	}
	return strings.Join(all, separator)
}

// headersFit reports whether there are sampled values, and all are objects that can be headers.
func (p *proposing) headersFit(c *Column) bool {
	if values := p.f.values(c.Name); len(values) > 0 {
		return !slices.ContainsFunc(values, func(v string) bool { _, ok, plain := fieldsOf(v); return !ok || !plain })
	}
	return c.json() && strings.Contains(fold(c.Name), "headers")
}

// numberLike matches names such as invoiceNo and order_nr.
var numberLike = regexp.MustCompile(`(?:[a-z](?:No|Nr)|_no|_nr)$`)

// commonFields returns the fields of every sampled payload that could be a key. Fields with the name of an id
// come first.
func commonFields(p *proposing) []string {
	counts, rows := map[string]int{}, 0
	for _, v := range p.f.values(p.body) {
		names, ok, _ := fieldsOf(v)
		if !ok {
			continue
		}
		rows++
		for _, name := range names {
			counts[name]++
		}
	}
	var common []string
	for name, n := range counts {
		folded := fold(name)
		if n == rows && !slices.Contains(otherIDs, folded) && (strings.HasSuffix(folded, "id") || strings.HasSuffix(folded, "key") || strings.HasSuffix(folded, "number") || numberLike.MatchString(name)) {
			common = append(common, name)
		}
	}
	slices.Sort(common)
	return common[:min(len(common), 5)]
}

// serialized returns the name of the serializer of a value that only a program in the same language can read.
func serialized(value string) string {
	raw := []byte(value)
	if strings.HasPrefix(value, `\x`) {
		raw, _ = hex.DecodeString(value[2:min(len(value), 22)])
	}
	switch {
	case bytes.HasPrefix(raw, []byte("\xac\xed\x00\x05")):
		return "Java"
	case len(raw) > 2 && raw[0] == 0x80 && raw[1] >= 2 && raw[1] <= 5:
		return "Python's pickle"
	case len(raw) > 3 && (raw[0] == 'O' || raw[0] == 'a') && raw[1] == ':' && raw[2] >= '0' && raw[2] <= '9':
		return "PHP"
	case bytes.HasPrefix(raw, []byte("--- !ruby/")), bytes.HasPrefix(raw, []byte("\x04\x08")):
		return "Ruby"
	}
	return ""
}
