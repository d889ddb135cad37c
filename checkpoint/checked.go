package checkpoint

import (
	"bytes"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Checked answers Check. It has an answer for every row of the request, all read in one snapshot.
func (c *Core) Checked(answers []outbox.Checked) {
	c.looks.checking = false
	g := c.gate
	if g != nil {
		g.asked = nil
	}
	c.looks.held.asked = nil
	for _, a := range answers {
		h := a.Row.Handle
		switch e := &c.rows.entries[h]; {
		case h == 0:
			c.checkedBlocked(a)
		case e.row != a.Row: // dropped meanwhile
		case e.state == queued:
			c.renew(h, &a)
			c.checked(&c.looks.of(a.Row.Table).keyQueue, h, a.State)
		case e.state == inSink:
			c.looked(h, &a)
		default:
			c.checked(&g.keyQueue, h, a.State)
		}
	}
	for _, s := range c.looks.queues { // only now: rows that the gate let out above had to queue behind these
		if !s.locks() {
			s.asked = nil
		}
	}
}

// CheckRefused answers Check: the database refuses the statement for a table. Its rows are left to the
// sweeper; the other rows are asked for again.
func (c *Core) CheckRefused(t *outbox.Table, err error) {
	c.looks.checking = false
	c.parkRefused(t, err)
	if g := c.gate; g != nil {
		g.queue, g.asked = append(g.asked, g.queue...), nil
	}
	for _, s := range c.looks.queues {
		if !s.locks() {
			s.queue, s.asked = append(s.asked, s.queue...), nil
		}
	}
	c.looks.held.again()
	if slices.ContainsFunc(c.looks.held.queue, func(h uint32) bool { return c.awaitsLook(h) && c.rows.entries[h].row.Table == t }) {
		c.withdraw(c.parks.of(outbox.TableScope(t)))
	}
}

// Claimed answers Claim, for every row of the request. We hold the locks of those that are PENDING: each of
// them gets a mark or an Unclaim. If the answer comes after its connection has ended, its rows are
// unlocked.
func (c *Core) Claimed(answers []outbox.Checked) {
	var q *lookQueue // nil: not the outstanding claim
	if c.looks.claims.first == answers[0].Row {
		q = c.looks.claims.asking
		q.asked = nil
		c.looks.claims.answered()
	}
	cl := &claim{queue: q}
	for _, a := range answers {
		ours := a.State == outbox.CheckPending
		switch h := a.Row.Handle; {
		case q == nil || c.rows.entries[h].row != a.Row: // dropped meanwhile
			if ours {
				c.ready.Unclaim = append(c.ready.Unclaim, a.Latest())
			}
		default:
			c.renew(h, &a)
			if ours {
				c.looks.claims.lock(&c.rows.entries[h], cl)
			}
			c.checked(&q.keyQueue, h, a.State)
			if c.rows.entries[h].state == queued { // it waits behind another row of its key
				c.unclaim(h)
			}
		}
	}
}

// ClaimRefused answers Claim: the database refuses the statement for the table. Its rows are left to the
// sweeper.
func (c *Core) ClaimRefused(t *outbox.Table, err error) {
	c.parkRefused(t, err)
	if q := c.looks.claims.asking; q != nil { // nil while draining
		q.queue, q.asked = append(q.asked, q.queue...), nil
		c.looks.claims.answered()
	}
}

// renew replaces a row by its state in a look. If its key has changed, the row now has its place among that
// key's rows.
func (c *Core) renew(h uint32, a *outbox.Checked) {
	e := &c.rows.entries[h]
	created := e.row.CreatedAt
	if e.row = a.Latest(); e.carried {
		e.row.CreatedAt = created // see rowTable.byID
	}
	e.row.Handle = h
	c.rows.resized(h)
}

// looked passes the result of a look to the sink, for a row that waits there. If the row has another key,
// topic or cluster now, it leaves the sink and is published again, behind the rows of its new key.
func (c *Core) looked(h uint32, a *outbox.Checked) {
	e := &c.rows.entries[h]
	was := e.row
	e.stale = false
	switch a.State {
	case outbox.CheckAgain:
		e.stale = true
		c.looks.held.queue = append(c.looks.held.queue, h)
		return
	case outbox.CheckTaken: // its key's later rows wait for it
		c.withdraw(c.park(outbox.KeyScope(was), outbox.CauseMissed, "another relay has the row", time.Time{}))
		return
	case outbox.CheckFailed:
		if was.Table.Mapping.OnFailed == outbox.OnFailedBlock {
			c.block(was)
			c.withdraw(c.parks.of(outbox.KeyScope(was)))
			return
		}
	case outbox.CheckPending, outbox.CheckInvisible:
		if a.Now == nil {
			now := *was
			now.Stale, a.Now = false, &now
		}
		c.renew(h, a)
		if samePlace(was, e.row) {
			e.looked = true
			c.answerSink(outbox.Checked{Row: was, Now: e.row})
			return
		}
	}
	e.found = a.State
	c.answerSink(outbox.Checked{Row: was})
}

func (c *Core) answerSink(a outbox.Checked) {
	if n := len(c.ready.Commands); n > 0 && c.ready.Commands[n-1].Looked != nil {
		c.ready.Commands[n-1].Looked = append(c.ready.Commands[n-1].Looked, a)
	} else {
		c.ready.Commands = append(c.ready.Commands, outbox.Command{Looked: []outbox.Checked{a}})
	}
}

// samePlace reports whether b can take a's place in the sink. A row that now names a partition, or no
// longer names one, has to leave the sink; a row that names another one than before may stay.
func samePlace(a, b *outbox.Row) bool {
	partition := a.Partition == b.Partition || a.Partition >= 0 && b.Partition >= 0
	return b.Err == nil && a.Cluster == b.Cluster && a.Topic == b.Topic && partition && (a.Key == nil) == (b.Key == nil) && bytes.Equal(a.Key, b.Key)
}

// checked acts on the result of a look at a row: it settles, leaves or publishes the row, or lets it wait.
func (c *Core) checked(q *keyQueue, h uint32, a outbox.CheckState) {
	row := c.rows.entries[h].row
	p := c.leftUnder(&c.rows.entries[h])
	switch {
	case a == outbox.CheckFailed:
		if row.Table.Mapping.OnFailed == outbox.OnFailedBlock {
			c.block(row)
		}
		c.settle(h)
	case a == outbox.CheckSettled:
		c.settle(h)
	case a == outbox.CheckWaits:
		c.watch.expectAt(c.now.Add(askSoon)) // by then the table may say when the row is due
		c.settle(h)
	case p != nil:
		c.leaveRead(h, p)
	case a == outbox.CheckInvisible:
		// The application's own relay may begin only when the commit returns, so the head start begins
		// again.
		q.wait(h, outbox.KeyScope(row), c.now.Add(max(invisibleWait, row.Table.Mapping.HeadStart)))
	case a == outbox.CheckAgain:
		q.wait(h, outbox.KeyScope(row), c.now)
	case a == outbox.CheckTaken, q.waits(row):
		q.wait(h, outbox.KeyScope(row), c.now.Add(takenWait))
	default:
		c.publish(h)
	}
}
