package tablesql

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// Marking is the SQL that writes outcomes back. The arguments of each statement begin with RowArrays. Each
// statement returns the ordinals of the rows that it wrote.
type Marking struct {
	// Sent writes what a row's success means for the table.
	Sent string
	// SentFree is Sent, but skips rows that other sessions have locked.
	SentFree string
	// Attempt charges one attempt to each row. Its arguments are AttemptArrays. It returns the new count and
	// the new state (a State letter). AttemptFree skips locked rows. Both are empty if the table stores
	// nothing of an attempt.
	Attempt, AttemptFree string
	// Counted: the table stores a count of attempts.
	Counted bool
}

// Attempt is the charge for one row.
type Attempt struct {
	Row    *outbox.Row
	Reason string
	// Expected is the count that was read before, if the table is Counted.
	Expected int64
	// Spends says that the attempt uses up the row's budget.
	Spends bool
}

// AttemptArrays returns the arguments of Marking.Attempt.
func (r *Relation) AttemptArrays(n int, of func(i int) Attempt) (Params, error) {
	args, err := r.RowArrays(n, func(i int) *outbox.Row { return of(i).Row })
	if err != nil {
		return args, err
	}
	var reasons, counts, spends Array
	for i := range n {
		a := of(i)
		reasons.Add(r.Reason(a.Reason))
		counts.AddInt(a.Expected)
		spends.Add(strconv.FormatBool(a.Spends))
	}
	args.BindArray(&reasons, "text")
	if r.Table.Mapping.Status.Attempts != "" {
		args.BindArray(&counts, "bigint")
		args.BindArray(&spends, "boolean")
	}
	return args, nil
}

// Marking builds the statements for the relation.
//
// Each statement is guarded by the row's state: it writes only while the row is pending. A guard by version
// is not needed. A mark of success follows a delivery, so it is right whenever it comes, even if the row was
// requeued meanwhile. An attempt is also guarded by the count that it was charged to. Each statement raises
// the version column, so that writers who guard by it notice the change.
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
	head := r.update(r.sentValues())
	if head == "" {
		return "", r.unfit("has nothing to write success to", "map a status column with a value for sent, or a sent_at column")
	}
	return r.change(head, r.sendable(), free, nil, "u.n"), nil
}

// change completes a statement from its FROM or USING on. The row's state guards it.
func (r *Relation) change(head, state string, free bool, further []string, returning string, guards ...string) string {
	with, statement := r.changing(head, state, free, further, returning, guards...)
	if with != "" {
		return "WITH " + with + " " + statement
	}
	return statement
}

// changing is change in two parts: the text for WITH, or "", and the statement.
func (r *Relation) changing(head, state string, free bool, further []string, returning string, guards ...string) (with, statement string) {
	list, with := r.rowList(further...), ""
	guards = append([]string{r.sameRow(), Opaque(state)}, guards...)
	where := " WHERE " + strings.Join(guards, " AND ")
	if free {
		// The rows are locked first, without those that other sessions hold.
		with = "free AS MATERIALIZED (SELECT u.* FROM " + list + " JOIN " + r.Name() + " AS t ON " + r.sameRow() +
			" WHERE " + Opaque(state) + " FOR UPDATE OF t SKIP LOCKED)"
		list = "free AS u"
	}
	return with, head + list + where + " RETURNING " + returning
}

// Opaque hides a condition from the planner, so that it finds rows by their ids or keys only. Otherwise it
// would read the whole index on the state, which is nearly empty by most statistics of an outbox, and compare
// each row with the list. For 1000 pending rows and 1000 ids that is fast; for a backlog of a million rows it
// takes half an hour.
func Opaque(condition string) string { return "CASE WHEN " + condition + " THEN true END" }

// assignment sets a column to the value of an expression. An empty column is not mapped, and so not set.
type assignment struct{ column, value string }

func sets(all []assignment) string {
	var set []string
	for _, a := range all {
		if a.column != "" {
			set = append(set, sql.Identifier(a.column)+" = "+a.value)
		}
	}
	return strings.Join(set, ", ")
}

// update begins a statement that sets columns and raises the row's version. It returns "" if there is no
// column to set.
func (r *Relation) update(set []assignment) string {
	if sets(set) == "" {
		return ""
	}
	return "UPDATE " + r.Name() + " AS t SET " + sets(append(set, r.raised()...)) + " FROM "
}

// sentValues returns the values that say that a row was sent. It returns none if no column says so.
func (r *Relation) sentValues() []assignment {
	s := &r.Table.Mapping.Status
	state := s.Column
	if s.Sent == "" {
		state = ""
	}
	if state == "" && s.SentAt == "" {
		return nil
	}
	return []assignment{
		{state, sql.Literal(s.Sent)},
		r.set(s.SentAt, "now()"),
		r.cleared(s.FailedAt),
		r.noError(),
		{s.Resend, "false"},
		r.set(s.ExpiresAt, fmt.Sprintf("now() + %d * interval '1 microsecond'", s.ExpiresAfter.Microseconds())),
	}
}

// cleared sets a column to NULL, if the column accepts NULL.
func (r *Relation) cleared(column string) assignment {
	if c := r.Column(column); c != nil && c.NotNull {
		return assignment{}
	}
	return assignment{column, "NULL"}
}

// noError clears the last error. The value is an empty text if the column accepts no NULL.
func (r *Relation) noError() assignment {
	column := r.Table.Mapping.Status.LastError
	if c := r.Column(column); c != nil && c.NotNull {
		return assignment{column, "''"}
	}
	return assignment{column, "NULL"}
}

// raised raises the row's version and sets the time of its change. The greatest version is followed by 1,
// since writers who guard by the version must notice each change. It is never 0 or less, which JPA takes for
// a row that is not stored yet.
func (r *Relation) raised() []assignment {
	s, version := &r.Table.Mapping.Status, ""
	if s.Version != "" {
		version = fmt.Sprintf("CASE WHEN coalesce(%s, 0) < %d THEN coalesce(%[1]s, 0) + 1 ELSE 1 END", Ref(s.Version), r.Column(s.Version).greatest())
	}
	return []assignment{{s.Version, version}, r.set(s.TouchedAt, "now()")}
}

// raisedAttempts returns the stored count plus one. It stays at the greatest value that the column can hold,
// so that no row is refused for its count.
func (r *Relation) raisedAttempts() string {
	return fmt.Sprintf("least(%s, %d) + 1", r.counted(), r.Column(r.Table.Mapping.Status.Attempts).greatest()-1)
}

// charged returns the count after an attempt: one more, or the whole budget for a row that spends it.
func (r *Relation) charged() string {
	s, raised := &r.Table.Mapping.Status, r.raisedAttempts()
	if s.MaxAttempts <= 0 {
		return raised
	}
	return fmt.Sprintf("CASE WHEN u.spends THEN greatest(%s, least(%s, %d)) ELSE %[1]s END", raised, r.budget(), r.Column(s.Attempts).greatest())
}

// greatest returns the greatest value of a counter's type.
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
	var guards []string
	var set []assignment
	if s.Attempts != "" {
		further = append(further, "expected", "bigint", "spends", "boolean")
		guards = append(guards, r.counted()+" = u.expected")
		set = append(set, assignment{s.Attempts, r.charged()})
	}
	head := r.update(append(append(set, assignment{s.LastError, "u.reason"}), r.failedSet()...))
	if head == "" {
		return ""
	}
	return r.change(head, r.pending(), free, further, "u.n, "+r.storedCount()+", "+r.state(), guards...)
}

// failedSet writes FAILED if this attempt uses up the budget. Without a stored count, only a budget of one
// can be used up.
func (r *Relation) failedSet() []assignment {
	s := &r.Table.Mapping.Status
	spent := ""
	switch {
	case s.MaxAttempts <= 0:
		return nil
	case s.Attempts != "":
		spent = r.charged() + " >= " + r.budget()
	case s.MaxAttempts == 1:
		spent = "true"
	default:
		return nil
	}
	set := r.failedValues()
	for i, a := range set {
		set[i].value = "CASE WHEN " + spent + " THEN " + a.value + " ELSE " + Ref(a.column) + " END"
	}
	return set
}

// failedValues returns the values that say that a row has failed.
func (r *Relation) failedValues() []assignment {
	s := &r.Table.Mapping.Status
	state := s.Column
	if s.Failed == "" {
		state = ""
	}
	return []assignment{{state, sql.Literal(s.Failed)}, r.set(s.FailedAt, "now()"), {s.Resend, "false"}}
}

// Reason returns an error's text as the last_error column accepts it: valid UTF-8 without NUL, only
// characters of the database's encoding, and no longer than the mapping and the column allow.
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
