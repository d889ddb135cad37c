package tablesql

import (
	"maps"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// This file is the SQL of names and conditions: what package mapping makes of an outbox.Expr. Both give the
// same text, or one is NULL where the other has an error of the row. How rows are selected is in selected.go.

// named is a value as names are read.
func (r *Relation) named(e *outbox.Expr) string {
	word := r.first(e, (*Column).word)
	if e.Map == nil {
		return word
	}
	return mapped(word, e.Map, sql.Literal) + ` COLLATE "C"`
}

// mapped is what a map gives for a text; the function writes each of its texts.
func mapped(word string, m *outbox.ValueMap, write func(text string) string) string {
	var b strings.Builder
	when := func(condition, text string) { b.WriteString(" WHEN " + condition + " THEN " + write(text)) }
	for _, from := range slices.Sorted(maps.Keys(m.Exact)) {
		when("m.w = "+sql.Literal(from), m.Exact[from])
	}
	for _, beginning := range m.Beginnings {
		when("starts_with(m.w, "+sql.Literal(beginning.With)+")", beginning.Text)
	}
	if m.Otherwise != "" {
		when("m.w IS NOT NULL", m.Otherwise)
	}
	return "(SELECT CASE" + b.String() + " END FROM (SELECT " + word + " AS w OFFSET 0) AS m)"
}

// ours is the condition that a row is ours by the mapping's conditions, true or false and never
// NULL; empty: every row is.
func (r *Relation) ours() string {
	var terms []string
	for _, condition := range r.Table.Mapping.Rows {
		c := r.Column(condition.Column)
		is := " IS TRUE"
		if condition.Not {
			is = " IS NOT TRUE"
		}
		var ways []string
		if len(condition.Values) > 0 {
			texts := mapping.Printed(condition.Values, mapping.Column{Name: c.Name, OID: c.OID, Enum: c.Enum})
			ways = append(ways, c.word()+" IN ("+joined(texts, ", ", sql.Literal)+")")
		}
		if condition.Null {
			ways = append(ways, Ref(c.Name)+" IS NULL")
		}
		terms = append(terms, "("+strings.Join(ways, " OR ")+")"+is)
	}
	if e := r.Table.Mapping.LeavesToOthers(); e != nil {
		known := mapped(r.first(e, (*Column).word), e.Map, func(string) string { return "true" })
		terms = append(terms, known+" IS TRUE")
	}
	return allOf(terms...)
}
