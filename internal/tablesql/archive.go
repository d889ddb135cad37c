package tablesql

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/sql"
)

// This file moves published rows to an archive.

// moveSQL deletes rows and inserts them into the archive as sent. It returns their ordinals. The statement
// fails rather than lose a value, in two cases. A trigger of the archive drops a row, so that fewer rows are
// inserted than deleted. Or one of the tables was altered since the two were compared: an INSERT silently
// rounds or cuts a value to what its column holds.
func (r *Relation) moveSQL(free bool) string {
	columns, refs := make([]string, len(r.Columns)), make([]string, len(r.Columns))
	for i, c := range r.Columns {
		columns[i], refs[i] = sql.Identifier(c.Name), Ref(c.Name)
	}
	names, values := r.inserted()
	with, gone := r.changing("DELETE FROM "+r.Name()+" AS t USING ", r.sendable(), free, nil, "u.n, "+strings.Join(refs, ", "))
	if with != "" {
		with += ", "
	}
	current, loaded := r.shapes()
	// The error's SQLSTATE refuses the table and not the row. The expression names a column, so that the
	// planner does not evaluate it before the condition.
	altered := "current_setting(concat(" + sql.Literal("table "+r.Table.String()+" or its archive "+r.Table.Mapping.Archive.String()+" was altered: they have to be compared again") + ", left(shape.s, 0)))::bigint"
	refusal := sql.Literal("the archive " + r.Table.Mapping.Archive.String() + " did not take each row: a trigger there drops some. Rows missing: ")
	return "WITH " + with + "gone(outbox_cdc_n, " + strings.Join(columns, ", ") + ") AS (" + gone + "), " +
		"kept AS (INSERT INTO " + r.Archive.Name() + " (" + strings.Join(names, ", ") + ") OVERRIDING SYSTEM VALUE SELECT " + strings.Join(values, ", ") + " FROM gone AS t RETURNING 1), " +
		"missing AS (SELECT (SELECT count(*) FROM gone) - (SELECT count(*) FROM kept) AS n), " +
		"shape AS MATERIALIZED (" + current + ") " +
		"SELECT CASE WHEN shape.s IS DISTINCT FROM " + loaded + " THEN " + altered +
		" WHEN missing.n = 0 THEN gone.outbox_cdc_n ELSE (" + refusal + " || missing.n)::bigint END FROM gone, missing, shape"
}

// shapes returns a query for the present shape of the table and its archive, and their shape when they were
// compared. The statement has locked both tables by the time it reads the catalogue.
func (r *Relation) shapes() (current, loaded string) {
	first, second := r, r.Archive
	if first.OID > second.OID {
		first, second = second, first
	}
	oid := func(r *Relation) string { return sql.Literal(r.Name()) + "::regclass" }
	return "SELECT string_agg(" + columnShape + ", ',' ORDER BY a.attrelid, a.attnum) AS s FROM pg_catalog.pg_attribute a " +
		"JOIN pg_catalog.pg_class c ON c.oid = a.attrelid WHERE a.attrelid IN (" + oid(r) + ", " + oid(r.Archive) + ") AND a.attnum > 0 AND NOT a.attisdropped", sql.Literal(first.shape + "," + second.shape)
}

// inserted returns the columns of the archive that are written, and their values as expressions on a row t.
func (r *Relation) inserted() (names, values []string) {
	sent := map[string]string{}
	if set := r.sentValues(); len(set) > 0 {
		for _, a := range append(set, r.raised()...) {
			sent[a.column] = a.value
		}
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

// archived returns an error unless the archive has a column for each column of the table.
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
		case a.Generated && !c.Generated:
			differs(fmt.Sprintf("column %q is generated there, and not here", c.Name), "ALTER %s DROP EXPRESSION", sql.Identifier(c.Name))
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
	switch {
	case r.Archive.OID == r.OID:
		problems, hints = append(problems, "it is the outbox itself"), append(hints, "name another table as archive")
	case slices.Contains(r.Archive.above, strconv.FormatUint(uint64(r.OID), 10)):
		problems = append(problems, "it inherits from the outbox, or is a partition of it: what is moved there is still read with the outbox")
		hints = append(hints, "name another table as archive")
	}
	if len(problems) == 0 {
		return nil
	}
	return r.unfit("has rows that cannot be moved to the archive "+r.Table.Mapping.Archive.String()+" ("+strings.Join(problems, "; ")+")", strings.Join(hints, "; "))
}
