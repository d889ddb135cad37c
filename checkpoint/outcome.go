package checkpoint

import (
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Outcome takes an outcome of rows from the sink.
func (c *Core) Outcome(o outbox.Outcome) {
	switch o.Class {
	case outbox.Delivered:
		c.topics.tookRecord(o.Rows[0])
		for _, r := range o.Rows {
			c.delivered(r.Handle, o.Unit)
		}
	case outbox.Refused:
		for _, r := range o.Rows {
			e := &c.rows.entries[r.Handle]
			e.uncharged = o.Uncharged
			c.answered(e)
			c.fail(r.Handle, o.Err)
		}
		c.release(o)
	case outbox.Withdrawn:
		c.withdrawn(o)
	case outbox.TakenOut:
		for _, r := range o.Rows {
			c.takenOut(r.Handle)
		}
	case outbox.Stale:
		c.stale(o.Rows)
	}
}

// release unblocks what the sink has blocked. It is called after the scope was parked, so that no row of
// the WAL slips through, and before the sweeper's rows are published.
func (c *Core) release(o outbox.Outcome) {
	switch {
	case !o.Blocked:
	case c.tables.stateless:
		c.stallOf(o.Scope).blocked = true // released when it is tried again
	default:
		c.ready.Commands = append(c.ready.Commands, outbox.Command{Release: new(o.Scope)})
	}
}

func (c *Core) delivered(h uint32, unit *outbox.Unit) {
	e := &c.rows.entries[h]
	c.answered(e)
	if !e.row.Table.Stateful() {
		c.settle(h)
		return
	}
	e.state = acked
	e.once = unit != nil
	c.ready.Marks = append(c.ready.Marks, outbox.Mark{Row: e.row, Kind: outbox.MarkSent, Unit: unit})
}

// withdrawn leaves the rows that the sink gave back to the sweeper; without state they are stalled.
func (c *Core) withdrawn(o outbox.Outcome) {
	if c.tables.stateless {
		for _, r := range o.Rows {
			c.stall(o.Scope, r.Handle, o.Err)
		}
		c.release(o)
		return
	}
	if o.Err != nil { // the error is the topic's
		c.parkTopic(o)
	}
	c.release(o)
	for _, r := range o.Rows {
		c.giveBack(r.Handle)
	}
}

// takenOut acts on the look that made the sink give the row up. Disconnect forgets the results of an earlier
// connection's looks, and a clean stop publishes nothing.
func (c *Core) takenOut(h uint32) {
	e := &c.rows.entries[h]
	if e.found == 0 || e.found == outbox.CheckPending && c.draining {
		c.giveBack(h)
		return
	}
	c.answered(e)
	c.checked(&keyQueue{}, h, e.found)
}

func (c *Core) giveBack(h uint32) {
	e := &c.rows.entries[h]
	r := e.row
	p := c.parks.discarding(r)
	switch {
	case c.draining: // it was never sent, and the WAL brings it again
		c.drop(h)
		return
	case p == nil:
		p = c.park(outbox.KeyScope(r), outbox.CauseMissed, "the row was given back unsent", time.Time{})
		c.awaitAnswers(p)
	}
	c.leave(h, p)
}
