package checkpoint

import (
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// headStart knows when a row's head start began: when its commit is known to have been over. A new
// connection begins without any of this, since a failover may use positions and ids again.
type headStart struct {
	tables []*outbox.Table
	// seen says how far the server's WAL had got at which time; horizons says which transactions had ended
	// at which time.
	seen     []sighting
	horizons []horizon
}

// longest returns the longest head start of the tables.
func (s *headStart) longest() time.Duration {
	var longest time.Duration
	for _, t := range s.tables {
		longest = max(longest, t.Mapping.HeadStart)
	}
	return longest
}

// Inserted takes the server's insert position, read on the connection's server. It serves only to find out
// when head starts began.
func (c *Core) Inserted(at outbox.LSN) { c.headStart.inserted(at, c.now) }

// sighting says that the server's WAL had reached insert at this time. So every commit before insert was
// over by then.
type sighting struct {
	insert outbox.LSN
	at     time.Time
}

// Sightings are bounded in number, and ascend in both fields.
const (
	maxSightings  = 64
	sightingEvery = 100 * time.Millisecond
)

// inserted remembers the server's insert position, read at a time.
func (s *headStart) inserted(at outbox.LSN, now time.Time) {
	last := len(s.seen) - 1
	switch {
	case last >= 0 && at <= s.seen[last].insert:
	case last >= 0 && now.Sub(s.seen[last].at) < sightingEvery:
	case len(s.seen) == maxSightings:
		s.seen[last] = sighting{at, now} // a later time than at first only lengthens the wait
	default:
		s.seen = append(s.seen, sighting{at, now})
	}
}

// committedBy returns the earliest time by which the commit of a row is known to have been over. The WAL
// brings the row now, so it is now at the latest. Rows come in the order of their commits. commit is where
// the commit record begins. While nothing else is written, a sighting may show that position before the
// commit, so only a later position counts.
func (s *headStart) committedBy(commit outbox.LSN, now time.Time) time.Time {
	for len(s.seen) > 0 && s.seen[0].insert <= commit {
		s.seen = s.seen[1:]
	}
	if len(s.seen) > 0 {
		return s.seen[0].at
	}
	return now
}

// horizon says that at this time every transaction with an id below xmin had ended. It serves for the rows
// of pages, which come in table order: so a swept backlog waits for its head start once, not page by page.
type horizon struct {
	xmin uint64
	at   time.Time
}

// sight remembers a page's snapshot for as long as the longest head start takes.
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

// horizonOf returns the xmin of the latest horizon that is at least the table's head start ago; 0 if there
// is none.
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
