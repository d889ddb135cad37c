package sweeper

import (
	"slices"
	"strconv"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/outbox"
	"github.com/outbox-cdc/outbox-cdc/statement"
)

// selection is a SELECT of rows in table order.
type selection struct {
	relation *statement.Relation
	columns  string
	params   statement.Params
	where    []string
	none     bool // nothing can match
	limit    int
}

// newSelection selects the pending, due rows.
func newSelection(relation *statement.Relation, columns string, limit int) *selection {
	q := &selection{relation: relation, columns: columns, limit: limit, where: []string{relation.Pending()}}
	if due := relation.Due(); due != "" {
		q.where = append(q.where, due)
	}
	return q
}

// include wants rows of any of the scopes.
func (q *selection) include(scopes []outbox.Scope) {
	condition, all := q.relation.Covering(&q.params, scopes)
	switch {
	case all:
	case condition == "":
		q.none = true
	default:
		q.where = append(q.where, condition)
	}
}

// wide says that the scopes are no list of keys and rows.
func wide(scopes []outbox.Scope) bool {
	return !slices.ContainsFunc(scopes, func(s outbox.Scope) bool {
		return s.Kind == outbox.ScopeKey || s.Kind == outbox.ScopeRow
	})
}

// exclude wants no row of any of the scopes, nor those with the ids.
func (q *selection) exclude(scopes []outbox.Scope, ids []string) {
	condition, all := q.relation.Covering(&q.params, scopes)
	q.none = q.none || all
	if condition != "" {
		q.where = append(q.where, "NOT "+condition)
	}
	if among := q.relation.Among(&q.params, ids); among != "" {
		q.where = append(q.where, "NOT ("+among+")")
	}
}

// old wants rows that are past their grace. A time in the future says nothing
// about a row's age, so such a row counts as old, and so does one without.
func (q *selection) old() {
	m := &q.relation.Table.Mapping
	if m.CreatedAt == "" || m.Grace <= 0 {
		return
	}
	at := statement.Ref(m.CreatedAt)
	grace := q.params.Bind(strconv.AppendInt(nil, m.Grace.Microseconds(), 10), "bigint") + " * interval '1 microsecond'"
	q.where = append(q.where, "("+at+" <= now() - "+grace+" OR "+at+" > now() + "+grace+" OR "+at+" IS NULL)")
}

func (q *selection) sql() string {
	return "SELECT " + q.columns + " FROM " + q.relation.Name() + " AS t WHERE " + strings.Join(q.where, " AND ") +
		" ORDER BY " + strings.Join(q.relation.Order(), ", ") + " LIMIT " + strconv.Itoa(q.limit)
}
