package statement

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Expired deletes up to n rows that were sent longer ago than $1 microseconds,
// oldest first, and returns a row for each. Rows that somebody has locked are
// passed over.
func (r *Relation) Expired(n int) (string, error) {
	age, err := r.expired()
	if err != nil {
		return "", err
	}
	return r.remove(conjunction([]string{r.Sent(), age}), r.sent(), n), nil
}

// ExpiredUnsent deletes up to n rows that were created longer ago than the
// bound age and are still pending, or failed. Rows with the ids are left, and so
// are those that are asked for again.
func (r *Relation) ExpiredUnsent(p *Params, age time.Duration, ids []string, n int) (string, error) {
	at := r.Table.Mapping.CreatedAt
	if at == "" {
		return "", &Unusable{
			Table: r.Table, Problem: "has a retention of unsent rows, but no column says when a row was created",
			Mend: "map created_at, or take retention_unsent away",
		}
	}
	state := conjunction(r.butResend([]string{"(" + r.Pending() + " OR " + r.Failed() + ")"}))
	where := state + " AND " + Ref(at) + " < now() - " + p.Bind(strconv.AppendInt(nil, age.Microseconds(), 10), "bigint") + " * interval '1 microsecond'"
	if among := r.Among(p, ids); among != "" {
		where += " AND NOT (" + among + ")"
	}
	return r.remove(where, state, n), nil
}

// remove deletes up to n rows of those where the condition holds, in table
// order, if their state is still the one named once they are locked.
func (r *Relation) remove(where, state string, n int) string {
	by := make([]string, 0, 1)
	for _, name := range r.Table.Mapping.Order {
		by = append(by, Ref(name))
	}
	order := ""
	if len(by) > 0 {
		order = " ORDER BY " + strings.Join(by, ", ")
	}
	ids := make([]string, len(r.Table.Mapping.ID))
	for i, name := range r.Table.Mapping.ID {
		ids[i] = Ref(name) + " AS c" + strconv.Itoa(i)
	}
	return fmt.Sprintf("WITH u AS MATERIALIZED (SELECT %s FROM %s AS t WHERE %s%s LIMIT %d FOR UPDATE SKIP LOCKED) "+
		"DELETE FROM %s AS t USING u WHERE %s AND %s RETURNING 1",
		strings.Join(ids, ", "), r.Name(), where, order, n, r.Name(), r.sameID(), state)
}

// expired compares the time of sending, and the time of creation, by which
// tables are indexed and which lies before it. Of several times of sending the
// last one counts.
func (r *Relation) expired() (string, error) {
	m := &r.Table.Mapping
	var sent, terms []string
	for _, name := range append([]string{m.Status.SentAt}, m.Status.SentBy...) {
		if name != "" {
			sent = append(sent, Ref(name))
		}
	}
	const age = " < now() - $1::bigint * interval '1 microsecond'"
	switch len(sent) {
	case 0:
	case 1:
		terms = append(terms, sent[0]+age)
	default:
		terms = append(terms, "greatest("+strings.Join(sent, ", ")+")"+age) // NULLs do not count
	}
	if m.CreatedAt != "" {
		terms = append(terms, Ref(m.CreatedAt)+age)
	}
	if len(terms) == 0 {
		return "", &Unusable{
			Table: r.Table, Problem: "has a retention, but no column says when a row was sent or created",
			Mend: "map sent_at or created_at, or take retention away",
		}
	}
	return strings.Join(terms, " AND "), nil
}
