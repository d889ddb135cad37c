package checkpoint

import (
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/outbox"
)

// stall holds, in order, rows of tables without state that the sink refused or
// gave back, and the rows behind them. Such a table cannot be parked, so its
// rows wait in memory, without limit in time, and hold the confirmed position.
type stall struct {
	scope outbox.Scope
	rows  []uint32
	next  time.Time
}

func (c *Core) stall(scope outbox.Scope, h uint32, err error) {
	r, tx, arrival := c.entries[h].row, c.entries[h].tx, c.entries[h].arrival
	c.drop(h)
	h = c.add(r, tx)
	c.entries[h].arrival = arrival
	for _, s := range c.stalls {
		if s.scope == scope {
			c.behind(s, h)
			return
		}
	}
	s := &stall{scope: scope, rows: []uint32{h}, next: c.now.Add(c.cfg.BackoffMin)}
	c.stalls = append(c.stalls, s)
	if err != nil {
		c.note(Note{Kind: NoteStalled, Row: r, Reason: err.Error()})
	}
}

// behind puts a row back in its place, before the rows that arrived later.
func (c *Core) behind(s *stall, h uint32) {
	at := len(s.rows)
	for at > 0 && c.entries[s.rows[at-1]].arrival > c.entries[h].arrival {
		at--
	}
	s.rows = slices.Insert(s.rows, at, h)
}

// stalled puts a new row of the log behind those that wait.
func (c *Core) stalled(h uint32) bool {
	for _, s := range c.stalls {
		if s.scope.Covers(c.entries[h].row) {
			s.rows = append(s.rows, h)
			return true
		}
	}
	return false
}

// retryStalls publishes what waits when its time has come. A row without record
// is never published: its stall lasts until a person mends the cause.
func (c *Core) retryStalls() {
	if len(c.stalls) == 0 {
		return
	}
	var rest []*stall
	for _, s := range c.stalls {
		if s.next.After(c.now) || c.entries[s.rows[0]].row.Err != nil || c.inSinkOf(s.scope) {
			rest = append(rest, s)
			continue
		}
		scope := s.scope
		c.ready.Commands = append(c.ready.Commands, outbox.Command{Release: &scope})
		for _, h := range s.rows {
			c.publish(h)
		}
	}
	c.stalls = rest
}

// inSinkOf says that the sink still has rows of the scope, which it will give back.
func (c *Core) inSinkOf(s outbox.Scope) bool {
	for h := c.head; h != 0; h = c.entries[h].next {
		if c.entries[h].state == inSink && s.Covers(c.entries[h].row) {
			return true
		}
	}
	return false
}

// dropStalls forgets what waits: the connection is over, the log brings it again.
func (c *Core) dropStalls() {
	for _, s := range c.stalls {
		for _, h := range s.rows {
			c.drop(h)
		}
		scope := s.scope
		c.ready.Commands = append(c.ready.Commands, outbox.Command{Release: &scope})
	}
	c.stalls = nil
}
