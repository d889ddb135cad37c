package checkpoint

import "time"

// pace limits how fast rows come into memory.
type pace struct {
	until time.Time
	page  int
}

// Pace sets the limit. Before until, no row comes into memory, neither from the WAL nor from a sweep's
// page. One page brings at most page rows. Zero values mean no limit.
//
// The limit does not apply to discarded rows (they cost nothing, and unread WAL is retained), to the rows
// that a hand-back has to read by its deadline, or to a clean stop.
func (c *Core) Pace(until time.Time, page int) { c.pace = pace{until, page} }

// paced reports whether rows must not come into memory yet.
func (c *Core) paced() bool { return c.pace.until.After(c.now) && !c.draining }

// pageRows returns the maximum number of rows of a page.
func (c *Core) pageRows(hb *handback) int {
	if c.pace.page > 0 && hb == nil {
		return min(c.pace.page, c.cfg.PageRows)
	}
	return c.cfg.PageRows
}

// Arrived returns how many rows have come into memory so far.
func (c *Core) Arrived() uint64 { return c.rows.arrivals }

// Sweeping reports whether the last page of a sweep left rows behind.
func (c *Core) Sweeping() bool { return c.sweeps.more }
