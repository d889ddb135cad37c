package checkpoint

import (
	"slices"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// A row is late by the server's time, which goes on with ours, also if its commit is as far in the future: the
// server's clock was set back. A row without state, or that is claimed, is never late.
func TestWhichRowsAreLate(t *testing.T) {
	t.Parallel()
	const now = int64(1_000_000_000)
	for name, x := range map[string]struct {
		committed time.Duration // from the server's time as it was told
		later     time.Duration
		with      func(c *Core, m *outbox.Mapping)
		late      bool
	}{
		"new":                     {0, 0, nil, false},
		"in time":                 {-5 * time.Second, 0, nil, false},
		"late":                    {-5*time.Second - time.Microsecond, 0, nil, true},
		"late by now":             {-4 * time.Second, time.Second + time.Microsecond, nil, true},
		"in the near future":      {5 * time.Second, 0, nil, false},
		"in the future":           {5*time.Second + time.Microsecond, 0, nil, true},
		"claimed":                 {-time.Hour, 0, func(_ *Core, m *outbox.Mapping) { m.Claim = outbox.ClaimRowLock }, false},
		"without state":           {-time.Hour, 0, func(_ *Core, m *outbox.Mapping) { m.Published = outbox.PublishedNone }, false},
		"no time of the server's": {-time.Hour, 0, func(c *Core, _ *outbox.Mapping) { c.looks.clock.at = time.Time{} }, false},
	} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		c.cfg.HeldFor = 5 * time.Second
		c.ServerTime(now)
		c.later(x.later)
		if x.with != nil {
			x.with(c, &table.Mapping)
		}
		r := rowOf(table, "1")
		r.CommitTime = now + x.committed.Microseconds()
		if c.late(r) != x.late {
			t.Errorf("%s: late is %v", name, !x.late)
		}
	}
}

// behindLate returns a late row, which is being looked at, and others behind it.
func behindLate(t *testing.T) (c *Core, late *outbox.Row, row func(id string) *outbox.Row) {
	t.Helper()
	c, table, _ := begun(t, outbox.PublishedStatus)
	c.gate, c.cfg.HeldFor, c.cfg.PageRows = nil, time.Second, 10
	const now = int64(1_000_000_000)
	c.ServerTime(now)
	row = func(id string) *outbox.Row {
		r := rowOf(table, id)
		r.CommitTime = now
		return r
	}
	late = row("late")
	late.CommitTime = 1
	c.Begin(outbox.Transaction{Commit: late.Commit, End: late.Commit + 1})
	c.Rows([]*outbox.Row{late})
	if w := c.Take(); !slices.Equal(w.Check, []*outbox.Row{late}) || !late.Late || len(w.Commands) > 0 {
		t.Fatalf("looks at %v, and %+v", outboxIDs(w.Check), w.Commands)
	}
	return c, late, row
}

// New rows wait behind late ones of their table, and then go out without a look. If nobody has changed a late row, the
// look says only that.
func TestRowsBehindLateOnes(t *testing.T) {
	t.Parallel()
	c, late, row := behindLate(t)
	first, second := row("1"), row("2")
	c.Rows([]*outbox.Row{first})
	if w := c.Take(); len(w.Commands)+len(w.Check) > 0 {
		t.Fatalf("it does not wait: %+v", w)
	}
	c.Checked([]outbox.Checked{{Row: late, State: outbox.CheckPending}})
	w := c.Take()
	if len(w.Check) > 0 || len(w.Commands) != 1 || !slices.Equal(w.Commands[0].Publish, []*outbox.Row{late, first}) {
		t.Fatalf("looks at %v, and %+v", outboxIDs(w.Check), w.Commands)
	}
	c.Rows([]*outbox.Row{second})
	if got := published(c); !slices.Equal(got, []string{"2"}) || c.rows.queued != 0 {
		t.Errorf("then %v go out, %d rows wait", got, c.rows.queued)
	}
}

// A row that waits behind late ones for so long that it is late as well is looked at, too.
func TestARowThatBecomesLateBehindALateOne(t *testing.T) {
	t.Parallel()
	c, late, row := behindLate(t)
	behind := row("behind")
	c.Rows([]*outbox.Row{behind})
	c.later(c.cfg.HeldFor + time.Microsecond)
	c.Checked([]outbox.Checked{{Row: late, State: outbox.CheckPending}})
	if w := c.Take(); !slices.Equal(w.Check, []*outbox.Row{behind}) || len(w.Commands) != 1 || !slices.Equal(w.Commands[0].Publish, []*outbox.Row{late}) {
		t.Errorf("looks at %v, and %+v", outboxIDs(w.Check), w.Commands)
	}
}

// One whose time has not come by now is left to the watch, which asks for it soon: only the table says when that is.
func TestALateRowThatIsNotDue(t *testing.T) {
	t.Parallel()
	c, late, _ := behindLate(t)
	c.Checked([]outbox.Checked{{Row: late, State: outbox.CheckWaits}})
	if !c.watch.due.Equal(c.now.Add(askSoon)) || c.rows.count > 0 || len(published(c)) > 0 {
		t.Errorf("the watch looks for it in %v, %d rows in memory", c.watch.due.Sub(c.now), c.rows.count)
	}
}

// What a look did not read, since other rows are long, is asked for again at once, and nothing passes it meanwhile.
func TestALateRowThatIsAskedForAgain(t *testing.T) {
	t.Parallel()
	c, late, row := behindLate(t)
	c.Rows([]*outbox.Row{row("behind")})
	c.Checked([]outbox.Checked{{Row: late, State: outbox.CheckAgain}})
	if w := c.Take(); !slices.Equal(w.Check, []*outbox.Row{late}) || len(w.Commands) > 0 {
		t.Errorf("looks at %v, and %+v", outboxIDs(w.Check), w.Commands)
	}
}

// Nothing of its key passes a late row that is not visible yet, or that another relay has.
func TestRowsOfAKeyBehindALateOneThatWaits(t *testing.T) {
	t.Parallel()
	for _, state := range []outbox.CheckState{outbox.CheckInvisible, outbox.CheckTaken} {
		c, late, row := behindLate(t)
		c.Checked([]outbox.Checked{{Row: late, State: state}})
		behind := row("behind")
		behind.Key = late.Key
		c.Rows([]*outbox.Row{behind})
		if w := c.Take(); len(w.Commands)+len(w.Check) > 0 {
			t.Fatalf("%d: it passes: %+v", state, w)
		}
		c.later(max(invisibleWait, takenWait))
		if w := c.Take(); !slices.Equal(w.Check, []*outbox.Row{late}) || len(w.Commands) > 0 {
			t.Fatalf("%d: looks at %v, and %+v", state, outboxIDs(w.Check), w.Commands)
		}
		c.Checked([]outbox.Checked{{Row: late, State: outbox.CheckPending}})
		if got := published(c); c.Take().Check != nil || !slices.Equal(got, []string{"late"}) {
			t.Errorf("%d: %v go out", state, got)
		}
	}
}

// Rows of other tables, and those that a page brings, do not wait behind late ones.
func TestWhatDoesNotWaitBehindLateOnes(t *testing.T) {
	t.Parallel()
	c, late, row := behindLate(t)
	other := &outbox.Table{Schema: "public", Name: "other", Mapping: outbox.Mapping{Published: outbox.PublishedStatus}}
	c.looks.queues = append(c.looks.queues, &lookQueue{table: other})
	elsewhere, swept := row("elsewhere"), row("swept")
	elsewhere.Table = other
	c.publish(c.rows.add(elsewhere, noTx))
	h := c.rows.add(swept, noTx)
	c.rows.entries[h].page = &pageRequest{}
	c.publish(h)
	if got := published(c); !slices.Equal(got, []string{"elsewhere", "swept"}) || c.rows.entries[late.Handle].state != queued {
		t.Errorf("%v go out", got)
	}
}

// One of them that cannot become a record keeps those of its key behind it.
func TestANewRowThatFailsBehindALateOne(t *testing.T) {
	t.Parallel()
	c, late, row := behindLate(t)
	late.Key = []byte("other")
	bad, behind := row("bad"), row("behind")
	bad.Err, bad.Key, behind.Key = errNoRecord, []byte("k"), []byte("k")
	c.Rows([]*outbox.Row{bad, behind})
	c.Checked([]outbox.Checked{{Row: late, State: outbox.CheckPending}})
	if w := c.Take(); len(w.Commands) != 1 || !slices.Equal(w.Commands[0].Publish, []*outbox.Row{late}) || len(w.Marks) != 1 || w.Marks[0].Row != bad {
		t.Errorf("%+v, marks %+v", w.Commands, w.Marks)
	}
}

// What a gate lets out goes behind a late row of the same look.
func TestTheGatesRowsGoBehindLateOnes(t *testing.T) {
	t.Parallel()
	c, late, row := behindLate(t)
	kept := row("kept")
	h := c.rows.add(kept, c.ledger.hold())
	c.gate = &gate{check: 20}
	c.gate.asked = []uint32{h}
	c.Checked([]outbox.Checked{{Row: kept, State: outbox.CheckPending}, {Row: late, State: outbox.CheckPending}})
	if w := c.Take(); len(w.Commands) != 1 || !slices.Equal(w.Commands[0].Publish, []*outbox.Row{late, kept}) {
		t.Errorf("%+v", w.Commands)
	}
}
