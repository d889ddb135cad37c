package checkpoint

import (
	"slices"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// heldRow returns a Core and a row that the sink has asked about, and that is being looked at.
func heldRow(t *testing.T) (*Core, *outbox.Row) {
	t.Helper()
	c, table, _ := begun(t, outbox.PublishedStatus)
	r := rowOf(table, "1")
	c.Begin(outbox.Transaction{Commit: r.Commit, End: r.Commit + 1})
	c.Rows([]*outbox.Row{r})
	c.Commit(r.Commit + 1)
	c.Take()
	c.Outcome(outbox.Outcome{Rows: []*outbox.Row{r}, Class: outbox.Stale})
	if w := c.Take(); !slices.Equal(w.Check, []*outbox.Row{r}) {
		t.Fatalf("looks at %v", w.Check)
	}
	return c, r
}

// answers returns what the sink is told about the row.
func answers(r Ready) (a []outbox.Checked) {
	for _, cmd := range r.Commands {
		a = append(a, cmd.Looked...)
	}
	return a
}

// A row can take the place of another row in the sink only under some conditions.
func TestWhatIsTheSamePlace(t *testing.T) {
	t.Parallel()
	row := outbox.Row{Cluster: "main", Topic: "t", Key: []byte("k"), Partition: -1}
	empty, first := row, row
	empty.Key, first.Partition = []byte{}, 0
	for name, x := range map[string]struct {
		was    outbox.Row
		change func(*outbox.Row)
		same   bool
	}{
		"nothing changed":      {row, func(*outbox.Row) {}, true},
		"no record":            {row, func(r *outbox.Row) { r.Err = errNoRecord }, false},
		"cluster":              {row, func(r *outbox.Row) { r.Cluster = "other" }, false},
		"topic":                {row, func(r *outbox.Row) { r.Topic = "other" }, false},
		"key":                  {row, func(r *outbox.Row) { r.Key = []byte("other") }, false},
		"no key":               {row, func(r *outbox.Row) { r.Key = nil }, false},
		"no key, empty before": {empty, func(r *outbox.Row) { r.Key = nil }, false},
		"a partition":          {row, func(r *outbox.Row) { r.Partition = 0 }, false},
		"no partition":         {first, func(r *outbox.Row) { r.Partition = -1 }, false},
		"partition 1 for 0":    {first, func(r *outbox.Row) { r.Partition = 1 }, true},
	} {
		now := x.was
		x.change(&now)
		if samePlace(&x.was, &now) != x.same {
			t.Errorf("%s: same place %v", name, !x.same)
		}
	}
	second := first
	second.Partition = 1
	if !samePlace(&second, &first) {
		t.Error("partition 0 for 1: another place")
	}
}

// A held row whose key has changed leaves its place, and goes behind the new key's rows.
func TestHeldRowUnderAnotherKey(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*outbox.Row){
		"key":       func(r *outbox.Row) { r.Key = []byte("other") },
		"no key":    func(r *outbox.Row) { r.Key = nil },
		"topic":     func(r *outbox.Row) { r.Topic = "other" },
		"cluster":   func(r *outbox.Row) { r.Cluster = "other" },
		"partition": func(r *outbox.Row) { r.Partition = 3 },
	} {
		c, r := heldRow(t)
		now := *r
		now.Handle, now.Stale = 0, false
		change(&now)
		c.Checked([]outbox.Checked{{Row: r, State: outbox.CheckPending, Now: &now}})
		if a := answers(c.Take()); len(a) != 1 || a[0].Row != r || a[0].Now != nil {
			t.Errorf("%s: the sink hears %v", name, a)
		}
		c.Outcome(outbox.Outcome{Rows: []*outbox.Row{r}, Class: outbox.TakenOut})
		if w := c.Take(); len(w.Commands) != 1 || !slices.Equal(w.Commands[0].Publish, []*outbox.Row{&now}) {
			t.Errorf("%s: then %+v", name, w.Commands)
		}
	}
}

// A held row that now names another partition keeps its place among its key's rows.
func TestHeldRowThatNamesAnotherPartition(t *testing.T) {
	t.Parallel()
	c, r := heldRow(t)
	r.Partition = 1
	now := *r
	now.Stale, now.Partition = false, 2
	c.Checked([]outbox.Checked{{Row: r, State: outbox.CheckPending, Now: &now}})
	if a := answers(c.Take()); len(a) != 1 || a[0].Now != &now {
		t.Errorf("the sink hears %v", a)
	}
}

// One that its look does not see yet goes out as it is. The sink has a row of its own again, and can ask about it once more.
func TestHeldRowThatIsNotVisible(t *testing.T) {
	t.Parallel()
	c, r := heldRow(t)
	r.Stale = true // as the sink says
	c.Checked([]outbox.Checked{{Row: r, State: outbox.CheckInvisible}})
	if a := answers(c.Take()); len(a) != 1 || a[0].Row != r || a[0].Now == nil || a[0].Now == r || a[0].Now.Stale || c.rows.entries[r.Handle].row != a[0].Now {
		t.Errorf("the sink hears %+v", a)
	}
}

// A row has the times that a look sees, unless it is known by those that the WAL brought (TestHeldRowThatGetsItsTime).
func TestHeldRowWithAnotherTime(t *testing.T) {
	t.Parallel()
	c, r := heldRow(t)
	now := *r
	now.Stale, now.CreatedAt = false, 5
	if c.Checked([]outbox.Checked{{Row: r, State: outbox.CheckPending, Now: &now}}); now.CreatedAt != 5 {
		t.Errorf("it was created at %d", now.CreatedAt)
	}
}

// Held rows are looked at one page at a time. All answers of a page are one command.
func TestHeldRowsAreLookedAtByPages(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	var rows []*outbox.Row
	for _, id := range []string{"1", "2", "3"} {
		r := rowOf(table, id)
		c.flying(r, inSink)
		rows = append(rows, r)
	}
	c.Outcome(outbox.Outcome{Rows: rows, Class: outbox.Stale})
	if w := c.Take(); !slices.Equal(w.Check, rows[:2]) {
		t.Fatalf("looks at %v, %d are a page", outboxIDs(w.Check), c.cfg.PageRows)
	}
	c.Checked([]outbox.Checked{{Row: rows[0], State: outbox.CheckSettled}, {Row: rows[1], State: outbox.CheckSettled}})
	if w := c.Take(); len(w.Commands) != 1 || len(w.Commands[0].Looked) != 2 || !slices.Equal(w.Check, rows[2:]) {
		t.Errorf("the sink is told %+v, looks at %v", w.Commands, outboxIDs(w.Check))
	}
	if !slices.Equal(c.looks.held.asked, []uint32{rows[2].Handle}) {
		t.Errorf("%v are being looked at", c.looks.held.asked)
	}
}

// What a connection did not answer is asked first on the next one.
func TestHeldRowsAreLookedAtInTheirOrder(t *testing.T) {
	t.Parallel()
	s := heldRows{queue: []uint32{3}, asked: []uint32{1, 2}}
	if s.again(); !slices.Equal(s.queue, []uint32{1, 2, 3}) || s.asked != nil {
		t.Errorf("%+v", s)
	}
}

// When the database refuses to look at a table, the sink gives back its rows that wait for a look: nobody asks for them
// again at once. Nothing that waits in the sink for something else comes back.
func TestRefusedLooksAtHeldRows(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		with      func(c *Core, r *outbox.Row)
		withdrawn bool
	}{
		"its row waits for a look": {func(*Core, *outbox.Row) {}, true},
		"its row waits no longer":  {func(c *Core, r *outbox.Row) { c.rows.entries[r.Handle].stale = false }, false},
		"another table's row does": {func(_ *Core, r *outbox.Row) { r.Table = &outbox.Table{Schema: "public", Name: "other"} }, false},
	} {
		c, r := heldRow(t)
		table := r.Table
		x.with(c, r)
		c.ready.Commands = nil
		c.CheckRefused(table, errOurs)
		withdrawn := slices.ContainsFunc(c.ready.Commands, func(cmd outbox.Command) bool {
			return cmd.Withdraw != nil && *cmd.Withdraw == outbox.TableScope(table)
		})
		if p := c.parks.of(outbox.TableScope(table)); withdrawn != x.withdrawn || p == nil || (p.awaiting > 0) != x.withdrawn {
			t.Errorf("%s: withdrawn %v, %+v", name, withdrawn, p)
		}
	}
}

// What a look brings counts against the memory.
func TestHeldRowGrows(t *testing.T) {
	t.Parallel()
	c, r := heldRow(t)
	now := *r
	now.Stale, now.Value = false, make([]byte, 1000)
	c.Checked([]outbox.Checked{{Row: r, State: outbox.CheckPending, Now: &now}})
	if a := answers(c.Take()); len(a) != 1 || a[0].Now != &now {
		t.Errorf("the sink hears %v", a)
	}
	if err := c.inconsistency(); err != nil {
		t.Error(err)
	}
}

// Another relay has it, or it is FAILED and blocks its key: the key's later rows do not pass it.
func TestHeldRowThatItsKeyWaitsFor(t *testing.T) {
	t.Parallel()
	for state, cause := range map[outbox.CheckState]outbox.Cause{outbox.CheckTaken: outbox.CauseMissed, outbox.CheckFailed: outbox.CauseBlocked} {
		c, r := heldRow(t)
		r.Table.Mapping.OnFailed = outbox.OnFailedBlock
		c.Checked([]outbox.Checked{{Row: r, State: state}})
		w := c.Take()
		if p := c.parks.of(outbox.KeyScope(r)); p == nil || p.Cause != cause {
			t.Errorf("%d: parked: %+v", state, p)
		}
		if len(w.Commands) != 1 || w.Commands[0].Withdraw == nil || *w.Commands[0].Withdraw != outbox.KeyScope(r) {
			t.Errorf("%d: the sink is told %+v", state, w.Commands)
		}
	}
}

// Elsewhere a row that is FAILED by now leaves the sink, and keeps nobody waiting.
func TestHeldRowThatHasFailed(t *testing.T) {
	t.Parallel()
	c, r := heldRow(t)
	c.Checked([]outbox.Checked{{Row: r, State: outbox.CheckFailed}})
	if a := answers(c.Take()); len(a) != 1 || a[0].Row != r || a[0].Now != nil {
		t.Errorf("the sink hears %v", a)
	}
	c.Outcome(outbox.Outcome{Rows: []*outbox.Row{r}, Class: outbox.TakenOut})
	if w := c.Take(); len(w.Commands)+len(w.Marks) > 0 || c.rows.count != 0 || c.parks.of(outbox.KeyScope(r)) != nil {
		t.Errorf("%+v, %d rows in memory, parked: %+v", w, c.rows.count, c.parks.of(outbox.KeyScope(r)))
	}
}

// A look that was asked for on a connection that ended is asked for on the next one. What an earlier look
// said counts no more.
func TestHeldRowIsLookedAtOnTheNextConnection(t *testing.T) {
	t.Parallel()
	c, r := heldRow(t)
	c.Disconnect()
	c.Connect(Connected{Streaming: true})
	if w := c.Take(); !slices.Equal(w.Check, []*outbox.Row{r}) {
		t.Fatalf("looks at %v", w.Check)
	}
	c.Checked([]outbox.Checked{{Row: r, State: outbox.CheckSettled}})
	c.Take()
	c.Disconnect()
	c.Connect(Connected{Streaming: true})
	c.Outcome(outbox.Outcome{Rows: []*outbox.Row{r}, Class: outbox.TakenOut})
	if p := c.parks.of(outbox.KeyScope(r)); p == nil || c.rows.count > 0 {
		t.Errorf("parked %v, %d rows in memory", p != nil, c.rows.count)
	}
}

// A row from an earlier connection is known by what the WAL says of it, whatever a look says: once it has left memory, the WAL
// may bring it again.
func TestHeldRowThatGetsItsTime(t *testing.T) {
	t.Parallel()
	c, r := heldRow(t)
	c.Disconnect()
	c.Connect(Connected{Streaming: true})
	c.Take()
	now := *r
	now.Stale, now.CreatedAt = false, 5
	c.Checked([]outbox.Checked{{Row: r, State: outbox.CheckPending, Now: &now}})
	again := *r
	again.Stale = false
	c.Begin(outbox.Transaction{Commit: r.Commit, End: r.Commit + 1})
	if c.Rows([]*outbox.Row{&again}); c.rows.count != 1 {
		t.Errorf("%d rows in memory", c.rows.count)
	}
	c.Commit(r.Commit + 1)
	c.Take()
	c.Outcome(outbox.Outcome{Rows: []*outbox.Row{&now}, Class: outbox.Delivered})
	c.Take()
	c.Marked([]outbox.Marked{{Row: &now, Kind: outbox.MarkSent, State: outbox.MarkedSent}})
	if c.Take(); c.rows.count > 0 || c.Confirm() < r.Commit {
		t.Errorf("%d rows in memory, confirmed %v", c.rows.count, c.Confirm())
	}
	if len(c.rows.byID) > 0 {
		t.Errorf("rows that are not there can be found: %v", c.rows.byID)
	}
}

// A clean stop waits for no look.
func TestHeldRowInACleanStop(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	r := rowOf(table, "1")
	h := c.flying(r, inSink)
	c.Drain()
	c.Take()
	c.Outcome(outbox.Outcome{Rows: []*outbox.Row{c.rows.entries[h].row}, Class: outbox.Stale})
	if w := c.Take(); len(w.Check) > 0 || len(w.Commands) != 1 || w.Commands[0].Withdraw == nil {
		t.Errorf("looks at %v, tells %+v", w.Check, w.Commands)
	}
}

// A row that belongs elsewhere by now is not published there in a clean stop.
func TestHeldRowThatIsTakenOutInACleanStop(t *testing.T) {
	t.Parallel()
	c, r := heldRow(t)
	now := *r
	now.Stale, now.Key = false, []byte("other")
	c.Checked([]outbox.Checked{{Row: r, State: outbox.CheckPending, Now: &now}})
	c.Drain()
	c.Take()
	c.Outcome(outbox.Outcome{Rows: []*outbox.Row{r}, Class: outbox.TakenOut})
	if w := c.Take(); len(w.Commands) > 0 || c.rows.count > 0 || !c.Drained() {
		t.Errorf("tells %+v, %d rows in memory, drained %v", w.Commands, c.rows.count, c.Drained())
	}
}

// While looks have added as much as may be in memory, only rows that were looked at before are looked at: they are first in
// their partitions. What a look did not read is asked again.
func TestLooksAtHeldRowsStayInTheMemory(t *testing.T) {
	t.Parallel()
	c, first := heldRow(t)
	second := rowOf(first.Table, "2")
	h := c.flying(second, inSink)
	c.Outcome(outbox.Outcome{Rows: []*outbox.Row{second}, Class: outbox.Stale})
	now := *first
	now.Stale, now.Value = false, make([]byte, c.cfg.MaxBytes)
	c.Checked([]outbox.Checked{{Row: first, State: outbox.CheckPending, Now: &now}})
	if w := c.Take(); len(w.Check) > 0 {
		t.Fatalf("looks at %v", outboxIDs(w.Check))
	}
	c.Outcome(outbox.Outcome{Rows: []*outbox.Row{&now}, Class: outbox.Stale})
	if w := c.Take(); !slices.Equal(w.Check, []*outbox.Row{&now}) {
		t.Fatalf("looks at %v", outboxIDs(w.Check))
	}
	c.Checked([]outbox.Checked{{Row: &now, State: outbox.CheckSettled}})
	c.Outcome(outbox.Outcome{Rows: []*outbox.Row{&now}, Class: outbox.TakenOut})
	if w := c.Take(); c.rows.grown != 0 || !slices.Equal(w.Check, []*outbox.Row{second}) {
		t.Fatalf("%d bytes, looks at %v", c.rows.grown, outboxIDs(w.Check))
	}
	c.Checked([]outbox.Checked{{Row: second, State: outbox.CheckAgain}})
	if w := c.Take(); len(w.Commands) > 0 || !slices.Equal(w.Check, []*outbox.Row{second}) || !c.awaitsLook(h) {
		t.Errorf("looks at %v, and %+v", outboxIDs(w.Check), w.Commands)
	}
}
