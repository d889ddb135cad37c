package checkpoint

import (
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// heldRows are rows that have waited in the sink for so long that it asks for their present state. They
// stay in flight and in their order there. So pages leave them out, hand-backs await them and parks
// withdraw them, like all rows in the sink.
type heldRows struct {
	queue []uint32 // to be looked at
	asked []uint32 // being looked at
}

// again puts the rows that were being looked at back into the queue, because their answer will not come.
func (s *heldRows) again() { s.queue, s.asked = append(s.asked, s.queue...), nil }

// stale takes the sink's question about rows.
func (c *Core) stale(rows []*outbox.Row) {
	if c.draining { // there are no more looks, and these rows were not sent
		c.ready.Commands = append(c.ready.Commands, outbox.Command{Withdraw: new(outbox.StreamScope())})
		return
	}
	for _, r := range rows {
		c.rows.entries[r.Handle].stale = true
		c.looks.held.queue = append(c.looks.held.queue, r.Handle)
	}
}

// awaitsLook reports whether the sink still waits for a look at the row.
func (c *Core) awaitsLook(h uint32) bool { return c.rows.entries[h].stale }

// turnHeld takes the next rows to look at. Looks can make rows longer. Once they have added MaxBytes in
// all, only rows that were looked at before are taken: these are the ones in front in their partitions.
func (c *Core) turnHeld() (rows []*outbox.Row) {
	s := &c.looks.held
	s.queue = slices.DeleteFunc(s.queue, func(h uint32) bool {
		e := &c.rows.entries[h]
		switch {
		case !c.awaitsLook(h):
			return true
		case len(rows) == c.cfg.PageRows, c.rows.grown >= c.cfg.MaxBytes && !e.looked:
			return false
		}
		s.asked = append(s.asked, h)
		rows = append(rows, e.row)
		return true
	})
	return rows
}
