package checkpoint

import (
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// With on_failed: block, a key waits for the operator while any of its rows is FAILED. The key's park
// remembers one of these rows, also after a restart, and that row is looked at from time to time. When it
// is no longer FAILED, the table is asked for another FAILED row of the key.

// blockedKey is the part of a park that only a blocked key has: the state of the FAILED row that the park
// remembers (RowID, created).
type blockedKey struct {
	// blocker is meaningful only with CauseBlocked; with every other cause it is stillFailed. While a park
	// has sought, Core.seeking is set.
	blocker blocker
}

type blocker uint8

const (
	stillFailed blocker = iota // as far as is known, the row is FAILED
	gone                       // the row is not FAILED any more; another row of the key may be
	sought                     // the table is asked for another FAILED row of the key
)

// block parks the key of a FAILED row until the operator deals with the row.
func (c *Core) block(r *outbox.Row) {
	if p := c.parks.of(outbox.KeyScope(r)); p != nil && p.Cause == outbox.CauseBlocked && p.blocker == stillFailed {
		return
	}
	p := c.park(outbox.KeyScope(r), outbox.CauseBlocked, "a row of the key is FAILED", c.now)
	p.RowID, p.created = strings.Clone(r.ID), r.CreatedAt // see owned
}

// leaveToOperator keeps a key parked while the row is FAILED. The row is looked at again at next.
func (c *Core) leaveToOperator(p *park, id string, created int64, next time.Time) {
	c.parks.setCause(p, outbox.CauseBlocked)
	p.RowID, p.created, p.Next = strings.Clone(id), created, next
	p.version++
}

// freeKey ends the wait for the operator: the key is left to the sweeper.
func (c *Core) freeKey(p *park) {
	c.parks.setCause(p, outbox.CauseRowError)
	p.RowID, p.created, p.Next = "", 0, time.Time{}
	p.version++
}

// checkBlocked asks for looks at the FAILED rows that keep their keys parked.
func (c *Core) checkBlocked() {
	for _, p := range c.parks.awake {
		if p.Cause != outbox.CauseBlocked || p.blocker != stillFailed || p.Next.After(c.now) || len(c.ready.Check) == c.cfg.PageRows {
			continue
		}
		c.parks.tryAt(p, c.now.Add(c.cfg.WatchEvery))
		r := &outbox.Row{Table: c.tables.byName[p.Scope.Table], ID: p.RowID, Topic: p.Scope.Topic, CreatedAt: p.created}
		if p.Scope.Kind == outbox.ScopeKey {
			r.Key = []byte(p.Scope.Key)
		}
		c.ready.Check = append(c.ready.Check, r)
	}
}

// checkedBlocked takes the result of a look at a FAILED row. It counts only if the key's park still
// remembers that row.
func (c *Core) checkedBlocked(a outbox.Checked) {
	p := c.parks.ofKey(a.Row)
	switch {
	case p == nil, p.Cause != outbox.CauseBlocked, p.RowID != a.Row.ID, a.State == outbox.CheckFailed, a.State == outbox.CheckAgain:
	case p.Scope.Kind == outbox.ScopeRow:
		c.freeKey(p)
	default:
		p.blocker = gone
		c.parks.tryAt(p, time.Time{})
	}
}

// seekFailed asks for FAILED rows of the blocked keys whose remembered row is not FAILED any more.
func (c *Core) seekFailed() {
	if c.seeking {
		return
	}
	for _, p := range c.parks.awake {
		if p.blocker == gone && !p.Next.After(c.now) {
			p.blocker, c.seeking = sought, true
		}
	}
	c.ready.Failed = c.seeking
}

// FailedRows answers Failed. Keys without a FAILED row are free.
func (c *Core) FailedRows(rows []*outbox.Row) {
	c.seeking = false
	for _, r := range rows {
		if p := c.parks.ofKey(r); p != nil && p.blocker == sought {
			c.leaveToOperator(p, r.ID, r.CreatedAt, c.now.Add(c.cfg.WatchEvery))
		}
	}
	for _, p := range c.parks.list {
		if p.blocker == sought {
			c.freeKey(p)
		}
	}
}

// FailedRefused answers Failed: the database refuses the statement for a table. Failed is asked for again
// later.
func (c *Core) FailedRefused(t *outbox.Table, err error) {
	c.dropSought()
	c.parkRefused(t, err)
}

// dropSought ends the search without an answer. The keys stay parked.
func (c *Core) dropSought() {
	c.seeking = false
	for _, p := range c.parks.list {
		if p.blocker == sought {
			p.blocker = gone
			c.parks.tryAt(p, c.now.Add(c.cfg.WatchEvery))
		}
	}
}
