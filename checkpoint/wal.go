package checkpoint

import (
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Begin opens a transaction of the WAL.
func (c *Core) Begin(tx outbox.Transaction) {
	c.ledger.begin(tx)
	if tx.Commit > c.tables.before.to {
		c.tables.before.published = nil
	}
	if c.leavesToNext() {
		c.ledger.hold()
	}
}

// leavesToNext reports whether the open transaction is left to the next connection or process, and never
// confirmed here: rows before it were not read, or a clean stop has begun.
func (c *Core) leavesToNext() bool {
	return c.tables.passedOver || c.draining && c.tables.stateless && !c.unfinished
}

// Rows feeds rows of the open transaction, in the order of the WAL. They carry the transaction's XID and
// Commit.
func (c *Core) Rows(rows []*outbox.Row) {
	if c.leavesToNext() {
		return
	}
	for _, r := range rows {
		c.row(r)
	}
}

func (c *Core) row(r *outbox.Row) {
	switch {
	case !r.Pending:
		return
	case c.tables.stateless && c.cfg.Shadow:
		return // in shadow, rows of such tables are ignored: no park can leave them to the sweeper
	case c.tables.before.published != nil && c.tables.before.published(r):
		return
	case r.AvailableAt == outbox.Never:
		c.watch.expectAt(c.now.Add(askSoon)) // by then the table may say when the row is due
		return
	case c.scheduled(r):
		c.watch.expectAt(time.UnixMicro(r.AvailableAt))
		return // the watch finds it when it is due; it holds neither the position nor its key
	}
	if p := c.parks.discarding(r); p != nil {
		if p.knownTopics != nil {
			p = c.parkIfListed(p, r)
		}
		if !p.durable {
			c.parks.wait(p, c.ledger.hold())
		}
		c.discardXID(r.XID)
		return
	}
	if len(c.rows.byID) != 0 && c.carriedRow(r) {
		return
	}
	h := c.rows.add(r, c.ledger.hold())
	switch {
	case c.stalled(h):
	case c.gate != nil && c.gate.keeps(r):
		c.gate.queue = append(c.gate.queue, h)
	default:
		c.publish(h)
	}
}

// scheduled reports whether the row is not available yet. A row that was available at its commit is not
// scheduled: our clock may be behind the server's, and later rows must not pass it.
func (c *Core) scheduled(r *outbox.Row) bool {
	return r.AvailableAt > c.now.UnixMicro() && r.AvailableAt > c.ledger.opened
}

// carriedRow reports whether the row is in flight from an earlier connection. Such a row is not published
// again. It holds its transaction in the new ledger; otherwise the confirmed position would pass it.
func (c *Core) carriedRow(r *outbox.Row) bool {
	h, found := c.rows.byID[idOf(r)]
	if !found {
		return false
	}
	e := &c.rows.entries[h]
	if e.tx == noTx {
		e.tx = c.ledger.hold()
	}
	c.rows.arrive(h) // its place is now that of this connection's order
	return true
}

// Commit ends the open transaction; end is the position right behind it.
func (c *Core) Commit(end outbox.LSN) {
	c.ledger.commit(end)
	c.unfinished = false
}

// Keepalive says that everything below walEnd was received.
func (c *Core) Keepalive(walEnd outbox.LSN) {
	c.ledger.keepalive(walEnd)
}

// TableBroken says that from here on the table's rows in the WAL do not fit its mapping. No row of the
// table is fed until TableMapped. Since these rows are passed over unread, the position is not confirmed
// past this point until the table's park is durable.
func (c *Core) TableBroken(t *outbox.Table, err error) {
	c.tables.broken[t.String()] = true
	if c.tables.stateless {
		return // nothing can be parked; Passed deals with its rows
	}
	p := c.park(outbox.TableScope(t), outbox.CauseMapping, err.Error(), c.now.Add(c.cfg.BackoffMin))
	c.settleUnder(c.ledger.hold(), p)
}

// Passed says that rows of a broken table were passed over in the open transaction. Nothing finds them
// again if the tables have no state. Then the transaction is never confirmed, and no later one is read.
func (c *Core) Passed(xid uint32) {
	if !c.tables.stateless || c.cfg.Shadow {
		c.discardXID(xid)
		return
	}
	c.ledger.hold()
	c.tables.passedOver, c.unfinished = true, false
}

// TableMapped says that rows of the table can be read again.
func (c *Core) TableMapped(t *outbox.Table) { delete(c.tables.broken, t.String()) }
