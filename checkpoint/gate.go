package checkpoint

import (
	"iter"
	"maps"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// gate keeps the WAL's rows of some scopes in memory, in order: while a hand-back is under way, and
// until the WAL has reached check, up to which each row is looked at before it is published. Core.gate
// is one at a time; each cluster with an outage has another, behind it.
type gate struct {
	// park is the wide park whose rows are kept, or keys are the narrow scopes. Neither: all
	// rows are.
	park *park
	keys map[outbox.Scope]bool
	// keeping: the hand-back has not removed its parks yet, or the outage is not over; nothing comes out.
	keeping bool
	check   outbox.LSN
	keyQueue

	// Of an outage: inSink is how many rows, of those from before it, the sink has to answer or give back;
	// parks is Core.parks.changes as its rows were compared with what is parked.
	inSink int
	parks  uint64
}

func (g *gate) keeps(r *outbox.Row) bool {
	if g.keys != nil {
		return g.keys[outbox.KeyScope(r)]
	}
	return g.park == nil || g.park.takes(r)
}

func (g *gate) empty() bool { return len(g.queue)+len(g.asked)+len(g.waiting) == 0 }

// gates are all of them: rows go from the first one on to those of outages.
func (c *Core) gates() iter.Seq[*gate] {
	return func(yield func(*gate) bool) {
		if c.gate != nil && !yield(c.gate) || len(c.outages.gates) == 0 {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(c.outages.gates)) {
			if !yield(c.outages.gates[name]) {
				return
			}
		}
	}
}

// drainGates lets rows out in order: those up to check only after a look.
func (c *Core) drainGates() {
	if c.checking || c.gate == nil && len(c.outages.gates) == 0 {
		return
	}
	for g := range c.gates() {
		if g.keeping {
			continue
		}
		c.resume(&g.keyQueue)
		g.queue = g.queue[c.letOut(g):]
		if !g.empty() || c.ledger.received < g.check {
			continue
		}
		if g == c.gate {
			c.gate = nil
		} else {
			maps.DeleteFunc(c.outages.gates, func(_ string, o *gate) bool { return o == g })
		}
	}
}

// letOut goes through the queue until a batch to look at is full, or until
// rows follow that must come after the batch. It returns how many it dealt with.
func (c *Core) letOut(g *gate) int {
	for i, h := range g.queue {
		r := c.rows.entries[h].row
		p := c.parks.discarding(r)
		switch {
		case p != nil:
			c.leave(h, p)
		case g.waits(r):
			g.wait(h, outbox.KeyScope(r), c.now)
		case r.Commit <= g.check && !c.looksFirst(&c.rows.entries[h]):
			if len(g.asked) == c.cfg.PageRows {
				return i
			}
			g.asked = append(g.asked, h)
			c.ready.Check = append(c.ready.Check, r)
		case g.asked != nil:
			return i
		default:
			c.letGo(h)
		}
	}
	return len(g.queue)
}

// letGo lets a row go on that was kept. Another outage may have begun since it was looked at.
func (c *Core) letGo(h uint32) {
	e := &c.rows.entries[h]
	switch g := e.outage; {
	case g == nil || e.state != kept:
		c.publish(h)
	case g.keeping:
		g.queue = append(g.queue, h)
	default:
		if e.outage = nil; !c.keptForOutage(h, g) {
			c.send(h)
		}
	}
}

// dropGates forgets the kept rows with their holds: the connection is over.
func (c *Core) dropGates() {
	for g := range c.gates() {
		c.dropQueue(&g.keyQueue)
	}
	c.gate = nil
	clear(c.outages.gates)
}

// discardKept leaves kept rows to the sweeper: those of parks that are sweeping.
func (c *Core) discardKept(g *gate) {
	if g == nil {
		return // draining
	}
	parked := func(h uint32) bool {
		p := c.parks.discarding(c.rows.entries[h].row)
		if p != nil {
			c.leave(h, p)
		}
		return p != nil
	}
	g.queue, g.waiting = slices.DeleteFunc(g.queue, parked), slices.DeleteFunc(g.waiting, parked)
}
