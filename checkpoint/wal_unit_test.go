package checkpoint

import (
	"slices"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// What becomes of a row of the WAL.
func TestWhatBecomesOfARowOfTheWAL(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		with      func(c *Core, r *outbox.Row)
		published bool
		holds     int
		due       time.Duration // of the watch; 0: nothing is due
	}{
		"PENDING":             {func(*Core, *outbox.Row) {}, true, 1, 0},
		"not PENDING":         {func(_ *Core, r *outbox.Row) { r.Pending = false }, false, 0, 0},
		"the writer's":        {func(_ *Core, r *outbox.Row) { r.AvailableAt = outbox.Never }, false, 0, askSoon},
		"scheduled":           {func(c *Core, r *outbox.Row) { r.AvailableAt = c.now.Add(time.Minute).UnixMicro() }, false, 0, time.Minute},
		"parked":              {func(c *Core, r *outbox.Row) { c.keyed(r) }, false, 0, 0},
		"parked, not written": {func(c *Core, r *outbox.Row) { c.keyed(r).durable = false }, false, 1, 0},
		"behind a gate":       {func(c *Core, _ *outbox.Row) { c.gate = &gate{keeping: true} }, false, 1, 0},
		"in flight, of an earlier connection": {func(c *Core, r *outbox.Row) {
			c.flying(rowOf(r.Table, r.ID), acked)
			c.rows.carry()
		}, false, 1, 0},
		"another is in flight": {func(c *Core, r *outbox.Row) {
			c.flying(rowOf(r.Table, "9"), acked)
			c.rows.carry()
		}, true, 1, 0},
		"no state, shadow": {func(c *Core, _ *outbox.Row) { c.tables.stateless, c.cfg.Shadow = true, true }, false, 0, 0},
	} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		c.gate = nil
		r := rowOf(table, "1")
		x.with(c, r)
		c.Begin(outbox.Transaction{XID: 7, Commit: 10})
		c.Rows([]*outbox.Row{r})
		due := time.Duration(0)
		if !c.watch.due.IsZero() {
			due = c.watch.due.Sub(c.now)
		}
		if got := len(published(c)) > 0; got != x.published || c.ledger.txs[c.ledger.head].holds != x.holds || due != x.due {
			t.Errorf("%s: published %v, %d holds, due in %v", name, got, c.ledger.txs[c.ledger.head].holds, due)
		}
	}
}

// A row in flight from an earlier connection holds its transaction once, and comes last in order.
func TestARowInFlightIsHeldOnce(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	r := rowOf(table, "1")
	h := c.flying(rowOf(table, "1"), acked)
	c.rows.carry()
	c.flying(rowOf(table, "2"), acked)
	c.Begin(outbox.Transaction{XID: 7, Commit: 10})
	for range 2 {
		c.Rows([]*outbox.Row{r})
	}
	if e := &c.rows.entries[h]; e.tx != c.ledger.current() || c.ledger.txs[c.ledger.head].holds != 1 || e.arrival != c.rows.arrivals {
		t.Errorf("%+v, %d holds", e, c.ledger.txs[c.ledger.head].holds)
	}
	again := c.rows.add(rowOf(table, "1"), noTx) // its id was given out again
	if c.rows.remove(again); len(c.rows.byID) != 1 {
		t.Error("another row with its id makes it forgotten")
	}
	c.settle(h)
	if len(c.rows.byID) != 0 {
		t.Error("it is still found")
	}
}

// A clean stop of tables without state leaves later transactions to the next process, and never confirms them.
func TestLaterTransactionsAreLeft(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		published outbox.Published
		draining  bool
		open      bool
		left      bool
	}{
		"running":                {outbox.PublishedNone, false, false, false},
		"stopping":               {outbox.PublishedNone, true, false, true},
		"the one that was open":  {outbox.PublishedNone, true, true, false},
		"stopping, with a state": {outbox.PublishedStatus, true, false, false},
	} {
		c, table, _ := begun(t, x.published)
		c.gate = nil
		if c.draining = x.draining; x.open {
			c.unfinished = true
		}
		c.Begin(outbox.Transaction{XID: 7, Commit: 10})
		holds := c.ledger.txs[c.ledger.head].holds
		c.Rows([]*outbox.Row{rowOf(table, "1")})
		if left := len(published(c)) == 0; left != x.left || (holds == 1) != x.left {
			t.Errorf("%s: left %v, %d holds", name, left, holds)
		}
	}
}

// A transaction with rows that were passed over has to end before its table is handed back.
func TestWhatIsPassedOverIsWaitedFor(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	c.Begin(outbox.Transaction{XID: 7, Commit: 10})
	c.TableBroken(table, errOurs)
	p := c.parks.of(outbox.TableScope(table))
	if c.Passed(7); !slices.Equal(c.txs.xids(), []uint32{7}) || c.parks.holds != 1 || !p.Next.Equal(c.now.Add(time.Second)) {
		t.Errorf("%v, %+v", c.txs.xids(), p)
	}
	c, table, _ = begun(t, outbox.PublishedNone)
	if c.TableBroken(table, errOurs); len(c.parks.list) != 0 || c.tables.carried(table.String()) {
		t.Error("a table without state is parked")
	}
}

// A row that is discarded, or leaves memory for the sweeper, has its transaction waited for, but in shadow, where nobody hands
// back.
func TestDiscardedTransactions(t *testing.T) {
	t.Parallel()
	for _, shadow := range []bool{false, true} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		c.cfg.Shadow = shadow
		discarded, left := rowOf(table, "1"), rowOf(table, "2")
		left.XID++
		c.discardXID(discarded.XID)
		c.leave(c.flying(left, queued), c.parkedTable(table, outbox.CauseKeys))
		if waits := len(c.txs.xids()) == 2; waits == shadow {
			t.Errorf("shadow %v: waited for %v", shadow, waits)
		}
	}
}

// Rows of a table without state that were passed over are nobody's: their transaction is not confirmed, and nothing is
// read behind it, while what was read before is published and confirmed. A clean stop does not wait for its end.
func TestRowsWithoutStateAreNotPassedOver(t *testing.T) {
	t.Parallel()
	for _, shadow := range []bool{false, true} {
		c, table, _ := begun(t, outbox.PublishedNone)
		c.cfg.Shadow = shadow
		c.Connect(Connected{Streaming: true})
		before := rowOf(table, "1")
		c.Begin(outbox.Transaction{XID: 7, Commit: 10})
		c.Rows([]*outbox.Row{before})
		c.Commit(12)
		c.Begin(outbox.Transaction{XID: 8, Commit: 20})
		c.TableBroken(table, errOurs)
		if !c.Reading() {
			t.Error("nothing was passed over, and nothing is read")
		}
		c.Passed(8)
		c.Drain()
		if !shadow {
			c.Outcome(outbox.Outcome{Rows: []*outbox.Row{before}, Class: outbox.Delivered})
		}
		if mode := c.currentMode(); c.Reading() != shadow || c.Drained() == shadow || (mode == outbox.ModeHold) == shadow {
			t.Errorf("shadow %v: reading %v, drained %v, mode %s", shadow, c.Reading(), c.Drained(), mode)
		}
		c.Commit(22)
		if got := c.Confirm(); (got == 12) == shadow {
			t.Errorf("shadow %v: %v is confirmed", shadow, got)
		}
		c.draining = false
		if c.Connect(Connected{Streaming: true}); !c.Reading() {
			t.Error("the next connection does not read up to there")
		}
	}
}
