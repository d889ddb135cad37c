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

// full says that the bound of rows or bytes in memory is reached.
func (c *Core) full() bool {
	return c.rows.count >= c.cfg.MaxRows || c.rows.bytes >= c.cfg.MaxBytes
}

// Scattered says that many rows have left memory since the oldest row in flight came: those that are left may keep the
// memory of all of them, which they share with their neighbours (mapping.Arena).
func (c *Core) Scattered() bool {
	oldest := c.rows.entries[0].prev
	return oldest != 0 && c.rows.arrivals-c.rows.entries[oldest].arrival > 2*uint64(max(c.rows.count, c.cfg.MaxRows/4)) // #nosec G115 -- counts
}

// markAnswered: until a refused mark is answered again, its table brings no more rows
// into memory.
func (c *Core) markAnswered(e *entry) {
	if e.unmarked {
		e.unmarked = false
		c.retries.refused[e.row.Table.String()]--
	}
}

// unclaim gives a row's lock up.
func (c *Core) unclaim(h uint32) {
	e := &c.rows.entries[h]
	if e.claim == nil {
		return
	}
	c.looks.claims.release(e)
	c.ready.Unclaim = append(c.ready.Unclaim, e.row)
}

// discardXID notes that a row of the transaction is left to the sweeper.
func (c *Core) discardXID(xid uint32) {
	if !c.cfg.Shadow { // in shadow no hand-back will ask
		c.txs.discard(xid, c.generation)
	}
}

// settleUnder settles a hold under a park: at once if the park is durable, otherwise
// when it becomes so.
func (c *Core) settleUnder(seq int64, p *park) {
	switch {
	case seq == noTx:
	case p.durable:
		c.ledger.release(seq, 1)
	default:
		c.parks.wait(p, seq)
	}
}

func (c *Core) releaseWaiting(p *park) {
	for _, h := range c.parks.takeHolds(p) {
		c.ledger.release(h.seq, h.n)
	}
}

// inSinkOf says that the sink still has rows of the scope, which it will give back.
func (c *Core) inSinkOf(s outbox.Scope) bool {
	for e := range c.rows.flying() {
		if e.state == inSink && s.Contains(e.row) {
			return true
		}
	}
	return false
}
