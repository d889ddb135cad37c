package checkpoint

import (
	"slices"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Outcome takes the sink's word on rows.
func (c *Core) Outcome(o outbox.Outcome) {
	switch o.Class {
	case outbox.Delivered:
		c.topics.tookRecord(o.Rows[0])
		for _, r := range o.Rows {
			c.delivered(r.Handle, o.Unit)
		}
	case outbox.Refused:
		for _, r := range o.Rows {
			e := &c.rows.entries[r.Handle]
			e.uncharged = o.Uncharged
			c.answered(e)
			c.fail(r.Handle, o.Err)
		}
		c.release(o)
	case outbox.Withdrawn:
		c.withdrawn(o)
	}
}

// release unblocks what the sink blocked. It comes after the scope was parked
// (nothing of the WAL is published any more) and before the sweeper's rows.
func (c *Core) release(o outbox.Outcome) {
	switch {
	case !o.Blocked:
	case c.tables.stateless:
		c.stallOf(o.Scope).blocked = true // released when it is tried again
	default:
		c.ready.Commands = append(c.ready.Commands, outbox.Command{Release: new(o.Scope)})
	}
}

func (c *Core) delivered(h uint32, unit *outbox.Unit) {
	e := &c.rows.entries[h]
	c.answered(e)
	if !e.row.Table.Stateful() {
		c.settle(h)
		return
	}
	e.state = acked
	e.once = unit != nil
	c.ready.Marks = append(c.ready.Marks, outbox.Mark{Row: e.row, Kind: outbox.MarkSent, Unit: unit})
}

// failInTurn charges a row that cannot become a record, but not before the
// earlier rows of its key are answered: should one of them fail as well, the key
// would wait for two.
func (c *Core) failInTurn(h uint32) {
	e := &c.rows.entries[h]
	if p := c.unknownTopicsPark(e.row); p != nil {
		c.leave(h, p)
		return
	}
	key := outbox.KeyScope(e.row)
	if c.tables.stateless || !c.inSinkOf(key) {
		c.fail(h, e.row.Err)
		return
	}
	p := c.park(key, outbox.CauseRowError, e.row.Err.Error(), time.Time{})
	c.awaitAnswers(p)
	c.leave(h, p)
}

// fail charges a row one attempt and parks its key: the row and the key's later
// ones are the sweeper's from here on.
func (c *Core) fail(h uint32, err error) {
	e := &c.rows.entries[h]
	if c.tables.stateless {
		c.stall(outbox.KeyScope(e.row), h, err)
		return
	}
	e.reason = err.Error()
	p := c.park(outbox.KeyScope(e.row), outbox.CauseRowError, e.reason, c.now.Add(c.cfg.BackoffMin))
	p.failedRow = strings.Clone(e.row.ID)
	c.awaitAnswers(p)
	c.rows.fly(h, attempt)
	if e.awaits == nil { // until the attempt is counted nobody passes the row
		e.awaits = p
		p.awaiting++
	}
	c.settleUnder(e.tx, p)
	e.tx = noTx
	c.ready.Marks = append(c.ready.Marks, outbox.Mark{Row: e.row, Kind: outbox.MarkAttempt, Reason: e.reason, Uncharged: e.uncharged})
}

// withdrawn leaves rows that the sink gave back to the sweeper.
func (c *Core) withdrawn(o outbox.Outcome) {
	if c.tables.stateless {
		for _, r := range o.Rows {
			c.stall(o.Scope, r.Handle, o.Err)
		}
		c.release(o)
		return
	}
	if o.Err != nil { // a topic's
		c.parkTopic(o)
	}
	c.release(o)
	for _, r := range o.Rows {
		c.giveBack(r.Handle)
	}
}

func (c *Core) giveBack(h uint32) {
	e := &c.rows.entries[h]
	r := e.row
	p := c.parks.discarding(r)
	switch {
	case c.draining: // never sent: the WAL brings it again
		c.drop(h)
		return
	case p == nil:
		p = c.park(outbox.KeyScope(r), outbox.CauseMissed, "the row was given back unsent", time.Time{})
		c.awaitAnswers(p)
	}
	c.leave(h, p)
}

// Marked takes answers to Marks.
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
		return // a mark has one answer: only a core without one of its rules comes here
	}
	c.headStart.release(&c.rows.entries[h])
	c.markAnswered(&c.rows.entries[h])
	p := c.parks.ofKey(a.Row)
	if p != nil && p.Unmarked() { // it remembers another row of the same id
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
		case p != nil: // the row is tried again, and charged then
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
			c.nextTry(p, a)
		}
	case outbox.MarkedFailed:
		c.note(Note{Kind: NoteFailed, Row: a.Row, Reason: c.rows.entries[h].reason})
		if p != nil && a.Row.Table.Mapping.OnFailed == outbox.OnFailedBlock {
			c.leaveToOperator(p, a.Row.ID, a.Row.CreatedAt, c.now.Add(c.cfg.WatchEvery))
		}
		c.troubleOver(p, a.Row)
	default:
		// An attempt that finds its row settled may be the one that failed it,
		// when the first answer got lost: look before the key is released.
		if p != nil && a.Kind == outbox.MarkAttempt && a.Row.Table.Mapping.OnFailed == outbox.OnFailedBlock {
			c.leaveToOperator(p, a.Row.ID, a.Row.CreatedAt, time.Time{})
		}
		c.troubleOver(p, a.Row)
	}
	c.settle(h)
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

// retries are the marks to be repeated; refused counts, per table, the rows in
// memory whose last mark the database refused.
type retries struct {
	list    []remark
	refused map[string]int
}

// remark is a mark to be repeated.
type remark struct {
	mark outbox.Mark
	at   time.Time
}

func (c *Core) remarkLater(a outbox.Marked, at time.Time) {
	e := &c.rows.entries[a.Row.Handle]
	m := outbox.Mark{Row: a.Row, Kind: a.Kind, Reason: e.reason, Uncharged: e.uncharged, Left: e.once}
	c.retries.list = append(c.retries.list, remark{mark: m, at: at})
}

// writeBackRefused parks the table whose rows cannot be marked. The row stays in
// flight, acked and unmarked, and is marked again when the table's backoff is
// over; until then the table is not swept, since what a sweep publishes could
// not be marked either.
func (c *Core) writeBackRefused(a outbox.Marked) {
	s := outbox.TableScope(a.Row.Table)
	again := c.backoff(1)
	if p := c.parks.of(s); p == nil || p.Cause != outbox.CausePaused { // it stays so, and is never due
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

// markAnswered: until a refused mark is answered again, its table brings no more rows
// into memory.
func (c *Core) markAnswered(e *entry) {
	if e.unmarked {
		e.unmarked = false
		c.retries.refused[e.row.Table.String()]--
	}
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
