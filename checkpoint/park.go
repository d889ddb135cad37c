package checkpoint

import (
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// phase is the stage that a park has reached.
type phase uint8

const (
	// sweeping: the scope's rows of the WAL are discarded. Only the sweeper publishes rows of the scope.
	sweeping phase = iota
	// keeping: a hand-back is under way. The scope's rows of the WAL are kept in the gate.
	keeping
	// absorbed: the park is being removed, because a wider durable park covers its scope. Rows of the WAL are
	// discarded under the wider park.
	absorbed
	// removed: the scope is not parked any more.
	removed
)

// park is one parked scope: why it is parked (outbox.Park), whether our table holds the park, when the scope
// is swept, and how far it is on its way back to the stream.
type park struct {
	outbox.Park
	phase phase
	durability
	// tries is the number of failures in a row. failedAt is the generation of the last failure: a page that
	// was requested before it tells nothing about the scope.
	tries    int
	failedAt uint64
	// awaiting counts the rows of the scope that the sink has still to answer, and those whose attempt is not
	// counted yet. Until all are answered the scope is not swept, because later rows would pass them.
	awaiting int
	// sweptOut says that the last sweep of the scope was small, and that every transaction that it had to see
	// had ended. Then the scope may be handed back.
	sweptOut  bool
	lastSweep uint64 // generation of the last request for a page, so that parks take turns
	nextSweep time.Time
	bed       int // position among the sleepers, from 1; 0: the park is awake
	// created is the CreatedAt of the row that RowID names, or of the unmarked row; 0: unknown.
	created int64

	// The following parts are for parks of some scopes only. They are declared with the rules that use them,
	// in topics, keys, blocked and unmarked.
	topicWait
	crowdedTable
	retriedKey
	blockedKey
	unmarkedRow
	// refusedAt is the generation in which the table last refused a statement.
	refusedAt uint64
}

// durability says what our table holds of a park.
type durability struct {
	// durable says that our table holds a row for the scope, or the tally holds the park's row, whatever
	// happens next. It is false while a removal is outstanding, or has an unknown outcome. Holds of discarded
	// rows are released only under a durable park.
	durable bool
	// version counts the changes of the park, and written is the version that our table holds. While they
	// differ, a change has to be written.
	version, written int
	// asked says that our table was asked to hold the park, or held it when it was read. If asked is false,
	// our table does not hold the park.
	asked bool
	// waiting are holds of discarded rows. They are released when the park is durable.
	waiting []hold
	// releasesInFlight is set only in the stream's park: when the park is durable, the holds of rows in
	// flight are released, too.
	releasesInFlight bool
}

// dirty reports whether a change of the park has to be written.
func (d *durability) dirty() bool { return d.version != d.written }

// postponed reports whether the new park of a key need not be written yet. Most such parks end with the
// answer that they await. No position waits for the park, because its row was read under a wider park. It is
// written before the wider park is removed.
func (p *park) postponed() bool {
	return p.Scope.Kind >= outbox.ScopeKey && !p.asked && p.awaiting > 0 && len(p.waiting) == 0
}

// hold stands for n holds of the transaction seq in the ledger.
type hold struct {
	seq int64
	n   int
}

// ofAnother reports whether the park of a row belongs to another row with the same id as r.
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

// same reports whether two rows with one id are the same row, as far as their creation times tell; 0:
// unknown.
func same(created, other int64) bool {
	return created == other || created == 0 || other == 0
}

// takes reports whether the row belongs to the park's scope, and its topic is not one of the known topics
// that the park leaves out.
func (p *park) takes(r *outbox.Row) bool {
	return !p.knownTopics[outbox.TopicScope(r.Cluster, r.Topic)] && p.Scope.Contains(r)
}
