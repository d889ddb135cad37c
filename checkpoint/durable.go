package checkpoint

import (
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// writing is the outstanding write of our table of parks. There is at most one.
type writing struct {
	puts     []put
	removals []*park
	hb       *handback // the hand-back whose parks are among the removals, or nil
}

// put is a park that is being written, and which version of it.
type put struct {
	p       *park
	version int
}

// writeParks requests the changes of our table of parks, as one transaction. At most one such request is
// outstanding. New parks are written in the same transaction as removals, so a park that replaces another is
// durable when the other is removed.
func (c *Core) writeParks() {
	if c.writing != nil {
		return
	}
	w := &writing{}
	change := &outbox.ParkChange{}
	if c.hb != nil && c.hb.step == hbRemoving {
		w.hb = c.hb
	}
	for _, p := range c.parks.awake {
		switch {
		case p.phase == absorbed, p.phase == keeping && w.hb != nil:
			w.removals = append(w.removals, p)
		case p.dirty() && (w.hb != nil || !p.postponed()):
			p.asked = true
			w.puts = append(w.puts, put{p, p.version})
			change.Put = append(change.Put, p.Park)
		}
	}
	for _, p := range w.removals {
		change.Delete = append(change.Delete, p.Scope)
		p.durable = false
	}
	if len(change.Put)+len(change.Delete) > 0 {
		c.writing = w
		c.ready.Parks = change
	}
}

// forgetUnwritten removes absorbed parks that our table was never asked to hold, which needs no write. Other
// parks may go on once these are gone, so Take calls it before it looks at the others.
func (c *Core) forgetUnwritten() {
	var parks []*park
	for _, p := range c.parks.awake {
		if p.phase == absorbed && !p.asked {
			parks = append(parks, p)
		}
	}
	c.unpark(parks...)
}

// ParksWritten takes the answer to Ready.Parks.
func (c *Core) ParksWritten(r outbox.ParkResult) {
	w := c.writing
	c.writing = nil
	if w == nil {
		return
	}
	if r == outbox.ParksUnknown {
		return // it is not known whether the change was made: the removed parks do not count as durable, and the change is requested again
	}
	for _, put := range w.puts {
		c.parks.wake(put.p) // the park may be asleep, because tallied counts a later version as written
		put.p.written = put.version
		c.nowDurable(put.p)
	}
	// The other removed parks belong to the hand-back, see below, or their scopes have failed again.
	c.unpark(slices.DeleteFunc(w.removals, func(p *park) bool { return p.phase != absorbed })...)
	if w.hb == nil || w.hb != c.hb {
		return
	}
	c.unpark(w.hb.parks...)
	if c.gate != nil { // without a gate, the process is stopping; with one, the kept rows are published now, those up to B after a look
		c.gate.keeping, c.gate.check = false, w.hb.insert
	}
	c.hb = nil
}

// nowDurable notes that the park is durable, and settles what waited for that.
func (c *Core) nowDurable(p *park) {
	p.durable = true
	c.releaseWaiting(p)
	if !p.releasesInFlight {
		return
	}
	for e := range c.rows.flying() { // these rows stay in flight and are marked, but no longer hold the position
		c.ledger.release(e.tx, 1)
		e.tx = noTx
	}
}
