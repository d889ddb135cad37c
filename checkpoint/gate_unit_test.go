package checkpoint

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// gated puts rows behind the Core's gate, all of one key unless told otherwise.
func (c *Core) gated(rows ...*outbox.Row) (handles []uint32) {
	for _, r := range rows {
		h := c.rows.add(r, noTx)
		c.gate.queue = append(c.gate.queue, h)
		handles = append(handles, h)
	}
	return handles
}

func published(c *Core) (ids []string) {
	for _, cmd := range c.ready.Commands {
		ids = append(ids, outboxIDs(cmd.Publish)...)
	}
	return ids
}

// A gate keeps all rows, those of a wide park, or those of some keys.
func TestWhatAGateKeeps(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	a, b := rowOf(table, "a"), rowOf(table, "b")
	other := rowOf(&outbox.Table{Schema: "public", Name: "other"}, "a")
	for name, x := range map[string]struct {
		gate gate
		want [3]bool // a, b, other
	}{
		"a start":      {gate{}, [3]bool{true, true, true}},
		"a table":      {gate{park: c.parkedTable(table, outbox.CauseKeys)}, [3]bool{true, true, false}},
		"one key":      {gate{keys: map[outbox.Scope]bool{outbox.KeyScope(a): true}}, [3]bool{true, false, false}},
		"keys, no one": {gate{keys: map[outbox.Scope]bool{}}, [3]bool{}},
	} {
		if got := [3]bool{x.gate.keeps(a), x.gate.keeps(b), x.gate.keeps(other)}; got != x.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Rows leave a gate in order. Rows up to its position are looked at first, one page at a time. Rows of a
// waiting key wait behind it. Rows of a parked scope are left to the sweeper. Rows that always need a look
// go to their table's queue.
func TestHowRowsLeaveTheGate(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		with      func(c *Core, rows []*outbox.Row)
		check     []string
		published []string
		left      int
	}{
		"up to the position":      {func(*Core, []*outbox.Row) {}, []string{"0", "1"}, nil, 1},
		"behind the position":     {func(c *Core, _ []*outbox.Row) { c.gate.check = 5 }, nil, []string{"0", "1", "2"}, 0},
		"the first is behind it":  {func(_ *Core, rows []*outbox.Row) { rows[0].Commit = 21 }, []string{"1", "2"}, []string{"0"}, 0},
		"the second is behind it": {func(_ *Core, rows []*outbox.Row) { rows[1].Commit = 21 }, []string{"0"}, nil, 2},
		"a key waits": {func(c *Core, rows []*outbox.Row) {
			c.gate.waitingKeys = map[outbox.Scope]time.Time{outbox.KeyScope(rows[0]): c.now.Add(1)}
		}, []string{"1", "2"}, nil, 0},
		"a key is parked": {func(c *Core, rows []*outbox.Row) { c.keyed(rows[0]) }, []string{"1", "2"}, nil, 0},
		"they have a queue of their own": {func(c *Core, rows []*outbox.Row) {
			rows[0].Table.Mapping.HeadStart = time.Hour
			c.looks = newLooks(c.cfg.Tables)
		}, nil, nil, 0},
	} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		c.gate = &gate{check: 20}
		rows := []*outbox.Row{rowOf(table, "0"), rowOf(table, "1"), rowOf(table, "2")}
		handles := c.gated(rows...)
		x.with(c, rows)
		c.drainGate()
		if !slices.Equal(outboxIDs(c.ready.Check), append([]string{}, x.check...)) || !slices.Equal(published(c), x.published) {
			t.Errorf("%s: looked at %v, published %v", name, outboxIDs(c.ready.Check), published(c))
		}
		if len(c.gate.queue) != x.left || len(c.gate.asked) != len(x.check) {
			t.Errorf("%s: %+v", name, c.gate)
		}
		if waits := slices.Contains(c.gate.waiting, handles[0]); waits != (name == "a key waits") {
			t.Errorf("%s: waits %v", name, waits)
		}
	}
}

// A gate stays while rows are behind it, or while the WAL up to its position has not been received.
func TestWhenAGateGoes(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		with func(c *Core, h uint32)
		goes bool
	}{
		"nothing is left":     {func(*Core, uint32) {}, true},
		"not received so far": {func(c *Core, _ uint32) { c.gate.check++ }, false},
		"a look":              {func(c *Core, h uint32) { c.gate.asked = []uint32{h} }, false},
		"a row that waits": {func(c *Core, h uint32) {
			c.gate.wait(h, outbox.KeyScope(c.rows.entries[h].row), c.now.Add(time.Second))
		}, false},
		"a look is outstanding": {func(c *Core, _ uint32) { c.looks.checking = true }, false},
		"a hand-back":           {func(c *Core, _ uint32) { c.gate.keeping = true }, false},
	} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		c.gate = &gate{check: 20}
		c.ledger.received = 20
		x.with(c, c.rows.add(rowOf(table, "1"), noTx))
		c.drainGate()
		if (c.gate == nil) != x.goes {
			t.Errorf("%s: gone %v", name, c.gate == nil)
		}
	}
}

// A row behind the gate that is not visible yet is looked at again after invisibleWait.
func TestARowBehindTheGateIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	c.gate = &gate{check: 20}
	r := rowOf(table, "1")
	c.gated(r)
	c.Take()
	c.Checked([]outbox.Checked{{Row: r, State: outbox.CheckInvisible}})
	if len(c.Take().Check) != 0 || !c.NextTick().Equal(c.now.Add(invisibleWait)) {
		t.Error("looked at again at once, or never")
	}
	c.later(invisibleWait)
	if got := c.Take().Check; len(got) != 1 || got[0] != r {
		t.Errorf("%v", outboxIDs(got))
	}
	c.Checked([]outbox.Checked{{Row: r, State: outbox.CheckPending}})
	if got := published(c); !slices.Equal(got, []string{"1"}) {
		t.Error(got)
	}
}

// A look that the database refuses parks its table, and its rows wait at the front again. An outstanding
// claim is not affected.
func TestARefusedLook(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	looks := &outbox.Table{Schema: "public", Name: "looks", Mapping: outbox.Mapping{HeadStart: time.Second}}
	claims := &outbox.Table{Schema: "public", Name: "claims", Mapping: outbox.Mapping{Claim: outbox.ClaimRowLock}}
	c.looks = newLooks([]*outbox.Table{looks, claims})
	c.gate, c.looks.checking = &gate{check: 20}, true
	set := func(q *keyQueue, of *outbox.Table) (first, second uint32) {
		first, second = c.flying(rowOf(of, "1"), queued), c.flying(rowOf(of, "2"), queued)
		q.asked, q.queue = []uint32{first}, []uint32{second}
		return first, second
	}
	g1, g2 := set(&c.gate.keyQueue, table)
	q1, q2 := set(&c.looks.queues[0].keyQueue, looks)
	l1, l2 := set(&c.looks.queues[1].keyQueue, claims)
	c.CheckRefused(table, errOurs)
	if p := c.parks.of(outbox.TableScope(table)); p == nil || p.Cause != outbox.CauseWriteBack || c.looks.checking {
		t.Errorf("%+v", p)
	}
	for _, x := range []struct {
		q            *keyQueue
		queue, asked []uint32
	}{
		{&c.gate.keyQueue, []uint32{g1, g2}, nil},
		{&c.looks.queues[0].keyQueue, []uint32{q1, q2}, nil},
		{&c.looks.queues[1].keyQueue, []uint32{l2}, []uint32{l1}},
	} {
		if !slices.Equal(x.q.queue, x.queue) || !slices.Equal(x.q.asked, x.asked) {
			t.Errorf("queue %v, asked %v", x.q.queue, x.q.asked)
		}
	}
	c.looks.checking = true
	if c.Checked(nil); c.looks.checking || len(c.looks.queues[1].asked) != 1 {
		t.Error("a look ends a claim")
	}
	c.dropGate()
	if c.gate != nil || c.rows.entries[g1].row != nil || c.rows.entries[g2].row != nil {
		t.Error("the gate or its rows stay")
	}
}

// The result of a look decides what happens to the row.
func TestWhatALookSays(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		state     outbox.CheckState
		with      func(c *Core, q *keyQueue, r *outbox.Row)
		stays     bool
		published bool
		blocked   bool
		wait      time.Duration // 0: the row does not wait
	}{
		"PENDING":             {outbox.CheckPending, nil, true, true, false, 0},
		"settled":             {outbox.CheckSettled, nil, false, false, false, 0},
		"FAILED, and skipped": {outbox.CheckFailed, nil, false, false, false, 0},
		"FAILED, and blocks": {outbox.CheckFailed, func(_ *Core, _ *keyQueue, r *outbox.Row) {
			r.Table.Mapping.OnFailed = outbox.OnFailedBlock
		}, false, false, true, 0},
		"not visible": {outbox.CheckInvisible, nil, true, false, false, invisibleWait},
		"taken":       {outbox.CheckTaken, nil, true, false, false, takenWait},
		"PENDING, behind one that waits": {outbox.CheckPending, func(c *Core, q *keyQueue, r *outbox.Row) {
			q.wait(c.rows.add(rowOf(r.Table, "0"), noTx), outbox.KeyScope(r), c.now.Add(time.Minute))
		}, true, false, false, time.Minute},
		"PENDING, and parked": {outbox.CheckPending, func(c *Core, _ *keyQueue, r *outbox.Row) { c.keyed(r) }, false, false, false, 0},
		"FAILED, blocks, and parked": {outbox.CheckFailed, func(c *Core, _ *keyQueue, r *outbox.Row) {
			r.Table.Mapping.OnFailed = outbox.OnFailedBlock
			c.keyed(r)
		}, false, false, true, 0},
		"settled, and parked": {outbox.CheckSettled, func(c *Core, _ *keyQueue, r *outbox.Row) { c.keyed(r) }, false, false, false, 0},
	} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		r, q := rowOf(table, "1"), &keyQueue{}
		h := c.rows.add(r, noTx)
		if x.with != nil {
			x.with(c, q, r)
		}
		c.checked(q, r.Handle, x.state)
		p := c.parks.ofKey(r)
		if stays, blocked := c.rows.entries[h].row == r, p != nil && p.Cause == outbox.CauseBlocked; stays != x.stays || blocked != x.blocked || (len(published(c)) > 0) != x.published {
			t.Errorf("%s: stays %v, published %v, parked %+v", name, stays, published(c), p)
		}
		if until := q.waitingKeys[outbox.KeyScope(r)]; x.wait > 0 && (!until.Equal(c.now.Add(x.wait)) || !slices.Contains(q.waiting, h)) || x.wait == 0 && len(q.waiting) > 0 {
			t.Errorf("%s: %+v", name, q)
		}
	}
}

// The bytes that a look adds to a row count as memory.
func TestALookAddsToMemory(t *testing.T) {
	t.Parallel()
	for _, claim := range []outbox.Claim{outbox.ClaimNone, outbox.ClaimRowLock} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		table.Mapping.Claim, table.Mapping.HeadersTable.Name = claim, "headers"
		c.looks, c.gate = newLooks(c.cfg.Tables), nil
		r := rowOf(table, "1")
		h := c.rows.add(r, noTx)
		c.publish(h)
		ready := c.Take()
		asked := append(ready.Check, ready.Claim...)
		if len(asked) != 1 {
			t.Fatalf("%d rows are looked at", len(asked))
		}
		r.Value = make([]byte, 1000)
		if claim == outbox.ClaimNone {
			c.Checked([]outbox.Checked{{Row: r, State: outbox.CheckPending}})
		} else {
			c.Claimed([]outbox.Checked{{Row: r, State: outbox.CheckPending}})
		}
		if _, _, bytes := c.Memory(); bytes != r.Size() || c.rows.entries[h].size != r.Size() {
			t.Errorf("%d bytes of %d", bytes, r.Size())
		}
	}
}

// Waiting keys are looked at when the first of them is due. Before that they cost nothing.
func TestTheFirstKeyToGoOn(t *testing.T) {
	c, table, now := begun(t, outbox.PublishedStatus)
	row := func(i int) *outbox.Row {
		r := rowOf(table, fmt.Sprint(i))
		r.Key = fmt.Appendf(make([]byte, 100), "%d", i) // too long for the stack
		return r
	}
	q := &keyQueue{}
	for i := 20; i > 0; i-- {
		r := row(i)
		q.wait(c.rows.add(r, noTx), outbox.KeyScope(r), now.Add(time.Duration(i)*time.Second))
	}
	late := row(21)
	q.wait(c.rows.add(late, noTx), outbox.KeyScope(late), now.Add(time.Hour))
	q.queue = []uint32{c.rows.add(row(22), noTx)}
	for i := 1; i <= 20; i++ {
		at := now.Add(time.Duration(i) * time.Second)
		if !q.retry.Equal(at) {
			t.Fatalf("the first is due in %v, not %v", q.retry.Sub(now), at.Sub(now))
		}
		c.now = at.Add(-1)
		if n := testing.AllocsPerRun(10, func() { c.resume(q) }); n != 0 {
			t.Errorf("%v allocations while keys wait", n)
		}
		c.now = at
		c.resume(q)
	}
	empty := &keyQueue{queue: q.queue}
	if n := testing.AllocsPerRun(10, func() { c.resume(empty); empty.waits(late) }); n != 0 {
		t.Errorf("%v allocations while no key waits", n)
	}
}

// While nothing is parked, waiting or stalled, no row costs a copy of its key.
func TestARowCostsNoKey(t *testing.T) {
	c, table, _ := begun(t, outbox.PublishedStatus)
	r := rowOf(table, "1")
	r.Key = make([]byte, 100) // too long for the stack
	h := c.rows.add(r, noTx)
	costs := func(when string) {
		t.Helper()
		if n := testing.AllocsPerRun(10, func() { c.parks.ofKey(r); c.parks.discarding(r); c.stalled(h) }); n != 0 {
			t.Errorf("%s: %v allocations", when, n)
		}
	}
	costs("nothing is parked")
	c.park(outbox.StreamScope(), outbox.CauseMissed, "", time.Time{}).phase = absorbed
	if n := testing.AllocsPerRun(10, func() { c.parks.discarding(r) }); n > 1 { // what it looks for
		t.Errorf("only the stream is parked: %v allocations", n)
	}
}
