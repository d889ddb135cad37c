package checkpoint

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// When a scope is parked again, its wait begins again, its scan and its removal end, and queued rows may be
// under the park. A note tells about a new cause or reason.
func TestAScopeIsParkedOnceMore(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	p := c.park(topicScope("x"), outbox.CauseTopic, "why", c.now.Add(1))
	park := func(cause outbox.Cause, reason string) (notes int) {
		p.sweptOut, p.listed, p.scan, p.phase, p.nextSweep = true, true, scanAny, absorbed, c.now.Add(time.Hour)
		c.ready.Notes, c.looks.overtaken = nil, false
		version, failed := p.version, p.failedAt
		if q := c.park(p.Scope, cause, reason, c.now.Add(time.Minute)); q != p || p.sweptOut || p.listed || p.scan != scanNone || p.phase != sweeping || !p.nextSweep.IsZero() ||
			!p.Next.Equal(c.now.Add(time.Minute)) || p.version != version+1 || p.failedAt <= failed || p.Cause != cause || p.Reason != reason || !c.looks.overtaken {
			t.Errorf("%+v", p)
		}
		return len(c.ready.Notes)
	}
	if n := park(outbox.CauseTopic, "why"); n != 0 {
		t.Error("told twice")
	}
	if n := park(outbox.CauseTopic, "another reason"); n != 1 {
		t.Errorf("%d notes of another reason", n)
	}
	if n := park(outbox.CauseKeys, "another reason"); n != 1 {
		t.Errorf("%d notes of another cause", n)
	}
	c.looks.overtaken = false
	if c.park(outbox.RowScope(rowOf(table, "1")), outbox.CauseWriteBack, "", time.Time{}); c.looks.overtaken {
		t.Error("a published row waits for no look")
	}
	c.looks.overtaken = true
	if c.park(outbox.RowScope(rowOf(table, "1")), outbox.CauseWriteBack, "", time.Time{}); !c.looks.overtaken {
		t.Error("an earlier park's rows are forgotten")
	}
}

// A table is parked when one key too many is parked. The next key does not park it again.
func TestATableOfManyKeysIsParked(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	c.cfg.MaxKeys = 2
	for i, want := range []int{0, 0, 1, 1, 1} {
		c.keyed(rowOf(table, fmt.Sprint(i)))
		c.keyed(rowOf(table, fmt.Sprint(i)))
		p := c.parks.of(outbox.TableScope(table))
		if got := c.parks.ofKind[outbox.ScopeTable]; got != want || p != nil && p.version != 1 {
			t.Fatalf("with %d keys %d tables are parked: %+v", i+1, got, p)
		}
	}
}

// A park awaits the rows of its scope that the sink has, except those that another park awaits. The park of
// unknown topics gives up its rows to any other park.
func TestWhichRowsAParkAwaits(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		by     func(c *Core, table *outbox.Table) *park // that awaits it already
		state  state
		awaits bool
	}{
		"nobody":                {func(*Core, *outbox.Table) *park { return nil }, inSink, true},
		"it is not in the sink": {func(*Core, *outbox.Table) *park { return nil }, acked, false},
		"its table's":           {func(c *Core, table *outbox.Table) *park { return c.parkedTable(table, outbox.CauseKeys) }, inSink, false},
		"unknown topics'":       {func(c *Core, table *outbox.Table) *park { return c.parkTopics(table, "") }, inSink, true},
	} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		h := c.flying(rowOf(table, "1"), x.state)
		other := c.flying(onTopic(table, "2", "other"), inSink)
		e := &c.rows.entries[h]
		by := x.by(c, table)
		if by != nil {
			c.awaitAnswers(by)
		}
		p := c.park(topicScope("t"), outbox.CauseTopic, "", time.Time{})
		c.awaitAnswers(p)
		if awaits := e.awaits == p; awaits != x.awaits || (p.awaiting == 1) != x.awaits || by != nil && x.awaits == (by.awaiting == 2) || c.rows.entries[other].awaits == p {
			t.Errorf("%s: awaited %v, %d rows", name, awaits, p.awaiting)
		}
		unknown := c.parkTopics(table, "")
		if c.awaitAnswers(unknown); e.awaits == unknown {
			t.Errorf("%s: unknown topics await it", name)
		}
	}
}

// The answer to a change of parks decides what happens to the parks.
func TestWhatWrittenParksAre(t *testing.T) {
	t.Parallel()
	for _, result := range []outbox.ParkResult{outbox.ParksCommitted, outbox.ParksUnknown} {
		for _, given := range []bool{false, true} {
			c, table, _ := begun(t, outbox.PublishedStatus)
			c.gate = nil
			c.Take()
			key, gone, fresh := c.keyed(rowOf(table, "1")), c.keyed(rowOf(table, "2")), c.park(topicScope("x"), outbox.CauseTopic, "", time.Time{})
			key.sweptOut = true
			c.startHandback()
			c.hb.step = hbRemoving
			gone.phase = absorbed
			c.ready = Ready{}
			c.writeParks()
			if change := c.ready.Parks; len(change.Put) != 1 || len(change.Delete) != 2 || key.durable || gone.durable {
				t.Fatalf("%+v", change)
			}
			if given {
				c.leaveHandback(key)
			}
			c.ParksWritten(result)
			committed := result == outbox.ParksCommitted
			if fresh.durable != committed || fresh.dirty() == committed {
				t.Errorf("the new one: %+v", fresh)
			}
			if is := c.parks.of(gone.Scope) != nil; is == committed || is && (gone.phase != absorbed || gone.durable) {
				t.Errorf("the one that is removed: %+v", gone)
			}
			if is := c.parks.of(key.Scope) != nil; is == (committed && !given) || given && !key.dirty() || is && key.durable || (c.hb == nil) != (committed || given) {
				t.Errorf("given up %v, the one that is handed back: %+v", given, key)
			}
			if c.writing != nil {
				t.Error("the change is outstanding still")
			}
		}
	}
}

// An answer that nobody waits for changes nothing.
func TestParksWrittenForNobody(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	p := c.park(outbox.TableScope(table), outbox.CauseKeys, "", time.Time{})
	if c.ParksWritten(outbox.ParksCommitted); p.durable || !p.dirty() {
		t.Errorf("%+v", p)
	}
}

// A park that was handed back is shown as gone, and no hold waits for it. A park that becomes durable settles
// the holds that waited for it.
func TestHoldsOfAPark(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	c.Begin(outbox.Transaction{XID: 7, Commit: 10})
	p := c.park(outbox.TableScope(table), outbox.CauseKeys, "", time.Time{})
	for range 2 {
		c.settleUnder(c.ledger.hold(), p)
	}
	c.settleUnder(noTx, p)
	c.Commit(20)
	c.Begin(outbox.Transaction{XID: 8, Commit: 30})
	c.settleUnder(c.ledger.hold(), p)
	c.Commit(40)
	if len(p.waiting) != 2 || p.waiting[0].n != 2 || p.waiting[1].n != 1 || c.parks.holds != 3 || c.Confirm() != 0 {
		t.Fatalf("%+v", p.waiting)
	}
	if c.nowDurable(p); c.Confirm() != 40 || c.parks.holds != 0 || len(p.waiting) != 0 {
		t.Errorf("%v is confirmed, %d wait", c.Confirm(), c.parks.holds)
	}
	p.durable = false
	c.Begin(outbox.Transaction{XID: 9, Commit: 50})
	c.settleUnder(c.ledger.hold(), p)
	if c.unpark(p); c.parks.holds != 0 {
		t.Errorf("%d wait for a park that is gone", c.parks.holds)
	}
}

// A row of the WAL is discarded under a park in phase sweeping, and if possible under a durable one.
func TestUnderWhatARowIsDiscarded(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		key, table, stream string // "durable", "swept", "kept", or none
		want               string
	}{
		"none":                       {"", "", "", ""},
		"the key's":                  {"durable", "", "", "key"},
		"not durable yet":            {"swept", "", "", "key"},
		"a durable one of two":       {"durable", "swept", "", "key"},
		"the wider of two":           {"durable", "durable", "", "table"},
		"the wider of two, not yet":  {"swept", "swept", "", "table"},
		"one is handed back":         {"swept", "kept", "", "key"},
		"a durable one of three":     {"swept", "durable", "swept", "table"},
		"the widest durable of them": {"durable", "durable", "swept", "table"},
		"all are handed back":        {"kept", "kept", "kept", ""},
	} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		r := rowOf(table, "1")
		parks := map[string]*park{"": nil}
		for of, how := range map[string]string{"key": x.key, "table": x.table, "stream": x.stream} {
			scope := map[string]outbox.Scope{"key": outbox.KeyScope(r), "table": outbox.TableScope(table), "stream": outbox.StreamScope()}[of]
			if how == "" {
				continue
			}
			p := c.parks.add(scope, c.now)
			if p.durable = how != "swept"; how == "kept" {
				p.phase = keeping
			}
			parks[of] = p
		}
		if got := c.parks.discarding(r); got != parks[x.want] {
			t.Errorf("%s: under %+v", name, got)
		}
	}
}

// containing yields each park of a row once, widest first, until yield returns false.
func TestWhichParksContainARow(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	r := rowOf(table, "1")
	r.Key = nil
	row, cluster, stream := c.keyed(r), c.park(outbox.ClusterScope("main"), outbox.CauseCluster, "", time.Time{}), c.park(outbox.StreamScope(), outbox.CauseSlot, "", time.Time{})
	c.keyed(rowOf(table, "2"))
	for most, want := range [][]*park{nil, {stream}, {stream, cluster}, {stream, cluster, row}, {stream, cluster, row}} {
		var got []*park
		if most > 0 {
			c.parks.containing(r, func(p *park) bool { got = append(got, p); return len(got) < most })
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d of %d are told", len(got), len(want))
		}
	}
}

// A topic with a park of its own is not one of a table's unknown topics, whichever is parked first.
func TestKnownTopicsOfAPark(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	c.park(topicScope("before"), outbox.CauseTopic, "", time.Time{})
	c.keyed(rowOf(table, "1"))
	p := c.parkTopics(table, "")
	c.park(topicScope("after"), outbox.CauseTopic, "", time.Time{})
	c.keyed(rowOf(table, "2"))
	if len(p.knownTopics) != 2 || !p.knownTopics[topicScope("before")] || !p.knownTopics[topicScope("after")] {
		t.Errorf("%v", p.knownTopics)
	}
	if p.takes(onTopic(table, "3", "before")) || !p.takes(onTopic(table, "3", "x")) || p.takes(onTopic(&outbox.Table{Schema: "public", Name: "other"}, "3", "x")) {
		t.Error("its rows are those of its table that name another topic")
	}
	if !c.withholds(p) || c.withholds(c.keyed(rowOf(table, "4"))) {
		t.Error("rows of unknown topics are never another sweep's")
	}
}

// A page of a table can show that the table's keys are in order. A page of the table's unknown topics, or of
// another table, cannot.
func TestWhichKeysAPageFindsInOrder(t *testing.T) {
	t.Parallel()
	other := &outbox.Table{Schema: "public", Name: "other"}
	for name, x := range map[string]struct {
		page func(*outbox.Table) outbox.Scope
		goes bool
	}{
		"the stream's":    {func(*outbox.Table) outbox.Scope { return outbox.StreamScope() }, true},
		"the table's":     {outbox.TableScope, true},
		"of its topics":   {outbox.TopicsScope, false},
		"another table's": {func(*outbox.Table) outbox.Scope { return outbox.TableScope(other) }, false},
	} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		p := c.keyed(rowOf(table, "1"))
		c.parkedTable(table, outbox.CauseKeys)
		of := &park{}
		of.Scope = x.page(table)
		if c.absorbSwept(&pageRequest{parks: []*park{of}, askedAt: c.generation}); (p.phase == absorbed) != x.goes {
			t.Errorf("%s: phase %d", name, p.phase)
		}
	}
}

// A key's park that was removed while its page was under way stays away.
func TestAPageOfAParkThatIsGone(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	p := c.keyed(rowOf(table, "1"))
	c.parkedTable(table, outbox.CauseKeys)
	c.unpark(p)
	if c.absorbSwept(&pageRequest{parks: []*park{p}, askedAt: c.generation}); p.phase == absorbed || slices.Contains(c.parks.awake, p) {
		t.Errorf("it is back: %+v", p)
	}
}

// Only a key's new park may be written later, while it awaits an answer and nothing waits for it.
func TestWhichParksArePostponed(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		with func(c *Core, p *park)
		is   bool
	}{
		"a new one":          {func(*Core, *park) {}, true},
		"asked for before":   {func(_ *Core, p *park) { p.asked = true }, false},
		"it awaits nothing":  {func(_ *Core, p *park) { p.awaiting = 0 }, false},
		"a hold waits":       {func(c *Core, p *park) { c.parks.wait(p, 1) }, false},
		"it is not of a key": {func(_ *Core, p *park) { p.Scope.Kind = outbox.ScopeTable }, false},
	} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		p := c.park(outbox.KeyScope(rowOf(table, "1")), outbox.CauseRowError, "", c.now)
		p.awaiting = 1
		if x.with(c, p); p.postponed() != x.is {
			t.Errorf("%s: postponed %v", name, !x.is)
		}
	}
}

// A small page of the table or of the stream ends a table's spending, once the table no longer hurries.
func TestWhatEndsSpending(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		hurried bool
		page    func(c *Core, p *park) *park
		ends    bool
	}{
		"the table's":   {false, func(_ *Core, p *park) *park { return p }, true},
		"the stream's":  {false, func(c *Core, _ *park) *park { return c.park(outbox.StreamScope(), outbox.CauseSlot, "", c.now) }, true},
		"another":       {false, func(c *Core, _ *park) *park { return c.park(topicScope("x"), outbox.CauseTopic, "", c.now) }, false},
		"in the middle": {true, func(_ *Core, p *park) *park { return p }, false},
	} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		p := c.parkedTable(table, outbox.CauseKeys)
		p.spending, p.hurried = true, x.hurried
		if c.calm(&pageRequest{parks: []*park{x.page(c, p)}}); p.spending == x.ends {
			t.Errorf("%s: spending %v", name, p.spending)
		}
	}
}

// When a table hurries, the backoff of its failed keys ends. Keys of other tables keep theirs.
func TestWhichKeysHurry(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	other := &outbox.Table{Schema: "public", Name: "other", Mapping: outbox.Mapping{Published: outbox.PublishedStatus}}
	c.tables.byName[other.String()] = other
	table.Mapping.Status.MaxAttempts, c.cfg.MaxRetryingKeys = 3, 1
	key := func(t *outbox.Table, id string, cause outbox.Cause) *park {
		return c.park(outbox.KeyScope(rowOf(t, id)), cause, "", c.now.Add(time.Minute))
	}
	failed, missed, others := key(table, "1", outbox.CauseRowError), key(table, "2", outbox.CauseMissed), key(other, "1", outbox.CauseRowError)
	wide := c.parkedTable(table, outbox.CauseKeys)
	if c.hurry(); !wide.hurried || !wide.spending || failed.Next.After(c.now) {
		t.Errorf("it does not hurry: %+v", wide)
	}
	if !missed.Next.After(c.now) || !others.Next.After(c.now) {
		t.Errorf("the back-off has ended of one that was missed: %v, of another table's: %v", !missed.Next.After(c.now), !others.Next.After(c.now))
	}
	c.cfg.MaxRetryingKeys, wide.spending = 10, false
	c.parks.tryAt(failed, c.now.Add(time.Minute))
	if c.hurry(); wide.hurried || wide.spending || !failed.Next.After(c.now) {
		t.Errorf("it hurries no more: %+v, the key waits %v", wide, failed.Next.Sub(c.now))
	}
}

// A key's park is absorbed only when a wider park is certain to cover its rows, and none of its rows is under
// way.
func TestWhenAParkIsAbsorbed(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		with func(c *Core, p, wide *park)
		goes bool
	}{
		"covered":                      {func(*Core, *park, *park) {}, true},
		"by one that is not durable":   {func(_ *Core, _, wide *park) { wide.durable = false }, false},
		"by one that is handed back":   {func(_ *Core, _, wide *park) { wide.phase = keeping }, false},
		"a page from before it failed": {func(c *Core, p, _ *park) { c.sweeps.page = &pageRequest{askedAt: p.failedAt - 1} }, false},
		"a page from when it failed":   {func(c *Core, p, _ *park) { c.sweeps.page = &pageRequest{askedAt: p.failedAt} }, true},
		"the sink has rows of it":      {func(_ *Core, p, _ *park) { p.awaiting = 1 }, false},
		"it is handed back":            {func(_ *Core, p, _ *park) { p.phase = keeping }, false},
		"a hand-back":                  {func(c *Core, _, _ *park) { c.hb = &handback{} }, false},
		"rows wait for it":             {func(c *Core, p, _ *park) { c.parks.wait(p, 1) }, false},
	} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		p, wide := c.keyed(rowOf(table, "1")), c.parkedTable(table, outbox.CauseKeys)
		x.with(c, p, wide)
		if c.absorb(p); (p.phase == absorbed) != x.goes {
			t.Errorf("%s: phase %d", name, p.phase)
		}
	}
}
