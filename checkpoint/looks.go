package checkpoint

import (
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// looks has the rows that are looked at: on their way to the sink (queues), and in it (held).
//
// Rows of a table with a head start, claims, a headers table or look_first wait in its queue, whether the WAL or a page
// brought them. So do rows of other tables with state that waited long in the WAL. They wait until the head start has
// passed and a look (or a claim) has said that they are still PENDING, and with which values. They are in flight: pages
// leave them out, and hand-backs await them.
type looks struct {
	queues   []*lookQueue // one for each table
	checking bool         // Ready.Check is outstanding
	// overtaken: rows of the queues may be under a park by now. leaveParked takes them out: pages leave out what is queued,
	// so they would let later rows of the same keys pass.
	overtaken bool
	held      heldRows
	claims    claims
	clock     serverTime
}

// lookQueue has the rows of one table that wait to be looked at, in their order per key.
type lookQueue struct {
	keyQueue
	table  *outbox.Table
	claims int // with rows that are not marked yet
	// next is when the next look may begin: rows that trickle in share one.
	next time.Time
}

// locks says that a look at the table's rows is a claim: it locks them.
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

// busy says that rows of the table wait, which later ones must not pass.
func (s *looks) busy(t *outbox.Table) bool {
	q := s.of(t)
	return len(q.queue)+len(q.asked)+len(q.waiting) > 0
}

// locksRows says that rows of some table are locked while they are published.
func (s *looks) locksRows() bool { return slices.ContainsFunc(s.queues, (*lookQueue).locks) }

// looksAt says that the row has to be looked at before it is published.
func (c *Core) looksAt(e *entry) bool {
	return e.row.Table.Mapping.NeedsLook() || e.page == nil && c.late(e.row)
}

// looksFirst says that the row is to wait: until it was looked at, or behind rows of the WAL that wait for that.
func (c *Core) looksFirst(e *entry) bool {
	return e.state == kept && (c.looksAt(e) || e.page == nil && c.rows.queued > 0 && c.looks.busy(e.row.Table))
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
	e.due, e.look = from.Add(m.HeadStart), c.looksAt(e)
	q := c.looks.of(e.row.Table)
	q.queue = append(q.queue, h)
}

// leftUnder is the park that leaves a queued row to the sweeper, or nil. A row that the
// sweeper read is left when one of its parks has failed since, or waits.
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

// leaveRead leaves a row to the sweeper. If a page brought it, the park's rows behind it
// go, too: those that were read and not sent, and those of the outstanding page.
func (c *Core) leaveRead(h uint32, p *park) {
	if c.rows.entries[h].page != nil {
		c.generation++
		p.failedAt, p.ready, c.looks.overtaken = c.generation, false, true
	}
	c.leave(h, p)
}

// leaveParked takes the rows of new parks, and of those that failed again, from
// the queues.
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

// leftBehind leaves the row if it is a park's.
func (c *Core) leftBehind(h uint32) bool {
	p := c.leftUnder(&c.rows.entries[h])
	if p != nil {
		c.leaveRead(h, p)
	}
	return p != nil
}

// dropLooks forgets what waits: the connection is over, or the process stops.
func (c *Core) dropLooks() {
	for _, q := range c.looks.queues {
		c.dropQueue(&q.keyQueue)
	}
	c.looks.claims.answered()
	c.ready.Claim = nil
}
