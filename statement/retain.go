package statement

import (
	"fmt"
	"strconv"
	"strings"
)

// Expired deletes up to n rows that were sent longer ago than $1 microseconds,
// oldest first, and returns a row for each. Rows that somebody has locked are
// passed over.
func (r *Relation) Expired(n int) (string, error) {
	age, err := r.expired()
	if err != nil {
		return "", err
	}
	by := make([]string, 0, 1)
	for _, name := range r.Table.Mapping.Order {
		by = append(by, Ref(name))
	}
	order := ""
	if len(by) > 0 {
		order = " ORDER BY " + strings.Join(by, ", ")
	}
	ids := make([]string, len(r.Table.Mapping.ID))
	same := make([]string, len(ids))
	for i, name := range r.Table.Mapping.ID {
		ids[i] = Ref(name) + " AS c" + strconv.Itoa(i)
		same[i] = Ref(name) + " = u.c" + strconv.Itoa(i)
	}
	return fmt.Sprintf("WITH u AS MATERIALIZED (SELECT %s FROM %s AS t WHERE %s AND %s%s LIMIT %d FOR UPDATE SKIP LOCKED) "+
		"DELETE FROM %s AS t USING u WHERE %s AND %s RETURNING 1",
		strings.Join(ids, ", "), r.Name(), r.Sent(), age, order, n,
		r.Name(), strings.Join(same, " AND "), r.Sent()), nil
}

// expired compares the time of sending, and the time of creation, by which
// tables are indexed and which lies before it.
func (r *Relation) expired() (string, error) {
	m := &r.Table.Mapping
	var terms []string
	for _, name := range []string{m.Status.SentAt, m.CreatedAt} {
		if name != "" {
			terms = append(terms, Ref(name)+" < now() - $1::bigint * interval '1 microsecond'")
		}
	}
	if len(terms) == 0 {
		return "", &Unusable{
			Table: r.Table, Problem: "has a retention, but no column says when a row was sent or created",
			Mend: "map sent_at or created_at, or take retention away",
		}
	}
	return strings.Join(terms, " AND "), nil
}
