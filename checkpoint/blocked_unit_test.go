package checkpoint

import (
	"fmt"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// blockedKey parks the row's key for the operator, and returns the park.
func (c *Core) blockedKey(r *outbox.Row) *park {
	c.block(r)
	p := c.parks.ofKey(r)
	p.durable, p.written, p.asked = true, p.version, true
	return p
}

// A blocked key is not parked again for another FAILED row, unless the row that it remembers is no longer
// FAILED.
func TestAKeyIsBlockedOnce(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	first, second := rowOf(table, "1"), rowOf(table, "2")
	second.Key = first.Key
	p := c.blockedKey(first)
	if c.block(second); p.dirty() || p.RowID != "1" {
		t.Errorf("%+v", p)
	}
	for _, b := range []blocker{gone, sought} {
		p.blocker = b
		if c.block(second); p.RowID != "2" || p.blocker != stillFailed {
			t.Errorf("its own is FAILED no more (%d): %+v", b, p)
		}
	}
	q := c.keyed(rowOf(table, "3"))
	if c.block(rowOf(table, "3")); q.Cause != outbox.CauseBlocked || q.RowID != "3" || !q.dirty() {
		t.Errorf("parked for something else: %+v", q)
	}
}

// FAILED rows are looked at when they are due, one page at a time, and not again before they are due again.
func TestFailedRowsAreLookedAt(t *testing.T) {
	t.Parallel()
	c, table, now := begun(t, outbox.PublishedStatus)
	c.cfg.MaxKeys = 100
	c.gate = nil
	keyless := rowOf(table, "0")
	keyless.Key, keyless.CreatedAt = nil, 77
	c.blockedKey(keyless).Next = now
	later := c.blockedKey(rowOf(table, "later"))
	later.Next = now.Add(time.Minute)
	c.keyed(rowOf(table, "due")) // this key does not wait for the operator
	sought := c.blockedKey(rowOf(table, "sought"))
	sought.blocker, sought.Next = gone, now.Add(time.Minute)
	for i := range c.cfg.PageRows {
		c.blockedKey(rowOf(table, fmt.Sprint("k", i))).Next = now
	}
	c.checkBlocked()
	if len(c.ready.Check) != c.cfg.PageRows {
		t.Fatalf("%v are looked at", outboxIDs(c.ready.Check))
	}
	r := c.ready.Check[0]
	if r.ID != "0" || r.Key != nil || r.CreatedAt != 77 || r.Table != table {
		t.Errorf("%+v", r)
	}
	if k := c.ready.Check[1]; k.ID != "k0" || string(k.Key) != "k0" {
		t.Errorf("%+v", k)
	}
	c.ready.Check = nil
	if c.checkBlocked(); len(c.ready.Check) != 1 || c.ready.Check[0].ID != "k1" {
		t.Errorf("%v are looked at then", outboxIDs(c.ready.Check))
	}
	c.ready.Check = nil
	if c.checkBlocked(); len(c.ready.Check) != 0 {
		t.Errorf("%v are looked at again", outboxIDs(c.ready.Check))
	}
	if c.Checked([]outbox.Checked{{Row: r, State: outbox.CheckFailed}}); c.parks.ofKey(keyless).Cause != outbox.CauseBlocked {
		t.Error("free, though FAILED")
	}
	if c.Checked([]outbox.Checked{{Row: r, State: outbox.CheckSettled}}); c.parks.ofKey(keyless).Cause != outbox.CauseRowError {
		t.Error("a row without a key is free when it is FAILED no more")
	}
}

// The result of a look at the FAILED row of a key decides what happens to the key.
func TestWhatALookAtAFailedRowSays(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		with    func(c *Core, p *park)
		state   outbox.CheckState
		blocker blocker
		soon    bool
	}{
		"FAILED":         {nil, outbox.CheckFailed, stillFailed, false},
		"requeued":       {nil, outbox.CheckPending, gone, true},
		"gone":           {nil, outbox.CheckSettled, gone, true},
		"another's":      {func(_ *Core, p *park) { p.RowID = "9" }, outbox.CheckSettled, stillFailed, false},
		"free meanwhile": {func(c *Core, p *park) { c.parks.setCause(p, outbox.CauseRowError) }, outbox.CheckSettled, stillFailed, false},
		"handed back":    {func(c *Core, p *park) { c.unpark(p) }, outbox.CheckSettled, stillFailed, false},
	} {
		c, table, now := begun(t, outbox.PublishedStatus)
		r := rowOf(table, "1")
		p := c.blockedKey(r)
		p.Next = now.Add(time.Minute)
		if x.with != nil {
			x.with(c, p)
		}
		c.checkedBlocked(outbox.Checked{Row: r, State: x.state})
		if p.blocker != x.blocker || p.Next.IsZero() != x.soon {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// The table is asked for FAILED rows of the keys whose remembered row is gone. Only one such query is
// outstanding.
func TestFailedRowsAreSought(t *testing.T) {
	t.Parallel()
	c, table, now := begun(t, outbox.PublishedStatus)
	still, waits, seeks := c.blockedKey(rowOf(table, "1")), c.blockedKey(rowOf(table, "2")), c.blockedKey(rowOf(table, "3"))
	waits.blocker, waits.Next = gone, now.Add(time.Second)
	if c.seekFailed(); c.ready.Failed || c.seeking {
		t.Error("asked for nothing")
	}
	seeks.blocker = gone
	c.seekFailed()
	if !c.ready.Failed || still.blocker != stillFailed || waits.blocker != gone || seeks.blocker != sought {
		t.Errorf("asked %v", c.ready.Failed)
	}
	c.ready.Failed, waits.Next = false, now
	if c.seekFailed(); c.ready.Failed || waits.blocker != gone {
		t.Error("asked twice at once")
	}
}

// Of the keys that the query was about, those without a FAILED row are free. Other keys do not change.
func TestWhatFailedRowsSay(t *testing.T) {
	t.Parallel()
	c, table, now := begun(t, outbox.PublishedStatus)
	parked := func(id string) *park {
		p := c.blockedKey(rowOf(table, id))
		p.Next = now.Add(time.Minute)
		return p
	}
	still, free, kept, failed := parked("still"), parked("free"), parked("kept"), parked("failed")
	refused := c.keyed(rowOf(table, "refused"))
	refused.Next = now.Add(time.Minute)
	for _, p := range []*park{free, kept, failed} {
		p.blocker = sought
	}
	c.park(failed.Scope, outbox.CauseRowError, "refused again", now.Add(time.Minute))
	c.seeking = true
	found := rowOf(table, "another of kept")
	found.Key, found.CreatedAt = []byte("kept"), 77
	ofStill := rowOf(table, "another of still")
	ofStill.Key = []byte("still")
	c.FailedRows([]*outbox.Row{found, ofStill, rowOf(table, "refused"), rowOf(table, "unknown")})
	if c.seeking || kept.Cause != outbox.CauseBlocked || kept.RowID != "another of kept" || kept.created != 77 || kept.blocker != stillFailed || !kept.Next.Equal(now.Add(c.cfg.WatchEvery)) || !kept.dirty() {
		t.Errorf("one is FAILED: %+v", kept)
	}
	if free.Cause != outbox.CauseRowError || free.RowID != "" || !free.Next.IsZero() || !free.dirty() {
		t.Errorf("none is FAILED: %+v", free)
	}
	if still.Cause != outbox.CauseBlocked || still.RowID != "still" || still.dirty() {
		t.Errorf("not asked about: %+v", still)
	}
	for _, p := range []*park{refused, failed} {
		if p.Cause != outbox.CauseRowError || !p.Next.Equal(now.Add(time.Minute)) {
			t.Errorf("waits for a retry: %+v", p)
		}
	}
	if c.parks.ofKey(rowOf(table, "unknown")) != nil {
		t.Error("a key that was not asked about is parked")
	}
}

// If the query gets no answer, its keys stay blocked, and the query is repeated later. Other keys do not
// change.
func TestFailedRowsAreNotTold(t *testing.T) {
	t.Parallel()
	c, table, now := begun(t, outbox.PublishedStatus)
	p, other := c.blockedKey(rowOf(table, "1")), c.blockedKey(rowOf(table, "2"))
	p.blocker, other.Next, c.seeking = sought, now.Add(time.Second), true
	c.FailedRefused(table, errOurs)
	if p.blocker != gone || !p.Next.Equal(now.Add(c.cfg.WatchEvery)) || c.seeking {
		t.Errorf("%+v", p)
	}
	if other.blocker != stillFailed || !other.Next.Equal(now.Add(time.Second)) {
		t.Errorf("%+v", other)
	}
	if refused := c.parks.of(outbox.TableScope(table)); refused == nil || refused.Cause != outbox.CauseWriteBack || refused.Reason != errOurs.Error() {
		t.Errorf("%+v", refused)
	}
}
