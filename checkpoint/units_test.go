package checkpoint

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// The smallest parts by themselves: what each does at its bounds.

// The ledger keeps what is not settled, and no more memory than twice that.
func TestTheLedgerKeepsNoMoreThanItNeeds(t *testing.T) {
	t.Parallel()
	var l ledger
	l.reset()
	var seqs []int64
	for i := range 5000 {
		l.begin(outbox.Transaction{Commit: outbox.LSN(10 * i)})
		seqs = append(seqs, l.hold())
		l.commit(outbox.LSN(10*i + 5))
		if len(seqs) == 100 {
			l.release(seqs[0], 1)
			seqs = seqs[1:]
		}
		if len(l.txs) > 2*l.len()+2 {
			t.Fatalf("%d places for %d transactions", len(l.txs), l.len())
		}
	}
	if l.len() != 99 || l.confirmed != 10*4900+5 {
		t.Errorf("%d are not settled, %v is confirmed", l.len(), l.confirmed)
	}
}

// A keepalive confirms only when nothing is unsettled, and never goes back.
func TestKeepalives(t *testing.T) {
	t.Parallel()
	var l ledger
	l.reset()
	want := func(when string, confirmed outbox.LSN) {
		t.Helper()
		if l.confirmed != confirmed {
			t.Errorf("%s: %v is confirmed, not %v", when, l.confirmed, confirmed)
		}
	}
	l.keepalive(10)
	want("idle", 10)
	l.keepalive(5)
	want("an old one", 10)
	l.begin(outbox.Transaction{Commit: 20})
	l.keepalive(30)
	want("in a transaction", 10)
	seq := l.hold()
	l.commit(25)
	l.keepalive(40)
	want("with a hold", 10)
	if l.settledTo(21) || !l.settledTo(20) {
		t.Error("what comes before the first unsettled commit is settled, and nothing else")
	}
	l.release(seq, 1)
	want("released", 25)
	if !l.settledTo(40) || l.settledTo(41) {
		t.Error("settled is what was received")
	}
	l.release(seq, 1) // of before: nothing
	l.keepalive(50)
	want("idle again", 50)
	if l.reset(); l.current() != seq || l.confirmed != 0 {
		t.Errorf("after a reset sequence numbers go on from %d, not %d", seq, l.current())
	}
}

// A transaction is waited for until a snapshot shows it ended, if a row of it was
// discarded before the request.
func TestUnendedTransactions(t *testing.T) {
	t.Parallel()
	var u unended
	u.begin(&outbox.Snapshot{Xmin: 100, Xmax: 105, InProgress: []uint64{100, 103}})
	if u.discard(0, 1); len(u.xids()) != 0 {
		t.Error("an unknown transaction is waited for")
	}
	u.discard(104, 7)
	seen := func(xmin uint64, asked uint64, progress ...uint64) bool {
		return u.observe(&outbox.Snapshot{Xmin: xmin, Xmax: 110, InProgress: progress}, asked)
	}
	if seen(100, 8, 100, 104) || !slices.Equal(u.started, []uint64{100}) || len(u.discarded) != 1 {
		t.Errorf("two are in progress: %+v", u)
	}
	if seen(104, 8, 104) || len(u.started) != 0 {
		t.Errorf("one is in progress: %+v", u)
	}
	if !seen(104, 7, 104) {
		t.Error("its row was discarded after the request")
	}
	if !seen(110, 8) || len(u.xids()) != 0 {
		t.Errorf("all have ended: %+v", u)
	}
}

// Keys go on when their own wait is over, in the order in which their rows came.
func TestKeysWaitOneByOne(t *testing.T) {
	t.Parallel()
	c, table, now := begun(t, outbox.PublishedStatus)
	q := &keyQueue{}
	add := func(key string) uint32 {
		r := rowOf(table, fmt.Sprint(c.rows.count))
		r.Key = []byte(key)
		return c.rows.add(r, noTx)
	}
	row := func(h uint32) *outbox.Row { return c.rows.entries[h].row }
	a1, b1, a2, c1 := add("a"), add("b"), add("a"), add("c")
	if q.waits(row(a2)) {
		t.Error("nothing waits yet")
	}
	q.wait(a1, outbox.KeyScope(row(a1)), now.Add(2*time.Second))
	q.wait(b1, outbox.KeyScope(row(b1)), now.Add(time.Second))
	q.wait(a2, outbox.KeyScope(row(a2)), now) // behind the first of its key
	q.queue = []uint32{c1}
	if !q.waits(row(a2)) || q.waits(row(c1)) || !q.retry.Equal(now.Add(time.Second)) {
		t.Errorf("%+v", q)
	}
	at := func(after time.Duration, queue, waiting []uint32, retry time.Time) {
		t.Helper()
		c.now = now.Add(after)
		if c.resume(q); !slices.Equal(q.queue, queue) || !slices.Equal(q.waiting, waiting) || !q.retry.Equal(retry) {
			t.Errorf("after %v: %+v", after, q)
		}
	}
	at(time.Second-1, []uint32{c1}, []uint32{a1, b1, a2}, now.Add(time.Second))
	at(time.Second, []uint32{b1, c1}, []uint32{a1, a2}, now.Add(2*time.Second))
	at(2*time.Second, []uint32{a1, a2, b1, c1}, nil, time.Time{})
	if q.waits(row(a2)) {
		t.Error("nothing waits any more")
	}
}

// When a row was committed is known from the positions that the server's WAL had got to.
func TestSightings(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	at := func(n int) time.Time { return start.Add(time.Duration(n) * sightingEvery) }
	var s headStart
	s.inserted(10, at(0))
	s.inserted(10, at(5))                  // as before
	s.inserted(20, at(1).Add(-1))          // too soon
	s.inserted(30, at(1))                  // just so
	for i := 2; i < maxSightings+10; i++ { // the last is replaced when there are many
		s.inserted(outbox.LSN(100*i), at(i))
	}
	if len(s.seen) != maxSightings || s.seen[maxSightings-1].insert != 100*(maxSightings+9) {
		t.Fatalf("%d are remembered, the last %+v", len(s.seen), s.seen[len(s.seen)-1])
	}
	for _, c := range []struct {
		commit outbox.LSN
		want   time.Time
	}{{5, at(0)}, {9, at(0)}, {10, at(1)}, {29, at(1)}, {30, at(2)}, {100*(maxSightings+9) - 1, at(maxSightings + 9)}, {1 << 40, at(99)}} {
		if got := s.committedBy(c.commit, at(99)); !got.Equal(c.want) {
			t.Errorf("%v was committed by %v, not %v", c.commit, got.Sub(start), c.want.Sub(start))
		}
	}
}

// Snapshots are remembered for as long as a head start takes.
func TestHorizons(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	minute := &outbox.Table{Mapping: outbox.Mapping{HeadStart: time.Minute}}
	short := &outbox.Table{Mapping: outbox.Mapping{HeadStart: time.Second}}
	none := &outbox.Table{Mapping: outbox.Mapping{Claim: outbox.ClaimRowLock}}
	s := headStart{tables: []*outbox.Table{none, minute, short}}
	if s.longest() != time.Minute {
		t.Errorf("the longest is %v", s.longest())
	}
	for i := range 3600 { // ten times a second
		s.sight(&outbox.Snapshot{Xmin: uint64(i)}, start.Add(time.Duration(i)*100*time.Millisecond))
		if len(s.horizons) > maxSightings+2 {
			t.Fatalf("%d are remembered", len(s.horizons))
		}
	}
	now := start.Add(359900 * time.Millisecond)
	if x := s.horizonOf(minute, now); x > 2999 || x < 2980 {
		t.Errorf("a minute ago it was %d", x)
	}
	if x := s.horizonOf(short, now); x > 3589 || x < 3570 {
		t.Errorf("a second ago it was %d", x)
	}
	if x := s.horizonOf(none, now); x != 0 {
		t.Errorf("without a head start: %d", x)
	}
	exact := headStart{tables: []*outbox.Table{minute}}
	exact.sight(&outbox.Snapshot{Xmin: 7}, start)
	if exact.horizonOf(minute, start.Add(time.Minute)) != 7 || exact.horizonOf(minute, start.Add(time.Minute-1)) != 0 {
		t.Error("a head start ago, and no less")
	}
	none0 := headStart{tables: []*outbox.Table{none}}
	if none0.sight(&outbox.Snapshot{Xmin: 7}, start); len(none0.horizons) != 0 {
		t.Error("remembered though there is no head start")
	}
}

// Claims are shared out among the tables that claim.
func TestClaimsAreShared(t *testing.T) {
	t.Parallel()
	claiming := func() *outbox.Table { return &outbox.Table{Mapping: outbox.Mapping{Claim: outbox.ClaimRowLock}} }
	for n, want := range map[int]int{0: 4, 1: 4, 2: 2, 3: 1, 4: 1, 9: 1} {
		tables := []*outbox.Table{{Mapping: outbox.Mapping{HeadStart: time.Second}}, {}}
		for range n {
			tables = append(tables, claiming())
		}
		s := newLooks(tables)
		if s.claims.perTable != want || len(s.queues) != n+2 || s.locksRows() != (n > 0) {
			t.Errorf("%d tables: %d each, %d queues, claims %v", n, s.claims.perTable, len(s.queues), s.locksRows())
		}
	}
	s := newLooks([]*outbox.Table{claiming(), claiming()})
	q := s.queues[0]
	for _, c := range []struct {
		open, all int
		asking    *lookQueue
		want      bool
	}{{0, 0, nil, true}, {1, 3, nil, true}, {2, 2, nil, false}, {1, 4, nil, false}, {0, 0, q, false}} {
		q.claims, s.claims.open, s.claims.asking = c.open, c.all, c.asking
		if s.claims.free(q) != c.want {
			t.Errorf("%+v", c)
		}
	}
}

// A park that was read counts for no more than the longest wait from now.
func TestNextTryAsRead(t *testing.T) {
	t.Parallel()
	c, _, now := begun(t, outbox.PublishedStatus)
	c.cfg.BackoffMax, c.cfg.WatchEvery = time.Minute, time.Second
	for _, x := range []struct{ read, want time.Time }{
		{now.Add(-time.Hour), time.Time{}},
		{now, time.Time{}},
		{now.Add(time.Second), now.Add(time.Second)},
		{now.Add(time.Hour), now.Add(time.Minute)},
	} {
		if got := c.nextOf(outbox.Park{Next: x.read}); !got.Equal(x.want) {
			t.Errorf("%v becomes %v", x.read, got)
		}
	}
	if c.cfg.WatchEvery = 2 * time.Minute; !c.nextOf(outbox.Park{Next: now.Add(time.Hour)}).Equal(now.Add(2 * time.Minute)) {
		t.Error("the watch is a wait as well")
	}
}

// Waits double up to the longest.
func TestBackoff(t *testing.T) {
	t.Parallel()
	c, _, now := begun(t, outbox.PublishedStatus)
	c.cfg.BackoffMin, c.cfg.BackoffMax = time.Second, 5*time.Second
	for tries, want := range []time.Duration{time.Second, time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
		if got := c.backoff(tries).Sub(now); got != want {
			t.Errorf("after %d tries: %v", tries, got)
		}
	}
}

// The WAL is read while there is room, or its rows need none.
func TestWhatIsRead(t *testing.T) {
	t.Parallel()
	c, table, now := begun(t, outbox.PublishedStatus)
	c.cfg.MaxRows, c.cfg.MaxBytes = 2, 1<<20
	want := func(when string, read bool) {
		t.Helper()
		if c.Reading() != read {
			t.Errorf("%s: read %v", when, c.Reading())
		}
	}
	want("idle", true)
	c.streaming = false
	want("not streaming", false)
	c.streaming, c.connected = true, false
	want("not connected", false)
	c.connected, c.draining = true, true
	want("draining", false)
	c.unfinished = true
	want("draining, in a transaction", true)
	c.draining, c.unfinished = false, false
	c.parks.holds = ledgerFactor * c.cfg.MaxRows
	want("as many holds as may be", true)
	c.parks.holds++
	want("one more", false)
	c.parks.holds = 0
	c.rows.count = 2
	want("rows fill memory", false)
	c.rows.count, c.rows.bytes = 1, 1<<20
	want("bytes fill memory", false)
	p := c.park(outbox.StreamScope(), outbox.CauseMissed, "", time.Time{})
	want("sweeping, memory full", true)
	p.phase = keeping
	want("handing back, memory full", false)
	c.rows.count, c.rows.bytes = 0, 0
	want("handing back, between transactions", false)
	c.ledger.inTx = true
	want("handing back, in a transaction", true)
	c.rows.bytes = 1 << 20
	want("handing back, in a transaction, memory full", false)
	c.rows.bytes, c.ledger.inTx = 0, false
	c.unpark(p)
	want("handed back", true)
	c.Pace(now.Add(1), 0)
	want("paced", false)
	_ = table
}

// The stream is parked at three quarters of its WAL budget, once, and handed back below half.
func TestTheWALBudget(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		bytes  uint64
		with   func(*Core)
		parked bool
	}{
		"three quarters":            {750, nil, false},
		"more":                      {751, nil, true},
		"no budget":                 {751, func(c *Core) { c.cfg.WALBudget = 0 }, false},
		"not streaming":             {751, func(c *Core) { c.streaming = false }, false},
		"shadow":                    {751, func(c *Core) { c.cfg.Shadow = true }, false},
		"tables without state":      {751, func(c *Core) { c.tables.stateless = true }, false},
		"parked for something else": {751, func(c *Core) { c.park(outbox.StreamScope(), outbox.CauseMissed, "", time.Time{}) }, true},
	} {
		c, _, _ := begun(t, outbox.PublishedStatus)
		c.cfg.WALBudget = 1000
		if x.with != nil {
			x.with(c)
		}
		if c.Retained(x.bytes); c.retained != x.bytes {
			t.Errorf("%s: %d bytes are retained", name, c.retained)
		}
		p := c.parks.stream()
		withdrawn := len(c.ready.Commands) == 1 && c.ready.Commands[0].Withdraw != nil
		if got := p != nil && p.Cause == outbox.CauseWALBudget && p.releasesInFlight; got != x.parked || withdrawn != x.parked {
			t.Errorf("%s: parked %v, withdrawn %v", name, got, withdrawn)
			continue
		}
		if p == nil || !x.parked {
			continue
		}
		version := p.version
		if c.Retained(x.bytes); p.version != version {
			t.Errorf("%s: parked again", name)
		}
		for retained, over := range map[uint64]bool{500: false, 499: true} {
			if c.retained = retained; c.causeOver(p) != over {
				t.Errorf("%s: over at %d: %v", name, retained, !over)
			}
		}
		if c.cfg.WALBudget = 0; !c.causeOver(p) {
			t.Errorf("%s: not over without a budget", name)
		}
	}
}

// Clusters are those that rows can go to.
func TestClusters(t *testing.T) {
	t.Parallel()
	c := &Core{cfg: Config{Tables: []*outbox.Table{
		{Mapping: outbox.Mapping{Cluster: outbox.ClusterMapping{Default: "a", Known: []string{"x"}}}},
		{Mapping: outbox.Mapping{Cluster: outbox.ClusterMapping{Column: "c", Default: "d", Known: []string{"b", "c"}}}},
	}}}
	if got := slices.Sorted(maps.Keys(c.clusters())); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Error(got)
	}
}

// A transaction that is open has brought what is before its commit, whatever keepalives say meanwhile.
func TestWhatWasReceived(t *testing.T) {
	t.Parallel()
	var l ledger
	l.reset()
	l.begin(outbox.Transaction{Commit: 20})
	if !l.settledTo(20) || l.settledTo(21) {
		t.Error("what is before the open transaction was received, and nothing else")
	}
	l.keepalive(90) // the server is further by now
	if l.commit(25); !l.settledTo(25) || l.settledTo(26) {
		t.Error("what follows the transaction was not received")
	}
}

// What a Core without a connection may do: make a slot under a durable park, or where there is no state.
func TestWhenASlotMayBeMade(t *testing.T) {
	t.Parallel()
	c, _, _ := begun(t, outbox.PublishedStatus)
	if c.SlotMayBeMade() {
		t.Error("nothing is parked")
	}
	p := c.park(outbox.StreamScope(), outbox.CauseSlot, "", time.Time{})
	if c.SlotMayBeMade() {
		t.Error("the park is not durable")
	}
	if p.durable = true; !c.SlotMayBeMade() {
		t.Error("the park is durable")
	}
	if c, _, _ = begun(t, outbox.PublishedNone); !c.SlotMayBeMade() {
		t.Error("nothing can be parked")
	}
	none, status := &outbox.Table{Name: "none"}, &outbox.Table{Name: "status"}
	none.Mapping.Published, status.Mapping.Published = outbox.PublishedNone, outbox.PublishedStatus
	for _, tables := range [][]*outbox.Table{{none, status}, {status, none}} {
		if s := newTableSet(tables); !s.stateless {
			t.Error("one of the tables keeps no state")
		}
	}
}

// A new connection counts as a change of the parks that are shown.
func TestAConnectionShowsItsParks(t *testing.T) {
	t.Parallel()
	c, _, _ := begun(t, outbox.PublishedStatus)
	before := c.ParkChanges()
	c.Disconnect()
	if c.Connect(Connected{Streaming: true}); c.ParkChanges() == before {
		t.Error("nobody is told")
	}
}

// Pacing concerns pages of sweeps, not those of a hand-back, and no clean stop.
func TestWhatIsPaced(t *testing.T) {
	t.Parallel()
	c, _, now := begun(t, outbox.PublishedStatus)
	c.Pace(now.Add(1), 1)
	if c.pageRows(nil) != 1 || c.pageRows(&handback{}) != c.cfg.PageRows || !c.paced() {
		t.Error("a page has as many rows as are paced, one of a hand-back as ever")
	}
	if c.draining = true; c.paced() {
		t.Error("a clean stop is paced")
	}
	c.draining = false
	if c.Pace(now, 0); c.pageRows(nil) != c.cfg.PageRows || c.paced() {
		t.Error("paced by nothing")
	}
}

// A scope is parked since the operator paused it, and swept again after the pause. Tables of another
// configuration, and streams that park nothing, have nothing to pause.
func TestWhatIsPaused(t *testing.T) {
	t.Parallel()
	since := time.Unix(500, 0)
	paused := func(s outbox.Scope) outbox.Park {
		return outbox.Park{Scope: s, Cause: outbox.CausePaused, Reason: "why", Since: since}
	}
	c, table, _ := begun(t, outbox.PublishedStatus)
	all, one, gone := paused(outbox.StreamScope()), paused(outbox.TableScope(table)), paused(outbox.Scope{Kind: outbox.ScopeTable, Table: "public.gone"})
	c.Pause([]outbox.Park{all, one, gone})
	p, q := c.parks.stream(), c.parks.of(one.Scope)
	if len(c.parks.list) != 2 || p.Cause != outbox.CausePaused || p.Reason != "why" || !p.Since.Equal(since) || !q.Since.Equal(since) || len(c.ready.Commands) != 2 {
		t.Fatalf("%+v", c.parks.list)
	}
	versions := p.version + q.version
	if c.Pause([]outbox.Park{one, all}); p.version+q.version != versions || len(c.ready.Commands) != 2 {
		t.Error("parked once more")
	}
	if c.Pause([]outbox.Park{one}); p.Cause != outbox.CauseResumed || q.Cause != outbox.CausePaused {
		t.Errorf("%+v, %+v", p, q)
	}
	other := c.parkedTable(&outbox.Table{Schema: "public", Name: "other"}, outbox.CauseKeys)
	if c.Pause(nil); q.Cause != outbox.CauseResumed || other.Cause != outbox.CauseKeys {
		t.Errorf("%+v, %+v", q, other)
	}
	if c.KeepsUnsent(&outbox.Table{Schema: "public", Name: "other"}) != true { // by the stream's
		t.Error("what is only now going out is not kept")
	}
	c.unpark(p)
	if c.KeepsUnsent(&outbox.Table{Schema: "public", Name: "other"}) {
		t.Error("what is parked for something else is kept")
	}
	for name, with := range map[string]func(*Core){
		"no connection": func(c *Core) { c.connected = false },
		"no state":      func(c *Core) { c.tables.stateless = true },
		"shadow":        func(c *Core) { c.cfg.Shadow = true },
	} {
		c, _, _ := begun(t, outbox.PublishedStatus)
		if with(c); true {
			c.Pause([]outbox.Park{all})
		}
		if len(c.parks.list) != 0 {
			t.Errorf("%s: %+v", name, c.parks.list)
		}
	}
}

// Rows that had the same id one after the other can all be unmarked: the id is parked until each of
// them is settled, in whatever order they come.
func TestUnmarkedRowsOfOneID(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	first, second := rowOf(table, "1"), rowOf(table, "1")
	first.CreatedAt, second.CreatedAt = 77, 88
	for range 2 {
		c.Unmarked([]*outbox.Row{second, first})
	}
	third := rowOf(table, "1")
	third.CreatedAt = 99
	if c.parks.discarding(first) == nil || c.parks.discarding(second) == nil || c.parks.discarding(third) != nil {
		t.Error("one of them may be published, or another one with their id may not")
	}
	for _, created := range []int64{88, 77} {
		r := c.Take()
		if len(r.Marks) != 1 || r.Marks[0].Row.CreatedAt != created {
			t.Fatalf("asked for %+v, not for the row of %d", r.Marks, created)
		}
		c.Marked([]outbox.Marked{{Row: r.Marks[0].Row, State: outbox.MarkedSettled}})
	}
	r := c.Take()
	if p := c.parks.of(outbox.RowScope(first)); len(r.Marks) != 0 || r.Parks != nil || p != nil {
		t.Errorf("%+v, %+v", p, r)
	}
}

// When unmarked rows share an id, one whose mark is refused says why they wait, and does not delay the next one.
func TestARefusedMarkOfARowWhoseIDIsAnothersToo(t *testing.T) {
	t.Parallel()
	c, table, now := begun(t, outbox.PublishedStatus)
	first, second := rowOf(table, "1"), rowOf(table, "1")
	first.CreatedAt, second.CreatedAt = 77, 88
	c.Unmarked([]*outbox.Row{first, second})
	asked := c.Take().Marks
	p := c.park(outbox.RowScope(first), outbox.CauseWriteBack, "a constraint", now.Add(time.Minute))
	if p.Reason != "a constraint" || !p.Next.Equal(now.Add(time.Minute)) {
		t.Errorf("%+v", p)
	}
	c.Marked([]outbox.Marked{{Row: asked[0].Row, State: outbox.MarkedSettled}})
	if next := c.Take().Marks; len(next) != 1 || next[0].Row.CreatedAt != 88 {
		t.Errorf("asked for %+v, then %+v", asked, next)
	}
}

// Published rows that are still to be marked are parked by themselves, once, and the clusters whose
// journals are not read cannot be used.
func TestWhatIsLeftOfAnEarlierProcess(t *testing.T) {
	t.Parallel()
	c, table, _ := begun(t, outbox.PublishedStatus)
	left, refused := rowOf(table, "1"), rowOf(table, "2")
	left.CreatedAt, refused.Key = 77, nil
	p := c.keyed(refused)
	for range 2 {
		c.Unmarked([]*outbox.Row{left, refused})
	}
	q := c.parks.of(outbox.RowScope(left))
	if q == nil || !q.Unmarked() || q.created != 77 || q.RowID != "77" || q.version != 1 || !q.durable || q.dirty() || !q.inTally {
		t.Errorf("%+v", q)
	}
	if !p.Unmarked() || p.version != 2 || !p.inTally || p.created != 0 || p.RowID != "" {
		t.Errorf("%+v", p)
	}
	c.Disconnect()
	if c.Connect(Connected{Streaming: true}); !q.durable || q.dirty() {
		t.Errorf("it is remembered elsewhere: %+v", q)
	}
	c, _, _ = begun(t, outbox.PublishedStatus)
	c.Disconnect()
	c.Connect(Connected{Streaming: true, Unrecovered: []string{"main"}})
	if p := c.parks.of(outbox.ClusterScope("main")); p == nil || p.Cause != outbox.CauseCluster || !c.unusable("main") {
		t.Errorf("%+v", p)
	}
}
