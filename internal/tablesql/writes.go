package tablesql

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// This file finds out, without writing, whether a table accepts what we write. The server plans each
// statement, which checks types, lengths, generated columns and privileges. A query evaluates the rules for
// single rows: NOT NULL, CHECK, domains, foreign keys.

// Write is a statement that changes rows of a table.
type Write struct {
	// Name says what the statement does.
	Name string
	// Asked: the statement runs only when an operator asks for it. Discards: it is one of the two ways to
	// discard a row.
	Asked, Discards bool
	// Explain plans the statement, for no row.
	Explain Step
	// To is the table that the statement writes to.
	To *Relation

	from  *Relation
	state string // condition for the state of the rows that it applies to
	set   []assignment
}

// sets reports whether the statement writes the column.
func (w *Write) sets(column string) bool {
	return slices.ContainsFunc(w.set, func(a assignment) bool { return a.column == column })
}

// Writes returns the statements that a process, or an operator, may run.
func (r *Relation) Writes() ([]Write, error) {
	if !r.Table.Stateful() {
		return nil, nil
	}
	marking, err := r.Marking()
	if err != nil {
		return nil, err
	}
	sent := Write{Name: "marking a row that was sent", Explain: Step{SQL: marking.Sent}, set: append(r.sentValues(), r.raised()...)}
	switch r.Table.Mapping.Published {
	case outbox.PublishedDelete:
		sent.Name, sent.set = "deleting a row that was sent", nil
	case outbox.PublishedArchive:
		sent.Name, sent.To = "moving a row that was sent to the archive", r.Archive
	}
	all := []Write{sent}
	if marking.Attempt != "" {
		all = append(all, r.attemptWrites(marking.Attempt)...)
	}
	for i := range all {
		w := &all[i]
		w.state = r.ourPending()
		if i == 0 {
			w.Explain.Args, err = r.RowArrays(0, nil)
		} else {
			w.Explain.Args, err = r.AttemptArrays(0, nil)
		}
		if err != nil {
			return nil, err
		}
	}
	if r.Table.Mapping.Status.Processing != "" {
		if step, err := r.Recover(nil, nil); err == nil {
			all = append(all, Write{Name: "recovering a row that another relay left", Explain: step, state: r.ofOurs(r.processing()), set: append(r.isPending(), r.raised()...)})
		}
	}
	all = append(all, r.askedFor()...)
	for i := range all {
		w := &all[i]
		if w.from = r; w.To == nil {
			w.To = r
		}
		w.Explain = Step{SQL: "EXPLAIN (COSTS off) " + w.Explain.SQL, Args: w.Explain.Args}
	}
	return all, nil
}

// attemptWrites returns the two outcomes of one statement as two writes: it charges an attempt, or the last
// one.
func (r *Relation) attemptWrites(statement string) []Write {
	s := &r.Table.Mapping.Status
	reason := assignment{s.LastError, sql.Literal(r.Reason(strings.Repeat("x", 10_000)))}
	charged := append([]assignment{reason}, r.raised()...)
	if s.Attempts != "" {
		charged = append(charged, assignment{s.Attempts, r.raisedAttempts()})
	}
	all := []Write{{Name: "noting a failed attempt", Explain: Step{SQL: statement}, set: charged}}
	if r.failedSet() != nil {
		set := append([]assignment{{s.Attempts, r.budget()}, reason}, r.failedValues()...)
		all = append(all, Write{Name: "giving a row up after its last attempt", Explain: Step{SQL: statement}, set: append(set, r.raised()...)})
	}
	return all
}

// askedFor returns the statements that only operators ask for.
func (r *Relation) askedFor() (all []Write) {
	add := func(name string, discards bool, state RowState, set []assignment, of func() (*Change, error)) {
		change, err := of()
		condition, unkept := r.inState(state)
		if err != nil || unkept != nil {
			return // the command refuses before it runs a statement
		}
		if step, err := change.Of(nil, nil); err == nil {
			all = append(all, Write{Name: name, Asked: true, Discards: discards, Explain: step, state: condition, set: set})
		}
	}
	requeue := func(state RowState) func() (*Change, error) {
		return func() (*Change, error) { return r.Requeue(state) }
	}
	untried := append(r.untriedSet(), r.raised()...)
	add("`failed requeue`", false, RowsFailed, untried, requeue(RowsFailed))
	add("`replay`", false, RowsSent, untried, requeue(RowsSent))
	another := append([]assignment{{r.Table.Mapping.Status.Column, sql.Literal("ARCHIVED")}}, r.raised()...)
	add("`failed discard --status ARCHIVED`", true, RowsFailed, another, func() (*Change, error) { return r.Dismiss("ARCHIVED") })
	add("`failed discard --delete`", true, RowsFailed, nil, func() (*Change, error) { return r.Delete(RowsFailed) })
	return all
}

// Rule is a condition on each row of a table, as the catalogue has it.
type Rule struct {
	Name       string   `json:"name"`
	Expression string   `json:"expression"`
	Columns    []string `json:"columns"`
	Text       string   `json:"text"`
}

// Rules are the conditions on a table's rows. Types are the columns' types in SQL form.
type Rules struct {
	Rules []Rule            `json:"rules"`
	Types map[string]string `json:"types"`
	// Triggers are those that may change the values that we write before the rules are checked.
	Triggers []string `json:"triggers"`
}

// RulesSQL reads Rules as one JSON document. $1 is the table's OID, $2 the bit of the event in a trigger's
// type. A foreign key of one column becomes a condition if the role may read the table that it refers to.
const RulesSQL = `
SELECT jsonb_build_object(
    'types', (SELECT jsonb_object_agg(a.attname, format_type(a.atttypid, a.atttypmod))
        FROM pg_catalog.pg_attribute a WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped),
    'triggers', (SELECT jsonb_agg(t.tgname ORDER BY t.tgname) FROM pg_catalog.pg_trigger t
        WHERE t.tgrelid = $1::oid AND NOT t.tgisinternal AND t.tgenabled <> 'D' AND t.tgtype & 3 = 3 AND t.tgtype & $2::int <> 0),
    'rules', (SELECT jsonb_agg(jsonb_build_object('name', k.conname, 'text', pg_get_constraintdef(k.oid), 'columns', n.names,
            'expression', CASE k.contype WHEN 'c' THEN pg_get_expr(k.conbin, k.conrelid)
                ELSE format('%1$I IS NULL OR EXISTS (SELECT FROM %2$s p WHERE p.%3$I = %4$I.%1$I)', n.names->>0, k.confrelid::regclass,
                    (SELECT f.attname FROM pg_catalog.pg_attribute f WHERE f.attrelid = k.confrelid AND f.attnum = k.confkey[1]), c.relname) END) ORDER BY k.conname)
        FROM pg_catalog.pg_constraint k JOIN pg_catalog.pg_class c ON c.oid = k.conrelid
        CROSS JOIN LATERAL (SELECT coalesce(jsonb_agg(a.attname), '[]') AS names
            FROM pg_catalog.pg_attribute a WHERE a.attrelid = k.conrelid AND a.attnum = ANY (k.conkey)) n
        WHERE k.conrelid = $1::oid AND to_jsonb(k)->>'conenforced' IS DISTINCT FROM 'false'
          AND (k.contype = 'c' OR k.contype = 'f' AND cardinality(k.conkey) = 1 AND has_table_privilege(k.confrelid, 'SELECT')
              AND has_schema_privilege((SELECT f.relnamespace FROM pg_catalog.pg_class f WHERE f.oid = k.confrelid), 'USAGE'))))
FROM pg_catalog.pg_class WHERE oid = $1::oid`

// Broken is a rule that rows would break once they are written.
type Broken struct {
	Rule
	// Column does not accept NULL, or not as many characters. Empty: the rule is a constraint.
	Column string
	// Rows is how many of the Seen rows of the table would break the rule. If Seen is 0, a row with only the
	// values that we write would break it.
	Rows, Seen int
}

// Surely reports whether every seen row breaks the rule. If no row was seen, it reports whether every row
// will.
func (b *Broken) Surely(w *Write) bool {
	if b.Seen > 0 {
		return b.Rows == b.Seen
	}
	return b.Column != "" || allTrue(b.Columns, w.sets)
}

// Evaluate finds the rules that would be broken by rows that the write applies to (at most a hundred), and by
// a row that is NULL wherever we do not write.
func (w *Write) Evaluate(rules *Rules, broken func(Broken)) Step {
	var judged []Broken
	var terms []string
	// The row that is NULL elsewhere may break a rule for that reason alone.
	whole := map[int]bool{}
	add := func(b Broken, term string, of ...string) {
		whole[len(terms)] = allTrue(of, w.sets)
		judged, terms = append(judged, b), append(terms, term)
	}
	touched := func(name string) bool { return w.sets(name) || w.To != w.from }
	for i := range w.To.Columns {
		c := &w.To.Columns[i]
		name := sql.Identifier(c.Name)
		if c.NotNull && touched(c.Name) {
			add(Broken{Column: c.Name, Rule: Rule{Text: "NOT NULL"}}, name+" IS NOT NULL", c.Name)
		}
		if c.MaxChars > 0 && touched(c.Name) {
			add(Broken{Column: c.Name, Rule: Rule{Text: fmt.Sprintf("%s(%d)", c.Type, c.MaxChars)}}, fmt.Sprintf("(%s IS NULL OR char_length(%[1]s) <= %d)", name, c.MaxChars), c.Name)
		}
	}
	for _, rule := range rules.Rules {
		readable := func(name string) bool { c := w.from.Column(name); return c == nil || c.Readable }
		if slices.ContainsFunc(rule.Columns, touched) && allTrue(rule.Columns, readable) {
			add(Broken{Rule: rule}, "("+rule.Expression+")", rule.Columns...)
		}
	}
	if len(terms) == 0 {
		return Step{}
	}
	var after, before []string
	for i, term := range terms {
		before = append(before, fmt.Sprintf("%t OR (%s) IS NOT FALSE AS kept%d", whole[i], term, i))
		after = append(after, fmt.Sprintf("(%s) IS FALSE AS bad%d", term, i))
	}
	counts := []string{"count(*) FILTER (WHERE NOT outbox_cdc_made)"}
	for i := range terms {
		counts = append(counts, fmt.Sprintf("count(*) FILTER (WHERE NOT outbox_cdc_made AND bad%d)", i), fmt.Sprintf("count(*) FILTER (WHERE outbox_cdc_made AND bad%d AND kept%[1]d)", i))
	}
	text := "SELECT " + strings.Join(counts, ", ") + " FROM " + w.rows() +
		" CROSS JOIN LATERAL (SELECT " + strings.Join(before, ", ") + " FROM (SELECT " + w.columns(w.from.isPending(), rules.Types) + ") AS " + sql.Identifier(w.To.Table.Name) + ") AS b" +
		" CROSS JOIN LATERAL (SELECT " + strings.Join(after, ", ") + " FROM (SELECT " + w.columns(w.set, rules.Types) + ") AS " + sql.Identifier(w.To.Table.Name) + ") AS a"
	return Step{SQL: text, Each: func(row [][]byte) error {
		for i, b := range judged {
			var seen, rows, empty int64
			if err := errors.Join(scan(row[0], &seen), scan(row[1+2*i], &rows), scan(row[2+2*i], &empty)); err != nil {
				return err
			}
			if b.Rows, b.Seen = int(rows), int(seen); rows > 0 || empty > 0 && seen == 0 {
				broken(b)
			}
		}
		return nil
	}}
}

func allTrue[T any](all []T, is func(T) bool) bool {
	return !slices.ContainsFunc(all, func(t T) bool { return !is(t) })
}

// Casts returns queries, by column, that fail where the column's type does not accept what we write.
func (w *Write) Casts(rules *Rules) map[string]Step {
	all := map[string]Step{}
	for _, a := range w.set {
		if c := w.To.Column(a.column); c != nil {
			all[c.Name] = Step{SQL: "SELECT count((" + a.value + ")::" + rules.Types[c.Name] + ") FROM " + w.rows()}
		}
	}
	return all
}

// rows selects some rows that the write applies to, from the table's first thousand, and one row that is all
// NULL.
func (w *Write) rows() string {
	var columns []string
	for i := range w.from.Columns {
		if c := &w.from.Columns[i]; c.Readable {
			columns = append(columns, Ref(c.Name))
		}
	}
	list := strings.Join(columns, ", ")
	some := "SELECT " + list + " FROM " + w.from.Name() + " AS t LIMIT 1000"
	return "((SELECT false AS outbox_cdc_made, " + list + " FROM (" + some + ") AS t WHERE " + w.state + " LIMIT 100)" +
		" UNION ALL SELECT true, " + list + " FROM (SELECT) AS one LEFT JOIN " + w.from.Name() + " AS t ON false) AS t"
}

// isPending sets the status of a row that nobody has tried.
func (r *Relation) isPending() []assignment {
	s := &r.Table.Mapping.Status
	if s.Column == "" || len(s.Pending) == 0 {
		return nil
	}
	return []assignment{{s.Column, sql.Literal(s.Pending[0])}}
}

// columns lists the columns of the written table with the values that the write leaves.
func (w *Write) columns(set []assignment, types map[string]string) string {
	var list []string
	for i := range w.To.Columns {
		c := &w.To.Columns[i]
		value := "NULL::" + c.Type
		if from := w.from.Column(c.Name); from != nil && from.Readable {
			value = Ref(c.Name)
		}
		for _, a := range set {
			if a.column == c.Name {
				value = "(" + a.value + ")::" + unbounded(types[c.Name], c)
			}
		}
		list = append(list, value+" AS "+sql.Identifier(c.Name))
	}
	return strings.Join(list, ", ")
}

// unbounded returns the type without its length: a cast to the full type would cut a longer value and hide
// the fault.
func unbounded(written string, c *Column) string {
	if c.MaxChars > 0 {
		return c.Type
	}
	return written
}
