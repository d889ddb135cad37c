package checkpoint

import (
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// publish hands a row in memory to the sink. A row that has to be looked at first waits in its queue. A row
// that cannot become a record is charged.
func (c *Core) publish(h uint32) {
	e := &c.rows.entries[h]
	switch {
	case c.looksFirst(e):
		c.enqueue(h)
		return
	case e.row.Err != nil:
		c.failInTurn(h)
		return
	}
	c.rows.fly(h, inSink)
	if n := len(c.ready.Commands); n > 0 && c.ready.Commands[n-1].Publish != nil {
		c.ready.Commands[n-1].Publish = append(c.ready.Commands[n-1].Publish, e.row)
	} else {
		c.ready.Commands = append(c.ready.Commands, outbox.Command{Publish: []*outbox.Row{e.row}})
	}
}

// failInTurn charges a row that cannot become a record. While earlier rows of its key are in the sink, the
// key is parked and the row is left to the sweeper instead: if one of them failed as well, the key would
// wait for two rows.
func (c *Core) failInTurn(h uint32) {
	e := &c.rows.entries[h]
	if p := c.unknownTopicsPark(e.row); p != nil {
		c.leave(h, p)
		return
	}
	key := outbox.KeyScope(e.row)
	if c.tables.stateless || !c.inSinkOf(key) {
		c.charge(h, e.row.Err)
		return
	}
	p := c.park(key, outbox.CauseRowError, e.row.Err.Error(), time.Time{})
	c.awaitAnswers(p)
	c.leave(h, p)
}

// fail charges a row that the sink refused. Its key waits for the rows that the sink gives back.
func (c *Core) fail(h uint32, err error) {
	if p := c.charge(h, err); p != nil {
		c.awaitAnswers(p)
	}
}

// charge counts one attempt of the row and parks its key: from now on the row and the later rows of the key
// are left to the sweeper. A table without state has no parks, so its row is stalled.
func (c *Core) charge(h uint32, err error) *park {
	e := &c.rows.entries[h]
	if c.tables.stateless {
		c.stall(outbox.KeyScope(e.row), h, err)
		return nil
	}
	e.reason, e.spends = err.Error(), c.spends(e.row)
	p := c.park(outbox.KeyScope(e.row), outbox.CauseRowError, e.reason, c.now.Add(c.cfg.BackoffMin))
	p.failedRow = strings.Clone(e.row.ID)
	c.rows.fly(h, attempt)
	e.awaits = p // no row of the key passes this one until the attempt is counted
	p.awaiting++
	c.settleUnder(e.tx, p)
	e.tx = noTx
	c.ready.Marks = append(c.ready.Marks, outbox.Mark{Row: e.row, Kind: outbox.MarkAttempt, Reason: e.reason, Uncharged: e.uncharged, Spends: e.spends})
	if e.row.Err != nil {
		c.note(Note{Kind: NoteUnfit, Row: e.row, Reason: e.reason})
	}
	return p
}
