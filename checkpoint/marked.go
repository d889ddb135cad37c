package checkpoint

import (
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// retries has the marks that will be repeated. refused counts, per table, the rows in memory whose last
// mark the database refused together with the table's other marks.
type retries struct {
	list    []remark
	refused map[string]int
}

// remark is a mark that is repeated at a time.
type remark struct {
	mark outbox.Mark
	at   time.Time
}

// Marked takes the answers to Marks.
func (c *Core) Marked(answers []outbox.Marked) {
	for _, a := range answers {
		c.marked(a)
	}
}

func (c *Core) marked(a outbox.Marked) {
	h := a.Row.Handle
	if h == 0 {
		c.markedAgain(a)
		return
	}
	if int(h) >= len(c.rows.entries) || c.rows.entries[h].row != a.Row {
		return // each mark gets one answer, so this happens only in a test that takes a rule out
	}
	c.looks.claims.release(&c.rows.entries[h])
	c.markAnswered(&c.rows.entries[h])
	p := c.parks.ofKey(a.Row)
	if p != nil && p.Unmarked() { // the park is of another row with the same id
		p = nil
	}
	switch a.State {
	case outbox.MarkedInvisible:
		c.remarkLater(a, c.now.Add(invisibleWait))
		return
	case outbox.MarkedRefused:
		switch {
		case !a.Alone:
			c.writeBackRefused(a)
			return
		case a.Kind == outbox.MarkSent:
			c.unmarkable(h, a.Err)
			return
		case p != nil: // the row will be tried again, and is charged then
			p.Reason = a.Err.Error()
		}
		a.State = outbox.MarkedRetry
	}
	c.answered(&c.rows.entries[h])
	switch a.State {
	case outbox.MarkedRetry:
		switch {
		case p == nil:
		case p.RowID != "": // another row of the key is FAILED
			c.leaveToOperator(p, p.RowID, p.created, time.Time{})
		default:
			if c.rows.entries[h].uncharged {
				a.Attempts = 0 // the stored count is of other tries, which were counted
			}
			c.nextTry(p, a)
		}
	case outbox.MarkedFailed:
		c.note(Note{Kind: NoteFailed, Row: a.Row, Reason: c.rows.entries[h].reason})
		if p != nil && a.Row.Table.Mapping.OnFailed == outbox.OnFailedBlock {
			c.leaveToOperator(p, a.Row.ID, a.Row.CreatedAt, c.now.Add(c.cfg.WatchEvery))
		}
		c.troubleOver(p, a.Row)
	default:
		// An attempt may find its row settled because an earlier try of this mark has set it FAILED, and
		// the answer was lost. So the row is looked at before the key is released.
		if p != nil && a.Kind == outbox.MarkAttempt && a.Row.Table.Mapping.OnFailed == outbox.OnFailedBlock {
			c.leaveToOperator(p, a.Row.ID, a.Row.CreatedAt, time.Time{})
		}
		c.troubleOver(p, a.Row)
	}
	c.settle(h)
}

func (c *Core) remarkLater(a outbox.Marked, at time.Time) {
	e := &c.rows.entries[a.Row.Handle]
	m := outbox.Mark{Row: a.Row, Kind: a.Kind, Reason: e.reason, Uncharged: e.uncharged, Spends: e.spends, InTally: e.once}
	c.retries.list = append(c.retries.list, remark{mark: m, at: at})
}

// writeBackRefused parks a table that refuses our marks. The row stays in flight: delivered or refused, and
// not marked. It is marked again when the table's backoff is over. Until then the table is not swept, since
// the rows that a sweep publishes could not be marked either.
func (c *Core) writeBackRefused(a outbox.Marked) {
	s := outbox.TableScope(a.Row.Table)
	again := c.backoff(1)
	if p := c.parks.of(s); p == nil || p.Cause != outbox.CausePaused { // a pause stays, and has no time of its next try
		again = c.parkWriteBack(s, a.Err).Next
	}
	c.remarkLater(a, again)
	c.rows.entries[a.Row.Handle].unmarked = true
	c.retries.refused[s.Table]++
}

func (c *Core) parkWriteBack(s outbox.Scope, err error) *park {
	tries := 1
	if p := c.parks.of(s); p != nil && p.Cause == outbox.CauseWriteBack {
		if p.Next.After(c.now) {
			return p
		}
		tries = p.tries + 1
	}
	p := c.park(s, outbox.CauseWriteBack, err.Error(), c.backoff(tries))
	p.tries = tries
	return p
}

func (c *Core) markAgain() {
	c.retries.list = slices.DeleteFunc(c.retries.list, func(m remark) bool {
		due := !m.at.After(c.now)
		if due {
			c.ready.Marks = append(c.ready.Marks, m.mark)
		}
		return due
	})
}
