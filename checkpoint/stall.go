package checkpoint

import (
	"cmp"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// stall holds, in order, rows of tables without state that the sink refused or gave back, and the rows
// behind them. Such a table cannot be parked. So its rows wait in memory, for any length of time, and the
// confirmed position stays before them.
type stall struct {
	scope outbox.Scope
	// blocked says that the sink has blocked the scope, and must get a Release.
	blocked bool
	rows    []uint32 // in the order of arrival; none of them is in the sink
	next    time.Time
}

func (c *Core) stall(scope outbox.Scope, h uint32, err error) {
	s := c.stallOf(scope)
	if s == nil {
		s = &stall{scope: scope, next: c.now.Add(c.cfg.BackoffMin)}
		c.stalls = append(c.stalls, s)
		if err != nil {
			c.note(Note{Kind: NoteStalled, Row: c.rows.entries[h].row, Reason: err.Error()})
		}
	}
	r, tx, arrival := c.rows.entries[h].row, c.rows.entries[h].tx, c.rows.entries[h].arrival
	c.drop(h)
	if tx == noTx {
		return // it is from an earlier connection: the WAL brings it again
	}
	h = c.rows.add(r, tx)
	c.rows.entries[h].arrival = arrival
	c.behind(s, h)
}

func (c *Core) stallOf(scope outbox.Scope) *stall {
	for _, s := range c.stalls {
		if s.scope == scope {
			return s
		}
	}
	return nil
}

// behind inserts a row by its arrival, before the rows that arrived later.
func (c *Core) behind(s *stall, h uint32) {
	at := len(s.rows)
	for at > 0 && c.rows.entries[s.rows[at-1]].arrival > c.rows.entries[h].arrival {
		at--
	}
	s.rows = slices.Insert(s.rows, at, h)
}

// stalled puts a new row of the WAL behind waiting rows: those of its key, or else those of a scope that
// contains it. It returns false if no such rows wait.
func (c *Core) stalled(h uint32) bool {
	if len(c.stalls) == 0 {
		return false
	}
	if s := c.stallOf(outbox.KeyScope(c.rows.entries[h].row)); s != nil {
		s.rows = append(s.rows, h)
		return true
	}
	for _, s := range c.stalls {
		if s.scope.Contains(c.rows.entries[h].row) {
			s.rows = append(s.rows, h)
			return true
		}
	}
	return false
}

// retryStalls publishes the rows of the stalls that are due. A row that cannot become a record is never
// published: its stall lasts until a person removes the cause.
func (c *Core) retryStalls() {
	var rest []*stall
	var due []uint32
	for _, s := range c.stalls {
		broken := len(s.rows) > 0 && c.rows.entries[s.rows[0]].row.Err != nil
		if s.next.After(c.now) || broken || c.inSinkOf(s.scope) {
			rest = append(rest, s)
			continue
		}
		c.unblock(s)
		due = append(due, s.rows...)
	}
	c.stalls = rest
	// A topic's rows and those of a key in that topic may be due together.
	slices.SortFunc(due, func(a, b uint32) int { return cmp.Compare(c.rows.entries[a].arrival, c.rows.entries[b].arrival) })
	for _, h := range due {
		if k := c.stallOf(outbox.KeyScope(c.rows.entries[h].row)); k != nil {
			c.behind(k, h)
		} else {
			c.publish(h)
		}
	}
}

// unblock sends the Release that the sink is waiting for.
func (c *Core) unblock(s *stall) {
	if s.blocked {
		c.ready.Commands = append(c.ready.Commands, outbox.Command{Release: new(s.scope)})
	}
}

// dropStalls forgets the waiting rows: the connection is over, and the WAL brings them again. A stall stays
// while the sink has rows of its scope. The sink gives these back. Released too soon, it would let rows
// that the WAL brings behind them pass.
func (c *Core) dropStalls() {
	c.stalls = slices.DeleteFunc(c.stalls, func(s *stall) bool {
		for _, h := range s.rows {
			c.drop(h)
		}
		s.rows = nil
		if c.inSinkOf(s.scope) {
			return false
		}
		c.unblock(s)
		return true
	})
}
