package mapping

import (
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// memberPlan is a compiled outbox.Member.
type memberPlan struct {
	field
	head     []byte // the name as JSON, followed by a colon
	constant []byte // as JSON; nil: the value comes from the column
	form     outbox.MemberForm
	omitNull bool
}

// The roles of members' columns, by form.
var roleMembers = map[outbox.MemberForm]role{
	outbox.MemberString:  {name: "a string of the payload", ok: anyKind, content: true},
	outbox.MemberBase64:  {name: "base64 in the payload", hint: "a bytea or text column", ok: func(k kind) bool { return k == kindBytea || isText(k) }, content: true},
	outbox.MemberJSON:    {name: "JSON in the payload", hint: "a json, jsonb, text or bytea column", ok: func(k kind) bool { return isJSONText(k) || k == kindBytea }, content: true},
	outbox.MemberNumber:  {name: "a number of the payload", hint: "a column of numbers", ok: func(k kind) bool { return isInteger(k) || isText(k) || k == kindOther }, content: true},
	outbox.MemberBoolean: {name: "a boolean of the payload", hint: "a boolean column", ok: func(k kind) bool { return k == kindBool }, content: true},
	outbox.MemberTime:    {name: "a time of the payload", hint: "a timestamptz or timestamp column", ok: isTime, content: true, time: true},
}

func (c *compiler) members(list []outbox.Member) []memberPlan {
	plans := make([]memberPlan, len(list))
	for i := range list {
		m := &list[i]
		plans[i] = memberPlan{head: append(appendString(nil, []byte(m.Name)), ':'), form: m.Form, omitNull: m.OmitNull}
		if m.Column == "" {
			plans[i].constant = appendString(nil, []byte(m.Value))
			continue
		}
		plans[i].field = c.field(m.Column, roleMembers[m.Form])
	}
	return plans
}

// object makes the payload from members, as compact JSON in their order.
func (r *reading) object(members []memberPlan) {
	text := append(r.arena.joined[:0], '{')
	for i := range members {
		m := &members[i]
		before := len(text)
		if before > 1 {
			text = append(text, ',')
		}
		text = append(text, m.head...)
		with, null, fault := r.member(text, m)
		switch {
		case fault != "":
			r.fail(&m.field, fault)
		case null && m.omitNull:
			with = text[:before]
		case null:
			with = append(text, "null"...)
		}
		text = with
	}
	text = append(text, '}')
	r.arena.joined = text
	r.row.Value = r.arena.copy(text)
}

// member appends the value of a member.
func (r *reading) member(to []byte, m *memberPlan) (out []byte, null bool, fault fault) {
	if m.constant != nil {
		return append(to, m.constant...), false, ""
	}
	v := r.values[m.at]
	if v.Format == Null {
		return to, true, ""
	}
	var text []byte
	switch m.form {
	case outbox.MemberBoolean:
		is, _, fault := m.boolean(v)
		return strconv.AppendBool(to, is), false, fault
	case outbox.MemberBase64:
		if text, fault = m.content(v, r.arena); fault != "" {
			return to, false, fault
		}
		return append(base64.StdEncoding.AppendEncode(append(to, '"'), text), '"'), false, ""
	case outbox.MemberTime:
		text, fault = m.rfc3339(v, r.arena)
	default:
		text, fault = m.document(v, r.arena)
	}
	if m.form == outbox.MemberJSON && m.kind != kindJSON && m.kind != kindJSONB && fault == "" {
		// One value that is not JSON would make the whole payload invalid.
		s := jsonScanner{text: text, arena: r.arena, depth: deepest}
		_, fault = s.locate(nil)
	}
	switch {
	case fault != "":
		return to, false, fault
	case m.form == outbox.MemberNumber && !isNumber(text):
		return to, false, "is not a number that JSON can say: correct the row, or map it as a string"
	case m.form == outbox.MemberNumber, m.form == outbox.MemberJSON:
		return append(to, text...), false, ""
	}
	return appendString(to, text), false, ""
}

func isNumber(text []byte) bool {
	s := jsonScanner{text: text}
	_, ok := s.number()
	return ok && s.at == len(text)
}

// appendString appends a text as a JSON string. Like most encoders, it escapes only what it must, and uses
// the short escape of a control character if there is one.
func appendString(to, text []byte) []byte {
	const digits, letters = "0123456789abcdef", "\bb\tt\nn\ff\rr"
	to = append(to, '"')
	from := 0
	for i, c := range text {
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		to = append(to, text[from:i]...)
		from = i + 1
		switch letter := strings.IndexByte(letters, c); {
		case c == '"', c == '\\':
			to = append(to, '\\', c)
		case letter >= 0:
			to = append(to, '\\', letters[letter+1])
		default:
			to = append(to, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
	}
	return append(append(to, text[from:]...), '"')
}
