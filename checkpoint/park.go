package checkpoint

import (
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// phase is how far a park is.
type phase uint8

const (
	// sweeping: the WAL's rows of the scope are discarded; the sweeper is their
	// only publisher.
	sweeping phase = iota
	// keeping: a hand-back is under way; the WAL's rows are kept.
	keeping
	// absorbed: the park is being removed because a wider durable one covers it;
	// the WAL's rows are discarded under that one.
	absorbed
)

// park is one parked scope.
type park struct {
	outbox.Park
	phase phase
	// durable: our table holds a row for the scope, whatever happens now. Never
	// true while a removal is outstanding or of unknown outcome.
	durable bool
	// version counts changes; written is the one our table holds.
	version, written int
	// waiting are holds of discarded rows, released when the park is durable.
	waiting []hold
	// awaiting counts rows of the scope that the sink still had when it began to
	// give them back, and those whose attempt is not counted yet: until they are
	// answered the scope is not swept, or a later row would pass them.
	awaiting int
	tries    int
	// failedAt is when the scope last failed, in generations, and failedRow the row of a
	// key that did, if this process knows.
	failedAt  uint64
	failedRow string
	refusedAt uint64  // when the table last refused a statement, in generations
	blocker   blocker // of CauseBlocked
	// mark is the outstanding one of a park that is Unmarked, or nil.
	mark *outbox.Row
	// left: the mark of a park that is Unmarked is one of Core.Left's.
	left bool
	// created is when its row was, 0: not known. alsoLeft are others that had the row's id before
	// or after it, and are left too: each is asked about in its turn.
	created  int64
	alsoLeft []int64
	// ready: the last sweep of the scope was small and every transaction it had
	// to see had ended.
	ready     bool
	lastSweep uint64 // request number, for taking turns
	bed       int    // its place among the sleepers, or 0: it is awake
	nextSweep time.Time
	// releasesInFlight: rows in flight do not hold the confirmed position either.
	releasesInFlight bool
	// knownTopics, of a table's unknown topics: those that are none of them.
	knownTopics map[outbox.Scope]bool
	// listed: brokers have listed the topic since it failed last. look is what is
	// looked for next.
	listed bool
	look   look
	// hurried, of a table's park: its keys' back-off was ended.
	hurried bool
}

type hold struct {
	seq int64
	n   int
}

func (p *park) dirty() bool { return p.version != p.written }

// ofAnother says that the park of a row is not this row's, which got the id later.
func (p *park) ofAnother(r *outbox.Row) bool {
	switch {
	case p.Scope.Kind != outbox.ScopeRow:
		return false
	case p.Unmarked():
		return !same(p.created, r.CreatedAt) && !slices.ContainsFunc(p.alsoLeft, func(created int64) bool { return same(created, r.CreatedAt) })
	}
	return r.Key != nil
}

// same says whether two rows with one id are one, as far as is known.
func same(created, other int64) bool {
	return created == other || created == 0 || other == 0
}

// takes says that the row belongs to the park's scope.
func (p *park) takes(r *outbox.Row) bool {
	return !p.knownTopics[outbox.TopicScope(r.Cluster, r.Topic)] && p.Scope.Contains(r)
}
