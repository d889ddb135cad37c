package sweeper

import (
	"fmt"
	"strconv"

	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// reader turns the rows of a result into outbox rows.
type reader struct {
	plan   *plan
	light  bool
	bare   bool // long values are left out
	arena  *mapping.Arena
	values []mapping.Value
	rows   []*outbox.Row
	bytes  int
	// most bytes of rows are read, and the rest passed over; 0: any number.
	most int
	full bool // some were passed over
	// Rows written by transactions before the horizon are aged; the snapshot widens
	// their ids. 0: nobody asks, or the table does not show who wrote them.
	horizon  uint64
	snapshot *outbox.Snapshot
	// value is the last row's value of TieColumn, where that was selected behind the row's own columns. run is
	// how many rows up to the last one tie in it. NULLs do not tie.
	value []byte
	run   int
}

func newReader(p *plan, light bool, arena *mapping.Arena) *reader {
	return &reader{plan: p, light: light, arena: arena, values: make([]mapping.Value, len(p.columns))}
}

// selected is the columns that the reader takes, in its order.
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
		// A subtransaction's id is greater than its transaction's, so it is before
		// the horizon only if that is. An id so old that it was used again is
		// behind it: such a row waits, as new ones do.
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
