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

// leavesToNext says that the open transaction is not ours to publish any more:
// it is never confirmed here. Its rows are behind those that were not read, or a clean stop has begun.
func (c *Core) leavesToNext() bool {
	return c.tables.passedOver || c.draining && c.tables.stateless && !c.unfinished
}

// Rows feeds rows of the open transaction in the order of the WAL. They carry
// its XID and Commit.
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
		return // nothing to leave it to the sweeper by
	case c.tables.before.published != nil && c.tables.before.published(r):
		return
	case r.AvailableAt == outbox.Never:
		c.watch.expectAt(c.now.Add(askSoon)) // by then the table may say when
		return
	case c.scheduled(r):
		c.watch.expectAt(time.UnixMicro(r.AvailableAt))
		return // the watch finds it when it is due; it holds no position and no key
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

// scheduled says that the row is not available yet. A row that was available at its
// commit is not scheduled: our clock may be behind the server's, and later rows must not
// pass it.
func (c *Core) scheduled(r *outbox.Row) bool {
	return r.AvailableAt > c.now.UnixMicro() && r.AvailableAt > c.ledger.opened
}

// carriedRow: a row in flight from an earlier connection is not published
// again, but is held in the new ledger, else the confirmed position would pass it.
func (c *Core) carriedRow(r *outbox.Row) bool {
	h, found := c.rows.byID[idOf(r)]
	if !found {
		return false
	}
	e := &c.rows.entries[h]
	if e.tx == noTx {
		e.tx = c.ledger.hold()
	}
	c.rows.arrive(h) // it comes in the order of this connection
	return true
}

// Commit ends the open transaction; end is the position behind it.
func (c *Core) Commit(end outbox.LSN) {
	c.ledger.commit(end)
	c.unfinished = false
}

// Keepalive says that everything below walEnd was received.
func (c *Core) Keepalive(walEnd outbox.LSN) {
	c.ledger.keepalive(walEnd)
}

// TableBroken says that from here on the WAL's rows of the table cannot be
// read as its mapping says; no row of it will be fed until TableMapped. Since
// its rows are then passed over unread, the WAL is not confirmed past this
// point until the table's park is durable.
func (c *Core) TableBroken(t *outbox.Table, err error) {
	c.tables.broken[t.String()] = true
	if c.tables.stateless {
		return // nothing can be parked: see Passed
	}
	p := c.park(outbox.TableScope(t), outbox.CauseMapping, err.Error(), c.now.Add(c.cfg.BackoffMin))
	c.settleUnder(c.ledger.hold(), p)
}

// Passed says that rows of a broken table were passed over in the open
// transaction. Where nothing finds them again, that transaction is never confirmed, and
// none is read behind it.
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
