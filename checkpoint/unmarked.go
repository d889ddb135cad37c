package checkpoint

import (
	"strconv"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// The database may refuse the mark of a published row for the row's own sake (a constraint, a trigger that
// raises an error, a value). Then the row is parked by itself, and its key may go on: the row is in Kafka,
// and only this row must not be published again. The durable park remembers that; the row itself is
// dropped. It is marked again with backoff, also after a restart, until the mark succeeds or the row is
// gone.

// unmarkedRow is the part of a park that only such a row has.
type unmarkedRow struct {
	// mark is the outstanding mark, or nil. There is at most one.
	mark *outbox.Row
	// inTally says that the tally of an exactly-once stream has the row. Then the park counts as durable
	// and is not written.
	inTally bool
	// othersInTally are the creation times of other rows with the same id that the tally has. They are
	// marked one after the other. Empty unless inTally is set.
	othersInTally []int64
}

// unmarkable parks a published row whose mark the database refuses.
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
	c.troubleOver(key, r) // without a key, key is p itself, which waits for its next try
}

// markUnmarked asks for the marks that are due.
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

// markedAgain takes the answer to a mark that markUnmarked asked for.
func (c *Core) markedAgain(a outbox.Marked) {
	p := c.parks.of(outbox.RowScope(a.Row))
	if p == nil || p.mark != a.Row {
		return
	}
	p.mark = nil
	if a.State == outbox.MarkedRefused || a.State == outbox.MarkedInvisible {
		p.tries++
		c.parks.tryAt(p, c.backoff(p.tries)) // not written: after a restart the next try may come sooner
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

// rememberCreated stores in the park when its row was created. This distinguishes the row from a later one
// with the same id.
func (c *Core) rememberCreated(p *park, created int64) {
	p.created, p.RowID = created, ""
	if created != 0 {
		p.RowID = strconv.FormatInt(created, 10)
	}
}

// recall restores, in a park that was read, what rememberCreated has stored. Of a blocked key's FAILED row
// only the id was stored, which may belong to another row by now. So the table is asked about the key.
func (p *park) recall() {
	switch {
	case p.Unmarked():
		p.created, _ = strconv.ParseInt(p.RowID, 10, 64) // not stored: 0, which stands for any row with the id
	case p.Cause == outbox.CauseBlocked && p.Scope.Kind == outbox.ScopeKey:
		p.blocker = gone
	}
}

// tallied notes that the tally has the row, so the park need not be written.
func (p *park) tallied() { p.inTally, p.durable, p.written = true, true, p.version }
