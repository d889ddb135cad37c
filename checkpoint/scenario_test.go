package checkpoint

import (
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Each scenario steers the simulated world into a schedule that broke earlier rules, and
// then lets everything settle: no invariant may break. Without the rule that closes it,
// one must: the package is built without that rule (test/mutants/rules.go), or, for a
// rule of the world, the scenario is played twice.

// calm makes the choices of a scene: the first that is there, at once.
type calm struct{}

func (calm) pick([]int) int          { return 0 }
func (calm) intn(int) int            { return 0 }
func (calm) chance(percent int) bool { return percent >= 50 }

type scene struct {
	*world
	t *testing.T
	a *proc
	b *proc
}

// play plays a scenario.
func play(t *testing.T, act func(s *scene)) {
	t.Helper()
	if v := newScene(t, worldRules{}).end(act); v != nil {
		t.Error(v)
	}
}

// playWithout plays a scenario with and without a rule of the world.
func playWithout(t *testing.T, without worldRules, act func(s *scene)) {
	t.Helper()
	t.Run("in force", func(t *testing.T) { play(t, act) })
	t.Run("switched off", func(t *testing.T) {
		if v := newScene(t, without).end(act); v == nil {
			t.Error("nothing broke without the rule: the schedule misses its point")
		} else {
			t.Log(v)
		}
	})
}

func newScene(t *testing.T, off worldRules) *scene {
	table := &outbox.Table{Schema: "public", Name: "outbox"}
	table.Mapping.Published, table.Mapping.OnFailed = outbox.PublishedStatus, outbox.OnFailedSkip
	table.Mapping.Cluster = outbox.ClusterMapping{Default: "main"}
	table.Mapping.Status.MaxAttempts = 3
	p := plan{keys: 2, topics: 2, overlap: true, procs: 2, tables: []*outbox.Table{table}, clusters: []string{"main"}}
	p.cfg = Config{
		Tables: p.tables, MaxRows: 40, MaxBytes: 1 << 20, PageRows: 10, SmallRound: 10, MaxKeys: 10, MaxRetryingKeys: 20, MaxTopics: 10,
		BackoffMin: time.Second, BackoffMax: 4 * time.Second, WatchEvery: 3 * time.Second, HeldFor: p.heldFor(),
	}
	for k := range p.weights {
		p.weights[k] = 1
	}
	w := newWorld(calm{}, p)
	w.off = off
	w.slot = slot{exists: true, confirmed: w.insert, persisted: w.insert}
	w.trace = t.Logf
	s := &scene{world: w, t: t, a: w.procs[0], b: w.procs[1]}
	s.a.boot()
	s.rest()
	return s
}

// end plays the act, heals the world and lets everything settle.
func (s *scene) end(act func(*scene)) *violation {
	act(s)
	if s.bad != nil {
		return s.bad
	}
	for _, t := range append([]*txn(nil), s.txns...) {
		if t.running() && t.state == txnCommitted {
			s.show(t)
		}
	}
	s.heal()
	for healed := s.now; s.now.Sub(healed) <= settleWithin+s.plan.cfg.WatchEvery; {
		s.rest()
		if s.bad != nil || s.settled() {
			break
		}
		s.advance(500 * time.Millisecond)
	}
	if s.bad == nil && !s.settled() {
		s.checkAtRest()
	}
	s.checkEnd()
	return s.bad
}

// ends are the kinds of events that come to an end by themselves while time
// stands still.
var ends = []eventKind{
	evRelayDone, evTake, evNotice, evTick, evLead, evConnect, evMakeSlot, evReceive, evQuery, evAnswer, evParks, evParksAnswer, evCommand,
	evFence, evSend, evArrive, evSinkAnswer, evOutcome, evState, evMark, evMarked, evStopped,
}

// rest lets everything go on but the kinds held back, until nothing moves.
func (s *scene) rest(heldBack ...eventKind) {
	s.t.Helper()
	held := map[eventKind]bool{}
	for _, k := range heldBack {
		held[k] = true
	}
	for range 4 { // keepalives and status updates have no end
		for n := 0; s.any(held); n++ {
			if n > 5000 {
				s.t.Fatal("it never comes to rest")
			}
		}
		for _, k := range []eventKind{evKeepalive, evStatus} {
			if !held[k] {
				s.try(k)
			}
		}
	}
}

// any does the first thing that may happen.
func (s *scene) any(held map[eventKind]bool) bool {
	if s.bad != nil {
		return false
	}
	for _, k := range ends {
		if !held[k] && s.try(k) {
			return true
		}
	}
	return false
}

// try does one thing of a kind, if there is one.
func (s *scene) try(kind eventKind) bool {
	for _, e := range s.list() {
		if e.kind == kind {
			s.step++
			e.f()
			s.checkStep()
			return true
		}
	}
	return false
}

// must does one thing of a kind.
func (s *scene) must(kind eventKind) {
	s.t.Helper()
	if s.bad == nil && !s.try(kind) {
		s.t.Fatalf("event %d cannot happen now", kind)
	}
}

// row commits a row.
func (s *scene) row(key string, refused int) *dbRow {
	r, t := s.open(key, refused)
	s.commit(t, true)
	return r
}

// invisible commits a row that waits for the standby.
func (s *scene) invisible(key string) *dbRow {
	r, t := s.open(key, 0)
	s.commit(t, false)
	return r
}

// open inserts a row.
func (s *scene) open(key string, refused int) (*dbRow, *txn) {
	t := s.begin()
	r := &dbRow{table: s.plan.tables[0], cluster: "main", topic: "x", key: key, poison: refused}
	s.addRow(t, r)
	return r, t
}

// parkStream parks A's stream, for the WAL that its slot retained for a moment, and
// lets the park become durable.
func (s *scene) parkStream() {
	s.retains(walBudget)
	for s.parks[outbox.StreamScope()].Scope.Kind == 0 || s.a.write != nil {
		s.must2(evTake, evParks, evParksAnswer)
	}
	s.retains(0)
}

const walBudget = 1 << 30

// retains tells A how much WAL the slot retains.
func (s *scene) retains(bytes uint64) {
	s.a.core.cfg.WALBudget = walBudget
	s.a.input(func() { s.a.core.Retained(bytes) })
}

// must2 does one thing of any of the kinds.
func (s *scene) must2(kinds ...eventKind) {
	s.t.Helper()
	for _, k := range kinds {
		if s.try(k) {
			return
		}
	}
	s.t.Fatalf("none of events %v can happen now", kinds)
}

func (s *scene) parked(scope outbox.Scope) bool {
	_, found := s.parks[scope]
	return found
}

// restart kills A and starts it again.
func (s *scene) restart() {
	s.a.kill()
	s.a.boot()
}

// r1 is refused and waits for its next try; r2 of the same key does not wait
// for anything. If only r1 were not due, the sweeper's page would bring r2 alone,
// and r2 would be first.
func TestBackoffBelongsToTheKey(t *testing.T) {
	play(t, func(s *scene) {
		s.row("k", 1)
		s.row("k", 0)
		s.rest()
	})
}

// The other half of TestBackoffBelongsToTheKey. A hand-back that selects what is due would find nothing
// while r1 waits, and give the key back to the stream over r1.
func TestHandBackWaitsForTheBackoff(t *testing.T) {
	play(t, func(s *scene) {
		s.row("k", 1)
		s.rest()
		s.row("k", 0)
		s.rest()
	})
}

// r1 is refused, which parks its key; r2 of the key comes and is left to the sweeper. Both are in the WAL
// until the park is in the database: a successor would know nothing of the key.
func TestAParkedKeyHoldsThePosition(t *testing.T) {
	play(t, func(s *scene) {
		r1 := s.row("k", 1)
		s.rest(evParks)
		r2 := s.row("k", 0)
		s.rest(evParks)
		if s.slot.confirmed > r1.tx.commit {
			s.fail("parkDurable", r1, "the position passes a row of a park that is not durable")
		}
		s.rest()
		if s.slot.confirmed <= r2.tx.commit {
			s.fail("parkDurable", r2, "the position does not pass the rows of a durable park")
		}
	})
}

// r1 is committed and waits for the standby. The stream is parked, r1 is
// discarded and confirmed. The process is killed; its successor knows nothing of
// what was discarded. Its hand-back's snapshot lacks r1, and after it nobody has
// r1. What was in progress after the connection's start must have ended first.
func TestHandBackAwaitsWhatWasInProgressAtTheStart(t *testing.T) {
	play(t, func(s *scene) {
		s.parkStream()
		s.invisible("k")
		s.rest(evQuery, evAnswer)
		s.restart()
		s.rest()
		s.advance(time.Second)
		s.rest()
	})
}

// The same within one connection: the discarded row's transaction is not in the
// hand-back's snapshot yet.
func TestHandBackAwaitsWhatWasDiscarded(t *testing.T) {
	play(t, func(s *scene) {
		s.parkStream()
		s.invisible("k")
		s.rest()
		s.advance(time.Second)
		s.rest()
	})
}

// The same once more. pg_current_snapshot's xmax is the last completed id plus one: a
// transaction that began after it is in progress without being listed. Unless an
// own transaction is completed first, the successor's snapshot does not show r1.
func TestSnapshotShowsAllThatIsInProgress(t *testing.T) {
	playWithout(t, worldRules{snapshotAfterXID: true}, func(s *scene) {
		s.parkStream()
		s.a.kill()
		s.a.boot()
		s.must(evLead)
		s.invisible("k")
		s.slot.confirmed, s.slot.persisted = s.insert, s.insert // a slot made past r1
		s.rest()
		s.advance(time.Second)
		s.rest()
	})
}

// The stream is parked and r1 confirmed past. r1 is refused: its key is
// parked, but another change of our table is under way. Then the stream's park is
// removed. Were the key's park not in the same transaction, a kill in between
// would leave r1 to nobody.
func TestNarrowingIsOneTransaction(t *testing.T) {
	play(t, func(s *scene) {
		s.parkStream()
		s.row("j", 1)
		s.row("k", 1)
		held := []eventKind{evParks, evParksAnswer}
		s.rest(append(held, evArrive)...)
		s.must(evArrive) // j is refused …
		s.rest(append(held, evArrive)...)
		s.rest(held...) // … and then, while j's park is on its way, k
		for range 6 {
			s.advance(300 * time.Millisecond)
			s.rest(evParks, evParksAnswer)
		}
		s.rest()
	})
}

// A has asked for the removal of the stream's park and is stopped. B leads and
// reads the park. A's write goes on: guarded by the epoch it changes nothing.
func TestZombieEditsNoParks(t *testing.T) {
	playWithout(t, worldRules{epochGuard: true}, func(s *scene) {
		s.b.boot()
		s.parkStream()
		s.rest(evParks)
		s.advance(time.Second)
		s.rest(evParks)
		s.must(evParks) // the try is on the wire
		removal := s.a.write
		s.a.frozen = true
		s.a.conn.dropped()
		for s.b.conn == nil || !s.b.conn.connected {
			s.must2(evLead, evConnect)
		}
		s.row("k", 0)
		s.rest(evParks, evQuery, evSend)
		s.runParks(removal)
		s.checkStep()
	})
}

// A row of the stream is in flight when its hand-back begins. The statement
// leaves it out; were the park removed before the row is marked, a row that is given
// back then would be nobody's.
func TestHandBackWaitsForRowsInFlight(t *testing.T) {
	play(t, func(s *scene) {
		r := s.row("k", 0)
		s.rest(evArrive)
		s.parkStream()
		for range 5 {
			s.advance(300 * time.Millisecond)
			s.rest(evArrive)
			if !s.parked(outbox.StreamScope()) {
				t.Error("the park is gone, and a row of it is in flight")
			}
		}
		s.rest()
		s.inKafka(r, 1, "after the hand-back")
	})
}

// After a failover positions are reused. A process that asked for the WAL from where it had been would
// not get r1, which lies before that.
func TestStartReadsFromWhereTheSlotIs(t *testing.T) {
	playWithout(t, worldRules{startZero: true}, func(s *scene) {
		before := s.insert
		for range 5 {
			s.row("j", 0)
		}
		s.rest()
		s.failover(before, true)
		s.slot.confirmed, s.slot.persisted = before, before
		s.row("k", 0)
		s.rest()
	})
}

// r1 was committed while there was no slot. Were the slot made before the stream's park is durable, the next
// start would find a sound slot behind r1, and nothing that says so.
func TestSlotIsMadeUnderADurablePark(t *testing.T) {
	play(t, func(s *scene) {
		s.a.kill()
		s.slot = slot{}
		s.row("k", 0)
		s.a.boot()
		s.rest(evParks)
		s.restart()
		s.rest()
	})
}

// r1 was published and marked, and the server heard nothing of it before the process was killed. The
// slot brings it again: without a look it would be in Kafka twice.
func TestStartLooksAtWhatWasMarked(t *testing.T) {
	play(t, func(s *scene) {
		r1 := s.row("k", 0)
		s.rest(evStatus)
		s.restart()
		s.rest()
		s.inKafka(r1, 1, "after the restart")
	})
}

// A ends with nothing unconfirmed. Of what comes while no process runs, the application's own relay
// publishes a row, and a person deletes one: a start publishes neither, though no process of ours has read them.
func TestStartLooksAtWhatOthersDid(t *testing.T) {
	play(t, func(s *scene) {
		s.row("k", 0)
		s.rest()
		s.a.kill()
		r2, r3, r4 := s.row("k", 0), s.row("k", 0), s.row("k", 0)
		s.relaySends(r2)
		r3.deleted = true
		s.a.boot()
		s.rest()
		s.inKafka(r2, 1, "after the start")
		s.inKafka(r3, 0, "after the start")
		s.inKafka(r4, 1, "after the start")
	})
}

// r1 is on its way to Kafka when the connection ends. The next one brings it again, in the same
// process: it is not published again, and nothing is confirmed beyond it.
func TestRowsInFlightOutlastTheirConnection(t *testing.T) {
	play(t, func(s *scene) {
		r1 := s.row("k", 0)
		s.rest(evArrive)
		s.a.conn.dropped()
		s.rest(evArrive)
		s.row("j", 0)
		s.rest(evArrive)
		s.rest()
		s.inKafka(r1, 1, "after the reconnect")
	})
}

// r1 was refused, and is published when its key is tried again. The key is handed back:
// r2, which its statement cannot show, is kept from there on. Discarded as before, it
// would be nobody's when the park is gone.
func TestHandBackKeepsWhatFollowsItsStatement(t *testing.T) {
	play(t, func(s *scene) {
		s.row("k", 1)
		s.rest(evQuery)
		for s.a.core.sweeps.page == nil || s.a.core.sweeps.page.hb == nil {
			s.try(evQuery)
			s.advance(300 * time.Millisecond)
			s.rest(evQuery)
		}
		s.must(evQuery) // the statement
		r2 := s.row("k", 0)
		s.rest(evAnswer)
		s.inKafka(r2, 0, "before the hand-back's statement is answered")
		s.rest()
		s.inKafka(r2, 1, "after the hand-back")
	})
}

// The rows of a hand-back's statement come through the WAL as well, those that were committed before it
// and are received after it. They are looked at, or they would be published twice.
func TestHandBackLooksAtWhatItsStatementHad(t *testing.T) {
	play(t, func(s *scene) {
		s.parkStream()
		for s.rest(evQuery); s.a.core.sweeps.page.hb == nil; s.rest(evQuery) {
			s.must(evQuery)
			s.advance(300 * time.Millisecond)
		}
		r1 := s.row("k", 0)
		s.must(evQuery) // the statement, which shows r1
		s.rest(evReceive)
		s.rest()
		s.inKafka(r1, 1, "after the hand-back")
	})
}

// The watcher finds r1, which the operator put back. Before it looks again, r2
// of the same key is refused and the key parked. Parking the key once more would
// end its backoff.
func TestWatcherLeavesParkedKeys(t *testing.T) {
	act := func(s *scene) {
		r1 := s.row("k", 0)
		s.rest()
		s.requeue(r1)
		s.advance(4 * time.Second)
		s.rest(evAnswer)
		s.must(evAnswer) // the candidates
		s.row("k", 1)
		s.rest(evQuery, evKeepalive)
		s.rest(evQuery)
		p := s.a.core.parks.of(outbox.KeyScope(r1.probe()))
		if p == nil || p.Cause != outbox.CauseRowError {
			s.t.Fatalf("the key should be parked for its refused row: %+v", p)
		}
		s.rest(evCommand)
		if p.Cause != outbox.CauseRowError {
			s.fail("watch", r1, "the watcher parked %v again (%s)", p.Scope, p.Cause)
		}
	}
	play(t, act)
}

// requeue is the operator's.
func (s *scene) requeue(r *dbRow) {
	r.requeued = true
	r.allowed++
	s.set(r, statusPending, 0)
}

// The watcher has asked for candidates when the connection breaks. Its answer
// never comes; a round that went on would wait for it for ever, and what the
// stream missed would stay PENDING.
func TestReconnectAbandonsTheWatchersRound(t *testing.T) {
	play(t, func(s *scene) {
		r1 := s.row("k", 0)
		s.rest()
		s.requeue(r1)
		s.advance(4 * time.Second)
		s.rest(evQuery)
		s.a.conn.dropped()
		s.rest()
	})
}

// A hand-back has its snapshot S, and the row it found is not marked yet. The
// slot is lost, r1 commits, the slot is made again behind r1. A hand-back that
// outlived its connection would remove the park over r1.
func TestHandBackEndsWithItsConnection(t *testing.T) {
	s := newScene(t, worldRules{})
	v := s.end(func(s *scene) {
		s.parkStream()
		for s.rest(evQuery); s.a.core.sweeps.page.hb == nil; s.rest(evQuery) {
			s.must(evQuery)
			s.advance(300 * time.Millisecond)
		}
		s.row("j", 0)
		s.must(evQuery)
		s.rest(evMark, evQuery)
		if s.a.core.hb == nil || s.a.core.hb.step != hbRows {
			t.Fatal("the hand-back should wait for the row's mark")
		}
		s.a.conn.dropped()
		s.slot = slot{}
		s.row("k", 0)
		s.rest(evMark, evQuery)
		if s.a.core.hb != nil {
			t.Error("the hand-back outlived its connection")
		}
		s.rest(evQuery)
	})
	if v != nil {
		t.Error(v)
	}
}

// The removal of the stream's park was committed and the answer lost. The
// process goes on discarding. It must not confirm before the park is written
// again.
func TestUnknownRemovalIsWrittenAgain(t *testing.T) {
	play(t, func(s *scene) {
		s.parkStream()
		s.rest(evParks)
		s.advance(time.Second)
		s.rest(evParks)
		s.must(evParks)
		s.must(evParks)
		if s.parked(outbox.StreamScope()) {
			s.t.Fatal("the removal should have run")
		}
		s.a.write.lost = true
		s.row("k", 0)
		s.rest(evParks, evQuery)
	})
}

// A page brings r1 and r2 of one key. r1 is refused; r2, which came with the
// same page, is given back and must wait behind r1.
func TestFailureWithdrawsFromThePage(t *testing.T) {
	play(t, func(s *scene) {
		s.parkStream()
		s.row("k", 1)
		s.row("k", 0)
		s.rest()
	})
}

// Rows were discarded under the stream's park, and their transactions lost by
// a failover: they never become visible. Their ids mean nothing after the
// reconnect, so the hand-back ends.
func TestDiscardedXIDsAreVoidAfterAReconnect(t *testing.T) {
	play(t, func(s *scene) {
		s.parkStream()
		at := s.insert
		for range 12 {
			s.row("k", 0)
		}
		s.rest(evQuery)
		s.failover(at, true)
		for range 8 {
			s.rest()
			s.advance(500 * time.Millisecond)
		}
		if s.bad == nil && s.parked(outbox.StreamScope()) {
			s.fail("I11", nil, "the stream stays parked for transactions that never happened")
		}
	})
}

// A failover takes a key's park back while the removal of the stream's is
// outstanding. Written to the new primary, which the process did not choose, it
// would leave the key's rows to nobody: the lock is held on the connection that
// leads, and without it nothing is written.
func TestParksAreWrittenWhereTheLockIs(t *testing.T) {
	playWithout(t, worldRules{lockGuard: true}, func(s *scene) {
		s.parkStream()
		s.row("k", 1)
		s.rest(evAnswer)
		s.write(8)
		at := s.insert
		s.must(evAnswer) // the page that brings the row
		s.rest(evQuery)  // it is refused, and its key's park durable
		for range 3 {
			s.advance(300 * time.Millisecond)
			s.rest(evParks)
		}
		s.failover(at, true)
		s.rest(evNotice, evLead)
	})
}

// r1 is on its way when the connection breaks. The application deletes it and gives
// its id to r2, which the WAL brings on the next connection: taken for r1, which is
// in flight already, it would be confirmed and never published.
func TestRowWithTheIDOfAnotherIsPublished(t *testing.T) {
	play(t, func(s *scene) {
		r1 := s.row("k", 0)
		s.rest(evArrive)
		s.a.conn.dropped()
		s.remove(r1)
		tx := s.begin()
		r2 := &dbRow{table: r1.table, id: r1.id, reissued: true, cluster: "main", topic: "x", key: "k"}
		s.addRow(tx, r2)
		s.commit(tx, true)
		s.rest(evArrive)
		s.rest()
		s.inKafka(r2, 1, "with the id of one that was in flight")
	})
}

// r1 is FAILED and blocks its key when r2, which another cluster's sink still had, is refused and
// is to be tried again. Were the key the sweeper's then, r2 would pass r1.
func TestBlockedKeyStaysBlockedWhenAnotherRowIsRefused(t *testing.T) {
	c := New(blockedConfig())
	c.Tick(epochStart)
	c.Connect(Connected{Streaming: true})
	r1, r2 := rowOf(c.cfg.Tables[0], "1"), rowOf(c.cfg.Tables[0], "2")
	r2.Key, r2.Cluster = r1.Key, "other"
	c.Begin(outbox.Transaction{XID: 7, Commit: 10})
	c.Rows([]*outbox.Row{r1, r2})
	c.Commit(20)
	refused := func(r *outbox.Row, then outbox.MarkState) {
		c.Take()
		c.Outcome(outbox.Outcome{Rows: []*outbox.Row{r}, Class: outbox.Refused, Scope: outbox.KeyScope(r), Blocked: true, Err: errOurs})
		c.Marked([]outbox.Marked{{Row: r, Kind: outbox.MarkAttempt, State: then, Attempts: 1}})
	}
	refused(r1, outbox.MarkedFailed)
	refused(r2, outbox.MarkedRetry)
	if p := c.parks.ofKey(r1); p == nil || p.Cause != outbox.CauseBlocked || p.RowID != "1" {
		t.Errorf("the key is parked as %+v", p)
	}
}

// Rows go on being committed at full rate while the stream is handed back. An
// empty round never comes; rows committed after the hand-back's snapshot are the
// stream's, so it ends all the same.
func TestHandBackEndsUnderLoad(t *testing.T) {
	s := newScene(t, worldRules{})
	s.world.trace = nil
	v := s.end(func(s *scene) {
		s.parkStream()
		for round := 0; s.parked(outbox.StreamScope()); round++ {
			if round == 100 {
				t.Fatal("the stream is still parked")
			}
			s.row("k", 0)
			s.row("j", 0)
			held := map[eventKind]bool{}
			for n := 0; n < 25 && s.any(held); n++ {
			}
			s.must(evStatus)
			s.advance(50 * time.Millisecond)
		}
	})
	if v != nil {
		t.Error(v)
	}
}

// The broker is down for long and rows go on being committed. What the slot
// retains stays under the budget: the stream is parked in time, queued rows are
// given back, and when the broker is back everything is published in order.
func TestWALBudgetHoldsInAnOutage(t *testing.T) {
	s := newScene(t, worldRules{})
	s.world.trace = nil
	s.a.kill()
	s.world.plan.cfg.WALBudget = 4000
	s.a.boot()
	s.rest()
	v := s.end(func(s *scene) {
		s.row("j", 0)
		s.rest(evArrive) // on its way, and not answered for as long as the outage lasts
		s.kafka.down["main"] = true
		for range 200 {
			s.row("k", 0)
			s.rest(evSend, evArrive)
			n := s.retained()
			if n > s.plan.cfg.WALBudget {
				t.Fatalf("the slot retains %d bytes of %d", n, s.plan.cfg.WALBudget)
			}
			s.a.input(func() { s.a.core.Retained(n) })
			s.advance(50 * time.Millisecond)
		}
		if !s.parked(outbox.StreamScope()) {
			t.Error("the stream should be parked")
		}
		s.kafka.down["main"] = false
		for range 400 {
			s.rest()
			n := s.retained()
			s.a.input(func() { s.a.core.Retained(n) })
			s.advance(300 * time.Millisecond)
		}
	})
	if v != nil {
		t.Error(v)
	}
}

// One transaction is larger than memory may be. Its rows go out while it is being
// read, and no more of it is read than fits (I9 is checked after each step).
func TestTransactionLargerThanMemory(t *testing.T) {
	s := newScene(t, worldRules{})
	s.world.trace = nil
	v := s.end(func(s *scene) {
		tx := s.begin()
		for range 300 {
			s.addRow(tx, &dbRow{table: s.plan.tables[0], cluster: "main", topic: "x", key: "k"})
		}
		s.commit(tx, true)
		s.rest(evSend)
		if s.a.core.Reading() {
			t.Error("the WAL is read though memory is full")
		}
		s.rest()
	})
	if v != nil {
		t.Error(v)
	}
}
