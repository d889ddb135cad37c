package checkpoint

import (
	"bytes"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Checked answers Check, every row of it, read in one snapshot.
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
	for _, s := range c.looks.queues { // now, so that what the gate let out went behind them
		if !s.locks() {
			s.asked = nil
		}
	}
}

// CheckRefused answers Check: the database refuses the statement for a table.
// Its rows are the sweeper's then; the others are asked for again.
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

// Claimed answers Claim: every row of it. Those that are PENDING are ours now: each of
// them gets either a mark or an Unclaim. An answer that comes after its connection has
// ended unlocks its rows.
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
			if c.rows.entries[h].state == queued { // behind one that waits
				c.unclaim(h)
			}
		}
	}
}

// ClaimRefused answers Claim: the database refuses the statement for the table.
// Its rows are the sweeper's then.
func (c *Core) ClaimRefused(t *outbox.Table, err error) {
	c.parkRefused(t, err)
	if q := c.looks.claims.asking; q != nil { // else draining
		q.queue, q.asked = append(q.asked, q.queue...), nil
		c.looks.claims.answered()
	}
}

// renew replaces a row by what a look saw of it. Under another key, its place is among that
// key's rows from now on.
func (c *Core) renew(h uint32, a *outbox.Checked) {
	e := &c.rows.entries[h]
	created := e.row.CreatedAt
	if e.row = a.Latest(); e.carried {
		e.row.CreatedAt = created // see rowTable.byID
	}
	e.row.Handle = h
	c.rows.resized(h)
}

// looked tells the sink what a look saw of a row that waits there. A row that belongs elsewhere now leaves the sink and is
// published again, behind the rows of its new key.
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

// samePlace says that b can take a's place in the sink. A row that names another partition than before goes there in its turn.
func samePlace(a, b *outbox.Row) bool {
	partition := a.Partition == b.Partition || a.Partition >= 0 && b.Partition >= 0
	return b.Err == nil && a.Cluster == b.Cluster && a.Topic == b.Topic && partition && (a.Key == nil) == (b.Key == nil) && bytes.Equal(a.Key, b.Key)
}

// checked does what the look at a row says.
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
		c.watch.expectAt(c.now.Add(askSoon)) // the table says until when
		c.settle(h)
	case p != nil:
		c.leaveRead(h, p)
	case a == outbox.CheckInvisible:
		// The application's own relay begins when the commit returns, so a head start begins again.
		q.wait(h, outbox.KeyScope(row), c.now.Add(max(invisibleWait, row.Table.Mapping.HeadStart)))
	case a == outbox.CheckAgain:
		q.wait(h, outbox.KeyScope(row), c.now)
	case a == outbox.CheckTaken, q.waits(row):
		q.wait(h, outbox.KeyScope(row), c.now.Add(takenWait))
	default:
		c.publish(h)
	}
}
