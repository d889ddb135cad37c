package checkpoint

import (
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// retriedKey is what the park of a key, or of a row without one, knows of its rows that failed.
type retriedKey struct {
	// failedRow is the id of the row that failed last, if this process knows. Only it can end
	// the key's trouble.
	failedRow string
}

// crowdedTable is what the park of a table knows of its keys.
type crowdedTable struct {
	// hurried: so many keys wait for a retry that their back-off was ended.
	hurried bool
	// spending: it has hurried, and none of its pages was small since; see Core.spends.
	spending bool
}

// nextTry sets the key's backoff by the attempts that the database counted.
func (c *Core) nextTry(p *park, a outbox.Marked) {
	p.tries++
	if a.Attempts > 0 {
		p.tries = a.Attempts
	}
	p.version++
	next := c.backoff(p.tries)
	if a.Attempts > 0 && c.hurries(p.Scope.Table) { // it was counted, so the budget will end
		next = c.now
	}
	c.parks.tryAt(p, next)
}

// troubleOver: if the row is the one that failed, it is out of the way now and
// the rest of its key may follow. An earlier row of the key, marked only now,
// says nothing.
func (c *Core) troubleOver(p *park, r *outbox.Row) {
	switch {
	case p == nil, p.Cause == outbox.CauseBlocked, p.failedRow != "" && p.failedRow != r.ID, p.failedRow == "" && p.Next.After(c.now):
		return
	}
	if p.RowID != "" { // another row of the key had failed before this one
		c.leaveToOperator(p, p.RowID, p.created, time.Time{})
		return
	}
	c.parks.tryAt(p, time.Time{})
	p.tries, p.nextSweep = 0, time.Time{}
	c.absorb(p)
}

// tooManyRetrying says that a table is not swept because so many of its keys are parked:
// those that are due go first. It bounds the number of parks.
func (c *Core) tooManyRetrying(p *park) bool {
	return p.Scope.Kind == outbox.ScopeTable && c.retriesTooMany(p.Scope.Table)
}

// retriesTooMany does not count keys that wait for the operator: the others would
// wait with them. When many rows could not be marked, a sweep would only find more.
func (c *Core) retriesTooMany(table string) bool {
	return c.crowded(table) || c.parks.unmarked[table] > c.cfg.MaxKeys
}

func (c *Core) crowded(table string) bool { return c.retrying(table) > c.cfg.MaxRetryingKeys }

// retrying is how many of the table's keys do not wait for the operator.
func (c *Core) retrying(table string) int { return c.parks.keys[table] - c.parks.blocked[table] }

// hurries says whether so many of a table's keys wait for a retry that its other rows wait, too.
// Then these keys are tried without back-off until their budgets end. Without a budget that would
// not end.
func (c *Core) hurries(table string) bool {
	t := c.tables.byName[table]
	return t != nil && t.Mapping.Status.MaxAttempts > 0 && c.crowded(table)
}

// hurry ends the back-off of a table's keys when it begins to hurry. Keys that fail meanwhile get
// none, see nextTry.
func (c *Core) hurry() {
	if c.parks.ofKind[outbox.ScopeTable] == 0 {
		return
	}
	for _, p := range c.parks.awake {
		if p.Scope.Kind != outbox.ScopeTable || p.hurried == c.hurries(p.Scope.Table) {
			continue
		}
		if p.hurried = !p.hurried; !p.hurried {
			continue
		}
		p.spending = true
		for _, o := range c.parks.list {
			if o.Scope.Kind >= outbox.ScopeKey && o.Scope.Table == p.Scope.Table && o.Cause == outbox.CauseRowError && o.Next.After(c.now) {
				c.parks.tryAt(o, c.now)
			}
		}
		return // awake is another list now
	}
}

// calm ends the spending of the table, or of all, when a small page shows that no flood is left.
func (c *Core) calm(s *pageRequest) {
	for _, p := range c.parks.awake {
		if p.spending && !p.hurried && (s.parks[0] == p || s.parks[0].Scope.Kind == outbox.ScopeStream) {
			p.spending = false
		}
	}
}

// spends says that one attempt uses up the row's budget. The row cannot become a record, and was read from the table,
// as all rows of a parked table are: further tries would come at once, because the table hurries, and read the same. So
// pages get past bad rows as fast as past good ones.
func (c *Core) spends(r *outbox.Row) bool {
	p := c.parks.of(outbox.TableScope(r.Table))
	return p != nil && p.spending && r.Err != nil
}
