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
// connection of its own (statusupdater.Config.Claims).
const maxClaims = 4

// stand holds the rows of one table with Mapping.Stands on their way to the
// sink, wherever they come from: for the head start of the application's own
// relay, and until a look (a claim, where the table claims) has said that they
// are still PENDING. They are in flight: pages leave them out and hand-backs
// await them. A park takes its rows away at once, or the sweeper's pages, which
// leave out what is in flight, would let later rows of a key pass them.
type stand struct {
	line
	table *outbox.Table
	// next is when the next look may begin, so that a trickle of rows does not
	// become a look each.
	next time.Time
}

func (s *stand) claims() bool { return s.table.Mapping.Claim != outbox.ClaimNone }

// sighting says that the server's log had got to insert at a time: what is
// before it had been committed by then.
type sighting struct {
	insert outbox.LSN
	at     time.Time
}

// Sightings are few, in the order of both fields.
const (
	maxSightings  = 64
	sightingEvery = 100 * time.Millisecond
)

// Inserted tells the server's insert position, as read on the connection's
// server. It decides only when a head start began.
func (c *Core) Inserted(at outbox.LSN) {
	if len(c.stands) == 0 {
		return
	}
	last := len(c.seen) - 1
	switch {
	case last >= 0 && at <= c.seen[last].insert:
	case last >= 0 && c.now.Sub(c.seen[last].at) < sightingEvery:
	case len(c.seen) == maxSightings:
		c.seen[last] = sighting{at, c.now} // later than it was: the wait is longer, never shorter
	default:
		c.seen = append(c.seen, sighting{at, c.now})
	}
}

// committedBy is when a row of the log, received just now, was known to have
// been committed. Rows come in the order of their commits.
func (c *Core) committedBy(commit outbox.LSN) time.Time {
	for len(c.seen) > 0 && c.seen[0].insert < commit {
		c.seen = c.seen[1:]
	}
	if len(c.seen) > 0 {
		return c.seen[0].at
	}
	return c.now
}

// horizon says that by a time every transaction with an id less than xmin had
// ended. Rows of pages, which come in table order, are measured by it: a swept
// backlog waits for its head start once, not page by page.
type horizon struct {
	xmin uint64
	at   time.Time
}

// sight remembers a page's snapshot for as long as a head start takes.
func (c *Core) sight(s *outbox.Snapshot) {
	longest := c.headStart()
	if longest == 0 {
		return
	}
	for len(c.horizons) > 1 && !c.horizons[1].at.Add(longest).After(c.now) {
		c.horizons = c.horizons[1:]
	}
	if last := len(c.horizons) - 1; last < 0 || c.now.Sub(c.horizons[last].at) >= longest/maxSightings {
		c.horizons = append(c.horizons, horizon{s.Xmin, c.now})
	}
}

// horizonOf is the latest that is as long ago as the table's head start.
func (c *Core) horizonOf(t *outbox.Table) uint64 {
	if t.Mapping.HeadStart == 0 {
		return 0
	}
	for _, h := range slices.Backward(c.horizons) {
		if !h.at.Add(t.Mapping.HeadStart).After(c.now) {
			return h.xmin
		}
	}
	return 0
}

// standsFirst says that the row has to be looked at before it is published.
func (c *Core) standsFirst(e *entry) bool {
	return len(c.stands) > 0 && e.state == kept && e.row.Table.Mapping.Stands()
}

// stand puts a row behind those of its table that wait to be looked at.
func (c *Core) stand(h uint32) {
	e := &c.entries[h]
	m := &e.row.Table.Mapping
	c.fly(h, standing)
	from := c.now // a page's row was visible by now
	switch {
	case e.page == nil:
		from = c.committedBy(e.row.Commit)
	case e.row.Aged:
		from = time.Time{}
	case e.page.hb == nil && m.Claim != outbox.ClaimNone:
		from = time.Time{} // the sweeper leaves out young rows, and the claim keeps others away
	}
	if m.HeadStart > 0 {
		e.due = from.Add(m.HeadStart)
	}
	s := c.standOf(e.row.Table)
	s.queue = append(s.queue, h)
}

func (c *Core) standOf(t *outbox.Table) *stand {
	return c.stands[slices.IndexFunc(c.stands, func(s *stand) bool { return s.table == t })]
}

// invisibleFor is how long a row that is not visible yet waits for the next
// look. The application's own relay begins when the commit returns, so a head
// start begins anew.
func (c *Core) invisibleFor(r *outbox.Row) time.Duration {
	return max(invisibleWait, r.Table.Mapping.HeadStart)
}

// lookAtStanding asks for the rows whose time has come: those of tables that
// claim are locked, one claim outstanding at a time, the others are looked at.
func (c *Core) lookAtStanding() {
	for _, s := range c.stands {
		switch {
		case s.asked != nil:
		case !s.claims() && !c.checking:
			c.ready.Check = append(c.ready.Check, c.turn(s, c.cfg.PageRows)...)
		case s.claims() && c.claiming == nil && c.claimsOpen < maxClaims:
			if rows := c.turn(s, min(claimRows, c.cfg.PageRows)); len(rows) > 0 {
				c.claiming, c.claimed, c.ready.Claim = s, rows[0], rows
			}
		}
	}
}

// turn takes the next rows to be looked at.
func (c *Core) turn(s *stand, limit int) []*outbox.Row {
	c.resume(&s.line)
	if s.next.After(c.now) && len(s.queue) < limit {
		return nil
	}
	var rows []*outbox.Row
	n := 0
	for ; n < len(s.queue) && len(rows) < limit; n++ {
		h := s.queue[n]
		e := &c.entries[h]
		if s.sticks(e.row) {
			s.stick(h, outbox.KeyScope(e.row), c.now)
			continue
		}
		if e.due.After(c.now) {
			break
		}
		s.asked = append(s.asked, h)
		rows = append(rows, e.row)
	}
	s.queue = s.queue[n:]
	if len(rows) > 0 && s.table.Mapping.HeadStart > 0 {
		s.next = c.now.Add(standPause)
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
	s := c.answeredClaim(answers)
	cl := &claim{}
	for _, a := range answers {
		ours := a.State == outbox.CheckPending
		switch h := a.Row.Handle; {
		case s == nil || c.entries[h].row != a.Row || c.entries[h].state != standing: // dropped meanwhile
			if ours {
				c.ready.Unclaim = append(c.ready.Unclaim, a.Row)
			}
		default:
			if ours {
				c.hold(h, cl)
			}
			c.resized(h)
			c.checked(&s.line, a)
			if c.entries[h].row == a.Row && c.entries[h].state == standing { // behind one that waits
				c.unclaim(h)
			}
		}
	}
}

// answeredClaim ends the outstanding claim, if it is the one.
func (c *Core) answeredClaim(answers []outbox.Checked) *stand {
	s := c.claiming
	if s == nil || len(answers) == 0 || c.claimed != answers[0].Row {
		return nil
	}
	s.asked, c.claiming, c.claimed = nil, nil, nil
	return s
}

// ClaimRefused answers Claim: the database refuses the statement for the table.
// Its rows are the sweeper's then.
func (c *Core) ClaimRefused(t *outbox.Table, err error) {
	c.parkRefused(t, err)
	if s := c.claiming; s != nil && s.table == t {
		s.queue, s.asked = append(s.asked, s.queue...), nil
		c.claiming, c.claimed = nil, nil
	}
}

func (c *Core) hold(h uint32, cl *claim) {
	if cl.rows == 0 {
		c.claimsOpen++
	}
	cl.rows++
	c.entries[h].claim = cl
}

// releaseClaim ends a row's share in its claim.
func (c *Core) releaseClaim(e *entry) {
	if e.claim == nil {
		return
	}
	if e.claim.rows--; e.claim.rows == 0 {
		c.claimsOpen--
	}
	e.claim = nil
}

// unclaim gives a row's lock up.
func (c *Core) unclaim(h uint32) {
	e := &c.entries[h]
	if e.claim == nil {
		return
	}
	c.releaseClaim(e)
	c.ready.Unclaim = append(c.ready.Unclaim, e.row)
}

// leftUnder is the park under which a row that was to be looked at is left to
// the sweeper, or nil. A row that the sweeper read is left when a park of its
// has failed since, or waits.
func (c *Core) leftUnder(e *entry) *park {
	if e.page == nil {
		return c.parkedBy(e.row)
	}
	var found *park
	c.covering(e.row, func(p *park) bool {
		ours := e.hb != nil && e.hb == c.hb && p.phase == keeping
		// One that is being removed keeps new rows away, not what stood before.
		if !ours && p.phase != absorbed && (c.withholds(p) || p.stamp > e.page.clock) {
			found = p
		}
		return found == nil
	})
	return found
}

// leaveStood leaves a row to the sweeper, and with it what the sweeper read of
// the park's rows, or was asked for, and is not sent yet: it comes behind this one.
func (c *Core) leaveStood(h uint32, p *park) {
	if c.entries[h].page != nil {
		c.clock++
		p.stamp, p.ready, c.overtaken = c.clock, false, true
	}
	c.leave(h, p)
}

// leaveStanding takes the rows of new parks, and of those that failed again, from
// the stand.
func (c *Core) leaveStanding() {
	for c.overtaken {
		c.overtaken = false
		for _, s := range c.stands {
			s.queue = slices.DeleteFunc(s.queue, c.leftBehind)
			s.stuck = slices.DeleteFunc(s.stuck, c.leftBehind)
			if s.asked != nil { // stays so: the answer is still to come
				s.asked = slices.DeleteFunc(s.asked, c.leftBehind)
			}
		}
	}
}

// leftBehind leaves the row if it is a park's.
func (c *Core) leftBehind(h uint32) bool {
	p := c.leftUnder(&c.entries[h])
	if p != nil {
		c.leaveStood(h, p)
	}
	return p != nil
}

// dropStands forgets what stands: the connection is over, or the process stops.
func (c *Core) dropStands() {
	for _, s := range c.stands {
		c.dropLine(&s.line)
	}
	c.claiming, c.claimed, c.ready.Claim = nil, nil, nil
}

// headStart is the longest of the tables.
func (c *Core) headStart() time.Duration {
	var longest time.Duration
	for _, s := range c.stands {
		longest = max(longest, s.table.Mapping.HeadStart)
	}
	return longest
}

// claims says that rows are locked while they are published.
func (c *Core) claims() bool { return slices.ContainsFunc(c.stands, (*stand).claims) }
