package checkpoint

import (
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// maxClaims is how many claims may have unmarked rows. Each has its own connection
// (statusupdater.Config.Claims), which a trigger can hold for as long as a statement may
// take, so each of several claiming tables has a share of them.
const maxClaims = 4

// headStart has the head-start queues, and what decides when a head start began.
type headStart struct {
	queues []*headStartQueue
	// overtaken: rows of the queues may be under a park by now.
	overtaken bool
	// seen says how far the server's WAL had got by a time, horizons which transactions
	// had ended.
	seen     []sighting
	horizons []horizon
	// claiming has the outstanding claim, claimed is the first row of it.
	claiming   *headStartQueue
	claimed    *outbox.Row
	claimsOpen int // claims with rows that are not marked yet
	perTable   int // the most of them for one table
	held       heldRows
	clock      serverClock
}

// headStartQueue has the rows of one table that keeps a state.
type headStartQueue struct {
	keyQueue
	table *outbox.Table
	open  int // claims with rows that are not marked yet
	// next is when the next look may begin: rows that trickle in share one.
	next time.Time
}

func (q *headStartQueue) claims() bool { return q.table.Mapping.Claim != outbox.ClaimNone }

func newHeadStart(tables []*outbox.Table) headStart {
	var s headStart
	claiming := 0
	for _, t := range tables {
		if t.Stateful() {
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

// busy says that rows of the table wait, which later ones must not pass.
func (s *headStart) busy(t *outbox.Table) bool {
	q := s.of(t)
	return len(q.queue)+len(q.asked)+len(q.waiting) > 0
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

// mayClaim says that no claim is outstanding, and that the stream and the table's share have a
// connection left.
func (s *headStart) mayClaim(q *headStartQueue) bool {
	return s.claiming == nil && s.claimsOpen < maxClaims && q.open < s.perTable
}

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

// horizonOf is the xmin of the latest horizon that is a head start of the table ago, or
// 0.
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

// claim is rows locked in the database by one request, until each has been
// marked or given up.
type claim struct{ rows int }

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
