package checkpoint

import (
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// claimRows is the most rows of one claim: locks are held for no more than are
// soon marked.
const claimRows = 500

// Rows of a table with a head start, claims or a headers table, or whose rows change, wait here on
// their way to the sink, wherever they come from: until the head start of the application's own
// relay has passed, and a look (a claim, where the table claims) has said that they are still
// PENDING, and as what they are to be published. They are in flight: pages leave them out and
// hand-backs await them. A park takes its rows away at once, or the sweeper's pages,
// which leave out what is in flight, would let later rows of a key pass them.

// Inserted tells the server's insert position, as read on the connection's
// server. It decides only when a head start began.
func (c *Core) Inserted(at outbox.LSN) { c.headStart.inserted(at, c.now) }

// looksFirst says that the row has to be looked at before it is published.
func (c *Core) looksFirst(e *entry) bool {
	return e.state == kept && e.row.Table.Mapping.NeedsLook()
}

// enqueue puts a row behind those of its table that wait to be looked at.
func (c *Core) enqueue(h uint32) {
	e := &c.rows.entries[h]
	m := &e.row.Table.Mapping
	c.rows.fly(h, queued)
	from := c.now // a page's row was visible by now
	switch {
	case e.page == nil:
		from = c.headStart.committedBy(e.row.Commit, c.now)
	case e.row.Aged:
		from = time.Time{}
	case e.page.hb == nil && m.Claim != outbox.ClaimNone:
		from = time.Time{} // the sweeper leaves out young rows, and the claim keeps others away
	}
	e.due = from.Add(m.HeadStart)
	q := c.headStart.of(e.row.Table)
	q.queue = append(q.queue, h)
}

// requestLooks asks for the rows whose time has come: those of tables that
// claim are locked, one claim outstanding at a time, the others are looked at. A look brings
// headers of a side table, or what rows have become since, so while as much is published as
// may be in memory there is none. What waits here does not count: a look is what it waits for.
func (c *Core) requestLooks() {
	if !c.checking {
		c.ready.Check = append(c.ready.Check, c.turnHeld()...)
	}
	if c.rows.published >= c.cfg.MaxBytes {
		return
	}
	for _, q := range c.headStart.queues {
		switch {
		case !q.claims() && !c.checking:
			c.ready.Check = append(c.ready.Check, c.turn(q, c.cfg.PageRows)...)
		case q.claims() && c.headStart.mayClaim(q):
			if rows := c.turn(q, min(claimRows, c.cfg.PageRows)); len(rows) > 0 {
				c.headStart.claiming, c.headStart.claimed, c.ready.Claim = q, rows[0], rows
			}
		}
	}
}

// turn takes the next rows to be looked at.
func (c *Core) turn(q *headStartQueue, limit int) []*outbox.Row {
	c.resume(&q.keyQueue)
	if q.next.After(c.now) && len(q.queue) < limit {
		return nil
	}
	var rows []*outbox.Row
	n := 0
	for ; n < len(q.queue) && len(rows) < limit; n++ {
		h := q.queue[n]
		e := &c.rows.entries[h]
		if q.waits(e.row) {
			q.wait(h, outbox.KeyScope(e.row), c.now)
			continue
		}
		if e.due.After(c.now) {
			break
		}
		q.asked = append(q.asked, h)
		rows = append(rows, e.row)
	}
	q.queue = q.queue[n:]
	if len(rows) > 0 && q.table.Mapping.HeadStart > 0 {
		q.next = c.now.Add(lookPause)
	}
	return rows
}

// leftUnder is the park under which a row that was to be looked at is left to
// the sweeper, or nil. A row that the sweeper read is left when a park of its
// has failed since, or waits.
func (c *Core) leftUnder(e *entry) *park {
	if e.page == nil {
		return c.parks.discarding(e.row)
	}
	var found *park
	c.parks.containing(e.row, func(p *park) bool {
		ours := e.hb != nil && e.hb == c.hb && p.phase == keeping
		// One that is being removed keeps new rows away, not what was queued before.
		if !ours && p.phase != absorbed && (c.withholds(p) || p.failedAt > e.page.askedAt) {
			found = p
		}
		return found == nil
	})
	return found
}

// leaveRead leaves a row to the sweeper, and with it what the sweeper read of
// the park's rows, or was asked for, and is not sent yet: it comes behind this one.
func (c *Core) leaveRead(h uint32, p *park) {
	if c.rows.entries[h].page != nil {
		c.generation++
		p.failedAt, p.ready, c.headStart.overtaken = c.generation, false, true
	}
	c.leave(h, p)
}

// leaveParked takes the rows of new parks, and of those that failed again, from
// the queues.
func (c *Core) leaveParked() {
	for c.headStart.overtaken {
		c.headStart.overtaken = false
		for _, q := range c.headStart.queues {
			q.queue = slices.DeleteFunc(q.queue, c.leftBehind)
			q.waiting = slices.DeleteFunc(q.waiting, c.leftBehind)
			q.asked = slices.DeleteFunc(q.asked, c.leftBehind)
		}
	}
}

// leftBehind leaves the row if it is a park's.
func (c *Core) leftBehind(h uint32) bool {
	p := c.leftUnder(&c.rows.entries[h])
	if p != nil {
		c.leaveRead(h, p)
	}
	return p != nil
}

// dropHeadStart forgets what waits: the connection is over, or the process stops.
func (c *Core) dropHeadStart() {
	for _, q := range c.headStart.queues {
		c.dropQueue(&q.keyQueue)
	}
	c.headStart.claiming, c.headStart.claimed, c.ready.Claim = nil, nil, nil
}
