package checkpoint

import (
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// state is where a row in memory stands.
type state uint8

const (
	unused   state = iota
	kept           // behind the gate
	standing       // to be looked at before it goes to the sink
	inSink         // handed to the sink, not answered
	acked          // delivered, its mark outstanding
	attempt        // refused, the mark of its attempt outstanding
)

// entry is one row in memory.
type entry struct {
	row   *outbox.Row
	state state
	size  int
	// tx is the hold on a transaction, or noTx.
	tx         int64
	carried    bool      // from an earlier connection
	known      bool      // in Core.known
	hb         *handback // waits for this row
	awaits     *park     // waits for the sink's answer
	prev, next uint32    // in flight; next also links free entries
	reason     string    // of attempt: the error's text
	uncharged  bool      // of attempt: the error is not to be counted
	arrival    uint64    // the order of coming into memory
	page       *sweep    // that brought the row, or nil: the log did
	due        time.Time // of standing: when it may be looked at
	claim      *claim    // that holds the row's lock, or nil
}

// add takes a row into memory.
func (c *Core) add(r *outbox.Row, tx int64) uint32 {
	h := c.free
	if h == 0 {
		c.entries = append(c.entries, entry{})
		h = uint32(len(c.entries) - 1)
	} else {
		c.free = c.entries[h].next
	}
	c.arrivals++
	c.entries[h] = entry{row: r, state: kept, size: r.Size(), tx: tx, arrival: c.arrivals}
	r.Handle = h
	c.rows++
	c.bytes += c.entries[h].size
	return h
}

// resized counts what a look has added to a row.
func (c *Core) resized(h uint32) {
	e := &c.entries[h]
	c.bytes -= e.size
	e.size = e.row.Size()
	c.bytes += e.size
}

// know lets an entry be found by its row's id.
func (c *Core) know(h uint32) {
	e := &c.entries[h]
	e.known = true
	c.known[idOf(e.row)] = h
}

// fly puts an entry among those in flight.
func (c *Core) fly(h uint32, s state) {
	e := &c.entries[h]
	if e.state == kept {
		e.prev, e.next = 0, c.head
		if c.head != 0 {
			c.entries[c.head].prev = h
		}
		c.head = h
		c.inFlight++
	}
	e.state = s
}

// drop takes an entry out of memory. Its hold stays.
func (c *Core) drop(h uint32) {
	c.unclaim(h)
	e := &c.entries[h]
	if e.state != kept {
		if e.prev == 0 {
			c.head = e.next
		} else {
			c.entries[e.prev].next = e.next
		}
		if e.next != 0 {
			c.entries[e.next].prev = e.prev
		}
		c.inFlight--
	}
	if e.hb != nil {
		e.hb.outstanding--
	}
	if e.awaits != nil {
		e.awaits.awaiting--
	}
	if id := idOf(e.row); e.known && c.known[id] == h {
		delete(c.known, id)
	}
	if e.carried {
		c.carried--
	}
	c.rows--
	c.bytes -= e.size
	*e = entry{next: c.free}
	c.free = h
}

// settle drops an entry whose row is terminal or gone.
func (c *Core) settle(h uint32) {
	c.ledger.release(c.entries[h].tx, 1)
	c.drop(h)
}

// leave drops an entry and leaves its row to the sweeper.
func (c *Core) leave(h uint32, p *park) {
	e := &c.entries[h]
	c.discard(e.row, e.tx, p)
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
// become a record. A row that has to be looked at first stands meanwhile.
func (c *Core) publish(h uint32) {
	e := &c.entries[h]
	switch {
	case c.standsFirst(e):
		c.stand(h)
		return
	case e.row.Err != nil:
		c.failInTurn(h)
		return
	}
	c.fly(h, inSink)
	if n := len(c.ready.Commands); n > 0 && c.ready.Commands[n-1].Publish != nil {
		c.ready.Commands[n-1].Publish = append(c.ready.Commands[n-1].Publish, e.row)
	} else {
		c.ready.Commands = append(c.ready.Commands, outbox.Command{Publish: []*outbox.Row{e.row}})
	}
}

// Begin opens a transaction of the log.
func (c *Core) Begin(tx outbox.Transaction) {
	c.ledger.begin(tx)
	c.committed = tx.Time
	if c.leavesToNext() {
		c.ledger.hold()
	}
}

// leavesToNext says that the open transaction is not ours to publish any more:
// it is never confirmed here.
func (c *Core) leavesToNext() bool { return c.draining && c.stateless && !c.unfinished }

// Rows feeds rows of the open transaction in the order of the log. They carry
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
	case c.stateless && c.cfg.Shadow:
		return // nothing to leave it to the sweeper by
	case r.AvailableAt == outbox.Never && !c.stateless:
		c.watch.expectAt(c.now.Add(askSoon)) // by then the table may say
		return
	case c.scheduled(r) && !c.stateless:
		c.watch.expectAt(time.UnixMicro(r.AvailableAt))
		return // selected by its state when it is due; holds nobody
	}
	if p := c.parkedBy(r); p != nil {
		if p.known != nil {
			p = c.listedTopic(p, r)
		}
		if !p.durable {
			p.wait(c.ledger.hold())
			c.waiting++
		}
		c.discardXID(r.XID)
		return
	}
	if c.carried > 0 && c.carriedRow(r) {
		return
	}
	h := c.add(r, c.ledger.hold())
	switch {
	case c.stalled(h):
	case c.gate != nil && c.gate.covers(r):
		c.gate.queue = append(c.gate.queue, h)
	default:
		c.publish(h)
	}
}

// scheduled says that the row is not available yet. One that was when it was
// committed is not: our clock may be behind the server's, and rows behind it must
// not pass it.
func (c *Core) scheduled(r *outbox.Row) bool {
	return r.AvailableAt > c.now.UnixMicro() && r.AvailableAt > c.committed
}

// carriedRow: a row in flight from an earlier connection is not published
// again, but stands in the new ledger, else the confirmed position would pass it.
func (c *Core) carriedRow(r *outbox.Row) bool {
	h, found := c.known[idOf(r)]
	if !found {
		return false
	}
	e := &c.entries[h]
	if e.tx == noTx {
		e.tx = c.ledger.hold()
	}
	c.arrivals++ // its place among the rows of this connection
	e.arrival = c.arrivals
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

// TableBroken says that from here on the log's rows of the table cannot be
// read as its mapping says; no row of it will be fed until TableMapped. Since
// its rows are then passed over unread, the log is not confirmed past this
// point until the table's park is durable.
func (c *Core) TableBroken(t *outbox.Table, err error) {
	c.broken[t.String()] = true
	if c.stateless {
		return // the pipeline stops: nothing can be parked
	}
	p := c.park(outbox.TableScope(t), outbox.CauseMapping, err.Error(), c.now.Add(c.cfg.BackoffMin))
	c.cover(c.ledger.hold(), p)
}

// Passed says that rows of a broken table were passed over in the open
// transaction.
func (c *Core) Passed(xid uint32) { c.discardXID(xid) }

// TableMapped says that rows of the table can be read again.
func (c *Core) TableMapped(t *outbox.Table) { delete(c.broken, t.String()) }
