package tablesql

import (
	"fmt"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/sql"
)

// This file moves rows that were published to an archive.

// moveSQL deletes rows, and inserts them with what says that they were sent into the archive.
// It returns the ordinals of the rows. Where the archive takes fewer than were deleted, because a trigger
// there drops one, it is an error, so that no row is lost.
func (r *Relation) moveSQL(free bool) string {
	columns, refs := make([]string, len(r.Columns)), make([]string, len(r.Columns))
	for i := range r.Columns {
		columns[i], refs[i] = sql.Identifier(r.Columns[i].Name), Ref(r.Columns[i].Name)
	}
	names, values := r.inserted()
	archive := sql.Identifier(r.Table.Mapping.Archive.Schema, r.Table.Mapping.Archive.Name)
	with, gone := r.changing("DELETE FROM "+r.Name()+" AS t USING ", r.sendable(), free, nil, "u.n, "+strings.Join(refs, ", "))
	if with != "" {
		with += ", "
	}
	refusal := sql.Literal("the archive " + r.Table.Mapping.Archive.String() + " did not take each row: a trigger there drops some. Rows missing: ")
	return "WITH " + with + "gone(outbox_cdc_n, " + strings.Join(columns, ", ") + ") AS (" + gone + "), " +
		"kept AS (INSERT INTO " + archive + " (" + strings.Join(names, ", ") + ") OVERRIDING SYSTEM VALUE SELECT " + strings.Join(values, ", ") + " FROM gone AS t RETURNING 1), " +
		// Never run: it is not even understood once the table has got another column, which would be left behind.
		"whole AS (SELECT t.* FROM " + r.Name() + " AS t WHERE false UNION ALL SELECT " + strings.Join(refs, ", ") + " FROM " + r.Name() + " AS t WHERE false), " +
		"missing AS (SELECT (SELECT count(*) FROM gone) - (SELECT count(*) FROM kept) AS n) " +
		"SELECT CASE WHEN missing.n = 0 THEN gone.outbox_cdc_n ELSE (" + refusal + " || missing.n)::bigint END FROM gone, missing"
}

// inserted are the columns of the archive that are written, and their values in terms of a row t.
func (r *Relation) inserted() (names, values []string) {
	sent := map[string]string{}
	for _, a := range r.sentValues() {
		sent[a.column] = a.value
	}
	for i := range r.Columns {
		name := r.Columns[i].Name
		if r.Archive.Column(name).Generated {
			continue
		}
		value, set := sent[name]
		if !set {
			value = Ref(name)
		}
		names, values = append(names, sql.Identifier(name)), append(values, value)
	}
	return names, values
}

// archived makes sure that the archive has a place for everything that a row has.
func (r *Relation) archived() error {
	if r.Archive == nil {
		return nil
	}
	var problems, hints []string
	differs := func(problem, hint string, args ...any) {
		problems, hints = append(problems, problem), append(hints, "ALTER TABLE "+r.Archive.Name()+" "+fmt.Sprintf(hint, args...))
	}
	for i := range r.Columns {
		c := &r.Columns[i]
		switch a := r.Archive.Column(c.Name); {
		case a == nil:
			differs(fmt.Sprintf("column %q is missing there", c.Name), "ADD %s %s", sql.Identifier(c.Name), c.Type)
		case a.OID != c.OID:
			differs(fmt.Sprintf("column %q is %s there, and %s here", c.Name, a.Type, c.Type), "ALTER %s TYPE %s", sql.Identifier(c.Name), c.Type)
		case a.typmod != -1 && a.typmod != c.typmod && (a.OID != oidVarchar || c.typmod == -1 || a.typmod < c.typmod):
			differs(fmt.Sprintf("column %q holds less there", c.Name), "ALTER %s TYPE %s", sql.Identifier(c.Name), c.Type)
		}
	}
	for i := range r.Archive.Columns {
		a := &r.Archive.Columns[i]
		if r.Column(a.Name) == nil && a.NotNull && !a.filled && !a.Generated {
			differs(fmt.Sprintf("column %q must have a value there, and is not here", a.Name), "ALTER %s SET DEFAULT …", sql.Identifier(a.Name))
		}
	}
	if r.Archive.Unlogged {
		differs("it is unlogged, and a crash empties it", "SET LOGGED")
	}
	if r.Archive.OID == r.OID {
		problems, hints = append(problems, "it is the outbox itself"), append(hints, "name another table as archive")
	}
	if len(problems) == 0 {
		return nil
	}
	return &MappingError{
		Table: r.Table, Problem: "has rows that cannot be moved to the archive " + r.Table.Mapping.Archive.String() + " (" + strings.Join(problems, "; ") + ")",
		Hint: strings.Join(hints, "; "),
	}
}
