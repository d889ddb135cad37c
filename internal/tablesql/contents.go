package tablesql

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Contents reads pending rows with their present values in a lookup, as a page would. Rows that are no longer
// ours, or not due, are not published. Contents is immutable.
type Contents struct {
	relation *Relation
	plan     *mapping.Plan
	columns  []RowColumn
	states   string // SQL of a lookup for states alone
}

// Contents returns the Contents of the relation.
func (r *Relation) Contents() (*Contents, error) {
	plan, columns, err := r.Plan()
	if err != nil {
		return nil, err
	}
	return &Contents{relation: r, plan: plan, columns: columns, states: r.lookSQL(r.stateNow(), r.chosen(), r.due())}, nil
}

// stateNow is state for rows that may have changed since they were read, and so may no longer be ours, or not
// be due.
func (r *Relation) stateNow() string {
	cases := ""
	if ours := r.chosen(); ours != "" {
		cases += " WHEN " + r.pending() + " AND (" + ours + ") IS NOT TRUE THEN 's'"
	}
	if due := r.due(); due != "" {
		cases += " WHEN " + r.pending() + " AND (" + due + ") IS NOT TRUE THEN 'w'"
	}
	if cases == "" {
		return r.state()
	}
	return "CASE" + cases + " ELSE " + r.state() + " END"
}

// lookSQL selects the state of every row and, if the row is pending, the columns of its record. changed: it
// leaves out rows that are as begin assumes and that only their first transaction wrote. Most rows are such,
// and reading them would cost as much as the WAL.
func (c *Contents) lookSQL(bare, changed bool) string {
	r := c.relation
	list, where := r.rowList(), ""
	if changed {
		list, where = r.rowList("writer", "integer"), " WHERE ("+r.usual(r.chosen(), r.due(), "t.xmin = u.writer")+") IS NOT TRUE"
	}
	return "SELECT u.n, " + r.exists() + ", " + r.stateNow() + ", " + r.storedCount() + ", x.* FROM " + list +
		" LEFT JOIN " + r.Name() + " AS t ON " + r.sameRow() +
		" LEFT JOIN LATERAL (SELECT " + Select(c.columns, bare, false).list + " WHERE " + Opaque(r.pending()) + ") AS x ON true" + where
}

// lockSQL selects the same columns for the rows that are to be published, and locks these rows.
func (c *Contents) lockSQL(bare bool) string {
	r := c.relation
	return r.lockingSQL(r.storedCount()+", "+Select(c.columns, bare, false).list, allOf(r.pending(), r.chosen(), r.due()), " FOR UPDATE OF t SKIP LOCKED")
}

// read makes the row of its present values. The row keeps its position in the WAL, and the id by which it was
// found.
func (c *Contents) read(row [][]byte, before *outbox.Row, arena *mapping.Arena) (*outbox.Row, error) {
	values := make([]mapping.Value, len(c.columns))
	for i := range c.columns {
		value, width, err := c.columns[i].Read(row)
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", c.relation.Table, err)
		}
		values[i], row = value, row[width:]
	}
	now := c.plan.Row(values, arena)
	now.ID = before.ID
	now.Commit, now.CommitTime, now.XID = before.Commit, before.CommitTime, before.XID
	return now, nil
}

// Around looks up rows that may be too long together, or that the server may be unable to print. If so, it
// asks for fewer rows, and in the end for one row without its long values. It answers CheckAgain for the
// others.
func Around(rows []*outbox.Row, look func(rows []*outbox.Row, bare bool) ([]outbox.Checked, error)) ([]outbox.Checked, error) {
	answers, err := look(rows, false)
	n, bare := len(rows), false
	for !bare {
		fit := n / 2
		if long, is := errors.AsType[*longError](err); is {
			fit = cmp.Or(long.before(rows[:n]), fit)
		} else if !Unprintable(err) {
			break
		}
		bare, n = n == 1, max(1, fit)
		answers, err = look(rows[:n], bare)
	}
	if err != nil {
		return nil, err
	}
	for _, r := range rows[len(answers):] {
		answers = append(answers, outbox.Checked{Row: r, State: outbox.CheckAgain})
	}
	return answers, nil
}
