package checkpoint

import (
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// retriedKey is the part of a park that only a key, or a row without a key, has: which row has failed.
type retriedKey struct {
	// failedRow is the id of the row that failed last; empty if this process does not know it. Only the
	// outcome of that row can end the key's trouble.
	failedRow string
}

// crowdedTable is the part of a park that only a table has: how it deals with too many parked keys.
type crowdedTable struct {
	// hurried says that so many keys wait for a retry that their backoff was ended.
	hurried bool
	// spending says that the table has hurried, and that none of its pages has been small since; see
	// Core.spends.
	spending bool
}

// nextTry sets when the key is tried next, by the attempts that the database has counted.
func (c *Core) nextTry(p *park, a outbox.Marked) {
	p.tries++
	if a.Attempts > 0 {
		p.tries = a.Attempts
	}
	p.version++
	next := c.backoff(p.tries)
	if a.Attempts > 0 && c.hurries(p.Scope.Table) { // the attempt was counted, so the budget will end
		next = c.now
	}
	c.parks.tryAt(p, next)
}

// troubleOver lets the rest of the key follow if the row is the one that failed: it does not hold up the
// key any more. An earlier row of the key, whose mark was answered only now, tells nothing about that.
func (c *Core) troubleOver(p *park, r *outbox.Row) {
	switch {
	case p == nil, p.Cause == outbox.CauseBlocked, p.failedRow != "" && p.failedRow != r.ID, p.failedRow == "" && p.Next.After(c.now):
		return
	}
	if p.RowID != "" { // another row of the key had failed before
		c.leaveToOperator(p, p.RowID, p.created, time.Time{})
		return
	}
	c.parks.tryAt(p, time.Time{})
	p.tries, p.nextSweep = 0, time.Time{}
	c.absorb(p)
}

// tooManyRetrying reports whether the park is a table's that is not swept now, because too many of its keys
// are parked: the keys that are due go first. This bounds the number of parks.
func (c *Core) tooManyRetrying(p *park) bool {
	return p.Scope.Kind == outbox.ScopeTable && c.retriesTooMany(p.Scope.Table)
}

// retriesTooMany does not count keys that wait for the operator: otherwise the table would wait for the
// operator, too. It counts rows that could not be marked: a sweep would only find more of them.
func (c *Core) retriesTooMany(table string) bool {
	return c.crowded(table) || c.parks.unmarked[table] > c.cfg.MaxKeys
}

func (c *Core) crowded(table string) bool { return c.retrying(table) > c.cfg.MaxRetryingKeys }

// retrying returns how many of the table's parked keys wait for something else than the operator.
func (c *Core) retrying(table string) int { return c.parks.keys[table] - c.parks.blocked[table] }

// hurries reports whether so many of a table's keys wait for a retry that the table's other rows wait, too.
// Then these keys are tried without backoff until their budgets are used up. A table without a budget never
// hurries, since its tries would not end.
func (c *Core) hurries(table string) bool {
	return c.tables.byName[table].Mapping.Status.MaxAttempts > 0 && c.crowded(table)
}

// hurry ends the backoff of a table's keys when the table begins to hurry. Keys that fail while it hurries
// get no backoff, see nextTry.
func (c *Core) hurry() {
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
		return // setting the times has changed the list awake
	}
}

// calm ends the spending of the page's table, or of all tables after a page of the whole stream: the page
// was small, so no flood of bad rows is left.
func (c *Core) calm(s *pageRequest) {
	for _, p := range c.parks.awake {
		if !p.hurried && (s.parks[0] == p || s.parks[0].Scope.Kind == outbox.ScopeStream) {
			p.spending = false
		}
	}
}

// spends reports whether one attempt uses up the row's whole budget. The row cannot become a record. It was
// read from the table, like all rows of a parked table. Since the table hurries, further tries would follow
// at once and read the same row. In this way pages get past bad rows as fast as past good ones.
func (c *Core) spends(r *outbox.Row) bool {
	p := c.parks.of(outbox.TableScope(r.Table))
	return p != nil && p.spending && r.Err != nil
}
