package tablesql

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// ourPending returns the condition that a row is ours and still to be published. Its form lets an index on
// the status column, or a partial index with this condition, serve it.
func (r *Relation) ourPending() string { return r.ofOurs(r.pending()) }

// chosen returns the condition that a row is ours, by the mapping's conditions and the stream's share; "" if
// every row is. Rows found by their id were chosen before. The condition is hidden from the planner. It would
// estimate that a modulus matches one row in two hundred, and would read and sort a backlog instead of
// following an index's order.
func (r *Relation) chosen() string {
	if condition := allOf(r.ours(), r.Table.Filter("t.")); condition != "" {
		return Opaque(condition)
	}
	return ""
}

// ofOurs restricts a condition to our rows.
func (r *Relation) ofOurs(condition string) string {
	ours := r.chosen()
	if ours == "" || condition == "false" {
		return condition
	}
	return "(" + condition + ") AND " + ours
}

// pending returns the condition that a row, ours or not, is still to be published.
func (r *Relation) pending() string {
	terms := r.untouched()
	if r.Table.Mapping.Status.CountDecides() {
		terms = append(terms, r.attempts()+" < "+r.budget())
	}
	return r.orResend(conjunction(terms...))
}

// orResend extends a condition to rows whose resend column is true, if the condition is not empty. These rows
// count whatever their other columns say, so OR is outermost.
func (r *Relation) orResend(condition string) string {
	if resend := r.Table.Mapping.Status.Resend; resend != "" && condition != "" {
		return "(" + condition + " OR " + Ref(resend) + ")"
	}
	return condition
}

// butResend returns the condition that the resend column is not true; "" if there is no such column.
func (r *Relation) butResend() string {
	if resend := r.Table.Mapping.Status.Resend; resend != "" {
		return Ref(resend) + " IS NOT TRUE"
	}
	return ""
}

// untouched returns the terms of pending without those of the budget and of the resend column.
func (r *Relation) untouched() []string {
	s := &r.Table.Mapping.Status
	terms := r.unsent()
	if s.Column == "" && s.FailedAt != "" {
		terms = append(terms, Ref(s.FailedAt)+" IS NULL")
	}
	return terms
}

// unsent is untouched without the term of FailedAt.
func (r *Relation) unsent() []string {
	s := &r.Table.Mapping.Status
	var terms []string
	switch {
	case s.Column != "":
		pending := r.oneOf(s.Column, s.Pending...)
		if s.PendingNull {
			pending = "(" + pending + " OR " + Ref(s.Column) + " IS NULL)"
		}
		terms = append(terms, pending)
	case s.SentAt != "":
		terms = append(terms, Ref(s.SentAt)+" IS NULL")
	}
	for _, name := range s.SentBy {
		terms = append(terms, Ref(name)+" IS NULL")
	}
	return terms
}

// sendable returns the condition under which a mark of success is written: the row is pending. If a failed
// row can be sent again by a resend column, its delivery outweighs its failure.
func (r *Relation) sendable() string {
	if r.Table.Mapping.Status.Resend == "" {
		return r.pending()
	}
	return r.orResend(conjunction(r.unsent()...))
}

// ourFailed returns the condition that a row of ours has used up its budget.
func (r *Relation) ourFailed() string { return r.ofOurs(r.failed()) }

// failed returns the condition that a row, ours or not, has used up its budget.
func (r *Relation) failed() string {
	s := &r.Table.Mapping.Status
	var terms []string
	switch {
	case s.Column != "" && s.Failed != "":
		terms = append(terms, r.oneOf(s.Column, s.Failed))
	case s.Column == "" && s.FailedAt != "":
		terms = append(terms, Ref(s.FailedAt)+" IS NOT NULL")
		if s.SentAt != "" && s.Resend == "" {
			terms = append(terms, Ref(s.SentAt)+" IS NULL")
		}
	case s.CountDecides():
		terms = append(r.untouched(), r.attempts()+" >= "+r.budget())
	default:
		return "false"
	}
	return conjunction(append(terms, r.butResend())...)
}

// sent returns the condition that a row, ours or not, was published, by us or by another relay. A row that
// failed when it was sent again is not sent.
func (r *Relation) sent() string {
	if r.Table.Mapping.Published == outbox.PublishedArchive {
		return "false" // sent rows are in the archive
	}
	s := &r.Table.Mapping.Status
	var ways []string
	switch {
	case s.Column != "" && s.Sent != "":
		ways = append(ways, r.oneOf(s.Column, s.Sent))
	case s.Column == "" && s.SentAt != "":
		ways = append(ways, Ref(s.SentAt)+" IS NOT NULL")
	}
	for _, name := range s.SentBy {
		ways = append(ways, Ref(name)+" IS NOT NULL")
	}
	if len(ways) == 0 {
		return "false"
	}
	condition, again := strings.Join(ways, " OR "), ""
	if len(ways) > 1 {
		condition = "(" + condition + ")"
	}
	if s.Resend != "" && s.Column == "" && s.FailedAt != "" {
		again = Ref(s.FailedAt) + " IS NULL"
	}
	return conjunction(condition, again, r.butResend())
}

// due returns the condition that a row's time has come and that the row is not its writer's; "" if every row
// is due. A row whose resend column is true is due.
func (r *Relation) due() string {
	m := &r.Table.Mapping
	var terms []string
	for _, name := range m.AvailableAfter {
		terms = append(terms, "("+Ref(name)+" IS NULL OR "+r.when(name, "<=", "now()")+")")
	}
	if w := &m.Writer; w.Column != "" {
		terms = append(terms, fmt.Sprintf("(%[1]s = false OR (%[1]s = true AND %[2]s))", Ref(w.Column), r.when(w.Until, "<", "now()")))
	}
	return r.orResend(allOf(terms...))
}

// NextDue returns statements that find when the next row becomes due. A row at infinity never does. The
// result may be too early, because a row may wait for several times.
func (r *Relation) NextDue(found func(time.Time)) []Step {
	m := &r.Table.Mapping
	var steps []Step
	read := func(row [][]byte) error {
		micros, err := strconv.ParseInt(string(row[0]), 10, 64)
		if err != nil {
			return fmt.Errorf("reading when the next row is due: %w", err)
		}
		found(time.UnixMicro(micros))
		return nil
	}
	next := func(column, compare, also string, add int) {
		ref, clock, finite := Ref(column), r.clock(column), ""
		if clock.unit == 0 {
			finite = ref + " < 'infinity'"
		}
		where := conjunction(r.ourPending(), clock.when(ref, compare, "now()"), finite, r.butResend(), also)
		steps = append(steps, Step{Each: read, SQL: fmt.Sprintf("SELECT %s FROM %s AS t WHERE %s ORDER BY %s LIMIT 1", clock.micros(ref, add), r.Name(), where, ref)})
	}
	for _, name := range m.AvailableAfter {
		next(name, ">", "", 0)
	}
	if w := &m.Writer; w.Column != "" {
		next(w.Until, ">=", Ref(w.Column), 1) // due when that time has passed
	}
	return steps
}

// scheduled returns the condition that a row was not due yet when it was written, so that the WAL reader
// skipped it; "" if every row is due at once.
func (r *Relation) scheduled() string {
	m := &r.Table.Mapping
	var ways []string
	for _, name := range m.AvailableAfter {
		if m.CreatedAt != "" {
			ways = append(ways, r.later(name, m.CreatedAt))
		}
	}
	if m.Writer.Column != "" {
		ways = append(ways, Ref(m.Writer.Column))
	}
	if len(ways) == 0 {
		return ""
	}
	return "coalesce(" + strings.Join(ways, " OR ") + ", false)"
}

// neverDue returns the condition that a row is pending and, as it stands, will neither be sent by its writer
// nor become due; "" if there can be none.
func (r *Relation) neverDue() string {
	w := &r.Table.Mapping.Writer
	if w.Column == "" {
		return ""
	}
	never := fmt.Sprintf("(%[1]s IS NULL OR (%[1]s AND %[2]s IS NULL))", Ref(w.Column), Ref(w.Until))
	return r.ofOurs(conjunction(append(r.untouched(), never, r.butResend())...))
}

// older returns the condition that a row was created longer ago than age, by the database's clock; "" if no
// column says so, or age is 0. A time in the future says nothing about a row's age, so such a row counts as
// old. So does a row without a time.
func (r *Relation) older(p *Params, age time.Duration) string {
	m := &r.Table.Mapping
	if m.CreatedAt == "" || age <= 0 {
		return ""
	}
	bound := p.Bind(strconv.AppendInt(nil, age.Microseconds(), 10), "bigint") + " * interval '1 microsecond'"
	return "(" + r.when(m.CreatedAt, "<=", "now() - "+bound) + " OR " + r.when(m.CreatedAt, ">", "now() + "+bound) + " OR " + Ref(m.CreatedAt) + " IS NULL)"
}

// attempts returns the stored count; NULL counts as 0. A negative count stays negative (unlike in counted),
// which makes no difference when it is compared with a budget.
func (r *Relation) attempts() string {
	return "coalesce(" + Ref(r.Table.Mapping.Status.Attempts) + ", 0)"
}

// counted returns the stored count that an attempt is added to. A row may be inserted with any count. With
// one far below zero it would never use up its budget, so a negative count counts as 0.
func (r *Relation) counted() string { return "greatest(" + r.attempts() + ", 0)" }

// budget returns how many attempts a row has.
func (r *Relation) budget() string {
	s := &r.Table.Mapping.Status
	if s.MaxAttemptsColumn == "" {
		return strconv.Itoa(s.MaxAttempts)
	}
	return fmt.Sprintf("greatest(coalesce(%s, %d), 1)", Ref(s.MaxAttemptsColumn), s.MaxAttempts)
}

// state returns the row's State letter.
func (r *Relation) state() string {
	taken := ""
	if s := &r.Table.Mapping.Status; s.Column != "" && s.Processing != "" {
		taken = " WHEN " + r.oneOf(s.Column, s.Processing) + " THEN 't'"
	}
	return "CASE WHEN " + r.pending() + " THEN 'p' WHEN " + r.failed() + " THEN 'f'" + taken + " ELSE 's' END"
}

// withoutError returns the condition that the last error has the value of noError.
func (r *Relation) withoutError() string {
	column := r.Table.Mapping.Status.LastError
	if r.Column(column).NotNull {
		return Ref(column) + " = ''"
	}
	return Ref(column) + " IS NULL"
}

// storedCount returns the attempts; 0 if they are not stored.
func (r *Relation) storedCount() string {
	if r.Table.Mapping.Status.Attempts == "" {
		return "0"
	}
	return r.counted()
}

func (r *Relation) oneOf(column string, values ...string) string {
	c := r.Column(column)
	equals := func(value string) string { return Ref(column) + c.equals() + sql.Literal(value) }
	switch {
	case len(values) == 1:
		return equals(values[0])
	case c.Operators != "": // IN can only use pg_catalog's operator
		return "(" + joined(values, " OR ", equals) + ")"
	}
	return Ref(column) + " IN (" + joined(values, ", ", sql.Literal) + ")"
}

// conjunction joins the non-empty terms with AND. Without any it returns true.
func conjunction(terms ...string) string { return cmp.Or(allOf(terms...), "true") }

// allOf is conjunction, but returns "" without any term.
func allOf(terms ...string) string { return strings.Join(notEmpty(terms), " AND ") }

func notEmpty(texts []string) []string {
	return slices.DeleteFunc(slices.Clone(texts), func(text string) bool { return text == "" })
}

// joined joins the results of text for the items.
func joined[T any](items []T, separator string, text func(T) string) string {
	texts := make([]string, len(items))
	for i, item := range items {
		texts[i] = text(item)
	}
	return strings.Join(texts, separator)
}
