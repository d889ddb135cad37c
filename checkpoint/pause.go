package checkpoint

import (
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Pause tells what operators have paused: the stream, or tables of it. Their rows of the WAL are discarded, none of
// them is swept, and what was never sent is withdrawn, so the slot moves on and they stay PENDING. What is no
// longer told is swept and handed back as after any other park.
func (c *Core) Pause(paused []outbox.Park) {
	if !c.connected || c.tables.stateless || c.cfg.Shadow {
		return
	}
	for _, told := range paused {
		if p := c.parks.of(told.Scope); p != nil && p.Cause == outbox.CausePaused || told.Scope.Table != "" && c.tables.byName[told.Scope.Table] == nil {
			continue // as known, or a table of another configuration
		}
		p := c.park(told.Scope, outbox.CausePaused, told.Reason, time.Time{})
		p.Since = told.Since
		c.withdraw(p)
	}
	for _, p := range slices.Clone(c.parks.list) {
		ended := !slices.ContainsFunc(paused, func(told outbox.Park) bool { return told.Scope == p.Scope })
		if p.Cause == outbox.CausePaused && ended {
			c.park(p.Scope, outbox.CauseResumed, "the pause is over: rows that came during it go first", time.Time{})
		}
	}
}

// KeepsUnsent says whether unsent rows of the table must not be deleted, however
// old they are: an operator has paused them, or they are only now going out, or there
// is no connection, so what is paused is not known.
func (c *Core) KeepsUnsent(t *outbox.Table) bool {
	for _, s := range []outbox.Scope{outbox.StreamScope(), outbox.TableScope(t)} {
		if p := c.parks.of(s); p != nil && (p.Cause == outbox.CausePaused || p.Cause == outbox.CauseResumed) {
			return true
		}
	}
	return !c.connected
}
