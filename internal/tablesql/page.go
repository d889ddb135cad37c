package tablesql

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// PageQuery selects rows in table order.
type PageQuery struct {
	relation *Relation
	columns  Selected
	params   Params
	where    []string // terms of the condition; an empty one means true
	none     bool     // no row can match
	// from is the list of ids of WantedAmong. on joins it with the table.
	from, on string
	limit    int
	byTime   bool // see ByTime
	anyOrder bool // see AnyOrder
}

// Page selects the columns of pending rows that are due.
func (r *Relation) Page(columns Selected, limit int) *PageQuery {
	return &PageQuery{relation: r, columns: columns, limit: limit, where: []string{r.ourPending(), r.due(), r.shortIDs()}}
}

// PendingIDs selects the ids of pending rows, due or not.
func (r *Relation) PendingIDs(limit int) *PageQuery {
	columns, short := r.idList()
	return &PageQuery{relation: r, columns: Selected{list: columns}, where: []string{r.ourPending(), short}, limit: limit}
}

// WantedAmong begins a query for Among, on rows with these ids.
func (r *Relation) WantedAmong(ids []string) (*PageQuery, error) {
	params, from, on, err := r.bindList(ids)
	return &PageQuery{relation: r, params: params, from: from, on: on, where: []string{r.due()}}, err
}

// Add selects one more column, after the others.
func (q *PageQuery) Add(column *Column) {
	ref := Ref(column.Name)
	q.columns.list += ", " + ref
	if !slices.Contains(q.columns.refs, ref) {
		q.columns.refs = append(q.columns.refs, ref)
	}
}

// Include restricts the query to rows of any of the scopes. A list of topics is hidden from the planner,
// which would otherwise begin with the topics and sort what it finds.
func (q *PageQuery) Include(scopes []outbox.Scope) {
	condition, all := q.relation.covering(&q.params, scopes)
	switch {
	case all:
	case condition == "":
		q.matchNothing()
	case scopes[0].Kind == outbox.ScopeTopic:
		q.where = append(q.where, Opaque(condition))
	default:
		q.where = append(q.where, condition)
	}
}

// Exclude leaves out rows of the scopes and rows with the ids.
func (q *PageQuery) Exclude(scopes []outbox.Scope, ids []string) {
	condition, all := q.relation.covering(&q.params, scopes)
	switch {
	case all:
		q.matchNothing()
	case condition != "":
		q.where = append(q.where, "NOT "+condition)
	}
	if among := q.relation.amongIDs(&q.params, ids); among != "" {
		q.where = append(q.where, "NOT ("+among+")")
	}
}

// Known restricts the query to rows of these topics; nil: no restriction.
func (q *PageQuery) Known(topics []outbox.Scope) {
	if topics != nil {
		q.Include(topics)
	}
}

// matchNothing makes the query match no row. Step reports that; Among, and a Step that is run all the same,
// find no row.
func (q *PageQuery) matchNothing() { q.none, q.where = true, append(q.where, "false") }

// Old restricts the query to rows created longer ago than age.
func (q *PageQuery) Old(age time.Duration) {
	q.where = append(q.where, q.relation.older(&q.params, age))
}

// Missed restricts the query to rows that can count as missed: older than the head start and their grace. A
// row that waited for its time needs no grace.
func (q *PageQuery) Missed() {
	m := &q.relation.Table.Mapping
	q.Old(m.HeadStart)
	grace := q.relation.older(&q.params, m.Grace)
	if scheduled := q.relation.scheduled(); grace != "" && scheduled != "" {
		grace = "(" + grace + " OR " + scheduled + ")"
	}
	q.where = append(q.where, grace)
}

// Tied restricts the query to rows whose tie column compares in this way with a value; see TieColumn.
func (q *PageQuery) Tied(comparison, value string) {
	c := q.relation.TieColumn()
	q.where = append(q.where, Ref(c.Name)+" "+comparison+" "+q.params.Bind([]byte(value), c.Type))
}

// Step returns the query. nothing: no row can match.
func (q *PageQuery) Step(each func(row [][]byte) error) (step Step, nothing bool) {
	step = Step{Args: q.params, Each: each}
	switch {
	case q.byTime && q.anyOrder:
		step.SQL = q.dueByTime()
	case q.byTime && !q.relation.waitsFor().NotNull:
		step.SQL = q.pageByTime()
	case q.columns.sized:
		step.SQL = "SELECT " + q.columns.list + " FROM (" + q.selecting(strings.Join(q.columns.refs, ", ")) + q.relation.inOrder(q.limit) + ") AS t"
	default:
		step.SQL = q.selecting(q.columns.list) + q.relation.inOrder(q.limit)
	}
	return step, q.none
}

// selecting selects from the wanted rows for which the further terms are true.
func (q *PageQuery) selecting(columns string, also ...string) string {
	return "SELECT " + columns + " FROM " + q.relation.Name() + " AS t WHERE " + conjunction(slices.Concat(q.where, also)...)
}

// IDs returns the query of PendingIDs.
func (q *PageQuery) IDs(found func(id string)) (step Step, nothing bool) {
	return q.Step(q.relation.eachID(found))
}

// Among looks rows up by the ids of WantedAmong. For each pending row it returns the ordinal, whether the row
// is wanted, and the columns. If tied is set, each row must have that value in the tie column.
func (q *PageQuery) Among(columns Selected, tied *string, each func(row [][]byte) error) Step {
	wanted := conjunction(q.where...)
	if wanted != "true" {
		wanted = "coalesce(" + wanted + ", false)"
	}
	q.where = []string{q.relation.ourPending()}
	if tied != nil {
		q.Tied("=", *tied)
	}
	// OFFSET makes the planner look up each row. Otherwise it would scan a small table.
	sql := "SELECT u.n, x.* FROM " + q.from + " CROSS JOIN LATERAL (SELECT " + wanted + ", " + columns.list + " FROM " + q.relation.Name() +
		" AS t WHERE " + q.on + " AND " + Opaque(conjunction(q.where...)) + " OFFSET 0) AS x ORDER BY u.n"
	return Step{SQL: sql, Args: q.params, Each: each}
}

// FailedOfKeys selects one FAILED row of every key that has one, the first in table order, for at most the
// given number of keys. The table must have a key.
func (r *Relation) FailedOfKeys(columns Selected, most int, each func(row [][]byte) error) Step {
	key, _, _ := r.key()
	scope := key + ", " + r.topic() // identifies a key
	return Step{
		SQL: "SELECT DISTINCT ON (" + scope + ") " + columns.list + " FROM " + r.Name() + " AS t WHERE " + r.ourFailed() + " AND " +
			key + " IS DISTINCT FROM NULL ORDER BY " + scope + ", " + strings.Join(r.order(), ", ") + limit(most),
		Each: each,
	}
}

// inOrder returns ORDER BY and LIMIT for rows in table order.
func (r *Relation) inOrder(most int) string {
	return " ORDER BY " + strings.Join(r.order(), ", ") + limit(most)
}

func limit(n int) string { return " LIMIT " + strconv.Itoa(n) }

// order returns the table order: the mapping's order columns, then the column that rises with each INSERT. If
// there is no such column, rows that were tried before come first: later rows of their key are not tried
// before they are done, and their new version lost its place in the table. Then follows the order of
// insertion within a transaction, by cmin and ctid if the role may read them, otherwise by the id.
func (r *Relation) order() []string {
	m := &r.Table.Mapping
	var by []string
	for _, name := range m.Order {
		by = append(by, Ref(name))
	}
	switch rising := r.Rising(); {
	case slices.Contains(m.Order, rising):
		return by
	case rising != "":
		return append(by, Ref(rising))
	case m.Status.Attempts != "":
		by = append(by, r.attempts()+" DESC")
	case m.Status.LastError != "":
		by = append(by, r.withoutError())
	}
	if r.SystemColumns {
		// The type cid has no order of its own, so it is read as a number.
		return append(by, "t.cmin::text::bigint", "t.ctid")
	}
	for _, name := range m.ID {
		by = append(by, Ref(name))
	}
	return by
}

// Rising returns the order or id column that tells which of a transaction's rows was inserted first; "" if
// there is none.
func (r *Relation) Rising() string {
	for _, name := range slices.Concat(r.Table.Mapping.Order, r.Table.Mapping.ID) {
		if c := r.Column(name); c != nil && c.rises {
			return name
		}
	}
	return ""
}

// TieColumn returns the order column, if it is the only one and its values have an exact text; otherwise nil.
// Many rows may have the same value there, as the rows of one transaction have the same time.
func (r *Relation) TieColumn() *Column {
	if len(r.Table.Mapping.Order) != 1 {
		return nil
	}
	if c := r.Column(r.Table.Mapping.Order[0]); c.is(oidInt2, oidInt4, oidInt8, oidTimestamp, oidTimestamptz) {
		return c
	}
	return nil
}
