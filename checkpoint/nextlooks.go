package checkpoint

import (
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// requestLooks asks for looks at the rows whose time has come. Rows of tables with claims are locked, with
// one claim outstanding at a time; all others are only looked at. A look can bring new values, such as the
// headers of a side table. So no look at queued rows is asked for while the published rows take up
// MaxBytes. Queued rows do not count towards that: they wait for a look themselves.
func (c *Core) requestLooks() {
	if !c.looks.checking {
		c.ready.Check = append(c.ready.Check, c.turnHeld()...)
	}
	if c.rows.published >= c.cfg.MaxBytes {
		return
	}
	for _, q := range c.looks.queues {
		switch {
		case !q.locks() && !c.looks.checking:
			c.ready.Check = append(c.ready.Check, c.turn(q, c.cfg.PageRows)...)
		case q.locks() && c.looks.claims.free(q):
			if rows := c.turn(q, min(claimRows, c.cfg.PageRows)); len(rows) > 0 {
				c.looks.claims.ask(q, rows)
				c.ready.Claim = rows
			}
		}
	}
}

// turn takes the next rows of the queue to look at, at most limit. Rows that need no look go on at once.
func (c *Core) turn(q *lookQueue, limit int) []*outbox.Row {
	c.resume(&q.keyQueue)
	if q.next.After(c.now) && len(q.queue) < limit {
		return nil
	}
	var rows []*outbox.Row
	n := 0
	for ; n < len(q.queue) && len(rows) < limit; n++ {
		h := q.queue[n]
		e := &c.rows.entries[h]
		if q.waits(e.row) {
			q.waiting = append(q.waiting, h)
			continue
		}
		if e.due.After(c.now) {
			break
		}
		if !e.look && !c.late(e.row) {
			if len(rows) > 0 {
				break
			}
			c.goOn(h)
			continue
		}
		if rows == nil {
			room := min(limit, len(q.queue)-n)
			rows, q.asked = make([]*outbox.Row, 0, room), slices.Grow(q.asked, room)
		}
		e.row.Late = true
		q.asked = append(q.asked, h)
		rows = append(rows, e.row)
	}
	q.queue = q.queue[n:]
	if len(rows) > 0 && q.table.Mapping.HeadStart > 0 {
		q.next = c.now.Add(lookPause)
	}
	return rows
}

// goOn lets a row go on that was queued only behind others. One of these may have had its key parked.
func (c *Core) goOn(h uint32) {
	if p := c.leftUnder(&c.rows.entries[h]); p != nil {
		c.leaveRead(h, p)
		return
	}
	c.publish(h)
}
