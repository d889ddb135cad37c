package checkpoint

import (
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// gate keeps the WAL's rows of some scopes in memory, in order, during a hand-back and
// until the WAL has reached check. Rows up to check are looked at before they are
// published. There is one gate at a time.
type gate struct {
	// Kept are rows of keys, if it is set, else rows of park, else all rows.
	park *park
	keys map[outbox.Scope]bool
	// keeping: the hand-back has not removed its parks yet; nothing comes out.
	keeping bool
	check   outbox.LSN
	keyQueue
}

func (g *gate) keeps(r *outbox.Row) bool {
	if g.keys != nil {
		return g.keys[outbox.KeyScope(r)]
	}
	return g.park == nil || g.park.takes(r)
}

// drainGate lets rows out in order: those up to check only after a look.
func (c *Core) drainGate() {
	g := c.gate
	if g == nil || g.keeping || c.looks.checking {
		return
	}
	c.resume(&g.keyQueue)
	g.queue = g.queue[c.letOut(g):]
	if g.asked == nil && len(g.waiting) == 0 && c.ledger.received >= g.check {
		c.gate = nil
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
		case r.Commit <= g.check && !c.looksAt(&c.rows.entries[h]):
			if len(g.asked) == c.cfg.PageRows {
				return i
			}
			g.asked = append(g.asked, h)
			c.ready.Check = append(c.ready.Check, r)
		case g.asked != nil:
			return i
		default:
			c.publish(h)
		}
	}
	return len(g.queue)
}

// dropGate forgets the kept rows with their holds: the connection is over.
func (c *Core) dropGate() {
	if c.gate == nil {
		return
	}
	c.dropQueue(&c.gate.keyQueue)
	c.gate = nil
}

// discardKept leaves kept rows to the sweeper: those of parks that are sweeping.
func (c *Core) discardKept() {
	if c.gate == nil {
		return // draining
	}
	c.gate.queue = slices.DeleteFunc(c.gate.queue, func(h uint32) bool {
		p := c.parks.discarding(c.rows.entries[h].row)
		if p != nil {
			c.leave(h, p)
		}
		return p != nil
	})
}
