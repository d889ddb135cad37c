package checkpoint

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// looking returns a Core with one table, whose rows are looked at before they are published.
func looking(t *testing.T, m outbox.Mapping) (*Core, *outbox.Table, *lookQueue) {
	t.Helper()
	c, table, _ := begun(t, outbox.PublishedStatus)
	table.Mapping.HeadStart, table.Mapping.Claim, table.Mapping.HeadersTable = m.HeadStart, m.Claim, m.HeadersTable
	c.looks, c.headStart, c.gate = newLooks(c.cfg.Tables), headStart{tables: c.cfg.Tables}, nil
	return c, table, c.looks.queues[0]
}

var claimed = outbox.Mapping{Claim: outbox.ClaimRowLock}

// A row may be looked at when its head start has passed since its commit, as far as that is known. If the
// sweeper has left out younger rows, it may be looked at at once.
func TestWhenARowMayBeLookedAt(t *testing.T) {
	t.Parallel()
	both := outbox.Mapping{HeadStart: time.Minute, Claim: outbox.ClaimRowLock}
	for name, x := range map[string]struct {
		mapping outbox.Mapping
		page    *pageRequest
		aged    bool
		due     time.Duration // from the last sighting, which was a second ago; -1: long ago
	}{
		"of the WAL":                  {outbox.Mapping{HeadStart: time.Minute}, nil, false, time.Minute},
		"of a page":                   {outbox.Mapping{HeadStart: time.Minute}, &pageRequest{}, false, time.Minute + time.Second},
		"of a page, and old":          {outbox.Mapping{HeadStart: time.Minute}, &pageRequest{}, true, -1},
		"claimed, of the WAL":         {both, nil, false, time.Minute},
		"claimed, of a page":          {both, &pageRequest{}, false, -1},
		"claimed, of a hand-back":     {both, &pageRequest{hb: &handback{}}, false, time.Minute + time.Second},
		"without a head start":        {claimed, nil, false, 0},
		"without one, of a page":      {claimed, &pageRequest{}, false, -1},
		"without one, of a hand-back": {claimed, &pageRequest{hb: &handback{}}, false, time.Second},
	} {
		c, table, q := looking(t, x.mapping)
		seen := c.now
		c.Inserted(11) // the row's commit is 10
		c.later(time.Second)
		r := rowOf(table, "1")
		r.Aged = x.aged
		h := c.rows.add(r, noTx)
		c.rows.entries[h].page = x.page
		c.publish(h)
		e := &c.rows.entries[h]
		if long := e.due.Before(seen); long != (x.due < 0) || !long && !e.due.Equal(seen.Add(x.due)) || e.state != queued || !slices.Equal(q.queue, []uint32{h}) {
			t.Errorf("%s: due %v after it was committed, %+v", name, e.due.Sub(seen), e)
		}
	}
}

// Rows are looked at in their order, one page at a time, each when it is due. With a head start, rows that
// trickle in are gathered for a moment.
func TestWhatIsLookedAtNext(t *testing.T) {
	t.Parallel()
	const limit = 2
	for name, x := range map[string]struct {
		rows   int
		with   func(c *Core, q *lookQueue)
		looked int
		next   bool
	}{
		"a row":                   {1, nil, 1, true},
		"as many as may be":       {2, nil, 2, true},
		"more":                    {3, nil, 2, true},
		"nothing":                 {0, nil, 0, false},
		"a trickle":               {1, func(c *Core, q *lookQueue) { q.next = c.now.Add(1) }, 0, false},
		"a moment later":          {1, func(c *Core, q *lookQueue) { q.next = c.now }, 1, true},
		"as many, in that moment": {2, func(c *Core, q *lookQueue) { q.next = c.now.Add(1) }, 2, true},
		"the second is not due":   {2, func(c *Core, q *lookQueue) { c.rows.entries[q.queue[1]].due = c.now.Add(1) }, 1, true},
		"the first is not due":    {2, func(c *Core, q *lookQueue) { c.rows.entries[q.queue[0]].due = c.now.Add(1) }, 0, false},
		"no head start":           {1, func(_ *Core, q *lookQueue) { q.table.Mapping.HeadStart = 0 }, 1, false},
		"the first one's key waits": {2, func(c *Core, q *lookQueue) {
			q.wait(c.flying(rowOf(q.table, "0"), queued), outbox.KeyScope(c.rows.entries[q.queue[0]].row), c.now.Add(time.Minute))
		}, 1, true},
	} {
		c, table, q := looking(t, outbox.Mapping{HeadStart: time.Second})
		for i := range x.rows {
			h := c.flying(rowOf(table, fmt.Sprint(i)), queued)
			c.rows.entries[h].due, c.rows.entries[h].look = c.now, true
			q.queue = append(q.queue, h)
		}
		if x.with != nil {
			x.with(c, q)
		}
		before := q.next
		rows := c.turn(q, limit)
		if len(rows) != x.looked || len(q.asked) != x.looked || len(q.queue)+len(q.asked)+max(0, len(q.waiting)-1) != x.rows {
			t.Errorf("%s: %v are looked at, %d are left", name, outboxIDs(rows), len(q.queue))
		}
		if x.next && !q.next.Equal(c.now.Add(lookPause)) || !x.next && !q.next.Equal(before) {
			t.Errorf("%s: the next look is in %v", name, q.next.Sub(c.now))
		}
	}
}

// While the published rows reach the bound of memory, no rows are looked at, because a look would add bytes.
func TestNoLookWhileTheMemoryIsPublished(t *testing.T) {
	t.Parallel()
	for _, m := range []outbox.Mapping{{HeadersTable: outbox.HeadersTable{Name: "headers"}}, claimed} {
		for less, looked := range map[int]int{0: 0, 1: 1} {
			c, table, _ := looking(t, m)
			c.publish(c.rows.add(rowOf(table, "1"), noTx))
			c.rows.published = c.cfg.MaxBytes - less
			if w := c.Take(); len(w.Check)+len(w.Claim) != looked {
				t.Errorf("%d bytes under the bound: %d rows are looked at", less, len(w.Check)+len(w.Claim))
			}
		}
	}
}

// A claim does not lock more rows than can be marked soon, nor more than a page may have.
func TestHowManyRowsAClaimLocks(t *testing.T) {
	t.Parallel()
	for page, want := range map[int]int{3: 3, claimRows: claimRows, claimRows + 1: claimRows} {
		c, table, _ := looking(t, claimed)
		c.cfg.PageRows = page
		for i := range claimRows + 1 {
			c.publish(c.rows.add(rowOf(table, fmt.Sprint(i)), noTx))
		}
		if w := c.Take(); len(w.Claim) != want {
			t.Errorf("with pages of %d rows, %d are locked", page, len(w.Claim))
		}
	}
}

// The bytes that a look adds to a row count as published only after the row is published.
func TestARowGrowsBeforeItIsPublished(t *testing.T) {
	t.Parallel()
	c, table, _ := looking(t, outbox.Mapping{HeadersTable: outbox.HeadersTable{Name: "headers"}})
	r := rowOf(table, "1")
	c.publish(c.rows.add(r, noTx))
	c.Take()
	now := *r
	now.Value = make([]byte, 1000)
	c.renew(r.Handle, &outbox.Checked{Row: r, Now: &now})
	for _, published := range []bool{false, true} {
		if err := c.inconsistency(); err != nil || c.rows.grown != 0 || (c.rows.published > 1000) != published {
			t.Errorf("published %v: %d bytes are, %d have been added to them: %v", published, c.rows.published, c.rows.grown, err)
		}
		c.Checked([]outbox.Checked{{Row: &now, State: outbox.CheckPending}})
	}
}

// A row that was dropped during its claim is unlocked. A row that the claim has locked goes to the sink, or is
// unlocked if it has to wait.
func TestWhatAClaimBrings(t *testing.T) {
	t.Parallel()
	c, table, q := looking(t, claimed)
	rows := []*outbox.Row{rowOf(table, "ours"), rowOf(table, "dropped"), rowOf(table, "dropped, not locked"), rowOf(table, "behind"), rowOf(table, "taken")}
	c.cfg.PageRows = 10
	for _, r := range rows {
		c.publish(c.rows.add(r, noTx))
	}
	if got := c.Take().Claim; !slices.Equal(got, rows) || c.looks.claims.asking != q {
		t.Fatalf("%v are claimed", outboxIDs(got))
	}
	rows[3].Key = []byte("taken")
	for _, r := range rows[1:3] {
		q.asked = slices.DeleteFunc(q.asked, func(h uint32) bool { return h == r.Handle })
		c.drop(r.Handle)
	}
	c.Claimed([]outbox.Checked{
		{Row: rows[0], State: outbox.CheckPending},
		{Row: rows[1], State: outbox.CheckPending},
		{Row: rows[2], State: outbox.CheckSettled},
		{Row: rows[4], State: outbox.CheckTaken},
		{Row: rows[3], State: outbox.CheckPending},
	})
	if got := outboxIDs(c.ready.Unclaim); !slices.Equal(got, []string{"dropped", "behind"}) {
		t.Errorf("%v are given up", got)
	}
	if got := published(c); !slices.Equal(got, []string{"ours"}) || c.rows.entries[rows[0].Handle].claim == nil || c.looks.claims.open != 1 || q.claims != 1 {
		t.Errorf("%v are published, %d claims are open", got, c.looks.claims.open)
	}
	if c.looks.claims.asking != nil || q.asked != nil || len(q.waiting) != 2 {
		t.Errorf("%+v", q)
	}
	c.Outcome(outbox.Outcome{Rows: rows[:1], Class: outbox.Delivered})
	c.ready.Unclaim = nil
	c.Marked([]outbox.Marked{{Row: rows[0], Kind: outbox.MarkSent, State: outbox.MarkedSent}})
	if len(c.ready.Unclaim) != 0 || c.looks.claims.open != 0 || q.claims != 0 {
		t.Errorf("a row that is marked is given up as well: %v", outboxIDs(c.ready.Unclaim))
	}
}

// An answer that comes late, or to another Core, ends no claim of this one.
func TestAnAnswerToNoClaim(t *testing.T) {
	t.Parallel()
	c, table, q := looking(t, claimed)
	late, other := rowOf(table, "late"), rowOf(table, "other")
	other.Handle = 99
	answers := []outbox.Checked{{Row: late, State: outbox.CheckPending}, {Row: other, State: outbox.CheckPending}}
	c.Claimed(answers)
	if got := outboxIDs(c.ready.Unclaim); !slices.Equal(got, []string{"late", "other"}) {
		t.Errorf("%v are given up", got)
	}
	r := rowOf(table, "1")
	c.publish(c.rows.add(r, noTx))
	if got := c.Take().Claim; len(got) != 1 {
		t.Fatalf("%d are claimed", len(got))
	}
	if c.Claimed(answers); c.looks.claims.asking != q || len(q.asked) != 1 {
		t.Error("the claim has ended")
	}
	if got := outboxIDs(c.ready.Unclaim); !slices.Equal(got, []string{"late", "other"}) {
		t.Errorf("%v are given up", got)
	}
}

// A claim that the database refuses parks its table, and its rows wait at the front again. Without one
// (a clean stop has dropped it) the table is parked as well.
func TestARefusedClaim(t *testing.T) {
	t.Parallel()
	c, table, q := looking(t, claimed)
	first, second := c.flying(rowOf(table, "1"), queued), c.flying(rowOf(table, "2"), queued)
	q.asked, q.queue, c.looks.claims.asking, c.looks.claims.first = []uint32{first}, []uint32{second}, q, c.rows.entries[first].row
	for range 2 {
		c.ClaimRefused(table, errOurs)
		p := c.parks.of(outbox.TableScope(table))
		if p == nil || p.Cause != outbox.CauseWriteBack || c.looks.claims.asking != nil || c.looks.claims.first != nil || q.asked != nil || !slices.Equal(q.queue, []uint32{first, second}) {
			t.Errorf("%+v, %+v", p, q)
		}
		c.unpark(p)
	}
}

// A queued row that the sweeper read is left under the widest park that has failed since or must wait. A
// queued row of the WAL is left under the park that discards it.
func TestUnderWhatAQueuedRowIsLeft(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		with func(c *Core, key, table *park, e *entry)
		want string
	}{
		"nothing failed":        {func(*Core, *park, *park, *entry) {}, ""},
		"the key failed":        {func(_ *Core, key, _ *park, e *entry) { key.failedAt = e.page.askedAt + 1 }, "key"},
		"the key failed before": {func(_ *Core, key, _ *park, e *entry) { key.failedAt = e.page.askedAt }, ""},
		"both failed": {func(_ *Core, key, table *park, e *entry) {
			key.failedAt, table.failedAt = e.page.askedAt+1, e.page.askedAt+1
		}, "table"},
		"the key waits":            {func(c *Core, key, _ *park, _ *entry) { key.Next = c.now.Add(1) }, "key"},
		"the key is being removed": {func(_ *Core, key, _ *park, e *entry) { key.phase, key.failedAt = absorbed, e.page.askedAt+1 }, ""},
		"the key is handed back": {func(c *Core, key, _ *park, e *entry) {
			key.phase, c.hb = keeping, &handback{}
			e.hb = c.hb
		}, ""},
		"another's hand-back": {func(c *Core, key, _ *park, e *entry) {
			key.phase, c.hb = keeping, &handback{}
			e.hb = &handback{}
		}, "key"},
		"a sweep's row, the key is handed back": {func(_ *Core, key, _ *park, _ *entry) { key.phase = keeping }, "key"},
		"its hand-back, the table waits": {func(c *Core, key, table *park, e *entry) {
			key.phase, c.hb, table.Next = keeping, &handback{}, c.now.Add(1)
			e.hb = c.hb
		}, "table"},
		"of the WAL": {func(_ *Core, _, _ *park, e *entry) { e.page = nil }, "table"},
		"of the WAL, handed back": {func(_ *Core, key, table *park, e *entry) {
			e.page, key.phase, table.phase = nil, keeping, keeping
		}, ""},
	} {
		c, table, _ := looking(t, outbox.Mapping{HeadStart: time.Second})
		r := rowOf(table, "1")
		key, wide := c.keyed(r), c.parkedTable(table, outbox.CauseKeys)
		h := c.flying(r, queued)
		e := &c.rows.entries[h]
		e.page = &pageRequest{askedAt: c.generation + 1}
		x.with(c, key, wide, e)
		if got := c.leftUnder(e); got != map[string]*park{"": nil, "key": key, "table": wide}[x.want] {
			t.Errorf("%s: left under %+v, not under %q", name, got, x.want)
		}
	}
}

// When a page's row is left, the other rows of its park that are queued or requested are left with it. A row of
// the WAL takes no other rows along.
func TestARowThatIsLeft(t *testing.T) {
	t.Parallel()
	for _, ofPage := range []bool{true, false} {
		c, table, q := looking(t, outbox.Mapping{HeadStart: time.Second})
		r := rowOf(table, "1")
		p := c.keyed(r)
		p.sweptOut, c.looks.overtaken = true, false
		c.ask([]*park{p}, nil)
		add := func() uint32 {
			behind := rowOf(table, "2")
			behind.Key = r.Key
			h := c.flying(behind, queued)
			c.rows.entries[h].page = c.sweeps.page
			return h
		}
		h := c.flying(r, queued)
		if ofPage {
			c.rows.entries[h].page = c.sweeps.page
		}
		q.queue, q.waiting, q.asked = []uint32{add()}, []uint32{add()}, []uint32{add()}
		c.leaveRead(h, p)
		c.leaveParked()
		left := len(q.queue) + len(q.waiting) + len(q.asked)
		if voids := p.failedAt > c.sweeps.page.askedAt; c.rows.entries[h].row != nil || voids != ofPage || p.sweptOut == ofPage || (left == 0) != ofPage || c.looks.overtaken {
			t.Errorf("of a page %v: %d are still queued, the page is void %v", ofPage, left, voids)
		}
	}
}

// What an earlier connection has shown is forgotten, because after a failover positions and ids are used again.
func TestAConnectionKnowsNoHeadStarts(t *testing.T) {
	t.Parallel()
	c, _, _ := looking(t, outbox.Mapping{HeadStart: time.Minute})
	c.Inserted(1000)
	c.headStart.sight(&outbox.Snapshot{Xmin: 1000}, c.now)
	c.Disconnect()
	c.Connect(Connected{Streaming: true, Insert: 10, Snapshot: outbox.Snapshot{Xmin: 20, Xmax: 20}})
	if s := c.headStart; len(s.seen) != 1 || s.seen[0].insert != 10 || len(s.horizons) != 1 || s.horizons[0].xmin != 20 {
		t.Errorf("%+v", s)
	}
}

// The snapshots of pages tell from when head starts are measured.
func TestPagesAreSighted(t *testing.T) {
	t.Parallel()
	c, table, _ := looking(t, outbox.Mapping{HeadStart: time.Minute})
	p := c.parkedTable(table, outbox.CauseKeys)
	c.ask([]*park{p}, nil)
	c.Swept(outbox.Page{Insert: 10, Snapshot: outbox.Snapshot{Xmin: 20, Xmax: 20}})
	if s := c.headStart; len(s.seen) != 1 || s.seen[0].insert != 10 || len(s.horizons) != 1 || s.horizons[0].xmin != 20 {
		t.Errorf("%+v", s)
	}
	c.watch.step = watchReading
	c.later(time.Second)
	if c.Watched(outbox.Candidates{Insert: 30}); len(c.headStart.seen) != 2 {
		t.Errorf("%+v", c.headStart.seen)
	}
	every := time.Minute / maxSightings
	s := headStart{tables: c.cfg.Tables}
	for i, x := range []struct {
		after time.Duration
		want  int
	}{{0, 1}, {every - 1, 1}, {every, 2}, {2*every - 1, 2}, {2 * every, 3}} {
		if s.sight(&outbox.Snapshot{Xmin: uint64(i)}, c.now.Add(x.after)); len(s.horizons) != x.want {
			t.Errorf("%d are remembered after %v", len(s.horizons), x.after)
		}
	}
}
