package checkpoint

import (
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Pause takes all scopes that operators have paused: the stream, or tables of it. Rows of these scopes in
// the WAL are discarded, none are swept, and rows that were never sent are withdrawn. So the slot moves on,
// and the rows stay PENDING. A scope that is paused no more is swept and handed back like any other parked
// scope.
func (c *Core) Pause(paused []outbox.Park) {
	if !c.connected || c.tables.stateless || c.cfg.Shadow {
		return
	}
	for _, told := range paused {
		if p := c.parks.of(told.Scope); p != nil && p.Cause == outbox.CausePaused || told.Scope.Table != "" && c.tables.byName[told.Scope.Table] == nil {
			continue // paused already, or a table of another configuration
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

// KeepsUnsent reports whether unsent rows of the table must not be deleted, however old they are. An
// operator has paused them; or the pause is over, and they are being published only now; or there is no
// connection, so it is not known which scopes are paused.
func (c *Core) KeepsUnsent(t *outbox.Table) bool {
	for _, s := range []outbox.Scope{outbox.StreamScope(), outbox.TableScope(t)} {
		if p := c.parks.of(s); p != nil && (p.Cause == outbox.CausePaused || p.Cause == outbox.CauseResumed) {
			return true
		}
	}
	return !c.connected
}
