package sweeper

import (
	"fmt"
	"strconv"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// reader turns the rows of a query's result into outbox rows.
type reader struct {
	plan   *plan
	light  bool
	bare   bool // without long values
	arena  *mapping.Arena
	values []mapping.Value
	rows   []*outbox.Row
	bytes  int
	// most is how many bytes of rows are read. Later rows are skipped. 0: no limit.
	most int
	full bool // rows were skipped
	// horizon: rows written by transactions before it are Aged. snapshot widens the transaction ids. 0: ages
	// are not asked for, or the table does not show them.
	horizon  uint64
	snapshot *outbox.Snapshot
	// value is the last row's value of TieColumn, if that was selected after the row's own columns. run is
	// how many rows in a row, up to the last one, have this value. NULLs do not count as equal.
	value []byte
	run   int
}

func newReader(p *plan, light bool, arena *mapping.Arena) *reader {
	return &reader{plan: p, light: light, arena: arena, values: make([]mapping.Value, len(p.columns))}
}

// selected returns the columns that the reader needs, in its order.
func (r *reader) selected() tablesql.Selected {
	columns := make([]tablesql.RowColumn, 0, len(r.plan.columns))
	for i, c := range r.plan.columns {
		if !r.skips(i) {
			columns = append(columns, c)
		}
	}
	return tablesql.Select(columns, r.bare, r.horizon > 0)
}

func (r *reader) skips(i int) bool { return r.light && r.plan.light[i] != nil }

// each reads one row of the result.
func (r *reader) each(row [][]byte) error {
	if r.full = r.full || r.most > 0 && r.bytes >= r.most; r.full {
		return nil
	}
	at := 0
	for i := range r.values {
		if r.skips(i) {
			r.values[i] = *r.plan.light[i]
			continue
		}
		value, width, err := r.plan.columns[i].Read(row[at:])
		if err != nil {
			return fmt.Errorf("table %s: %w", r.plan.relation.Table, err)
		}
		r.values[i], at = value, at+width
	}
	made := r.plan.rows.Row(r.values, r.arena)
	if r.horizon > 0 && at < len(row) {
		xid, err := strconv.ParseUint(string(row[at]), 10, 32)
		if err != nil {
			return fmt.Errorf("table %s has a row of transaction %q: %w", r.plan.relation.Table, row[at], err)
		}
		// A subtransaction has a greater id than its transaction, so this id is before the horizon only if
		// the transaction's is. An id so old that it was used again counts as after the horizon: such a row
		// waits, as a new row does.
		made.Aged = r.snapshot.Widen(uint32(xid)) < r.horizon
		at++
	}
	switch more := row[at:]; {
	case len(more) == 0:
	case more[0] == nil:
		r.run = 0
	case r.run > 0 && string(more[0]) == string(r.value):
		r.run++
	default:
		r.value, r.run = append(r.value[:0], more[0]...), 1
	}
	r.rows = append(r.rows, made)
	r.bytes += made.Size()
	return nil
}
