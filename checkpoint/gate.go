package checkpoint

import (
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// gate keeps the WAL's rows of some scopes in memory, in order: during a hand-back and then, as after a start,
// until the WAL has reached check. Rows up to check are looked at before they are published. There is at most
// one gate.
type gate struct {
	// If keys is set, the gate keeps the rows of these keys; else those of park; else all rows.
	park *park
	keys map[outbox.Scope]bool
	// keeping says that the hand-back has not removed its parks yet. Until then no row leaves the gate.
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

// drainGate publishes kept rows in order. Rows up to check are looked at first.
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

// letOut goes through the queue. It ends when a batch of looks is full, or at the first row that must wait
// for the answers to that batch. It returns how many rows have left the queue.
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

// dropGate forgets the kept rows, and their holds with them: the connection is over.
func (c *Core) dropGate() {
	if c.gate == nil {
		return
	}
	c.dropQueue(&c.gate.keyQueue)
	c.gate = nil
}

// discardKept leaves those of the kept rows to the sweeper that a park in phase sweeping covers.
func (c *Core) discardKept() {
	if c.gate == nil {
		return // while draining
	}
	c.gate.queue = slices.DeleteFunc(c.gate.queue, func(h uint32) bool {
		p := c.parks.discarding(c.rows.entries[h].row)
		if p != nil {
			c.leave(h, p)
		}
		return p != nil
	})
}
