package checkpoint

import (
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// claimRows is the most rows of one claim: locks are held for no more than are
// soon marked.
const claimRows = 500

// maxClaims is how many claims may have rows that are not marked yet. Each has a
// connection of its own (statusupdater.Config.Claims), which a trigger can hold for as long
// as a statement may take: of several tables that claim, each has a share of them.
const maxClaims = 4

// Rows of a table with a head start, claims or a headers table, or whose rows change, wait here on
// their way to the sink, wherever they come from: until the head start of the application's own
// relay has passed, and a look (a claim, where the table claims) has said that they are still
// PENDING, and as what they are to be published. They are in flight: pages leave them out and
// hand-backs await them. A park takes its rows away at once, or the sweeper's pages,
// which leave out what is in flight, would let later rows of a key pass them.

// headStart has the head-start queues, and what decides when a head start began.
type headStart struct {
	queues []*headStartQueue
	// overtaken: parks may have taken rows of the queues.
	overtaken bool
	// seen is how far the server's WAL had got, and horizons which transactions had
	// ended.
	seen     []sighting
	horizons []horizon
	// claiming has the outstanding claim, claimed is the first row of it.
	claiming   *headStartQueue
	claimed    *outbox.Row
	claimsOpen int // claims with rows that are not marked yet
	perTable   int // the most of them that may be of one table
}

// headStartQueue has the rows of one table.
type headStartQueue struct {
	keyQueue
	table *outbox.Table
	open  int // claims with rows that are not marked yet
	// next is when the next look may begin, so that a trickle of rows does not
	// become a look each.
	next time.Time
}

func (q *headStartQueue) claims() bool { return q.table.Mapping.Claim != outbox.ClaimNone }

func newHeadStart(tables []*outbox.Table) headStart {
	var s headStart
	claiming := 0
	for _, t := range tables {
		if t.Mapping.NeedsLook() {
			s.queues = append(s.queues, &headStartQueue{table: t})
		}
		if t.Mapping.Claim != outbox.ClaimNone {
			claiming++
		}
	}
	s.perTable = max(1, maxClaims/max(1, claiming))
	return s
}

func (s *headStart) of(t *outbox.Table) *headStartQueue {
	return s.queues[slices.IndexFunc(s.queues, func(q *headStartQueue) bool { return q.table == t })]
}

// longest head start of the tables.
func (s *headStart) longest() time.Duration {
	var longest time.Duration
	for _, q := range s.queues {
		longest = max(longest, q.table.Mapping.HeadStart)
	}
	return longest
}

// claims says that rows are locked while they are published.
func (s *headStart) claims() bool { return slices.ContainsFunc(s.queues, (*headStartQueue).claims) }

// changes says that rows change while they wait.
func (s *headStart) changes() bool {
	return slices.ContainsFunc(s.queues, func(q *headStartQueue) bool { return q.table.Mapping.LookFirst })
}

// mayClaim says that a connection is left for the queue's rows, of the stream's and of its share.
func (s *headStart) mayClaim(q *headStartQueue) bool {
	return s.claiming == nil && s.claimsOpen < maxClaims && q.open < s.perTable
}

// ---- when a head start began

// sighting says that the server's WAL had got to insert at a time: what is before
// it had been committed by then.
type sighting struct {
	insert outbox.LSN
	at     time.Time
}

// Sightings are few, in the order of both fields.
const (
	maxSightings  = 64
	sightingEvery = 100 * time.Millisecond
)

// inserted remembers the server's insert position at a time.
func (s *headStart) inserted(at outbox.LSN, now time.Time) {
	if len(s.queues) == 0 {
		return
	}
	last := len(s.seen) - 1
	switch {
	case last >= 0 && at <= s.seen[last].insert:
	case last >= 0 && now.Sub(s.seen[last].at) < sightingEvery:
	case len(s.seen) == maxSightings:
		s.seen[last] = sighting{at, now} // later than it was: the wait is longer, never shorter
	default:
		s.seen = append(s.seen, sighting{at, now})
	}
}

// committedBy is when a row of the WAL, received now, was known to have been
// committed. Rows come in the order of their commits. commit is where the commit's record
// begins: while no other WAL is written, that position is seen before the commit, too.
func (s *headStart) committedBy(commit outbox.LSN, now time.Time) time.Time {
	for len(s.seen) > 0 && s.seen[0].insert <= commit {
		s.seen = s.seen[1:]
	}
	if len(s.seen) > 0 {
		return s.seen[0].at
	}
	return now
}

// horizon says that by a time every transaction with an id less than xmin had
// ended. Rows of pages, which come in table order, are measured by it: a swept
// backlog waits for its head start once, not page by page.
type horizon struct {
	xmin uint64
	at   time.Time
}

// sight remembers a page's snapshot for as long as a head start takes.
func (s *headStart) sight(snapshot *outbox.Snapshot, now time.Time) {
	longest := s.longest()
	if longest == 0 {
		return
	}
	for len(s.horizons) > 1 && !s.horizons[1].at.Add(longest).After(now) {
		s.horizons = s.horizons[1:]
	}
	if last := len(s.horizons) - 1; last < 0 || now.Sub(s.horizons[last].at) >= longest/maxSightings {
		s.horizons = append(s.horizons, horizon{snapshot.Xmin, now})
	}
}

// horizonOf is the latest that is as long ago as the table's head start.
func (s *headStart) horizonOf(t *outbox.Table, now time.Time) uint64 {
	if t.Mapping.HeadStart == 0 {
		return 0
	}
	for _, h := range slices.Backward(s.horizons) {
		if !h.at.Add(t.Mapping.HeadStart).After(now) {
			return h.xmin
		}
	}
	return 0
}

// ---- the way through a queue

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
// claim are locked, one claim outstanding at a time, the others are looked at.
func (c *Core) requestLooks() {
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

// claim is rows locked in the database by one request, until each has been
// marked or given up.
type claim struct{ rows int }

// Claimed answers Claim: every row of it. Those that are PENDING are ours now:
// each of them gets either a mark or an Unclaim. It may come late, after its
// connection: then what was locked is given up.
func (c *Core) Claimed(answers []outbox.Checked) {
	var q *headStartQueue // nil: not the outstanding claim
	if c.headStart.claimed == answers[0].Row {
		q = c.headStart.claiming
		q.asked, c.headStart.claiming, c.headStart.claimed = nil, nil, nil
	}
	cl := &claim{}
	for _, a := range answers {
		ours := a.State == outbox.CheckPending
		switch h := a.Row.Handle; {
		case q == nil || c.rows.entries[h].row != a.Row: // dropped meanwhile
			if ours {
				c.ready.Unclaim = append(c.ready.Unclaim, a.Latest())
			}
		default:
			c.renew(h, &a)
			if ours {
				c.headStart.share(&c.rows.entries[h], cl)
			}
			c.checked(&q.keyQueue, h, a.State)
			if c.rows.entries[h].state == queued { // behind one that waits
				c.unclaim(h)
			}
		}
	}
}

// ClaimRefused answers Claim: the database refuses the statement for the table.
// Its rows are the sweeper's then.
func (c *Core) ClaimRefused(t *outbox.Table, err error) {
	c.parkRefused(t, err)
	if q := c.headStart.claiming; q != nil { // else draining
		q.queue, q.asked = append(q.asked, q.queue...), nil
		c.headStart.claiming, c.headStart.claimed = nil, nil
	}
}

func (s *headStart) share(e *entry, cl *claim) {
	if cl.rows == 0 {
		s.claimsOpen++
		s.of(e.row.Table).open++
	}
	cl.rows++
	e.claim = cl
}

// release ends a row's share in its claim.
func (s *headStart) release(e *entry) {
	if e.claim == nil {
		return
	}
	if e.claim.rows--; e.claim.rows == 0 {
		s.claimsOpen--
		s.of(e.row.Table).open--
	}
	e.claim = nil
}

// unclaim gives a row's lock up.
func (c *Core) unclaim(h uint32) {
	e := &c.rows.entries[h]
	if e.claim == nil {
		return
	}
	c.headStart.release(e)
	c.ready.Unclaim = append(c.ready.Unclaim, e.row)
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
