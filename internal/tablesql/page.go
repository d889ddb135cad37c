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
	where    []string // terms; those that are empty say nothing
	none     bool     // nothing can match
	// from is WantedAmong's list of ids, and on joins it with the table.
	from, on string
	limit    int
	byTime   bool // see ByTime
	anyOrder bool // see AnyOrder
}

// Page selects the pending, due rows, with the columns.
func (r *Relation) Page(columns Selected, limit int) *PageQuery {
	return &PageQuery{relation: r, columns: columns, limit: limit, where: []string{r.ourPending(), r.due(), r.shortIDs()}}
}

// PendingIDs selects the ids of pending rows, due or not.
func (r *Relation) PendingIDs(limit int) *PageQuery {
	columns, short := r.idList()
	return &PageQuery{relation: r, columns: Selected{list: columns}, where: []string{r.ourPending(), short}, limit: limit}
}

// WantedAmong begins a query for Among, of rows with the ids.
func (r *Relation) WantedAmong(ids []string) (*PageQuery, error) {
	params, from, on, err := r.bindList(ids)
	return &PageQuery{relation: r, params: params, from: from, on: on, where: []string{r.due()}}, err
}

// Add selects one more column, behind the others.
func (q *PageQuery) Add(column *Column) {
	ref := Ref(column.Name)
	q.columns.list += ", " + ref
	if !slices.Contains(q.columns.refs, ref) {
		q.columns.refs = append(q.columns.refs, ref)
	}
}

// Include wants rows of any of the scopes. A list of topics is hidden from the planner: it would
// begin with the topics and sort what it finds.
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

// Exclude wants no row of any of the scopes, nor of the ids.
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

// Known wants rows of these topics only; nil: of any.
func (q *PageQuery) Known(topics []outbox.Scope) {
	if topics != nil {
		q.Include(topics)
	}
}

// matchNothing: Step says so; Among, and a Step that is run all the same, find no row.
func (q *PageQuery) matchNothing() { q.none, q.where = true, append(q.where, "false") }

// Old wants rows that were created longer ago than the age.
func (q *PageQuery) Old(age time.Duration) {
	q.where = append(q.where, q.relation.older(&q.params, age))
}

// Missed wants rows that can count as missed: past the head start and their grace.
// A row that waited for its time needs no grace.
func (q *PageQuery) Missed() {
	m := &q.relation.Table.Mapping
	q.Old(m.HeadStart)
	grace := q.relation.older(&q.params, m.Grace)
	if scheduled := q.relation.scheduled(); grace != "" && scheduled != "" {
		grace = "(" + grace + " OR " + scheduled + ")"
	}
	q.where = append(q.where, grace)
}

// Tied wants rows whose tie column compares so with a value; see TieColumn.
func (q *PageQuery) Tied(comparison, value string) {
	c := q.relation.TieColumn()
	q.where = append(q.where, Ref(c.Name)+" "+comparison+" "+q.params.Bind([]byte(value), c.Type))
}

// Step is the query. Nothing says that no row can match.
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

// selecting selects from the wanted rows that also meet the terms.
func (q *PageQuery) selecting(columns string, also ...string) string {
	return "SELECT " + columns + " FROM " + q.relation.Name() + " AS t WHERE " + conjunction(slices.Concat(q.where, also)...)
}

// IDs is the query of PendingIDs.
func (q *PageQuery) IDs(found func(id string)) (step Step, nothing bool) {
	return q.Step(q.relation.eachID(found))
}

// Among looks rows up by the ids of WantedAmong: it gives the ordinal of each that
// is pending, whether it is wanted, and then the columns. A tied value, if any, is
// asked of all of them.
func (q *PageQuery) Among(columns Selected, tied *string, each func(row [][]byte) error) Step {
	wanted := conjunction(q.where...)
	if wanted != "true" {
		wanted = "coalesce(" + wanted + ", false)"
	}
	q.where = []string{q.relation.ourPending()}
	if tied != nil {
		q.Tied("=", *tied)
	}
	// OFFSET makes the planner look each row up: it would rather scan a small table.
	sql := "SELECT u.n, x.* FROM " + q.from + " CROSS JOIN LATERAL (SELECT " + wanted + ", " + columns.list + " FROM " + q.relation.Name() +
		" AS t WHERE " + q.on + " AND " + Opaque(conjunction(q.where...)) + " OFFSET 0) AS x ORDER BY u.n"
	return Step{SQL: sql, Args: q.params, Each: each}
}

// FailedOfKeys selects a FAILED row of every key that has one, the first in table
// order, of at most so many keys. The table must have a key.
func (r *Relation) FailedOfKeys(columns Selected, most int, each func(row [][]byte) error) Step {
	key, _, _ := r.key()
	scope := key + ", " + r.topic() // tells keys apart
	return Step{
		SQL: "SELECT DISTINCT ON (" + scope + ") " + columns.list + " FROM " + r.Name() + " AS t WHERE " + r.ourFailed() + " AND " +
			key + " IS DISTINCT FROM NULL ORDER BY " + scope + ", " + strings.Join(r.order(), ", ") + limit(most),
		Each: each,
	}
}

// inOrder is ORDER BY and LIMIT of rows in table order.
func (r *Relation) inOrder(most int) string {
	return " ORDER BY " + strings.Join(r.order(), ", ") + limit(most)
}

func limit(n int) string { return " LIMIT " + strconv.Itoa(n) }

// order is the table order: the mapping's order columns, then the column that rises with each
// INSERT. If there is none: rows that were tried before come first, since their key's later rows are
// not tried before they are through (and their new version lost its place); then the order of
// insertion within a transaction, cmin and ctid, if they may be read, else the id.
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
		// cid is a number without an order of its own.
		return append(by, "t.cmin::text::bigint", "t.ctid")
	}
	for _, name := range m.ID {
		by = append(by, Ref(name))
	}
	return by
}

// Rising is the order or id column that tells which of a transaction's rows was inserted first.
// Empty: there is none.
func (r *Relation) Rising() string {
	for _, name := range slices.Concat(r.Table.Mapping.Order, r.Table.Mapping.ID) {
		if c := r.Column(name); c != nil && c.rises {
			return name
		}
	}
	return ""
}

// TieColumn is the only order column, if its values have an exact text; otherwise nil. Many rows may tie
// in it, as those of one transaction do in its time.
func (r *Relation) TieColumn() *Column {
	if len(r.Table.Mapping.Order) != 1 {
		return nil
	}
	if c := r.Column(r.Table.Mapping.Order[0]); c.is(oidInt2, oidInt4, oidInt8, oidTimestamp, oidTimestamptz) {
		return c
	}
	return nil
}
