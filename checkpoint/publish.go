package checkpoint

import "github.com/outbox-cdc/outbox-cdc/internal/outbox"

// settle drops an entry whose row is terminal or gone.
func (c *Core) settle(h uint32) {
	c.ledger.release(c.rows.entries[h].tx, 1)
	c.drop(h)
}

// leave drops an entry and leaves its row to the sweeper.
func (c *Core) leave(h uint32, p *park) {
	e := &c.rows.entries[h]
	c.discardXID(e.row.XID)
	c.settleUnder(e.tx, p)
	c.drop(h)
}

// answered ends the wait for the sink's answer.
func (c *Core) answered(e *entry) {
	if e.awaits != nil {
		e.awaits.awaiting--
		e.awaits = nil
	}
}

// publish hands a row in memory to the sink, or charges it when it cannot
// become a record. A row that has to be looked at first waits in its queue.
func (c *Core) publish(h uint32) {
	e := &c.rows.entries[h]
	switch {
	case c.looksFirst(e):
		c.enqueue(h)
		return
	case e.row.Err != nil:
		c.failInTurn(h)
		return
	}
	c.rows.fly(h, inSink)
	if n := len(c.ready.Commands); n > 0 && c.ready.Commands[n-1].Publish != nil {
		c.ready.Commands[n-1].Publish = append(c.ready.Commands[n-1].Publish, e.row)
	} else {
		c.ready.Commands = append(c.ready.Commands, outbox.Command{Publish: []*outbox.Row{e.row}})
	}
}

// drop takes a row out of memory. Its hold stays.
func (c *Core) drop(h uint32) {
	c.unclaim(h)
	e := &c.rows.entries[h]
	if e.hb != nil {
		e.hb.outstanding--
	}
	c.answered(e)
	c.markAnswered(e)
	c.rows.remove(h)
}
