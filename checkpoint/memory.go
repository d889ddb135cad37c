package checkpoint

import "github.com/outbox-cdc/outbox-cdc/internal/outbox"

// settle takes a row out of memory that has a terminal status or is gone from its table. It releases the
// row's hold in the ledger.
func (c *Core) settle(h uint32) {
	c.ledger.release(c.rows.entries[h].tx, 1)
	c.drop(h)
}

// leave takes a row out of memory, and leaves it to the sweeper under the park.
func (c *Core) leave(h uint32, p *park) {
	e := &c.rows.entries[h]
	c.discardXID(e.row.XID)
	c.settleUnder(e.tx, p)
	c.drop(h)
}

// drop takes a row out of memory. The row's hold in the ledger stays.
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

// full reports whether the bound of rows or bytes in memory is reached.
func (c *Core) full() bool {
	return c.rows.count >= c.cfg.MaxRows || c.rows.bytes >= c.cfg.MaxBytes
}

// Scattered reports whether many rows have left memory since the oldest row in flight came. Neighbouring
// rows share blocks of memory (mapping.Arena). So the rows that are left may keep the memory of all that
// came with them.
func (c *Core) Scattered() bool {
	oldest := c.rows.entries[0].prev
	return oldest != 0 && c.rows.arrivals-c.rows.entries[oldest].arrival > 2*uint64(max(c.rows.count, c.cfg.MaxRows/4)) // #nosec G115 -- counts
}

// markAnswered notes that a refused mark is answered again. Until that happens, no more rows of its table
// come into memory.
func (c *Core) markAnswered(e *entry) {
	if e.unmarked {
		e.unmarked = false
		c.retries.refused[e.row.Table.String()]--
	}
}

// unclaim gives up the row's lock, if a claim holds one.
func (c *Core) unclaim(h uint32) {
	e := &c.rows.entries[h]
	if e.claim == nil {
		return
	}
	c.looks.claims.release(e)
	c.ready.Unclaim = append(c.ready.Unclaim, e.row)
}

// discardXID notes that a row of the transaction was discarded, and is left to the sweeper.
func (c *Core) discardXID(xid uint32) {
	if !c.cfg.Shadow { // a shadow has no hand-backs, which would need to know
		c.txs.discard(xid, c.generation)
	}
}

// settleUnder releases a hold of a row that is left under the park: at once if the park is durable,
// otherwise when it becomes durable.
func (c *Core) settleUnder(seq int64, p *park) {
	switch {
	case seq == noTx:
	case p.durable:
		c.ledger.release(seq, 1)
	default:
		c.parks.wait(p, seq)
	}
}

// releaseWaiting releases the holds that waited for the park to be durable.
func (c *Core) releaseWaiting(p *park) {
	for _, h := range c.parks.takeHolds(p) {
		c.ledger.release(h.seq, h.n)
	}
}

// inSinkOf reports whether the sink still has rows of the scope, which it will give back.
func (c *Core) inSinkOf(s outbox.Scope) bool {
	for e := range c.rows.flying() {
		if e.state == inSink && s.Contains(e.row) {
			return true
		}
	}
	return false
}
