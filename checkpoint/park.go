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
	// removed: it is parked no more.
	removed
)

// park is one parked scope: what is parked and why (outbox.Park), whether our table holds
// that, when the scope is swept, and how far it is on its way back to the stream.
type park struct {
	outbox.Park
	phase phase
	durability
	// tries counts failures in a row. failedAt is when the scope last failed, in
	// generations: a page that was asked for before says nothing of it.
	tries    int
	failedAt uint64
	// awaiting counts the scope's rows that the sink is to give back, and those whose
	// attempt is not counted yet. Until they are answered the scope is not swept, or a
	// later row would pass them.
	awaiting int
	// ready: the last sweep of the scope was small and every transaction it had
	// to see had ended.
	ready     bool
	lastSweep uint64 // request number, for taking turns
	nextSweep time.Time
	bed       int // its index among the sleepers from 1, or 0: it is awake
	// created is the CreatedAt of the row that RowID names, or of the unmarked row; 0: unknown.
	created int64

	// What only parks of some scopes have stands with their rules: in topics, keys, blocked and unmarked.
	topicWait
	crowdedTable
	retriedKey
	blockedKey
	unmarkedRow
	// refusedAt is when a table refused a statement last, in generations.
	refusedAt uint64
}

// durability is what our table holds of a park.
type durability struct {
	// durable: our table holds a row for the scope, whatever happens now. Never
	// true while a removal is outstanding or of unknown outcome.
	durable bool
	// version counts changes; written is the one our table holds. They differ as long as
	// a change has to be written.
	version, written int
	// asked: our table was asked to hold the park, or held it when it was read. Else it does
	// not.
	asked bool
	// waiting are holds of discarded rows, released when the park is durable.
	waiting []hold
	// releasesInFlight, of the stream's park: rows in flight do not hold the confirmed position either.
	releasesInFlight bool
}

func (d *durability) dirty() bool { return d.version != d.written }

// postponed says that a key's new park need not be written yet: mostly it ends with the answer that it awaits. No
// position waits for it, since its row was read under a wider park. It is written before that one goes.
func (p *park) postponed() bool {
	return p.Scope.Kind >= outbox.ScopeKey && !p.asked && p.awaiting > 0 && len(p.waiting) == 0
}

type hold struct {
	seq int64
	n   int
}

// ofAnother says that a row's park belongs to another row with r's id.
func (p *park) ofAnother(r *outbox.Row) bool {
	switch {
	case p.Scope.Kind != outbox.ScopeRow:
		return false
	case p.Unmarked():
		is := func(created int64) bool { return same(created, r.CreatedAt) }
		return !is(p.created) && !slices.ContainsFunc(p.othersInTally, is)
	}
	return r.Key != nil
}

// same says whether two rows with one id are one, as far as is known.
func same(created, other int64) bool {
	return created == other || created == 0 || other == 0
}

// takes says that the row belongs to the park's scope, and that its topic is none of the known ones.
func (p *park) takes(r *outbox.Row) bool {
	return !p.knownTopics[outbox.TopicScope(r.Cluster, r.Topic)] && p.Scope.Contains(r)
}
