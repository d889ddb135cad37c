package tablesql

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// ourPending is the condition that a row of ours is yet to be published. It is written so
// that an index on the status column, or a partial one on this condition,
// serves it.
func (r *Relation) ourPending() string { return r.ofOurs(r.pending()) }

// chosen is the condition that a row is ours: by the mapping's conditions, and of the stream's
// share of the table; empty: all are. Rows are selected by it; what is found by its id needs it no more. It
// is hidden from the planner, which would take a modulus for one row in two
// hundred, and then read and sort a backlog rather than follow an index's order.
func (r *Relation) chosen() string {
	terms := slices.DeleteFunc([]string{r.ours(), r.Table.Filter("t.")}, func(term string) bool { return term == "" })
	if len(terms) == 0 {
		return ""
	}
	return Opaque(conjunction(terms))
}

// ofOurs narrows a condition down to our rows.
func (r *Relation) ofOurs(condition string) string {
	ours := r.chosen()
	if ours == "" || condition == "false" {
		return condition
	}
	return "(" + condition + ") AND " + ours
}

// pending is the same of all rows, ours or not.
func (r *Relation) pending() string {
	terms := r.untouched()
	if r.Table.Mapping.Status.CountDecides() {
		terms = append(terms, r.attempts()+" < "+r.budget())
	}
	return r.orResend(conjunction(terms))
}

// orResend adds the rows that are asked for again. The OR binds loosest: they
// are wanted whatever else they are.
func (r *Relation) orResend(condition string) string {
	if resend := r.Table.Mapping.Status.Resend; resend != "" {
		return "(" + condition + " OR " + Ref(resend) + ")"
	}
	return condition
}

// butResend leaves them out.
func (r *Relation) butResend(terms []string) []string {
	if resend := r.Table.Mapping.Status.Resend; resend != "" {
		return append(terms, Ref(resend)+" IS NOT TRUE")
	}
	return terms
}

// untouched is Pending but for the budget and for what is asked for again.
func (r *Relation) untouched() []string {
	s := &r.Table.Mapping.Status
	terms := r.unsent()
	if s.Column == "" && s.FailedAt != "" {
		terms = append(terms, Ref(s.FailedAt)+" IS NULL")
	}
	return terms
}

// unsent is untouched but for FailedAt.
func (r *Relation) unsent() []string {
	s := &r.Table.Mapping.Status
	var terms []string
	switch {
	case s.Column != "":
		terms = append(terms, r.inPendingState())
	case s.SentAt != "":
		terms = append(terms, Ref(s.SentAt)+" IS NULL")
	}
	for _, name := range s.SentBy {
		terms = append(terms, Ref(name)+" IS NULL")
	}
	return terms
}

// inPendingState is the condition of the status column.
func (r *Relation) inPendingState() string {
	s := &r.Table.Mapping.Status
	if !s.PendingNull {
		return r.oneOf(s.Column, s.Pending)
	}
	return "(" + r.oneOf(s.Column, s.Pending) + " OR " + Ref(s.Column) + " IS NULL)"
}

// sendable is what a mark of success asks of a row: that it is pending. Where a
// failed row can be asked for again, its delivery says more than its failure.
func (r *Relation) sendable() string {
	if r.Table.Mapping.Status.Resend == "" {
		return r.pending()
	}
	return r.orResend(conjunction(r.unsent()))
}

// ourFailed is the condition that a row of ours used up its budget.
func (r *Relation) ourFailed() string { return r.ofOurs(r.failed()) }

// failed is the same of all rows, ours or not.
func (r *Relation) failed() string {
	s := &r.Table.Mapping.Status
	var terms []string
	switch {
	case s.Column != "" && s.Failed != "":
		terms = append(terms, r.oneOf(s.Column, []string{s.Failed}))
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
	return conjunction(r.butResend(terms))
}

// ourSent is the condition that a row of ours was published, by us or by another. A row
// that failed when it was asked for again is not.
func (r *Relation) ourSent() string { return r.ofOurs(r.sent()) }

// sent is the same of all rows, ours or not.
func (r *Relation) sent() string {
	if r.Table.Mapping.Published == outbox.PublishedArchive {
		return "false" // they are in the archive
	}
	s := &r.Table.Mapping.Status
	var ways []string
	switch {
	case s.Column != "" && s.Sent != "":
		ways = append(ways, r.oneOf(s.Column, []string{s.Sent}))
	case s.Column == "" && s.SentAt != "":
		ways = append(ways, Ref(s.SentAt)+" IS NOT NULL")
	}
	for _, name := range s.SentBy {
		ways = append(ways, Ref(name)+" IS NOT NULL")
	}
	if len(ways) == 0 {
		return "false"
	}
	terms := []string{strings.Join(ways, " OR ")}
	if len(ways) > 1 {
		terms[0] = "(" + terms[0] + ")"
	}
	if s.Resend != "" && s.Column == "" && s.FailedAt != "" {
		terms = append(terms, Ref(s.FailedAt)+" IS NULL")
	}
	return conjunction(r.butResend(terms))
}

// due is the condition that a row's time has come and that it is not its
// writer's; empty: it always has. A row that is asked for again is due.
func (r *Relation) due() string {
	m := &r.Table.Mapping
	var terms []string
	for _, name := range m.AvailableAfter {
		terms = append(terms, "("+Ref(name)+" IS NULL OR "+Ref(name)+" <= now())")
	}
	if w := &m.Writer; w.Column != "" {
		terms = append(terms, fmt.Sprintf("(%[1]s = false OR (%[1]s = true AND now() > %[2]s))", Ref(w.Column), Ref(w.Until)))
	}
	if len(terms) == 0 {
		return ""
	}
	return r.orResend(conjunction(terms))
}

// NextDue are statements that find when the next row becomes due. Infinity is no time
// that comes. The least of what they find may be earlier than the row is.
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
		ref := Ref(column)
		where := r.butResend([]string{r.ourPending(), ref + " " + compare + " now()", ref + " < 'infinity'"})
		steps = append(steps, Step{Each: read, SQL: fmt.Sprintf("SELECT %s FROM %s AS t WHERE %s%s ORDER BY %s LIMIT 1",
			micros(ref, add), r.Name(), conjunction(where), also, ref)})
	}
	for _, name := range m.AvailableAfter {
		next(name, ">", "", 0)
	}
	if w := &m.Writer; w.Column != "" {
		next(w.Until, ">=", " AND "+Ref(w.Column), 1) // due when its time has passed
	}
	return steps
}

// scheduled is the condition that a row was not due yet when it was written, so
// that the log's reader left it alone; empty: all are due at once.
func (r *Relation) scheduled() string {
	m := &r.Table.Mapping
	var ways []string
	for _, name := range m.AvailableAfter {
		if m.CreatedAt != "" {
			ways = append(ways, Ref(name)+" > "+Ref(m.CreatedAt))
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

// neverDue is the condition that a row is pending and, as it stands, will be
// neither sent by its writer nor become due; empty: there are none.
func (r *Relation) neverDue() string {
	w := &r.Table.Mapping.Writer
	if w.Column == "" {
		return ""
	}
	return r.ofOurs(conjunction(r.butResend(append(r.untouched(),
		fmt.Sprintf("(%[1]s IS NULL OR (%[1]s AND %[2]s IS NULL))", Ref(w.Column), Ref(w.Until))))))
}

// older is the condition that a row was created longer ago than the age, by the
// database's clock; empty: no column says, or the age is 0. A time in the future
// says nothing about a row's age, so such a row counts as old, and so does one
// without.
func (r *Relation) older(p *Params, age time.Duration) string {
	m := &r.Table.Mapping
	if m.CreatedAt == "" || age <= 0 {
		return ""
	}
	at := Ref(m.CreatedAt)
	bound := p.Bind(strconv.AppendInt(nil, age.Microseconds(), 10), "bigint") + " * interval '1 microsecond'"
	return "(" + at + " <= now() - " + bound + " OR " + at + " > now() + " + bound + " OR " + at + " IS NULL)"
}

// attempts is the stored count; a NULL counts as none.
func (r *Relation) attempts() string {
	return "coalesce(" + Ref(r.Table.Mapping.Status.Attempts) + ", 0)"
}

// budget is how many attempts a row has.
func (r *Relation) budget() string {
	s := &r.Table.Mapping.Status
	if s.MaxAttemptsColumn == "" {
		return strconv.Itoa(s.MaxAttempts)
	}
	return fmt.Sprintf("greatest(coalesce(%s, %d), 1)", Ref(s.MaxAttemptsColumn), s.MaxAttempts)
}

// state is one letter: what a row is in.
func (r *Relation) state() string {
	taken := ""
	if s := &r.Table.Mapping.Status; s.Column != "" && s.Processing != "" {
		taken = " WHEN " + r.oneOf(s.Column, []string{s.Processing}) + " THEN 't'"
	}
	return "CASE WHEN " + r.pending() + " THEN 'p' WHEN " + r.failed() + " THEN 'f'" + taken + " ELSE 's' END"
}

// storedCount is the attempts, 0 where they are not kept.
func (r *Relation) storedCount() string {
	if r.Table.Mapping.Status.Attempts == "" {
		return "0"
	}
	return r.attempts()
}

func (r *Relation) oneOf(column string, values []string) string {
	c := r.Column(column)
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = sql.Literal(v)
		if len(values) == 1 || c.Operators != "" { // IN knows but one operator
			quoted[i] = Ref(column) + c.equals() + quoted[i]
		}
	}
	switch {
	case len(values) == 1:
		return quoted[0]
	case c.Operators != "":
		return "(" + strings.Join(quoted, " OR ") + ")"
	}
	return Ref(column) + " IN (" + strings.Join(quoted, ", ") + ")"
}

func conjunction(terms []string) string {
	if len(terms) == 0 {
		return "true"
	}
	return strings.Join(terms, " AND ")
}
