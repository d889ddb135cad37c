package checkpoint

import (
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// heldRows are rows that wait in the sink for so long that it asks what they are now. They stay there: in flight, in their
// order. So pages leave them out, hand-backs await them, and parks withdraw them, as ever.
type heldRows struct {
	queue []uint32 // to be looked at
	asked []uint32 // being looked at
}

// again puts those back that were being looked at, without an answer.
func (s *heldRows) again() { s.queue, s.asked = append(s.asked, s.queue...), nil }

// stale takes the sink's question.
func (c *Core) stale(rows []*outbox.Row) {
	if c.draining { // nobody looks any more, and they were not sent
		c.ready.Commands = append(c.ready.Commands, outbox.Command{Withdraw: new(outbox.StreamScope())})
		return
	}
	for _, r := range rows {
		c.rows.entries[r.Handle].stale = true
		c.looks.held.queue = append(c.looks.held.queue, r.Handle)
	}
}

// awaitsLook says that the sink still waits for the row's look.
func (c *Core) awaitsLook(h uint32) bool { return c.rows.entries[h].stale }

// turnHeld takes the next rows to be looked at. Once looks have added MaxBytes, it takes only rows that were looked at
// before: no others are before them in their partitions.
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
