package checkpoint

import (
	"fmt"
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

// park parks a scope, or renews its park after another failure.
func (c *Core) park(s outbox.Scope, cause outbox.Cause, reason string, next time.Time) *park {
	c.generation++
	p := c.parks.of(s)
	if p == nil {
		p = c.parks.add(s, c.now)
	} else if p.phase == keeping {
		c.leaveHandback(p)
	}
	if p.Cause == outbox.CausePaused && cause != outbox.CauseResumed { // no other reason ends a pause
		cause, reason, next = p.Cause, p.Reason, time.Time{}
	} else if p.Unmarked() && cause != outbox.CauseWriteBack { // of another row of the same id: forgotten, it would be published twice
		cause, reason, next = p.Cause, p.Reason, p.Next
	}
	known := p.Cause == cause && p.Reason == reason
	p.phase = sweeping
	c.parks.setCause(p, cause)
	p.Reason, p.Next = reason, next
	p.ready, p.failedAt, p.nextSweep = false, c.generation, time.Time{}
	p.listed, p.look = false, lookNone
	p.version++
	c.headStart.overtaken = c.headStart.overtaken || !p.Unmarked() // nothing that waits for a look is a published row
	if !known {
		c.note(Note{Kind: NoteParked, Park: p.Park})
	}
	table := outbox.Scope{Kind: outbox.ScopeTable, Table: s.Table}
	if s.Kind >= outbox.ScopeKey && c.parks.keys[s.Table] > c.cfg.MaxKeys && c.parks.of(table) == nil {
		reason := fmt.Sprintf("more than %d of its keys are parked (while more than %d wait for a retry, nothing else of it is published)", c.cfg.MaxKeys, c.cfg.MaxRetryingKeys)
		c.park(table, outbox.CauseKeys, reason, time.Time{})
	}
	return p
}

// unpark forgets a park that our table no longer holds.
func (c *Core) unpark(p *park) {
	c.note(Note{Kind: NoteUnparked, Park: p.Park})
	c.parks.remove(p)
}

// blocksSweep says that rows of the park must not be published now.
func (c *Core) blocksSweep(p *park) bool {
	switch {
	case p.phase != sweeping, p.awaiting > 0, p.Cause == outbox.CauseBlocked, p.Cause == outbox.CausePaused, p.Unmarked():
		return true
	case p.Next.After(c.now):
		return true
	case p.Scope.Kind == outbox.ScopeTable:
		return c.retries.refused[p.Scope.Table] > 0
	case p.Scope.Kind == outbox.ScopeCluster:
		return c.unusable(p.Scope.Cluster)
	case p.Scope.Kind == outbox.ScopeTopic:
		return c.unusable(p.Scope.Cluster) || !p.listed && !p.ready
	}
	return false
}

// withholds says the same where the park's rows may be among those of another.
func (c *Core) withholds(p *park) bool { return p.knownTopics != nil || c.blocksSweep(p) }

// awaitAnswers makes the park wait for the rows of its scope that the sink has.
func (c *Core) awaitAnswers(p *park) {
	for e := range c.rows.flying() {
		if e.state == inSink && (e.awaits == nil || e.awaits.knownTopics != nil) && p.takes(e.row) {
			c.answered(e)
			e.awaits = p
			p.awaiting++
		}
	}
}

// discardXID notes that a row of the transaction is left to the sweeper.
func (c *Core) discardXID(xid uint32) {
	if !c.cfg.Shadow { // in shadow no hand-back will ask
		c.txs.discard(xid, c.generation)
	}
}

// settleUnder settles a hold under a park: at once if the park is durable, otherwise
// when it becomes so.
func (c *Core) settleUnder(seq int64, p *park) {
	switch {
	case seq == noTx:
	case p.durable:
		c.ledger.release(seq, 1)
	default:
		c.parks.wait(p, seq)
	}
}

// writing is the outstanding change of our table.
type writing struct {
	puts     []put
	removals []*park
	hb       *handback // whose removals are among them, or nil
}

type put struct {
	p       *park
	version int
}

// writeParks asks for the changes of our table, one transaction at a time. New
// parks go into the same transaction as removals: a park that replaces another
// is durable when the other goes.
func (c *Core) writeParks() {
	if c.writing != nil {
		return
	}
	w := &writing{}
	change := &outbox.ParkChange{}
	if c.hb != nil && c.hb.step == hbRemoving {
		w.hb = c.hb
		w.removals = append(w.removals, c.hb.parks...)
	}
	for _, p := range c.parks.awake {
		if p.phase == absorbed {
			w.removals = append(w.removals, p)
		}
	}
	for _, p := range c.parks.awake {
		if p.dirty() && !slices.Contains(w.removals, p) {
			w.puts = append(w.puts, put{p, p.version})
			change.Put = append(change.Put, p.Park)
		}
	}
	for _, p := range w.removals {
		change.Delete = append(change.Delete, p.Scope)
		p.durable = false
	}
	if len(change.Put)+len(change.Delete) > 0 {
		c.writing = w
		c.ready.Parks = change
	}
}

// ParksWritten answers Parks.
func (c *Core) ParksWritten(r outbox.ParkResult) {
	w := c.writing
	c.writing = nil
	if w == nil {
		return
	}
	if r == outbox.ParksUnknown {
		return // the change may have been made or not: removed parks are not durable, and it is asked for again
	}
	for _, put := range w.puts {
		c.parks.wake(put.p) // a row left by its tally may sleep in a later version
		put.p.written = put.version
		c.nowDurable(put.p)
	}
	for _, p := range w.removals {
		if p.phase == absorbed { // others go with the hand-back, or have failed again
			c.unpark(p)
		}
	}
	if w.hb == nil || w.hb != c.hb {
		return
	}
	for _, p := range w.hb.parks {
		c.unpark(p)
	}
	if c.gate != nil { // else draining; what was kept goes on, up to B after a look
		c.gate.keeping, c.gate.check = false, w.hb.insert
	}
	c.hb = nil
}

// nowDurable settles what waited for the park.
func (c *Core) nowDurable(p *park) {
	p.durable = true
	c.releaseWaiting(p)
	if !p.releasesInFlight {
		return
	}
	for e := range c.rows.flying() { // they stay in flight and are marked, but hold the position no longer
		c.ledger.release(e.tx, 1)
		e.tx = noTx
	}
}

func (c *Core) releaseWaiting(p *park) {
	for _, h := range c.parks.takeHolds(p) {
		c.ledger.release(h.seq, h.n)
	}
}

// absorb removes the park of a key whose trouble is over while a wider durable
// park covers it: the wider one's hand-back does the rest.
func (c *Core) absorb(p *park) {
	wider := slices.ContainsFunc(c.parks.wider(p), func(o *park) bool { return o.phase == sweeping && o.durable })
	// A page asked for before the failure may bring rows that come after those
	// that the failure took back: until it is here, only the park keeps them.
	stale := c.sweeps.page != nil && c.sweeps.page.askedAt < p.failedAt
	if wider && !stale && p.phase == sweeping && p.awaiting == 0 && c.hb == nil && len(p.waiting) == 0 {
		c.parks.wake(p)
		p.phase = absorbed
	}
}

func (c *Core) backoff(tries int) time.Time {
	d := c.cfg.BackoffMin
	for i := 1; i < tries && d < c.cfg.BackoffMax; i++ {
		d *= 2
	}
	return c.now.Add(min(d, c.cfg.BackoffMax))
}
