package sweeper

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// selection is a SELECT of rows in table order.
type selection struct {
	relation *tablesql.Relation
	columns  string
	// inner are columns that columns are computed from, for the rows that were
	// selected only: not for each that is sorted. Empty: columns are selected.
	inner  []string
	params tablesql.Params
	where  []string
	none   bool // nothing can match
	limit  int
}

// newSelection selects the pending, due rows for the reader.
func newSelection(r *reader, limit int) *selection {
	relation := r.plan.relation
	q := &selection{relation: relation, columns: r.selected(), inner: r.columns(), limit: limit, where: []string{relation.Pending()}}
	if due := relation.Due(); due != "" {
		q.where = append(q.where, due)
	}
	if short := relation.ShortIDs(relation.Table.Mapping.MaxRowBytes); short != "" {
		q.where = append(q.where, short)
	}
	return q
}

// add selects one more column, behind the reader's.
func (q *selection) add(ref string) {
	q.columns += ", " + ref
	if len(q.inner) > 0 && !slices.Contains(q.inner, ref) {
		q.inner = append(q.inner, ref)
	}
}

// include wants rows of any of the scopes.
func (q *selection) include(scopes []outbox.Scope) {
	condition, all := q.relation.Covering(&q.params, scopes)
	switch {
	case all:
	case condition == "":
		q.none = true
	case scopes[0].Kind == outbox.ScopeTopic:
		q.where = append(q.where, tablesql.Opaque(condition)) // see known
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

// known wants rows of these topics only. It is hidden from the planner, which would
// begin with the topics and sort what it finds.
func (q *selection) known(topics []outbox.Scope) {
	condition, _ := q.relation.Covering(&q.params, topics)
	switch {
	case topics == nil:
	case condition == "":
		q.none, q.where = true, append(q.where, "false")
	default:
		q.where = append(q.where, tablesql.Opaque(condition))
	}
}

// old wants rows that were created longer ago than the age.
func (q *selection) old(age time.Duration) {
	if condition := q.relation.Older(&q.params, age); condition != "" {
		q.where = append(q.where, condition)
	}
}

// missed wants rows that can count as missed: past their grace, which a row does
// not need that waited for its time, and past the head start.
func (q *selection) missed() {
	m := &q.relation.Table.Mapping
	q.old(m.HeadStart)
	grace := q.relation.Older(&q.params, m.Grace)
	if scheduled := q.relation.Scheduled(); grace != "" && scheduled != "" {
		grace = "(" + grace + " OR " + scheduled + ")"
	}
	if grace != "" {
		q.where = append(q.where, grace)
	}
}

func (q *selection) sql() string {
	columns := q.columns
	if len(q.inner) > 0 {
		columns = strings.Join(q.inner, ", ")
	}
	rows := "SELECT " + columns + " FROM " + q.relation.Name() + " AS t WHERE " + strings.Join(q.where, " AND ") +
		" ORDER BY " + strings.Join(q.relation.Order(), ", ") + " LIMIT " + strconv.Itoa(q.limit)
	if len(q.inner) == 0 {
		return rows
	}
	return "SELECT " + q.columns + " FROM (" + rows + ") AS t"
}
