package tablesql

import (
	"strconv"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// This file reads the JSON of rows in SQL. One statement covers many rows, and PostgreSQL would end it at any
// of these: a text that is not JSON, an escape that the database's encoding lacks, a document nested deeper
// than its stack allows. So each document is first checked by regular expressions, which raise no error. IS
// JSON exists only from version 16 on, and raises errors too. A jsonb value needs no check.

const (
	oidJSON  = 114
	oidJSONB = 3802
)

// jsonString matches a JSON string whose escapes PostgreSQL can turn into text. In a database that is not
// UTF8 these are only the escapes of ASCII characters, which every encoding has.
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

// soundJSON returns the condition that a text is JSON, nested no deeper than outbox.MaxJSONDepth. It replaces
// each string by "" and each other scalar by 0. Then it replaces the innermost objects and arrays by 0, once
// per level. Blanks are kept, because they separate tokens.
func (r *Relation) soundJSON(text string) string {
	replace := func(from, pattern, to string) string {
		return "regexp_replace(" + from + ", " + sql.Literal(pattern) + ", '" + to + "', 'g')"
	}
	start := replace(replace(text, r.jsonString(), `""`), jsonScalar, "0")
	return "(WITH RECURSIVE r(s, n) AS (SELECT " + start + ", 0 UNION ALL SELECT " + replace("s", jsonContainer, "0") +
		", n + 1 FROM r WHERE n < " + strconv.Itoa(outbox.MaxJSONDepth) + " AND s ~ '[[{]') SELECT bool_or(s ~ " + sql.Literal("^"+jsonAnything+"$") + ") FROM r)"
}

// utf8Digits matches the hexadecimal digits of UTF-8 text without NUL, asciiDigits those of ASCII text
// without NUL.
const (
	asciiDigits = `0[1-9a-f]|[1-7][0-9a-f]`
	utf8Rest    = `[89ab][0-9a-f]`
	utf8Digits  = asciiDigits + `|(?:c[2-9a-f]|d[0-9a-f])` + utf8Rest + `|(?:e0[ab][0-9a-f]|e[1-9abcef]` + utf8Rest + `|ed[89][0-9a-f])` + utf8Rest +
		`|(?:f0[9ab][0-9a-f]|f[1-3]` + utf8Rest + `|f48[0-9a-f])(?:` + utf8Rest + `){2}`
)

// document returns an expression for a column's text as JSON. For a value that cannot be read it gives an
// empty text, which is not JSON.
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

// found returns an expression for one place of a value: an array with the text at that place, or with NULL if
// there is nothing. The array itself is NULL where package mapping reports an error of the row.
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
		// A text with few brackets is not nested deeply. Without \u, no escape is refused.
		sound = `CASE WHEN strpos(d.j, '\u') = 0 AND length(d.j) - length(translate(d.j, '[{', '')) <= ` + strconv.Itoa(outbox.MaxJSONDepth) + " AND d.j <> '' THEN true ELSE " + sound + " END"
	}
	return "(SELECT CASE WHEN d.j IS NULL THEN ARRAY[NULL::text] WHEN " + sound + " THEN " + follow("d.j::json", "json", e.Pointer) +
		" END FROM (SELECT " + r.document(c) + " AS j OFFSET 0) AS d)"
}

// follow returns an expression for what a pointer leads to. It applies one operator per part. Each operator
// uses the last of two equal keys; a path of several parts (#>) may find what only the first one has.
func follow(document, sqlType string, pointer []string) string {
	for _, part := range pointer {
		if n, err := strconv.Atoi(part); err == nil && n >= 0 && strconv.Itoa(n) == part {
			document += " #> ARRAY[" + sql.Literal(part) + "]" // works for objects and arrays
			continue
		}
		document += " -> " + sql.Literal(part) + "::text"
	}
	return "(SELECT CASE WHEN " + sqlType + "_typeof(p.v) IN ('object', 'array') THEN NULL ELSE ARRAY[p.v #>> '{}'] END FROM (SELECT " + document + " AS v OFFSET 0) AS p)"
}

// first returns an expression for the text of a value: the text at its first place that has one.
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
