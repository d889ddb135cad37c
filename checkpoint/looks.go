package checkpoint

import (
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// looks has the rows that are looked at: before they go to the sink (queues), and while they are there
// (held).
//
// Rows of a table with a head start, claims, a headers table or look_first wait in the table's queue,
// whether the WAL or a page brought them. So do rows of other tables with state that have waited long in
// the WAL. Each row waits until its head start has passed and a look (or a claim) has found it PENDING and
// read its values. Meanwhile it is in flight: pages leave it out, and hand-backs await it.
type looks struct {
	queues   []*lookQueue // one for each table
	checking bool         // a Check request is outstanding
	// overtaken says that a new park may cover rows of the queues. leaveParked takes these rows out. They
	// must not stay: pages leave out queued rows, and so would let later rows of the same keys pass.
	overtaken bool
	held      heldRows
	claims    claims
	clock     serverTime
}

// lookQueue has the rows of one table that wait to be looked at, in order per key.
type lookQueue struct {
	keyQueue
	table  *outbox.Table
	claims int // number of claims with rows that are not marked yet
	// next is the earliest time of the next look, so that rows that trickle in share one look.
	next time.Time
}

// locks reports whether a look at the table's rows is a claim, which locks them.
func (q *lookQueue) locks() bool { return q.table.Mapping.Claim != outbox.ClaimNone }

func newLooks(tables []*outbox.Table) looks {
	s := looks{claims: newClaims(tables)}
	for _, t := range tables {
		s.queues = append(s.queues, &lookQueue{table: t})
	}
	return s
}

func (s *looks) of(t *outbox.Table) *lookQueue {
	return s.queues[slices.IndexFunc(s.queues, func(q *lookQueue) bool { return q.table == t })]
}

// busy reports whether rows of the table wait. Later rows must not pass them.
func (s *looks) busy(t *outbox.Table) bool {
	q := s.of(t)
	return len(q.queue)+len(q.asked)+len(q.waiting) > 0
}

// locksRows reports whether any table's rows are locked while they are published.
func (s *looks) locksRows() bool { return slices.ContainsFunc(s.queues, (*lookQueue).locks) }

// looksAt reports whether the row has to be looked at before it is published.
func (c *Core) looksAt(e *entry) bool {
	return e.row.Table.Mapping.NeedsLook() || e.page == nil && c.late(e.row)
}

// looksFirst reports whether the row has to wait in its queue: for a look at itself, or behind rows of the
// WAL that wait for one.
func (c *Core) looksFirst(e *entry) bool {
	return e.state == kept && (c.looksAt(e) || e.page == nil && c.rows.queued > 0 && c.looks.busy(e.row.Table))
}

// enqueue puts a row at the end of its table's queue.
func (c *Core) enqueue(h uint32) {
	e := &c.rows.entries[h]
	m := &e.row.Table.Mapping
	c.rows.fly(h, queued)
	from := c.now // for a page's row: it was visible by now
	switch {
	case e.page == nil:
		from = c.headStart.committedBy(e.row.Commit, c.now)
	case e.row.Aged:
		from = time.Time{}
	case e.page.hb == nil && m.Claim != outbox.ClaimNone:
		from = time.Time{} // the sweeper leaves out young rows, and the claim keeps other relays away
	}
	e.due, e.look = from.Add(m.HeadStart), c.looksAt(e)
	q := c.looks.of(e.row.Table)
	q.queue = append(q.queue, h)
}

// leftUnder returns the park that leaves a queued row to the sweeper, or nil. A row that the sweeper read
// is left under a park that has failed since the page was asked for, or whose rows must wait.
func (c *Core) leftUnder(e *entry) *park {
	if e.page == nil {
		return c.parks.discarding(e.row)
	}
	var found *park
	c.parks.containing(e.row, func(p *park) bool {
		ours := e.hb != nil && e.hb == c.hb && p.phase == keeping
		// A park that is being removed (absorbed) keeps new rows away, but not rows queued before.
		if !ours && p.phase != absorbed && (c.withholds(p) || p.failedAt > e.page.askedAt) {
			found = p
		}
		return found == nil
	})
	return found
}

// leaveRead leaves a row to the sweeper. If a page brought it, the later rows under the same park are left,
// too: those that were read and not sent, and those of the outstanding page.
func (c *Core) leaveRead(h uint32, p *park) {
	if c.rows.entries[h].page != nil {
		c.generation++
		p.failedAt, p.sweptOut, c.looks.overtaken = c.generation, false, true
	}
	c.leave(h, p)
}

// leaveParked takes rows out of the queues that new parks cover, or parks that have failed again.
func (c *Core) leaveParked() {
	for c.looks.overtaken {
		c.looks.overtaken = false
		for _, q := range c.looks.queues {
			q.queue = slices.DeleteFunc(q.queue, c.leftBehind)
			q.waiting = slices.DeleteFunc(q.waiting, c.leftBehind)
			q.asked = slices.DeleteFunc(q.asked, c.leftBehind)
		}
	}
}

// leftBehind leaves the row to the sweeper if a park demands it, and reports whether it did.
func (c *Core) leftBehind(h uint32) bool {
	p := c.leftUnder(&c.rows.entries[h])
	if p != nil {
		c.leaveRead(h, p)
	}
	return p != nil
}

// dropLooks forgets the queued rows: the connection is over, or the process stops.
func (c *Core) dropLooks() {
	for _, q := range c.looks.queues {
		c.dropQueue(&q.keyQueue)
	}
	c.looks.claims.answered()
	c.ready.Claim = nil
}
