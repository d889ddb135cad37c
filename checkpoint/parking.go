package checkpoint

import (
	"fmt"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// park parks a scope. A park that exists starts again: with the new cause, unless it has to keep its own.
func (c *Core) park(s outbox.Scope, cause outbox.Cause, reason string, next time.Time) *park {
	c.generation++
	p := c.parks.of(s)
	if p == nil {
		p = c.parks.add(s, c.now)
	} else if p.phase == keeping {
		c.leaveHandback(p)
	}
	if p.Cause == outbox.CausePaused && cause != outbox.CauseResumed { // no other cause ends a pause
		cause, reason, next = p.Cause, p.Reason, time.Time{}
	} else if p.Unmarked() && cause != outbox.CauseWriteBack { // otherwise the published row would be published again: another row has its id
		cause, reason, next = p.Cause, p.Reason, p.Next
	}
	known := p.Cause == cause && p.Reason == reason
	p.phase = sweeping
	c.parks.setCause(p, cause)
	p.Reason, p.Next = reason, next
	p.sweptOut, p.failedAt, p.nextSweep = false, c.generation, time.Time{}
	p.listed, p.scan = false, scanNone
	p.version++
	c.looks.overtaken = c.looks.overtaken || !p.Unmarked() // rows that wait for a look are not published yet
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

// unpark removes parks that our table does not hold.
func (c *Core) unpark(parks ...*park) {
	for _, p := range parks {
		c.note(Note{Kind: NoteUnparked, Park: p.Park})
	}
	c.parks.remove(parks)
}

// blocksSweep reports whether rows of the park must not be published now.
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
		return c.unusable(p.Scope.Cluster) || !p.listed && !p.sweptOut
	}
	return false
}

// withholds reports the same, and for unknown topics it is always true: only a hand-back publishes their
// rows.
func (c *Core) withholds(p *park) bool { return p.knownTopics != nil || c.blocksSweep(p) }

// awaitAnswers makes the park wait for the sink's answers to the rows of its scope.
func (c *Core) awaitAnswers(p *park) {
	for e := range c.rows.flying() {
		if e.state == inSink && (e.awaits == nil || e.awaits.knownTopics != nil) && p.takes(e.row) {
			c.answered(e)
			e.awaits = p
			p.awaiting++
		}
	}
}

// absorb removes the park of a key whose trouble is over, if a wider durable park covers the key. The
// hand-back of the wider park does the rest.
func (c *Core) absorb(p *park) {
	wider := slices.ContainsFunc(c.parks.wider(p), func(o *park) bool { return o.phase == sweeping && o.durable })
	// A page that was asked for before the failure may bring rows that come after those that the failure
	// took back. Until that page has come, only this park holds its rows back.
	stale := c.sweeps.page != nil && c.sweeps.page.askedAt < p.failedAt
	if wider && !stale && p.phase == sweeping && p.awaiting == 0 && c.hb == nil && len(p.waiting) == 0 {
		c.parks.wake(p)
		p.phase = absorbed
	}
}

// backoff returns the time of the next try of a scope that has failed tries times in a row.
func (c *Core) backoff(tries int) time.Time {
	d := c.cfg.BackoffMin
	for i := 1; i < tries && d < c.cfg.BackoffMax; i++ {
		d *= 2
	}
	return c.now.Add(min(d, c.cfg.BackoffMax))
}

// withdraw makes the sink give back the rows of a parked scope that were never sent.
func (c *Core) withdraw(p *park) {
	c.awaitAnswers(p)
	c.ready.Commands = append(c.ready.Commands, outbox.Command{Withdraw: new(p.Scope)})
}

// parkRefused parks a table that refuses our statements, until its next try.
func (c *Core) parkRefused(t *outbox.Table, err error) {
	scope := outbox.TableScope(t)
	tries := 1
	if p := c.parks.of(scope); p != nil {
		tries = p.tries + 1
	}
	p := c.park(scope, outbox.CauseWriteBack, err.Error(), c.backoff(tries))
	p.tries, p.refusedAt = tries, c.generation
}
