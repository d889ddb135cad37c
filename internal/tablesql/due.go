package tablesql

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// This file reads due rows without reading the rows whose time has not come, maybe millions.
// Pending rows are due if they have no time, or it has come. An index that begins with the time finds both.

// waitsFor is the column of the first time that rows wait for; nil: they wait for none, or
// may be due in spite of it.
func (r *Relation) waitsFor() *Column {
	m := &r.Table.Mapping
	if len(m.AvailableAfter) == 0 || m.Status.Resend != "" {
		return nil
	}
	return r.Column(m.AvailableAfter[0])
}

// Waits says that rows may wait for a time, and so need an index that begins with it.
func (r *Relation) Waits() bool { return r.waitsFor() != nil }

// came is that the first time has come.
func (r *Relation) came() string { return r.when(r.waitsFor().Name, "<=", "now()") }

// ByTime has due rows read by the indexes that DueIndexed has found.
func (q *PageQuery) ByTime() { q.byTime = true }

// AnyOrder reads them in the cheapest order. Without it, if every row has a time, they are read in
// table order, past those that wait: by time, each page would have to sort all that are due.
func (q *PageQuery) AnyOrder() { q.anyOrder = true }

// untimed orders rows without a time: the time comes first, since the index begins with it.
func (q *PageQuery) untimed(columns string) string {
	time := Ref(q.relation.waitsFor().Name)
	return q.selecting(columns, time+" IS NULL") + " ORDER BY " + time + ", " + strings.Join(q.relation.order(), ", ") + limit(q.limit)
}

// dueByTime gives rows without a time in order, and then those whose time came first.
func (q *PageQuery) dueByTime() string {
	r := q.relation
	c := r.waitsFor()
	timed := q.selecting(q.columns.list, r.came()) + " ORDER BY " + Ref(c.Name) + limit(q.limit)
	if c.NotNull {
		return timed
	}
	return "SELECT * FROM ((" + q.untimed(q.columns.list) + ") UNION ALL (" + timed + ")) AS t" + limit(q.limit)
}

// pageByTime gives both in table order. OFFSET makes the planner expect to read all rows whose time
// has come: for a few in table order it would walk an index on the order, past rows that wait or were sent.
func (q *PageQuery) pageByTime() string {
	order := q.relation.order()
	columns, by := slices.Clone(q.columns.refs), make([]string, len(order))
	for i, term := range order {
		value, descends := strings.CutSuffix(term, " DESC")
		by[i] = Ref("outbox-cdc " + strconv.Itoa(i))
		columns = append(columns, value+" AS "+strings.TrimPrefix(by[i], "t."))
		if descends {
			by[i] += " DESC"
		}
	}
	list, inOrder := strings.Join(columns, ", "), " ORDER BY "+strings.Join(by, ", ")+limit(q.limit)
	timed := "SELECT * FROM (" + q.selecting(list, q.relation.came()) + " OFFSET 0) AS t" + inOrder
	return "SELECT " + q.columns.list + " FROM ((" + q.untimed(list) + ") UNION ALL (" + timed + ")) AS t" + inOrder
}

// dueFrom is FROM and WHERE of our due rows with one of their columns.
func (r *Relation) dueFrom(column string, byTime bool) string {
	condition := conjunction(r.ourPending(), r.due())
	if !byTime {
		return " FROM " + r.Name() + " AS t WHERE " + condition
	}
	c := r.waitsFor()
	part := func(also string) string {
		return "(SELECT " + column + " FROM " + r.Name() + " AS t WHERE " + condition + " AND " + also + " ORDER BY " + Ref(c.Name) + ")"
	}
	parts := part(r.came())
	if !c.NotNull {
		parts = part(Ref(c.Name)+" IS NULL") + " UNION ALL " + parts
	}
	return " FROM (" + parts + ") AS t WHERE true"
}

// DueIndexed says whether indexes find due rows without reading those that wait; Waits must hold. It plans
// dueByTime's statement, and looks whether anything is sorted, scanned or filtered by state.
func (r *Relation) DueIndexed(indexed *bool) []Step {
	columns, _ := r.idList()
	q := r.Page(Selected{list: columns}, 1000)
	q.ByTime()
	q.AnyOrder()
	step, _ := q.Step(nil)
	*indexed = true
	// unindexed matches a line of a plan that reads more than is wanted.
	match := `^\s*(->)?\s*(Sort|Seq Scan.*|Bitmap.*)$`
	if len(r.Table.Mapping.Order) > 0 {
		match += `|^\s*Presorted Key: [^,]*$`
	}
	s := &r.Table.Mapping.Status
	if state := notEmpty(append([]string{s.Column, s.SentAt, s.FailedAt}, s.SentBy...)); len(state) > 0 {
		match += `|^\s*Filter: .*\b(` + joined(state, "|", regexp.QuoteMeta) + `)\b`
	}
	unindexed := regexp.MustCompile(match)
	explain := Step{SQL: "EXPLAIN (COSTS off) " + step.SQL, Args: step.Args, Each: func(row [][]byte) error {
		*indexed = *indexed && !unindexed.Match(row[0])
		return nil
	}}
	off := "SELECT set_config(name, 'off', true) FROM unnest(ARRAY['enable_seqscan', 'enable_bitmapscan', 'enable_sort']) AS name"
	return []Step{{SQL: off}, explain}
}
