package exactlyonce

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Each test in this file plays a schedule that broke an earlier design. rules_test.go names the rules for
// which each test exists, and takes them out.

// stage is a world whose steps a test determines.
type stage struct {
	*world
	t *testing.T
}

func newStage(t *testing.T) *stage { return &stage{newWorld(0, 3), t} }

// until runs without faults until is returns true.
func (s *stage) until(what string, is func() bool) {
	s.t.Helper()
	for range 2000 {
		if is() {
			return
		}
		next := s.progress()
		if s.violation != nil || len(next) == 0 {
			break
		}
		s.do(next[0])
	}
	s.t.Fatalf("%s: did not happen: %v\n%s", what, s.violation, strings.Join(s.story, "\n"))
}

// end removes all faults, lets the world come to its end, and checks it.
func (s *stage) end() {
	s.t.Helper()
	s.settle()
	if s.violation != nil {
		s.t.Fatalf("%v\n%s", s.violation, strings.Join(s.story, "\n"))
	}
}

// rest runs until nothing is left to do.
func (s *stage) rest() { s.run() }

// find returns the request of a kind that is under way and not handled yet.
func (s *stage) find(kind Kind) *message {
	for _, m := range s.net {
		if m.req != nil && m.req.Kind == kind && !m.handled && !m.lost && !s.held[m] {
			return m
		}
	}
	return nil
}

// next runs until there is a request of a kind.
func (s *stage) next(kind Kind) *message {
	s.t.Helper()
	var found *message
	s.until("a request", func() bool { found = s.find(kind); return found != nil })
	return found
}

// nextQuery runs until the relay has a transaction under way.
func (s *stage) nextQuery() *message {
	s.t.Helper()
	var found *message
	s.until("a query", func() bool {
		i := slices.IndexFunc(s.net, func(m *message) bool { return m.query != nil && !m.handled && !m.lost })
		if i >= 0 {
			found = s.net[i]
		}
		return i >= 0
	})
	return found
}

// delay cuts the connection of a request. The request is handled when the test calls arrive.
func (s *stage) delay(m *message) *message {
	s.held[m] = true
	s.lose(m)
	return m
}

// arrive lets Kafka or the database handle a delayed request.
func (s *stage) arrive(m *message) {
	delete(s.held, m)
	s.do(action{"late: " + m.what(), func() { s.world.handle(m) }})
	s.remove(m)
}

// loseAnswer lets a request be handled, and loses the answer.
func (s *stage) loseAnswer(m *message) {
	s.do(action{m.what(), func() { s.world.handle(m) }})
	s.lose(m)
}

func (s *stage) running() *proc {
	s.t.Helper()
	p := s.start()
	s.until("running", func() bool { return p.phase == running })
	return p
}

func (s *stage) count(content string) int { return s.kafka.published()[content] }

func (s *stage) expect(is bool, what string) {
	s.t.Helper()
	if !is {
		s.t.Fatalf("%s\n%s", what, strings.Join(s.story, "\n"))
	}
}

// ---- a row is SENT and not in Kafka ----

// In the middle of a transaction a delayed abort ends its first half, and a delayed Add
// lets the commit of the second half succeed.
func TestA1DelayedAbortEndsNothing(t *testing.T) {
	s := newStage(t)
	s.running()
	s.insert("a", 0, true)
	add := s.delay(s.next(Add))
	abort := s.delay(s.next(Abort)) // the relay sends it again
	s.half(abort, add)
}

// half lets both arrive when the next transaction has written its row and not yet its journal.
func (s *stage) half(abort, add *message) {
	s.t.Helper()
	m := s.next(Produce)
	s.do(action{m.what(), func() { s.handle(m) }})
	s.arrive(abort)
	for s.kafka.mark() {
	}
	s.arrive(add)
	s.end()
}

func TestA1DelayedCommitCommitsNothing(t *testing.T) {
	s := newStage(t)
	s.running()
	s.insert("a", 0, true)
	commit := s.delay(s.next(Commit))
	s.insert("b", 1, true)
	s.next(Commit) // the commit of the next transaction: the first one was aborted
	s.arrive(commit)
	s.end()
}

func TestA1DelayedAbortOfTheSealEndsNothing(t *testing.T) {
	s := newStage(t)
	s.insert("a", 0, true)
	s.start()
	add := s.delay(s.next(Add))
	abort := s.delay(s.next(Abort))
	s.half(abort, add)
}

func TestA2RequeueAfterACleanStopIsPublished(t *testing.T) {
	s := newStage(t)
	p := s.running()
	s.insert("a", 0, true)
	s.rest()
	s.kill(p) // idle: a clean stop
	s.requeue(0)
	s.running()
	s.rest()
	s.expect(s.count("c1") == 2, "the requeued row was not published")
	s.end()
}

func TestA3ReissuedIDIsAnotherRow(t *testing.T) {
	s := newStage(t)
	p := s.running()
	s.insert("a", 0, true)
	s.until("published", func() bool { return s.count("c1") == 1 })
	s.kill(p)
	s.failover(1)          // takes the insert back
	s.insert("b", 1, true) // it gets the same id
	s.expect(s.db.rows[0].id == 1, "another id")
	s.running()
	s.rest()
	s.expect(s.count("c2") == 1, "the new row was not published")
	s.end()
}

func TestA4AbortedUnitsAreNotPublished(t *testing.T) {
	s := newStage(t)
	p := s.running()
	s.insert("a", 0, true)
	s.next(Commit) // the journal is written by now
	s.kill(p)
	s.timeout()
	s.end()
}

func TestA5AtLeastOnceClosesTheTally(t *testing.T) {
	s := newStage(t)
	p := s.running()
	s.insert("a", 0, true)
	s.until("published", func() bool { return s.count("c1") == 1 })
	s.kill(p) // before the rows are marked
	s.net = nil
	// A leader that delivers at least once begins: it recovers and closes the tally first.
	if !s.off["closes"] {
		s.kill(s.running())
		s.net = nil
	}
	for i := range s.db.rows {
		s.db.rows[i].status = sent // this process marks rows without the tally
	}
	s.requeue(0)
	before := s.count("c1")
	s.running()
	s.rest()
	s.expect(s.count("c1") > before, "the requeue was swallowed")
	s.end()
}

func TestA6ReissuedPositionIsAnotherRow(t *testing.T) {
	s := newStage(t)
	s.stateless = true
	p := s.running()
	s.insert("a", 0, true)
	s.until("published", func() bool { return s.count("c1") == 1 })
	s.kill(p)
	s.failover(1)
	s.insert("b", 1, true)
	s.expect(s.db.wal[0].lsn == 1 && s.db.wal[0].xid == 1, "another position")
	s.end()
	s.expect(s.count("c2") == 1, "the new row was not published")
}

// ---- a row is in Kafka twice ----

func TestB2OldSlotAfterACrash(t *testing.T) {
	s := newStage(t)
	s.stateless = true
	p := s.running()
	for range 4 {
		s.insert("a", 0, true)
	}
	s.rest() // its position is confirmed, and noted in the tally
	s.expect(s.db.position == 4, "the position was not noted")
	s.kill(p)
	s.failover(0) // the slot comes back as it was saved
	s.expect(s.db.confirmed == 0, "the slot is where it was")
	s.end()
}

func TestB3EarlierLooksAreVoid(t *testing.T) {
	s := newStage(t)
	s.running()
	s.insert("a", 0, true)
	s.next(Commit)
	b := s.start() // it leads by the database, and has not looked at any row yet
	for s.find(Commit) != nil {
		m := s.find(Commit)
		s.do(action{m.what(), func() { s.handle(m) }})
	}
	s.rest()
	s.expect(b.phase == running, "the new leader does not run")
	s.end()
}

func TestB3RowsInMemoryAreVoidUnderAnotherEpoch(t *testing.T) {
	s := newStage(t)
	a := s.running()
	s.insert("a", 0, true)
	init := s.next(Add) // a has the row in memory, and is stopped here
	s.held[init] = true
	b := s.running()
	s.until("marked", func() bool { return s.db.rows[0].status == sent })
	s.leader = a // as if a still led
	delete(s.held, init)
	s.rest()
	_ = b
	s.end()
}

func TestB4InvisibleRowIsRemembered(t *testing.T) {
	s := newStage(t)
	p := s.running()
	s.insert("a", 0, false) // its commit waits for a standby, but the WAL has it
	s.until("published", func() bool { return s.count("c1") == 1 })
	s.kill(p)
	s.running()
	s.rest()
	s.db.rows[0].visible = true
	s.end()
}

func TestB5ZombieOfTheOldModeIsFenced(t *testing.T) {
	s := newStage(t)
	s.kafka.coord.epoch = 3
	s.insert("a", 0, true)
	s.legacy = []*legacyBatch{{Partition{"t", 0}, 3, s.db.rows[0].record(false)}}
	late := s.legacy
	s.legacy = nil
	s.running()
	s.landLegacy(late[0])
	s.end()
	s.expect(s.excused["c1"] == 0, "it landed")
}

func TestB5PartitionsFoundLaterAreSealedFirst(t *testing.T) {
	s := newStage(t)
	s.kafka.coord.epoch = 3
	s.knownParts = 0
	p := s.running()
	s.insert("a", 0, true)
	r := s.db.rows[0].record(false)
	s.next(Produce)
	s.expect(!s.kafka.legacyProduce(Partition{"t", 0}, 3, r), "it landed")
	_ = p
	s.end()
}

func TestB6DelayedBatchJoinsNothing(t *testing.T) {
	s := newStage(t)
	p := s.running()
	s.insert("a", 0, true)
	batch := s.delay(s.next(Produce))
	s.remove(s.next(Produce)) // it is sent again, without success
	p.m.GiveUp()
	p.take()
	s.insert("b", 0, true)
	again := s.next(Produce)
	s.expect(again.req.Batch.Seq == 0, "sequences go on in a new epoch")
	s.arrive(batch)
	s.end()
}

func TestB7SavepointsChangeNoName(t *testing.T) {
	a := &outbox.Row{ID: "1", Topic: "t", Key: []byte("k"), Value: []byte("v"), XID: 726}
	b := *a
	b.XID, b.Commit = 727, 5 // a page sees the xmin of a row behind a savepoint
	if NameOf(a) != NameOf(&b) {
		t.Error("the WAL and the table name one row differently")
	}
}

func TestB8LostJournalIsRefused(t *testing.T) {
	at := func(numbers ...uint64) (out []Placed) {
		for i, n := range numbers {
			out = append(out, Placed{Unit{Number: n}, int64(10 * i)})
		}
		return out
	}
	last := Placed{Unit{Number: 5}, 0}
	for name, c := range map[string]struct {
		last  Placed
		units []Placed
	}{
		"gone":            {last, nil},
		"another":         {last, at(1, 2)},
		"another place":   {Placed{Unit{Number: 5}, 7}, at(5, 6)},
		"gap":             {last, at(5, 7)},
		"begins too late": {Placed{}, at(2)},
	} {
		if _, err := Beyond(c.last, c.units); !errors.Is(err, ErrJournal) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := Beyond(last, at(5, 6, 7)); err != nil || len(got) != 2 {
		t.Error(got, err)
	}
	s := newStage(t)
	p := s.running()
	s.insert("a", 0, true)
	s.insert("b", 1, true)
	s.until("marked and noted", func() bool { return s.db.tally.Head.Number > 0 })
	s.rest()
	s.kill(p)
	s.damaged = true
	s.kafka.logs[0] = &plog{at: journalAt, epoch: -1}
	p = s.start()
	s.rest()
	s.expect(p.phase == waiting && errors.Is(s.refusedErr, ErrJournal), "it runs with another journal")
}

// A journal that is deleted and created again under a leader accepts its units. Their offset shows the loss
// before the rows are committed.
func TestB8JournalReplacedUnderALeader(t *testing.T) {
	s := newStage(t)
	p := s.running()
	s.insert("a", 0, true)
	s.until("marked and noted", func() bool { return s.db.tally.Head.Number > 0 })
	s.rest()
	l := s.kafka.log(journalAt)
	l.entries, l.end, l.epoch, l.next = nil, 0, -1, 0
	s.damaged = true
	s.insert("b", 0, true)
	s.until("the leadership ended", func() bool { return p.m == nil })
	s.expect(s.count("b") == 0, "published without a journal")
}

func TestB11MarksAreLostTogetherWithTheTally(t *testing.T) {
	s := newStage(t)
	p := s.running()
	s.insert("a", 0, true)
	s.until("marked", func() bool { return s.db.rows[0].status == sent })
	s.kill(p)
	s.failover(1)
	s.expect(s.db.rows[0].status == pending, "the mark was not lost")
	s.end()
}

func TestB12RepeatedMarkDoesNotSwallowARequeue(t *testing.T) {
	s := newStage(t)
	s.running()
	s.insert("a", 0, true)
	s.until("published", func() bool { return s.count("c1") == 1 })
	s.loseAnswer(s.nextQuery()) // the mark is committed
	s.requeue(0)
	s.end()
	s.expect(s.count("c1") == 2, "the requeue was swallowed")
}

func TestB12LateMarkOfAStoppedProcess(t *testing.T) {
	s := newStage(t)
	s.running()
	s.insert("a", 0, true)
	s.until("published", func() bool { return s.count("c1") == 1 })
	late := s.nextQuery()
	s.held[late] = true // the process is stopped
	s.running()
	s.rest()
	s.requeue(0)
	s.arrive(late)
	s.end()
	s.expect(s.count("c1") == 2, "the requeue was swallowed")
}

func TestB12LateMarkOfARowThatWasLeft(t *testing.T) {
	s := newStage(t)
	s.running()
	s.insert("a", 0, true)
	s.locked["c1"] = true
	s.until("left", func() bool { return len(s.db.tally.Left) == 1 })
	s.rest()
	delete(s.locked, "c1")
	s.loseAnswer(s.nextQuery()) // this marks the row
	s.expect(s.db.rows[0].status == sent, "not marked")
	s.requeue(0)
	s.end()
	s.expect(s.count("c1") == 2, "the requeue was swallowed")
}

func TestB13JournalIsReadToOurOwnMarker(t *testing.T) {
	s := newStage(t)
	p := s.running()
	s.insert("a", 0, true)
	s.until("published", func() bool { return s.count("c1") == 1 })
	s.kill(p)
	s.stale = 1
	s.end()
}

// ---- the stream stands still ----

func TestC1PartitionWithoutLeaderHoldsTheCluster(t *testing.T) {
	s := newStage(t)
	p := s.running()
	s.insert("a", 0, true)
	s.next(Commit)
	s.kafka.log(Partition{"t", 0}).down = true
	s.insert("b", 1, true)
	for range 300 { // Add is answered with 51
		s.do(s.progress()[0])
	}
	s.expect(s.count("c2") == 0, "the next transaction began: narrow the promise no more")
	s.kafka.log(Partition{"t", 0}).down = false
	s.rest()
	s.expect(p.phase == running && s.count("c2") == 1, "it does not go on by itself")
	s.end()
}

func TestC2DoubtDoesNotEndTheLeadership(t *testing.T) {
	s := newStage(t)
	p := s.running()
	m := p.m
	s.insert("a", 0, true)
	s.loseAnswer(s.next(Add))
	s.insert("b", 1, true)
	s.lose(s.next(Commit))
	s.rest()
	s.expect(p.m == m, "it led again")
	s.end()
}

func TestC3TimeoutLeadsAgain(t *testing.T) {
	s := newStage(t)
	p := s.running()
	m := p.m
	s.insert("a", 0, true)
	s.next(Produce)
	s.timeout() // the process was stopped for long
	s.rest()
	s.expect(p.phase == running && p.m != m && s.leader == p, "it does not lead again")
	s.end()
}

func TestC4UnitsAreBounded(t *testing.T) {
	s := newStage(t)
	s.cfg.MaxRows, s.cfg.BatchRows = 100, 100
	p := s.running()
	for range 30 {
		s.insert("a", 0, true)
	}
	s.gather(p, 29)
	s.end()
	batches := 0
	for _, e := range s.kafka.logs[0].entries {
		size := 0
		for i := range e.units {
			s.expect(len(e.units[i].Names) <= s.cfg.UnitRows, "a unit is too long")
			size += e.units[i].size()
			s.expect(len(e.units[i].Append(nil)) <= e.units[i].size(), "a unit is larger than it says")
		}
		batches += min(len(e.units), 1)
		s.expect(len(e.units) < 2 || size <= s.cfg.UnitBytes, "a batch is too large")
	}
	s.expect(batches > 5, "all units in one batch")
}

func TestC4LongIDsMakeSmallUnits(t *testing.T) {
	cfg := Config{UnitRows: 1000, UnitBytes: 10_000, BatchBytes: func(string) int { return 500 }}
	l := &portion{}
	for i := range 30 {
		l.acked = append(l.acked, &Record{Table: "o", Name: Name{ID: strings.Repeat("x", 300*i)}, Size: 150})
	}
	tx := &transaction{portions: []*portion{l}}
	tx.name(0, cfg)
	names := 0
	for _, u := range tx.units {
		names += len(u.Names)
		if len(u.Names) > 1 && u.size() > cfg.UnitBytes+100 {
			t.Errorf("%d names in %d bytes", len(u.Names), u.size())
		}
	}
	if names != 30 || len(tx.units) < 13 {
		t.Errorf("%d names in %d units", names, len(tx.units))
	}
	l.todo, l.most = l.acked, 100
	(&Machine{cfg: cfg}).send(l)
	if n := len(l.inFlight.Batch.Records); n != 3 {
		t.Errorf("%d rows of 150 bytes in a batch of 500", n)
	}
}

func TestC6CommitThatIsRefusedMayHaveTakenEffect(t *testing.T) {
	for _, code := range []int16{codeLoading, codeNotAvailable, codeNotCoordinator, codeInvalidEpoch, codeInvalidState, codeConcurrent, codeFenced} {
		if Classify(Commit, code, false) != Silence {
			t.Errorf("%d is taken for an answer", code)
		}
	}
	s := newStage(t)
	s.running()
	s.insert("a", 0, true)
	m := s.next(Commit)
	s.do(action{m.what(), func() { s.handle(m) }})
	m.answer.Class = Classify(Commit, codeNotCoordinator, false) // the decision was written
	s.end()
}

// ---- found by the simulation, or while it was written ----

// TestTryThatIsRefusedAfterOneThatMayHaveLanded plays a limit that was lowered between two tries of a
// batch.
func TestTryThatIsRefusedAfterOneThatMayHaveLanded(t *testing.T) {
	s := newStage(t)
	p := s.running()
	p.m.careful = true // otherwise any refusal leads to doubt
	s.insert("a", 0, true)
	s.loseAnswer(s.next(Produce))
	s.poison["c1"] = true
	s.end()
}

// TestRefusedRowThatIsNamed plays the refusal of a row that the journal names already, since both are
// written together. That transaction is aborted. The next one names only acknowledged rows.
func TestRefusedRowThatIsNamed(t *testing.T) {
	s := newStage(t)
	p := s.running()
	s.insert("z", 1, true)
	s.poison["c2"] = true
	s.insert("a", 0, true)
	s.insert("b", 1, true)
	s.gather(p, 2)
	s.until("published", func() bool { return s.count("c3") == 1 && p.m.Idle() })
	s.expect(s.count("c2") == 0 && s.late["a"], "the row was not refused")
	s.expect(!p.m.careful, "a later transaction waits for what it need not")
	s.end()
}

// TestRefusedRowKeepsItsKeysOrder checks that the rows behind a refused one are given back with it.
func TestRefusedRowKeepsItsKeysOrder(t *testing.T) {
	s := newStage(t)
	p := s.running()
	s.insert("z", 1, true)
	for range 4 {
		s.insert("a", 0, true)
	}
	s.poison["c2"] = true
	s.gather(p, 4)
	s.until("refused", func() bool { return s.late["a"] })
	s.expect(len(p.m.tx.portions[0].todo) == 0 && len(p.m.queue) == 0, "later rows of the key stay in the transaction, or in the queue")
	s.end()
}

// TestUnansweredCommitIsNoSuccess plays a commit that was never handled.
func TestUnansweredCommitIsNoSuccess(t *testing.T) {
	s := newStage(t)
	s.running()
	s.insert("a", 0, true)
	commit := s.next(Commit)
	s.lose(commit)
	s.remove(commit)
	s.end()
}

// TestHeadInTheMiddleOfABatch checks an offset within a batch: Fetch returns the batch from its beginning.
func TestHeadInTheMiddleOfABatch(t *testing.T) {
	s := newStage(t)
	s.cfg.MaxRows, s.cfg.UnitRows, s.cfg.UnitBytes = 4, 1, 10_000
	p := s.running()
	for range 4 {
		s.insert("a", 0, true)
	}
	s.gather(p, 3)
	s.until("two units of one batch noted", func() bool { return s.db.tally.Marked[3] > 0 })
	advance(s.db)
	s.expect(s.db.tally.Head.Number == 3, "another head")
	s.kill(p)
	s.end()
}

// gather delays the first transaction until n rows wait for the next one.
func (s *stage) gather(p *proc, n int) {
	s.t.Helper()
	add := s.next(Add)
	s.held[add] = true
	s.until("gathered", func() bool { return len(p.m.queue) == n })
	delete(s.held, add)
}

// TestAbortedRowsGoFirst checks that rows queued in the meantime come after those of the aborted
// transaction.
func TestAbortedRowsGoFirst(t *testing.T) {
	s := newStage(t)
	p := s.running()
	s.insert("a", 0, true)
	commit := s.next(Commit)
	s.held[commit] = true
	s.insert("a", 0, true)
	s.until("queued", func() bool { return len(p.m.queue) == 1 })
	s.lose(commit) // the commit never arrives
	s.remove(commit)
	s.end()
}

// ---- ends that a coordinator gives up ----

// lostEnd lets a partition lose its leader between the acknowledgement of c1 and the end of its
// transaction.
func lostEnd(t *testing.T, at Partition) (s *stage, p *proc) {
	t.Helper()
	s = newStage(t)
	s.kafka.drops = true
	p = s.running()
	s.insert("a", 0, true)
	s.next(Commit)
	s.kafka.log(at).down = true
	return s, p
}

// committed runs until the coordinator says that the transaction is over.
func (s *stage) committed() {
	s.t.Helper()
	s.until("committed", func() bool { return s.kafka.coord.state == completeCommit })
}

func (s *stage) isOpen(at Partition) bool {
	return slices.ContainsFunc(s.kafka.log(at).entries, func(e *entry) bool { return e.open })
}

func TestD1LostCommit(t *testing.T) {
	at := Partition{"t", 0}
	s, p := lostEnd(t, at)
	m := p.m
	s.committed()
	for range 100 {
		s.do(s.progress()[0])
	}
	s.expect(s.isOpen(at) && s.db.rows[0].status == pending, "it was marked without its end")
	s.kafka.log(at).down = false
	s.until("marked", func() bool { return s.db.rows[0].status == sent })
	s.expect(s.count("c1") == 1 && p.m == m, "not published once, by the same leader")
	s.end()
}

func TestD1LostCommitOfTheJournal(t *testing.T) {
	s, _ := lostEnd(t, journalAt)
	s.committed()
	s.insert("b", 1, true)
	for range 100 {
		s.do(s.progress()[0])
	}
	s.expect(s.isOpen(journalAt) && s.count("c2") == 0 && s.db.rows[0].status == pending, "it goes on without the journal")
	s.end()
	s.expect(s.count("c1") == 1 && s.count("c2") == 1, "not published once")
}

// The rows of an aborted transaction wait until its end is there; others go on.
func TestD2LostAbort(t *testing.T) {
	at := Partition{"t", 0}
	s := newStage(t)
	s.kafka.drops = true
	p := s.running()
	s.insert("a", 0, true)
	batch := s.next(Produce)
	s.do(action{batch.what(), func() { s.handle(batch) }})
	s.kafka.log(at).down = true
	p.m.GiveUp()
	p.take()
	s.insert("b", 1, true)
	s.until("the other row is marked", func() bool { return s.db.rows[1].status == sent })
	s.expect(s.isOpen(at) && s.count("c1") == 0, "the abort was not lost")
	s.end()
	s.expect(s.count("c1") == 1, "not published once")
}

func TestD3LostCommitThenKilled(t *testing.T) {
	for _, at := range []Partition{{"t", 0}, journalAt} {
		s, p := lostEnd(t, at)
		s.committed()
		s.kill(p)
		s.kafka.log(at).down = false
		s.end()
		s.expect(s.count("c1") == 1, "not published once")
	}
}

// The first of two leaders dies before the partition is back.
func TestD3KilledTwice(t *testing.T) {
	at := Partition{"t", 0}
	s, p := lostEnd(t, at)
	s.committed()
	s.kill(p)
	p = s.start()
	s.until("it waits", func() bool { return p.m != nil && p.m.seal.step == sealLook && p.m.seal.owned })
	s.kill(p)
	s.kafka.log(at).down = false
	s.end()
	s.expect(s.count("c1") == 1, "not published once")
}

func TestD3LostCommitInAPartitionNotKnown(t *testing.T) {
	at := Partition{"t", 0}
	s, p := lostEnd(t, at)
	s.committed()
	s.knownParts = 0
	s.kill(p)
	s.kafka.log(at).down = false
	s.end()
	s.expect(s.count("c1") == 1, "not published once")
}

func TestD3KilledInTheRepair(t *testing.T) {
	at := Partition{"t", 0}
	s, p := lostEnd(t, at)
	s.committed()
	s.kill(p)
	s.kafka.log(at).down = false
	p = s.start()
	commit := s.next(Commit) // the repair is open
	s.kill(p)
	s.remove(commit)
	s.running()
	s.end()
	s.expect(!s.kafka.cut && s.count("c1") == 1, "not published once")
}

// A partition whose abort was lost holds up its consumers only for a while, even if no row goes there.
func TestD4LostAbortIsMadeUpFor(t *testing.T) {
	at := Partition{"t", 0}
	s := newStage(t)
	s.kafka.drops = true
	p := s.running()
	s.insert("a", 0, true)
	batch := s.next(Produce)
	s.do(action{batch.what(), func() { s.handle(batch) }})
	s.kafka.log(at).down = true
	s.db.rows = nil // deleted
	p.m.GiveUp()
	p.take()
	s.kill(p)
	s.running()
	s.rest()
	s.expect(s.isOpen(at), "the abort was not lost")
	s.kafka.log(at).down = false
	s.rest()
	s.expect(!s.isOpen(at), "it holds consumers up")
}
