package tablesql

import (
	"strconv"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// This file reads JSON of rows in SQL. A statement is about many rows, and PostgreSQL
// ends it at one text that is no JSON, at one escape that is no text of the database, and
// at one document that is nested deeper than its stack. So each document is looked at
// first, by regular expressions, which raise nothing: IS JSON came with version 16, and
// raises too. jsonb holds nothing of the kind.

const (
	oidJSON  = 114
	oidJSONB = 3802
)

// jsonString matches a string of JSON whose escapes PostgreSQL turns into text: in a
// database that is not UTF8 only those of ASCII, which every encoding has.
func (r *Relation) jsonString() string {
	escapes := `000[1-9a-fA-F]|00[1-9a-fA-F][0-9a-fA-F]|0[1-9a-fA-F][0-9a-fA-F]{2}|[1-9a-cA-Ce-fE-F][0-9a-fA-F]{3}|` +
		`[dD][0-7][0-9a-fA-F]{2}|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}`
	if r.Charset != nil {
		escapes = `000[1-9a-fA-F]|00[1-7][0-9a-fA-F]`
	}
	return `"(?:[^"\\\u0001-\u001f]|\\(?:["\\/bfnrt]|u(?:` + escapes + `)))*"`
}

const (
	jsonScalar    = `-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null`
	jsonBlanks    = `[ \t\n\r]*`
	jsonAnything  = jsonBlanks + `(?:""|0)` + jsonBlanks
	jsonMember    = jsonBlanks + `""` + jsonBlanks + `:` + jsonAnything
	jsonContainer = `\[(?:` + jsonBlanks + `|` + jsonAnything + `(?:,` + jsonAnything + `)*)\]|\{(?:` + jsonBlanks + `|` + jsonMember + `(?:,` + jsonMember + `)*)\}`
)

// soundJSON is the condition that a text is JSON, nested no deeper than
// outbox.MaxJSONDepth. Each string becomes "", each other scalar 0; then the innermost
// objects and arrays become 0, again and again. Blanks stay, or what they part would
// come together.
func (r *Relation) soundJSON(text string) string {
	replace := func(from, pattern, to string) string {
		return "regexp_replace(" + from + ", " + sql.Literal(pattern) + ", '" + to + "', 'g')"
	}
	start := replace(replace(text, r.jsonString(), `""`), jsonScalar, "0")
	return "(WITH RECURSIVE r(s, n) AS (SELECT " + start + ", 0 UNION ALL SELECT " + replace("s", jsonContainer, "0") +
		", n + 1 FROM r WHERE n < " + strconv.Itoa(outbox.MaxJSONDepth) + " AND s ~ '[[{]') SELECT bool_or(s ~ " + sql.Literal("^"+jsonAnything+"$") + ") FROM r)"
}

// utf8Digits matches the hexadecimal digits of UTF-8 without NUL, asciiDigits those of ASCII.
const (
	asciiDigits = `0[1-9a-f]|[1-7][0-9a-f]`
	utf8Rest    = `[89ab][0-9a-f]`
	utf8Digits  = asciiDigits + `|(?:c[2-9a-f]|d[0-9a-f])` + utf8Rest + `|(?:e0[ab][0-9a-f]|e[1-9abcef]` + utf8Rest + `|ed[89][0-9a-f])` + utf8Rest +
		`|(?:f0[9ab][0-9a-f]|f[1-3]` + utf8Rest + `|f48[0-9a-f])(?:` + utf8Rest + `){2}`
)

// document is a column's text as JSON. A value that cannot be read is an empty text,
// which is no JSON.
func (r *Relation) document(c *Column) string {
	var terms []string
	if most := r.Table.Mapping.MaxRowBytes; most > 0 && !c.short(most) {
		fits, _ := c.within(most)
		terms = append(terms, fits)
	}
	text := c.printed()
	if c.OID == oidBytea {
		digits := utf8Digits
		if r.Charset != nil {
			digits = asciiDigits
		}
		terms = append(terms, "encode("+Ref(c.Name)+", 'hex') ~ "+sql.Literal("^(?:"+digits+")*$"))
		text = "convert_from(" + Ref(c.Name) + ", 'UTF8')"
	}
	if len(terms) == 0 {
		return text
	}
	return "CASE WHEN " + Ref(c.Name) + " IS NULL THEN NULL WHEN " + strings.Join(terms, " AND ") + " THEN " + text + " ELSE '' END"
}

// found is one of the places of a value: an array with its text, NULL if nothing is there. The
// array is NULL where package mapping has an error of the row.
func (r *Relation) found(e *outbox.Expr, plain func(*Column) string) string {
	c := r.Column(e.Column)
	switch {
	case len(e.Pointer) == 0:
		return "ARRAY[" + plain(c) + "]"
	case c.OID == oidJSONB:
		return follow(Ref(c.Name), "jsonb", e.Pointer)
	}
	sound := r.soundJSON("d.j")
	if c.OID == oidJSON {
		// Few brackets cannot be nested deep, and without \u nothing else is refused.
		sound = `CASE WHEN strpos(d.j, '\u') = 0 AND length(d.j) - length(translate(d.j, '[{', '')) <= ` + strconv.Itoa(outbox.MaxJSONDepth) + " AND d.j <> '' THEN true ELSE " + sound + " END"
	}
	return "(SELECT CASE WHEN d.j IS NULL THEN ARRAY[NULL::text] WHEN " + sound + " THEN " + follow("d.j::json", "json", e.Pointer) +
		" END FROM (SELECT " + r.document(c) + " AS j OFFSET 0) AS d)"
}

// follow reads what a pointer leads to. Each operator takes the last of two equal keys; a path
// of several (#>) may take what only the first one has.
func follow(document, sqlType string, pointer []string) string {
	for _, part := range pointer {
		if n, err := strconv.Atoi(part); err == nil && n >= 0 && strconv.Itoa(n) == part {
			document += " #> ARRAY[" + sql.Literal(part) + "]" // of an object or an array
			continue
		}
		document += " -> " + sql.Literal(part) + "::text"
	}
	return "(SELECT CASE WHEN " + sqlType + "_typeof(p.v) IN ('object', 'array') THEN NULL ELSE ARRAY[p.v #>> '{}'] END FROM (SELECT " + document + " AS v OFFSET 0) AS p)"
}

// first is the text of a value: of its first place where there is something.
func (r *Relation) first(e *outbox.Expr, plain func(*Column) string) string {
	if len(e.Pointer) == 0 && len(e.Or) == 0 {
		return plain(r.Column(e.Column))
	}
	if len(e.Or) == 0 {
		return "(" + r.found(e, plain) + `)[1] COLLATE "C"`
	}
	places := append([]outbox.Expr{{Column: e.Column, Pointer: e.Pointer}}, e.Or...)
	list := make([]string, len(places))
	var which strings.Builder
	for i := range places {
		name := "p" + strconv.Itoa(i)
		list[i] = r.found(&places[i], plain) + " AS " + name
		which.WriteString(" WHEN " + name + " IS NULL THEN NULL WHEN " + name + "[1] IS NOT NULL THEN " + name + "[1]")
	}
	return "(SELECT CASE" + which.String() + " END FROM (SELECT " + strings.Join(list, ", ") + ` OFFSET 0) AS f) COLLATE "C"`
}
