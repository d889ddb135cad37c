package tablesql

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// This file reads due rows without stepping over the rows whose time has not come, which may be millions. A
// pending row is due if it has no time, or if its time has come. An index that begins with the time finds
// both kinds.

// waitsFor returns the column of the first time that rows wait for. nil: rows wait for no time, or may be due
// in spite of it.
func (r *Relation) waitsFor() *Column {
	m := &r.Table.Mapping
	if len(m.AvailableAfter) == 0 || m.Status.Resend != "" {
		return nil
	}
	return r.Column(m.AvailableAfter[0])
}

// Waits reports whether rows may wait for a time, and so need an index that begins with it.
func (r *Relation) Waits() bool { return r.waitsFor() != nil }

// came returns the condition that the first time has come.
func (r *Relation) came() string { return r.when(r.waitsFor().Name, "<=", "now()") }

// ByTime makes the query read due rows by the indexes that DueIndexed has found.
func (q *PageQuery) ByTime() { q.byTime = true }

// AnyOrder makes the query read due rows in the cheapest order. Without it, if every row has a time, rows are
// read in table order and those that wait are skipped: reading by time, each page would have to sort all due
// rows.
func (q *PageQuery) AnyOrder() { q.anyOrder = true }

// untimed returns the order for rows without a time. The time comes first, because the index begins with it.
func (q *PageQuery) untimed(columns string) string {
	time := Ref(q.relation.waitsFor().Name)
	return q.selecting(columns, time+" IS NULL") + " ORDER BY " + time + ", " + strings.Join(q.relation.order(), ", ") + limit(q.limit)
}

// dueByTime selects rows without a time, in order, and then those whose time came first.
func (q *PageQuery) dueByTime() string {
	r := q.relation
	c := r.waitsFor()
	timed := q.selecting(q.columns.list, r.came()) + " ORDER BY " + Ref(c.Name) + limit(q.limit)
	if c.NotNull {
		return timed
	}
	return "SELECT * FROM ((" + q.untimed(q.columns.list) + ") UNION ALL (" + timed + ")) AS t" + limit(q.limit)
}

// pageByTime selects both kinds in table order. OFFSET makes the planner expect to read all rows whose time
// has come. Otherwise, for a few rows in table order, it would walk an index on the order columns, over rows
// that wait or were sent.
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

// dueFrom returns FROM and WHERE for our due rows, with one of their columns.
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

// DueIndexed finds whether indexes serve due rows without reading those that wait; Waits must be true. It
// plans the statement of dueByTime, and checks that nothing is sorted, scanned or filtered by state.
func (r *Relation) DueIndexed(indexed *bool) []Step {
	columns, _ := r.idList()
	q := r.Page(Selected{list: columns}, 1000)
	q.ByTime()
	q.AnyOrder()
	step, _ := q.Step(nil)
	*indexed = true
	// match finds a line of a plan that reads more than the wanted rows.
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
