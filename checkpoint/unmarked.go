package checkpoint

import (
	"strconv"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// A published row whose mark the database refuses for the row's own sake (a constraint, a
// trigger that raises, a value) is parked by itself, not with its key: it is in Kafka, so
// its key may go on, and only this row must not be published again. The durable park
// remembers that; the row is not kept. It is marked again with back-off, also after a
// restart, until the mark is taken or the row is gone.

// unmarkedRow is what only the park of such a row knows.
type unmarkedRow struct {
	// mark is the outstanding one, or nil: there is one at a time.
	mark *outbox.Row
	// inTally: the tally of an exactly-once stream has the row, so the park counts as durable and
	// is not written.
	inTally bool
	// othersInTally are the creation times of other rows with the same id that the tally has, each
	// marked in its turn. Empty unless inTally is set.
	othersInTally []int64
}

// unmarkable parks a published row whose mark is refused.
func (c *Core) unmarkable(h uint32, err error) {
	e := &c.rows.entries[h]
	r, key := e.row, c.parks.ofKey(e.row)
	p := c.park(outbox.RowScope(r), outbox.CauseWriteBack, err.Error(), c.backoff(1))
	p.tries, p.failedRow, p.mark = 1, "", nil
	c.rememberCreated(p, r.CreatedAt)
	if e.once {
		p.tallied()
	}
	c.settleUnder(e.tx, p)
	c.drop(h)
	c.troubleOver(key, r) // without a key, key is p, which waits
}

// markUnmarked asks for the marks whose time has come.
func (c *Core) markUnmarked() {
	if c.cfg.Shadow {
		return
	}
	for _, p := range c.parks.awake {
		if p.Unmarked() && p.phase == sweeping && p.mark == nil && !p.Next.After(c.now) {
			p.mark = &outbox.Row{Table: c.tables.byName[p.Scope.Table], ID: p.Scope.ID, CreatedAt: p.created}
			c.ready.Marks = append(c.ready.Marks, outbox.Mark{Row: p.mark, Kind: outbox.MarkSent, Refused: true, InTally: p.inTally})
		}
	}
}

// markedAgain takes the answer to a mark of markUnmarked.
func (c *Core) markedAgain(a outbox.Marked) {
	p := c.parks.of(outbox.RowScope(a.Row))
	if p == nil || p.mark != a.Row {
		return
	}
	p.mark = nil
	if a.State == outbox.MarkedRefused || a.State == outbox.MarkedInvisible {
		p.tries++
		c.parks.tryAt(p, c.backoff(p.tries)) // not written: a start may try sooner
		return
	}
	if len(p.othersInTally) > 0 {
		c.rememberCreated(p, p.othersInTally[0])
		p.othersInTally = p.othersInTally[1:]
		c.parks.tryAt(p, time.Time{})
		return
	}
	c.released(p)
}

// released removes the park of a row that is terminal or gone.
func (c *Core) released(p *park) {
	c.releaseWaiting(p)
	p.phase = absorbed
	c.parks.tryAt(p, time.Time{})
}

// rememberCreated has the park remember when its row was created, which tells it from a later
// one with the same id.
func (c *Core) rememberCreated(p *park, created int64) {
	p.created, p.RowID = created, ""
	if created != 0 {
		p.RowID = strconv.FormatInt(created, 10)
	}
}

// recall undoes rememberCreated for a park that was read. Of a blocked key's FAILED row only the
// id is known, which may be another's by now, so the table is asked about the key.
func (p *park) recall() {
	switch {
	case p.Unmarked():
		p.created, _ = strconv.ParseInt(p.RowID, 10, 64) // else 0: any row with the id
	case p.Cause == outbox.CauseBlocked && p.Scope.Kind == outbox.ScopeKey:
		p.blocker = gone
	}
}

// tallied says that the tally has the row: the park need not be written.
func (p *park) tallied() { p.inTally, p.durable, p.written = true, true, p.version }
