package checkpoint

import "time"

// pace bounds how fast rows come into memory.
type pace struct {
	until time.Time
	page  int
}

// Pace lets no row into memory before until, from the WAL or from a sweep's
// page, and at most page rows with one page. Zero values: no bound.
//
// It does not bound what is discarded (that costs nothing, and unread WAL is retained),
// what a hand-back reads by its deadline, or a clean stop.
func (c *Core) Pace(until time.Time, page int) { c.pace = pace{until, page} }

// paced says that no row may come into memory yet.
func (c *Core) paced() bool { return c.pace.until.After(c.now) && !c.draining }

// pageRows is the most rows of a page.
func (c *Core) pageRows(hb *handback) int {
	if c.pace.page > 0 && hb == nil {
		return min(c.pace.page, c.cfg.PageRows)
	}
	return c.cfg.PageRows
}

// Arrived counts the rows that ever came into memory.
func (c *Core) Arrived() uint64 { return c.rows.arrivals }

// Sweeping says that the last page of a sweep left rows behind.
func (c *Core) Sweeping() bool { return c.sweeps.more }
