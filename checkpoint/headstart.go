package checkpoint

import (
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// headStart has what decides when a row's head start began: when its commit is known to have been
// over. Of an earlier connection nothing counts, since positions and ids are given out again.
type headStart struct {
	tables []*outbox.Table
	// seen says how far the server's WAL had got by a time, horizons which transactions
	// had ended.
	seen     []sighting
	horizons []horizon
}

// longest head start of the tables.
func (s *headStart) longest() time.Duration {
	var longest time.Duration
	for _, t := range s.tables {
		longest = max(longest, t.Mapping.HeadStart)
	}
	return longest
}

// Inserted tells the server's insert position, as read on the connection's
// server. It decides only when a head start began.
func (c *Core) Inserted(at outbox.LSN) { c.headStart.inserted(at, c.now) }

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
