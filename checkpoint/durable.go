package checkpoint

import (
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// writing is the outstanding change of our table.
type writing struct {
	puts     []put
	removals []*park
	hb       *handback // whose removals are among them, or nil
}

type put struct {
	p       *park
	version int
}

// writeParks asks for the changes of our table, one transaction at a time. New
// parks go into the same transaction as removals: a park that replaces another
// is durable when the other goes.
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

// forgetUnwritten removes the parks that are over before our table was told of them. Others may go on then, so it
// comes first in a step.
func (c *Core) forgetUnwritten() {
	var parks []*park
	for _, p := range c.parks.awake {
		if p.phase == absorbed && !p.asked {
			parks = append(parks, p)
		}
	}
	c.unpark(parks...)
}

// ParksWritten answers Parks.
func (c *Core) ParksWritten(r outbox.ParkResult) {
	w := c.writing
	c.writing = nil
	if w == nil {
		return
	}
	if r == outbox.ParksUnknown {
		return // the change may have been made or not: removed parks are not durable, and it is asked for again
	}
	for _, put := range w.puts {
		c.parks.wake(put.p) // it may be asleep: tallied counts a later version as written
		put.p.written = put.version
		c.nowDurable(put.p)
	}
	// The other removals go with the hand-back, or have failed again.
	c.unpark(slices.DeleteFunc(w.removals, func(p *park) bool { return p.phase != absorbed })...)
	if w.hb == nil || w.hb != c.hb {
		return
	}
	c.unpark(w.hb.parks...)
	if c.gate != nil { // else draining; what was kept goes on, up to B after a look
		c.gate.keeping, c.gate.check = false, w.hb.insert
	}
	c.hb = nil
}

// nowDurable settles what waited for the park.
func (c *Core) nowDurable(p *park) {
	p.durable = true
	c.releaseWaiting(p)
	if !p.releasesInFlight {
		return
	}
	for e := range c.rows.flying() { // they stay in flight and are marked, but hold the position no longer
		c.ledger.release(e.tx, 1)
		e.tx = noTx
	}
}
