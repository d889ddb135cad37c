package checkpoint

import (
	"slices"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// handingBack returns a Core in the middle of a hand-back of two keys.
func handingBack(t *testing.T) (c *Core, table *outbox.Table, a, b *park) {
	t.Helper()
	c, table, _ = begun(t, outbox.PublishedStatus)
	c.gate = nil
	a, b = c.keyed(rowOf(table, "a")), c.keyed(rowOf(table, "b"))
	a.sweptOut, b.sweptOut = true, true
	c.startHandback()
	return c, table, a, b
}

// A hand-back waits for the rows of its scopes that are in flight, and for no other rows.
func TestAHandBackAwaitsItsRows(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	c.gate = nil
	ours, other := c.flying(rowOf(table, "a"), inSink), c.flying(rowOf(table, "x"), inSink)
	c.keyed(rowOf(table, "a")).sweptOut = true
	c.startHandback()
	if c.hb.outstanding != 1 || c.rows.entries[ours].hb != c.hb || c.rows.entries[other].hb != nil {
		t.Errorf("%d rows are awaited", c.hb.outstanding)
	}
	c.progressHandback()
	if c.progressHandback(); c.hb.step != hbReading {
		t.Errorf("step %d while its page is read", c.hb.step)
	}
	c.hb.outstanding = 0
	if c.progressHandback(); c.hb.step != hbReading {
		t.Errorf("step %d, and its page is not here", c.hb.step)
	}
}

// A hand-back's page is complete if it has all rows, and every transaction that the hand-back waits for has
// ended.
func TestWhatAHandBackHasSeen(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		page     outbox.Page
		started  []uint64
		complete bool
	}{
		"all":                                {outbox.Page{}, nil, true},
		"more rows":                          {outbox.Page{More: true}, nil, false},
		"one was in progress":                {outbox.Page{}, []uint64{99}, false},
		"a discarded row's is in progress":   {outbox.Page{Snapshot: outbox.Snapshot{Xmin: 50, Xmax: 60, InProgress: []uint64{50}}}, nil, false},
		"another transaction is in progress": {outbox.Page{Snapshot: outbox.Snapshot{Xmin: 51, Xmax: 60, InProgress: []uint64{51}}}, nil, true},
	} {
		c, table, _, _ := handingBack(t)
		c.hb.xids, c.txs.started = []uint32{50}, x.started
		c.progressHandback()
		s := c.sweeps.page
		if x.page.Snapshot.Xmax == 0 {
			x.page.Snapshot = outbox.Snapshot{Xmin: 60, Xmax: 60}
		}
		x.page.Insert, x.page.Rows = 77, []*outbox.Row{rowOf(table, "a"), rowOf(table, "x")}
		c.handbackPage(s, &x.page)
		if c.hb.complete != x.complete || c.hb.step != hbRows || c.hb.insert != 77 || c.hb.outstanding != 1 || !slices.Equal(published(c), []string{"a"}) {
			t.Errorf("%s: %+v, published %v", name, c.hb, published(c))
		}
	}
}

// No row is published from the page of a hand-back that was given up.
func TestThePageOfAHandBackThatIsGivenUp(t *testing.T) {
	t.Parallel()
	c, table, _, _ := handingBack(t)
	c.progressHandback()
	s, h := c.sweeps.page, c.hb
	c.abandonHandback()
	c.handbackPage(s, &outbox.Page{Rows: []*outbox.Row{rowOf(table, "b")}})
	if h.step != hbReading || len(published(c)) > 0 {
		t.Errorf("step %d, published %v", h.step, published(c))
	}
}

// A key that fails again leaves the hand-back, and its kept rows are left to the sweeper. The other keys go
// on. If the parks are being removed already, or the key is the last one, the hand-back is given up.
func TestAKeyLeavesTheHandBack(t *testing.T) {
	t.Parallel()
	for _, removing := range []bool{false, true} {
		c, table, a, b := handingBack(t)
		h := c.hb
		if removing {
			h.step = hbRemoving
		}
		ofA, ofB := rowOf(table, "a"), rowOf(table, "b")
		handles := c.gated(ofA, ofB)
		c.leaveHandback(a)
		if a.phase != sweeping || a.sweptOut || !a.nextSweep.Equal(c.now.Add(sweepPause)) || a.dirty() != removing || c.rows.entries[handles[0]].row != nil {
			t.Errorf("removing %v: %+v", removing, a)
		}
		if removing {
			if c.hb != nil || c.gate != nil || b.phase != sweeping || !b.dirty() || c.rows.entries[handles[1]].row != nil {
				t.Errorf("parks may be gone: %+v", b)
			}
			continue
		}
		if c.hb != h || !slices.Equal(h.parks, []*park{b}) || b.phase != keeping || !slices.Equal(c.gate.queue, handles[1:]) || c.gate.keeps(ofA) || !c.gate.keeps(ofB) {
			t.Errorf("the other key: %+v, %+v", b, c.gate)
		}
		if c.leaveHandback(b); c.hb != nil || c.gate != nil {
			t.Error("a hand-back of nothing goes on")
		}
	}
}

// The widest park is handed back first. Of two equally wide parks, the one that was parked first is handed
// back first.
func TestTheWidestParkIsHandedBackFirst(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	wide := func(s outbox.Scope) *park {
		p := c.park(s, outbox.CauseTopic, "", time.Time{})
		p.sweptOut, p.durable = true, true
		return p
	}
	x := wide(topicScope("x"))
	wide(topicScope("y"))
	if got := c.handbackCandidates(); len(got) != 1 || got[0] != x {
		t.Errorf("%v is first", got[0].Scope)
	}
	p := wide(outbox.TableScope(table))
	wide(topicScope("z"))
	if got := c.handbackCandidates(); len(got) != 1 || got[0] != p {
		t.Errorf("%v is first", got[0].Scope)
	}
}
