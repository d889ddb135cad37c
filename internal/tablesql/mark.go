package tablesql

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// Marking is the SQL that writes outcomes back. RowArrays are bound, then what a statement names further; each statement
// returns the ordinals of the rows that it wrote.
type Marking struct {
	// Sent writes what success means for the table.
	Sent string
	// SentFree is Sent for the rows that nobody has locked.
	SentFree string
	// Attempt charges one attempt each. Bound after the RowArrays: reasons, and where
	// Counted the counts that were read before. It returns the count and the
	// state (State's letters) that it left. Empty: the table keeps nothing of
	// an attempt.
	Attempt, AttemptFree string
	// Counted: the table stores a count of attempts.
	Counted bool
}

// Marking builds the statements for the relation.
//
// The guard of each is the state: pending, or nothing is written. It needs no
// version. A mark of success follows a delivery, so it is true whenever it
// comes, also for a row that was requeued meanwhile; an attempt is guarded by
// the count that it was charged to. The version column is raised by each, so
// that writers who guard by it notice.
func (r *Relation) Marking() (Marking, error) {
	m := Marking{Counted: r.Table.Mapping.Status.Attempts != ""}
	var err error
	if m.Sent, err = r.sentSQL(false); err != nil {
		return m, err
	}
	if m.SentFree, err = r.sentSQL(true); err != nil {
		return m, err
	}
	m.Attempt, m.AttemptFree = r.attemptSQL(false), r.attemptSQL(true)
	return m, nil
}

func (r *Relation) sentSQL(free bool) (string, error) {
	switch r.Table.Mapping.Published {
	case outbox.PublishedDelete:
		return r.change("DELETE FROM "+r.Name()+" AS t USING ", r.sendable(), free, nil, "u.n"), nil
	case outbox.PublishedArchive:
		return r.moveSQL(free), nil
	}
	set := sets(r.sentValues())
	if len(set) == 0 {
		return "", &MappingError{
			Table: r.Table, Problem: "has nothing to write success to",
			Hint: "map a status column with a value for sent, or a sent_at column",
		}
	}
	return r.change("UPDATE "+r.Name()+" AS t SET "+strings.Join(set, ", ")+" FROM ", r.sendable(), free, nil, "u.n"), nil
}

// change completes a statement from its FROM or USING on. It is guarded by the
// row's state.
func (r *Relation) change(head, state string, free bool, further []string, returning string, guards ...string) string {
	with, statement := r.changing(head, state, free, further, returning, guards...)
	if with != "" {
		return "WITH " + with + " " + statement
	}
	return statement
}

// changing is change in two parts: what goes into WITH, or nothing, and the statement.
func (r *Relation) changing(head, state string, free bool, further []string, returning string, guards ...string) (with, statement string) {
	list, with := r.rowList(further...), ""
	guards = append([]string{r.sameRow(), Opaque(state)}, guards...)
	where := " WHERE " + strings.Join(guards, " AND ")
	if free {
		// The lock is taken first, passing over rows that others hold.
		with = "free AS MATERIALIZED (SELECT u.* FROM " + list + " JOIN " + r.Name() + " AS t ON " + r.sameRow() +
			" WHERE " + Opaque(state) + " FOR UPDATE OF t SKIP LOCKED)"
		list = "free AS u"
	}
	return with, head + list + where + " RETURNING " + returning
}

// Opaque hides a condition from the planner, so that rows are found by their
// ids or keys only. An index on the state, thought to be nearly empty as the statistics of
// an outbox mostly say, would otherwise be read whole and each of its rows
// compared with the list: 1000 pending rows by 1000 ids is nothing, a backlog of
// a million is half an hour.
func Opaque(condition string) string { return "CASE WHEN " + condition + " THEN true END" }

// assignment is a column that is set to the value of an expression.
type assignment struct{ column, value string }

func sets(all []assignment) []string {
	set := make([]string, len(all))
	for i, a := range all {
		set[i] = sql.Identifier(a.column) + " = " + a.value
	}
	return set
}

// sentValues are what says that a row was sent; none where nothing does.
func (r *Relation) sentValues() []assignment {
	s := &r.Table.Mapping.Status
	var all []assignment
	if s.Column != "" && s.Sent != "" {
		all = append(all, assignment{s.Column, sql.Literal(s.Sent)})
	}
	if s.SentAt != "" {
		all = append(all, assignment{s.SentAt, "now()"})
	}
	if len(all) == 0 {
		return nil
	}
	for _, name := range []string{s.FailedAt, s.LastError} {
		if name != "" {
			all = append(all, assignment{name, "NULL"})
		}
	}
	if s.Resend != "" {
		all = append(all, assignment{s.Resend, "false"})
	}
	if s.ExpiresAt != "" {
		all = append(all, assignment{s.ExpiresAt, fmt.Sprintf("now() + %d * interval '1 microsecond'", s.ExpiresAfter.Microseconds())})
	}
	return append(all, r.raised()...)
}

// raise gives the row another version, and the time of its change. Behind the greatest comes 1: writers who
// guard by the version notice this change as they do any other, which a version
// that stayed would hide from them. Not 0 or less, which JPA takes for a row that
// is not stored yet.
func (r *Relation) raise(set []string) []string { return append(set, sets(r.raised())...) }

func (r *Relation) raised() []assignment {
	var all []assignment
	if v := r.Table.Mapping.Status.Version; v != "" {
		version := "coalesce(" + Ref(v) + ", 0)"
		all = append(all, assignment{v, fmt.Sprintf("CASE WHEN %s < %d THEN %[1]s + 1 ELSE 1 END", version, r.Column(v).greatest())})
	}
	if at := r.Table.Mapping.Status.TouchedAt; at != "" {
		all = append(all, assignment{at, "now()"})
	}
	return all
}

// raisedAttempts is the stored count and one more. It stays at the greatest that
// the column can hold, so that no row is refused for its count.
func (r *Relation) raisedAttempts() string {
	return fmt.Sprintf("least(%s, %d) + 1", r.attempts(), r.Column(r.Table.Mapping.Status.Attempts).greatest()-1)
}

// greatest is the greatest value of a counter's type.
func (c *Column) greatest() int64 {
	switch c.OID {
	case oidInt2:
		return math.MaxInt16
	case oidInt4:
		return math.MaxInt32
	}
	return math.MaxInt64
}

func (r *Relation) attemptSQL(free bool) string {
	s := &r.Table.Mapping.Status
	further := []string{"reason", "text"}
	var guards, set []string
	if s.Attempts != "" {
		further = append(further, "expected", "bigint")
		guards = append(guards, r.attempts()+" = u.expected")
		set = append(set, sql.Identifier(s.Attempts)+" = "+r.raisedAttempts())
	}
	if s.LastError != "" {
		set = append(set, sql.Identifier(s.LastError)+" = u.reason")
	}
	set = append(set, r.failedSet()...)
	if len(set) == 0 {
		return ""
	}
	head := "UPDATE " + r.Name() + " AS t SET " + strings.Join(r.raise(set), ", ") + " FROM "
	return r.change(head, r.pending(), free, further, "u.n, "+r.storedCount()+", "+r.state(), guards...)
}

// failedSet writes FAILED where the budget is used up by this attempt. Without
// a stored count only a budget of one can be.
func (r *Relation) failedSet() []string {
	s := &r.Table.Mapping.Status
	spent := ""
	switch {
	case s.MaxAttempts <= 0:
		return nil
	case s.Attempts != "":
		spent = r.raisedAttempts() + " >= " + r.budget()
	case s.MaxAttempts == 1:
		spent = "true"
	default:
		return nil
	}
	var set []string
	if s.Column != "" && s.Failed != "" {
		set = append(set, onlyIf(spent, s.Column, sql.Literal(s.Failed)))
	}
	if s.FailedAt != "" {
		set = append(set, onlyIf(spent, s.FailedAt, "now()"))
	}
	if s.Resend != "" {
		set = append(set, onlyIf(spent, s.Resend, "false"))
	}
	return set
}

func onlyIf(condition, column, value string) string {
	return sql.Identifier(column) + " = CASE WHEN " + condition + " THEN " + value + " ELSE " + Ref(column) + " END"
}

// Reason is an error's text as the table's last_error column takes it: valid
// UTF-8 without NUL, of characters that the database has, and no more of them than the mapping and the column
// allow.
func (r *Relation) Reason(text string) string {
	s := &r.Table.Mapping.Status
	limit := s.LastErrorMax
	if limit <= 0 {
		limit = 1000
	}
	if c := r.Column(s.LastError); c != nil && c.MaxChars > 0 {
		limit = min(limit, c.MaxChars)
	}
	text = r.Charset.Writable(strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "\uFFFD"))
	for i := range text {
		if limit == 0 {
			return text[:i]
		}
		limit--
	}
	return text
}

// Count reads a stored count.
func Count(text []byte) (int64, error) {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading a stored count: %w", err)
	}
	return n, nil
}
