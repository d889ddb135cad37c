package statement

import (
	"fmt"
	"strings"
)

// Pending is the condition that a row is yet to be published. It is written so
// that an index on the status column, or a partial one on this condition,
// serves it.
func (r *Relation) Pending() string {
	terms := r.untouched()
	if r.countDecides() {
		terms = append(terms, r.attempts()+fmt.Sprintf(" < %d", r.Table.Mapping.Status.MaxAttempts))
	}
	return conjunction(terms)
}

// untouched is Pending but for the budget.
func (r *Relation) untouched() []string {
	s := &r.Table.Mapping.Status
	if s.Column != "" {
		return []string{oneOf(s.Column, s.Pending)}
	}
	var terms []string
	for _, name := range []string{s.SentAt, s.FailedAt} {
		if name != "" {
			terms = append(terms, Ref(name)+" IS NULL")
		}
	}
	return terms
}

// Failed is the condition that a row used up its budget.
func (r *Relation) Failed() string {
	s := &r.Table.Mapping.Status
	switch {
	case s.Column != "" && s.Failed != "":
		return oneOf(s.Column, []string{s.Failed})
	case s.Column == "" && s.FailedAt != "" && s.SentAt != "":
		return Ref(s.FailedAt) + " IS NOT NULL AND " + Ref(s.SentAt) + " IS NULL"
	case s.Column == "" && s.FailedAt != "":
		return Ref(s.FailedAt) + " IS NOT NULL"
	case r.countDecides():
		return conjunction(append(r.untouched(), r.attempts()+fmt.Sprintf(" >= %d", s.MaxAttempts)))
	}
	return "false"
}

// Sent is the condition that a row was published.
func (r *Relation) Sent() string {
	s := &r.Table.Mapping.Status
	switch {
	case s.Column != "" && s.Sent != "":
		return oneOf(s.Column, []string{s.Sent})
	case s.Column == "" && s.SentAt != "":
		return Ref(s.SentAt) + " IS NOT NULL"
	}
	return "false"
}

// Due is the condition that a row's time has come; empty: it always has.
func (r *Relation) Due() string {
	after := r.Table.Mapping.AvailableAfter
	if after == "" {
		return ""
	}
	return "(" + Ref(after) + " IS NULL OR " + Ref(after) + " <= now())"
}

// countDecides says that nothing but the stored count tells a FAILED row from
// a pending one, as in tables that are deleted from and keep no status.
func (r *Relation) countDecides() bool {
	s := &r.Table.Mapping.Status
	stored := s.Column != "" && s.Failed != "" || s.Column == "" && s.FailedAt != ""
	return !stored && s.Attempts != "" && s.MaxAttempts > 0
}

// attempts is the stored count; a NULL counts as none.
func (r *Relation) attempts() string {
	return "coalesce(" + Ref(r.Table.Mapping.Status.Attempts) + ", 0)"
}

// state is one letter: what a row is in.
func (r *Relation) state() string {
	taken := ""
	if s := &r.Table.Mapping.Status; s.Column != "" && s.Processing != "" {
		taken = " WHEN " + oneOf(s.Column, []string{s.Processing}) + " THEN 't'"
	}
	return "CASE WHEN " + r.Pending() + " THEN 'p' WHEN " + r.Failed() + " THEN 'f'" + taken + " ELSE 's' END"
}

// storedCount is the attempts as text, 0 where they are not kept.
func (r *Relation) storedCount() string {
	if r.Table.Mapping.Status.Attempts == "" {
		return "0"
	}
	return r.attempts()
}

func oneOf(column string, values []string) string {
	if len(values) == 1 {
		return Ref(column) + " = " + Literal(values[0])
	}
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = Literal(v)
	}
	return Ref(column) + " IN (" + strings.Join(quoted, ", ") + ")"
}

func conjunction(terms []string) string {
	if len(terms) == 0 {
		return "true"
	}
	return strings.Join(terms, " AND ")
}
