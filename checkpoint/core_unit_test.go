package checkpoint

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Time does not go back.
func TestTimeDoesNotGoBack(t *testing.T) {
	t.Parallel()
	c, _, now := begun(t, outbox.PublishedStatus)
	c.Tick(now.Add(-time.Second))
	if !c.now.Equal(now) {
		t.Errorf("it is %v", c.now)
	}
}

// An unusable cluster is parked when other clusters' rows would wait for it, and its rows are withdrawn.
func TestWhenAClusterIsParked(t *testing.T) {
	t.Parallel()
	full := func(c *Core) { c.rows.count = c.cfg.MaxRows }
	for name, x := range map[string]struct {
		clusters []string
		with     func(c *Core)
		parked   bool
	}{
		"memory is full":       {[]string{"main", "other"}, full, true},
		"memory is not full":   {[]string{"main", "other"}, func(*Core) {}, false},
		"the stream is parked": {[]string{"main", "other"}, func(c *Core) { c.park(outbox.StreamScope(), outbox.CauseMissed, "", time.Time{}) }, true},
		"it is the only one":   {[]string{"main"}, full, false},
		"tables without state": {[]string{"main", "other"}, func(c *Core) { full(c); c.tables.stateless = true }, false},
		"rows are claimed": {[]string{"main"}, func(c *Core) {
			c.looks = newLooks([]*outbox.Table{{Mapping: outbox.Mapping{Claim: outbox.ClaimRowLock}}})
		}, true},
		"it can be used":       {[]string{"main", "other"}, func(c *Core) { full(c); c.Cluster(outbox.ClusterState{Cluster: "main", Usable: true}) }, false},
		"it is parked already": {[]string{"main", "other"}, func(c *Core) { full(c); c.park(outbox.ClusterScope("main"), outbox.CauseRowError, "", time.Time{}) }, false},
	} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		table.Mapping.Cluster = outbox.ClusterMapping{Column: "c", Known: x.clusters}
		c.Cluster(outbox.ClusterState{Cluster: "main", Err: errOurs})
		x.with(c)
		c.ready.Commands = nil
		c.parkClusters()
		p := c.parks.of(outbox.ClusterScope("main"))
		parked := p != nil && p.Cause == outbox.CauseCluster
		withdrawn := slices.ContainsFunc(c.ready.Commands, func(cmd outbox.Command) bool {
			return cmd.Withdraw != nil && *cmd.Withdraw == outbox.ClusterScope("main")
		})
		if parked != x.parked || withdrawn != x.parked {
			t.Errorf("%s: parked %v, withdrawn %v", name, parked, withdrawn)
		}
	}
}

// Tables whose rows do not come through the WAL are parked at the connection, with the reason, until one brings them.
func TestUncoveredTables(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	for _, x := range []struct {
		refused bool
		cause   outbox.Cause
	}{{false, outbox.CausePublication}, {true, outbox.CauseWriteBack}} {
		c.Disconnect()
		c.Connect(Connected{Streaming: true, Uncovered: []Uncovered{{Table: table, Reason: "why", Refused: x.refused}}})
		if p := c.parks.of(outbox.TableScope(table)); p == nil || p.Cause != x.cause || p.Reason != "why" || c.tables.carried(table.String()) {
			t.Errorf("%+v", p)
		}
	}
	c.tables.stateless = true
	c.Disconnect()
	if c.Connect(Connected{Streaming: true, Uncovered: []Uncovered{{Table: table}}}); !c.tables.carried(table.String()) {
		t.Error("a table without state is left to the sweeper")
	}
	c.tables.stateless, c.tables.broken[table.String()] = false, true
	c.Disconnect()
	if c.Connect(Connected{Streaming: true}); !c.tables.carried(table.String()) {
		t.Error("the next connection describes its tables again")
	}
	c.Begin(outbox.Transaction{XID: 7, Commit: 10})
	c.TableBroken(table, errOurs)
	if p := c.parks.of(outbox.TableScope(table)); p.Cause != outbox.CauseMapping || c.tables.carried(table.String()) {
		t.Errorf("%+v", p)
	}
	if c.TableMapped(table); !c.tables.carried(table.String()) {
		t.Error("it can be read again")
	}
}

// Parks that are read count as written. Those that a failover lost or changed are written
// again.
func TestParksAreReadBack(t *testing.T) {
	t.Parallel()
	c, table, now := begun(t, outbox.PublishedStatus)
	c.Disconnect()
	since := now.Add(-time.Hour)
	key, blocked, row := outbox.KeyScope(rowOf(table, "1")), outbox.KeyScope(rowOf(table, "2")), outbox.RowScope(rowOf(table, "3"))
	keyless := outbox.RowScope(rowOf(table, "4"))
	c.Connect(Connected{Streaming: true, Parks: []outbox.Park{
		{Scope: key, Cause: outbox.CauseRowError, Reason: "why", Since: since, Next: now.Add(time.Second)},
		{Scope: blocked, Cause: outbox.CauseBlocked, Since: since, RowID: "9"},
		{Scope: row, Cause: outbox.CauseWriteBack, Since: since, RowID: "77"},
		{Scope: outbox.Scope{Kind: outbox.ScopeTable, Table: "public.gone"}, Cause: outbox.CauseKeys},
		{Scope: keyless, Cause: outbox.CauseBlocked, Since: since, RowID: "4"},
	}})
	if p := c.parks.of(keyless); p.blocker != stillFailed || c.parks.of(key).blocker != stillFailed {
		t.Errorf("only other rows of a blocked key are asked for: %+v", p)
	}
	if len(c.parks.list) != 4 {
		t.Fatalf("%d parks: that of a table of an earlier configuration stays where it is", len(c.parks.list))
	}
	for _, p := range c.parks.list {
		if !p.durable || p.dirty() || !p.Since.Equal(since) {
			t.Errorf("%+v", p)
		}
	}
	if p := c.parks.of(key); p.Reason != "why" || !p.Next.Equal(now.Add(time.Second)) {
		t.Errorf("%+v", p)
	}
	if p := c.parks.of(blocked); p.blocker != gone || p.RowID != "9" {
		t.Errorf("%+v", p)
	}
	if p := c.parks.of(row); p.created != 77 || p.blocker != stillFailed {
		t.Errorf("%+v", p)
	}
	c.Disconnect()
	c.Connect(Connected{Streaming: true, Parks: []outbox.Park{{Scope: key, Cause: outbox.CauseRowError}}})
	if p := c.parks.of(key); !p.durable || p.dirty() {
		t.Errorf("%+v", p)
	}
	if p := c.parks.of(blocked); p.durable || !p.dirty() {
		t.Errorf("it is not there any more: %+v", p)
	}
	for _, read := range []outbox.Park{{Scope: key, Cause: outbox.CauseRowError, RowID: "8"}, {Scope: key, Cause: outbox.CauseMissed}} {
		p := c.parks.of(key)
		p.written = p.version
		c.Disconnect()
		if c.Connect(Connected{Streaming: true, Parks: []outbox.Park{read}}); !p.durable || !p.dirty() || p.Cause != outbox.CauseRowError {
			t.Errorf("a failover has taken it back: %+v", p)
		}
	}
}

// A clean stop awaits the removal of a hand-back's parks. What a page brings then is left.
func TestWhatAStopStillEnds(t *testing.T) {
	t.Parallel()
	c, _, a, b := handingBack(t)
	c.hb.step = hbRemoving
	c.Drain()
	if c.Take().Parks == nil {
		t.Fatal("the removal is not asked for")
	}
	if c.ParksWritten(outbox.ParksCommitted); c.parks.of(a.Scope) != nil || c.parks.of(b.Scope) != nil || c.hb != nil || c.gate != nil {
		t.Errorf("%+v, %+v", a, b)
	}
	c, table, _ := begun(t, outbox.PublishedStatus)
	c.ask([]*park{c.keyed(rowOf(table, "1"))}, nil)
	c.Drain()
	if c.Swept(outbox.Page{Rows: []*outbox.Row{rowOf(table, "1")}}); len(published(c)) != 0 || c.rows.count != 0 {
		t.Errorf("%v are published", published(c))
	}
}

// A connection brings keys that wait for the operator, and published rows that are still to be marked.
func TestWhatAConnectionBrings(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	failed, unmarked := rowOf(table, "1"), rowOf(table, "2")
	c.Disconnect()
	c.Connect(Connected{Streaming: true, Failed: []*outbox.Row{failed}, Unmarked: []*outbox.Row{unmarked}})
	if p := c.parks.ofKey(failed); p == nil || p.Cause != outbox.CauseBlocked || p.RowID != "1" {
		t.Errorf("%+v", p)
	}
	if p := c.parks.of(outbox.RowScope(unmarked)); p == nil || !p.Unmarked() {
		t.Errorf("%+v", p)
	}
	c.looks.checking = true
	if r := c.Take(); len(r.Check) != 0 {
		t.Error("a second look while one is outstanding")
	}
}

// Rows that wait for a look, at the gate or in their queues, and a claim, end with their connection.
func TestWhatWaitsEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	c, table, q := looking(t, claimed)
	c.gate = &gate{check: 20}
	c.gated(rowOf(table, "1"))
	r := rowOf(table, "2")
	c.publish(c.rows.add(r, noTx))
	if c.requestLooks(); len(c.ready.Claim) != 1 {
		t.Fatal("nothing is claimed")
	}
	if c.Disconnect(); c.rows.count != 0 || c.gate != nil || c.looks.claims != newClaims(c.cfg.Tables) || c.ready.Claim != nil || len(q.asked)+len(q.queue) != 0 {
		t.Errorf("%d rows stay, %+v", c.rows.count, q)
	}
}

// Looks can make rows larger. So while published rows fill memory nothing is looked at. Rows that wait
// for a look do not count, however large they are.
func TestNoLookBringsMoreThanMemoryHolds(t *testing.T) {
	t.Parallel()
	c, table, q := looking(t, outbox.Mapping{HeadersTable: outbox.HeadersTable{Name: "header"}})
	large, waits := rowOf(table, "1"), rowOf(table, "2")
	large.Value, waits.Value = make([]byte, c.cfg.MaxBytes), make([]byte, c.cfg.MaxBytes)
	sent := c.rows.add(large, noTx)
	c.rows.fly(sent, inSink)
	c.publish(c.rows.add(waits, noTx))
	if c.requestLooks(); len(c.ready.Check) != 0 || len(q.queue) != 1 {
		t.Error("a row is looked at while others fill memory")
	}
	if c.rows.remove(sent); c.rows.published != 0 {
		t.Errorf("%d bytes are published", c.rows.published)
	}
	if c.requestLooks(); len(c.ready.Check) != 1 {
		t.Error("a row is not looked at, though nothing is published")
	}
}

// A table's parked keys and rows are counted by weight, and so are the blocked and the
// unmarked ones.
func TestWhichKeysCount(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	p, q := c.keyed(rowOf(table, "1")), c.park(outbox.RowScope(rowOf(table, "2")), outbox.CauseWriteBack, "", time.Time{})
	c.keyed(rowOf(table, "3"))
	name := table.String()
	counts := func(when string, keys, blocked, unmarked int) {
		t.Helper()
		if s := &c.parks; s.keys[name] != keys || s.blocked[name] != blocked || s.unmarked[name] != unmarked {
			t.Errorf("%s: %d keys, %d of the operator's, %d that cannot be marked", when, s.keys[name], s.blocked[name], s.unmarked[name])
		}
	}
	counts("parked", 3, 0, 1)
	c.leaveToOperator(p, "1", 0, time.Time{})
	counts("left to the operator", 3, 1, 1)
	c.freeKey(p)
	counts("free", 3, 0, 1)
	c.unpark(q)
	counts("marked", 2, 0, 0)
	long := rowOf(table, strings.Repeat("k", 10*shortKey))
	p = c.keyed(long)
	counts("a long one", 2+11, 0, 0)
	c.leaveToOperator(p, "1", 0, time.Time{})
	counts("a long one is left to the operator", 2+11, 11, 0)
	c.unpark(p)
	counts("a long one is gone", 2, 0, 0)
}

// A row whose mark was refused counts while it is in memory.
func TestARefusedMarkCountsInMemory(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	r := rowOf(table, "1")
	h := c.flying(r, acked)
	c.Marked([]outbox.Marked{{Row: r, Kind: outbox.MarkSent, State: outbox.MarkedRefused, Err: errOurs}})
	if c.retries.refused[table.String()] != 1 {
		t.Error("it does not count")
	}
	if c.drop(h); c.retries.refused[table.String()] != 0 {
		t.Error("it counts for ever")
	}
}

// A park that is read while a change is outstanding may be gone by now.
func TestAReadParkMayBeOld(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	key := outbox.KeyScope(rowOf(table, "1"))
	read := []outbox.Park{{Scope: key, Cause: outbox.CauseRowError}}
	c.writing = &writing{}
	if c.Connect(Connected{Streaming: true, Parks: read}); c.parks.of(key).durable || !c.parks.of(key).dirty() {
		t.Errorf("%+v", c.parks.of(key))
	}
}

// Holds that wait for an unmarked row's park are released when the row is settled.
func TestTheHoldsOfAnUnmarkedRow(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	c.Begin(outbox.Transaction{XID: 7, Commit: 10})
	p := c.park(outbox.RowScope(rowOf(table, "1")), outbox.CauseWriteBack, "", time.Time{})
	c.parks.wait(p, c.ledger.hold())
	c.Commit(20)
	if c.released(p); c.Confirm() != 20 || p.phase != absorbed {
		t.Errorf("%v is confirmed: %+v", c.Confirm(), p)
	}
}

// A stream in shadow is parked for it once, whatever it was parked for.
func TestShadowIsParkedOnce(t *testing.T) {
	t.Parallel()
	c, _, _ := begun(t, outbox.PublishedStatus)
	p := c.park(outbox.StreamScope(), outbox.CauseSlot, "", time.Time{})
	c.cfg.Shadow = true
	for range 2 {
		c.Connect(Connected{Streaming: true})
		if p.Cause != outbox.CauseShadow || p.version != 2 {
			t.Errorf("%+v", p)
		}
	}
}

// A disconnected Core holds nothing of the connection, and asks nothing.
func TestDisconnect(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	p := c.keyed(rowOf(table, "1"))
	q := c.keyed(rowOf(table, "2"))
	p.sweptOut, q.phase = true, absorbed
	p.blocker, c.seeking = sought, true
	h := c.flying(rowOf(table, "3"), inSink)
	c.Begin(outbox.Transaction{XID: 7, Commit: 10})
	c.rows.entries[h].tx = c.ledger.hold()
	c.parks.wait(p, c.ledger.hold())
	c.writing, c.looks.checking, c.sweeps.page = &writing{}, true, &pageRequest{}
	c.ready = Ready{Check: make([]*outbox.Row, 1), Sweep: &outbox.SweepRequest{}, Watch: &outbox.WatchRequest{}, Rewatch: make([]*outbox.Row, 1), Failed: true, Parks: &outbox.ParkChange{}}
	c.Disconnect()
	if p.sweptOut || q.phase != sweeping || !q.dirty() || p.blocker != gone || c.seeking || c.rows.entries[h].tx != noTx || c.parks.holds != 0 {
		t.Errorf("%+v %+v", p, q)
	}
	r := c.ready
	if c.writing != nil || c.looks.checking || c.sweeps.page != nil || r.Check != nil || r.Sweep != nil || r.Watch != nil || r.Rewatch != nil || r.Failed || r.Parks != nil || c.ledger.len() != 0 {
		t.Errorf("%+v", r)
	}
	if c.parks.of(p.Scope) != p || c.Take().Parks != nil {
		t.Error("parks are written without a connection, or forgotten")
	}
}

// A clean stop is over when nothing is in flight and no write is outstanding.
func TestDrained(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		with func(c *Core)
		want bool
	}{
		"idle":                       {func(*Core) {}, true},
		"not asked for":              {func(c *Core) { c.draining = false }, false},
		"a row in flight":            {func(c *Core) { c.rows.inFlight = 1 }, false},
		"a change of parks":          {func(c *Core) { c.writing = &writing{} }, false},
		"so, without a connection":   {func(c *Core) { c.writing, c.connected = &writing{}, false }, true},
		"no state, idle":             {func(c *Core) { c.tables.stateless = true }, true},
		"no state, in a transaction": {func(c *Core) { c.tables.stateless, c.unfinished = true, true }, false},
		"no state, a row waits":      {func(c *Core) { c.tables.stateless, c.stalls = true, make([]*stall, 1) }, false},
		"so, without a connection ":  {func(c *Core) { c.tables.stateless, c.stalls, c.connected = true, make([]*stall, 1), false }, true},
	} {
		c, _, _ := begun(t, outbox.PublishedStatus)
		c.draining = true
		if x.with(c); c.Drained() != x.want {
			t.Errorf("%s: %v", name, !x.want)
		}
	}
}

// A clean stop withdraws what was not sent, and gives up a hand-back unless its parks are being removed.
func TestDrain(t *testing.T) {
	t.Parallel()
	for step, ends := range map[hbStep]bool{hbWaiting: true, hbReading: true, hbRows: true, hbRemoving: false} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		c.gate = nil
		p := c.keyed(rowOf(table, "1"))
		p.sweptOut = true
		c.startHandback()
		c.hb.step = step
		c.Drain()
		withdrawn := len(c.ready.Commands) == 1 && *c.ready.Commands[0].Withdraw == outbox.StreamScope()
		if (c.hb == nil) != ends || c.gate != nil || !withdrawn {
			t.Errorf("step %d: ended %v, withdrawn %v", step, c.hb == nil, withdrawn)
		}
	}
	c, table, _ := begun(t, outbox.PublishedStatus)
	c.keyed(rowOf(table, "1"))
	c.blockedKey(rowOf(table, "2")).blocker = gone
	c.watch.at = c.now
	c.Drain()
	if r := c.Take(); r.Sweep != nil || r.Watch != nil || r.Failed || len(r.Check) > 0 {
		t.Errorf("a clean stop begins something new: %+v", r)
	}
	c, _, _ = begun(t, outbox.PublishedStatus)
	c.Begin(outbox.Transaction{XID: 7, Commit: 10})
	if c.Drain(); !c.Drained() {
		t.Error("the open transaction is left to the next start")
	}
	c, _, _ = begun(t, outbox.PublishedNone)
	if c.Drain(); len(c.ready.Commands) != 0 || c.unfinished {
		t.Error("rows without state are sent to the end")
	}
}

// NextTick is the first of everything that waits.
func TestNextTickKnowsAllThatWaits(t *testing.T) {
	t.Parallel()
	if next := New(Config{}).NextTick(); !next.IsZero() {
		t.Errorf("nothing waits, until %v", next)
	}
	soon := func(c *Core) time.Time { return c.now.Add(time.Minute) }
	for name, wait := range map[string]func(c *Core, table *outbox.Table){
		"the watch":       func(c *Core, _ *outbox.Table) { c.watch.at = soon(c) },
		"a scheduled row": func(c *Core, _ *outbox.Table) { c.watch.due = soon(c) },
		"pace":            func(c *Core, _ *outbox.Table) { c.pace.until = soon(c) },
		"topics":          func(c *Core, _ *outbox.Table) { c.topics.askAt = soon(c) },
		"a park":          func(c *Core, table *outbox.Table) { c.keyed(rowOf(table, "1")).Next = soon(c) },
		"a sweep":         func(c *Core, table *outbox.Table) { c.keyed(rowOf(table, "1")).nextSweep = soon(c) },
		"a mark":          func(c *Core, _ *outbox.Table) { c.retries.list = []remark{{at: soon(c)}} },
		"a stall":         func(c *Core, _ *outbox.Table) { c.stalls = []*stall{{next: soon(c)}} },
		"the gate":        func(c *Core, _ *outbox.Table) { c.gate = &gate{keyQueue: keyQueue{retry: soon(c)}} },
		"a queue's retry": func(c *Core, table *outbox.Table) {
			c.looks.queues = []*lookQueue{{table: table, keyQueue: keyQueue{retry: soon(c)}}}
		},
		"a queue's look": func(c *Core, table *outbox.Table) {
			c.looks.queues = []*lookQueue{{table: table, next: soon(c)}}
		},
		"a head start": func(c *Core, table *outbox.Table) {
			h := c.flying(rowOf(table, "1"), queued)
			c.rows.entries[h].due = soon(c)
			c.looks.queues = []*lookQueue{{table: table, keyQueue: keyQueue{queue: []uint32{h}}}}
		},
		"a hand-back's retry":    func(c *Core, _ *outbox.Table) { c.hb = &handback{retry: soon(c)} },
		"a hand-back's deadline": func(c *Core, _ *outbox.Table) { c.hb = &handback{deadline: soon(c)} },
	} {
		c, table, _ := begun(t, outbox.PublishedStatus)
		c.gate = nil
		if wait(c, table); !c.NextTick().Equal(soon(c)) {
			t.Errorf("%s: %v", name, c.NextTick().Sub(c.now))
		}
	}
}

// A row whose mark is refused for its own sake is parked by itself, with what tells it from another with
// its id.
func TestARowThatCannotBeMarked(t *testing.T) {
	t.Parallel()
	c, table, now := begun(t, outbox.PublishedStatus)
	r := rowOf(table, "1")
	r.CreatedAt = 77
	key := c.keyed(r)
	key.failedRow, key.tries, key.Next = "1", 3, now.Add(time.Minute)
	h := c.flying(r, acked)
	c.Marked([]outbox.Marked{{Row: r, Kind: outbox.MarkSent, State: outbox.MarkedRefused, Alone: true, Err: errOurs}})
	p := c.parks.of(outbox.RowScope(r))
	if p == nil || p.created != 77 || p.RowID != "77" || p.tries != 1 || p.Next.Sub(now) != time.Second || c.rows.entries[h].row != nil {
		t.Fatalf("%+v", p)
	}
	if !key.Next.IsZero() || key.tries != 0 {
		t.Errorf("its key goes on: %+v", key)
	}
	marks := func() []outbox.Mark { c.markUnmarked(); m := c.ready.Marks; c.ready.Marks = nil; return m }
	if len(marks()) != 0 {
		t.Error("marked again at once")
	}
	c.later(time.Second)
	if c.cfg.Shadow = true; len(marks()) != 0 {
		t.Error("marked in shadow")
	}
	c.cfg.Shadow = false
	m := marks()
	if len(m) != 1 || m[0].Row.ID != "1" || m[0].Row.CreatedAt != 77 || !m[0].Refused || len(marks()) != 0 {
		t.Fatalf("%+v", m)
	}
	c.Marked([]outbox.Marked{{Row: m[0].Row, Kind: outbox.MarkSent, State: outbox.MarkedRefused, Err: errOurs}})
	if p.tries != 2 || p.Next.Sub(c.now) != 2*time.Second || p.mark != nil {
		t.Errorf("%+v", p)
	}
	c.later(2 * time.Second)
	m = marks()
	c.Marked([]outbox.Marked{{Row: m[0].Row, Kind: outbox.MarkSent, State: outbox.MarkedInvisible}})
	if p.tries != 3 || p.Next.Sub(c.now) != 4*time.Second || p.mark != nil || p.phase != sweeping {
		t.Errorf("%+v", p)
	}
	c.later(4 * time.Second)
	again := marks()
	c.Marked([]outbox.Marked{{Row: m[0].Row, Kind: outbox.MarkSent, State: outbox.MarkedSent}}) // of before
	if p.phase != sweeping || p.mark == nil {
		t.Error("an answer to an earlier mark counts")
	}
	c.Marked([]outbox.Marked{{Row: again[0].Row, Kind: outbox.MarkSent, State: outbox.MarkedSent}})
	if p.phase != absorbed || !p.Next.IsZero() {
		t.Errorf("%+v", p)
	}
	if len(marks()) != 0 {
		t.Error("marked though its park is being removed")
	}
	c.unpark(p)
	c.Marked([]outbox.Marked{{Row: again[0].Row, Kind: outbox.MarkSent, State: outbox.MarkedSent}})
	if len(c.parks.list) != 1 { // its key's
		t.Errorf("%+v", c.parks.list)
	}
}

// A row's park is not another row's with the same id, as far as is known.
func TestRowsWithOneID(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		a, b int64
		same bool
	}{{1, 1, true}, {1, 2, false}, {0, 2, true}, {2, 0, true}, {0, 0, true}} {
		if same(x.a, x.b) != x.same {
			t.Errorf("%+v", x)
		}
	}
	_, table, _ := begun(t, outbox.PublishedStatus)
	r := rowOf(table, "1")
	r.CreatedAt = 5
	unmarked := &park{Park: outbox.Park{Scope: outbox.RowScope(r), Cause: outbox.CauseWriteBack}, created: 6}
	if !unmarked.ofAnother(r) {
		t.Error("created at another time")
	}
	if unmarked.created = 5; unmarked.ofAnother(r) {
		t.Error("created at the same time")
	}
	null := &park{Park: outbox.Park{Scope: outbox.RowScope(r), Cause: outbox.CauseRowError}}
	if !null.ofAnother(r) {
		t.Error("the park is that of a row without a key")
	}
	if r.Key = nil; null.ofAnother(r) {
		t.Error("and so is the row")
	}
	if (&park{Park: outbox.Park{Scope: outbox.TableScope(table)}}).ofAnother(r) {
		t.Error("a table's park has all rows")
	}
}

// Rows without a key, and published rows whose marks are refused, are parked by id. What becomes of
// a row that had the id before does not change the park of the row that has it now.
func TestAnIDIsGivenOutAgain(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]func(c *Core, r *outbox.Row){
		"refused": func(c *Core, r *outbox.Row) { c.fail(r.Handle, errOurs) },
		"sent": func(c *Core, r *outbox.Row) {
			c.Marked([]outbox.Marked{{Row: r, Kind: outbox.MarkSent, State: outbox.MarkedSettled}})
		},
		"charged": func(c *Core, r *outbox.Row) {
			c.Marked([]outbox.Marked{{Row: r, Kind: outbox.MarkAttempt, State: outbox.MarkedRetry}})
		},
	} {
		c, table, now := begun(t, outbox.PublishedStatus)
		before, after := rowOf(table, "1"), rowOf(table, "1")
		before.Key, before.CreatedAt, after.CreatedAt = nil, 76, 77
		c.flying(before, acked)
		c.Unmarked([]*outbox.Row{after})
		p := c.parks.of(outbox.RowScope(after))
		next := now.Add(-time.Second)
		p.Next = next
		ends(c, before)
		if !p.Unmarked() || p.phase != sweeping || p.created != 77 || p.RowID != "77" || !p.Next.Equal(next) {
			t.Errorf("%s: %+v", name, p)
		}
	}
}
