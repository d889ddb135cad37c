package checkpoint

import (
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// This file has the scenarios of tables on which an application's own relay works, too.

// withRelay plays an act as play does, with a mapping whose rows are looked at first.
func withRelay(t *testing.T, m outbox.Mapping, act func(s *scene)) {
	t.Helper()
	play(t, func(s *scene) {
		own := &s.plan.tables[0].Mapping
		own.HeadStart, own.Claim, own.HeadersTable, own.LookFirst = m.HeadStart, m.Claim, m.HeadersTable, m.LookFirst
		s.restart()
		s.rest()
		act(s)
	})
}

var (
	twoSeconds = outbox.Mapping{HeadStart: 2 * time.Second}
	rowLock    = outbox.Mapping{Claim: outbox.ClaimRowLock}
	lookFirst  = outbox.Mapping{LookFirst: true}
	sideHeader = outbox.Mapping{HeadersTable: outbox.HeadersTable{Name: "headers"}}
)

// inKafka fails unless Kafka has n copies of the row.
func (s *scene) inKafka(r *dbRow, n int, when string) {
	if s.bad == nil && r.copies != n {
		s.fail("head start", r, "%s %v is in Kafka %d times, not %d", when, r, r.copies, n)
	}
}

// The application's relay publishes and marks right after the commit. Within its
// head start the row is its own; one that it passed over is ours afterwards.
func TestHeadStart(t *testing.T) {
	withRelay(t, twoSeconds, func(s *scene) {
		r1, r2 := s.row("k", 0), s.row("k", 0)
		s.rest(evMark)
		s.advance(1900 * time.Millisecond)
		s.rest(evMark)
		s.relaySends(r1)
		s.inKafka(r2, 0, "within its head start")
		s.advance(100 * time.Millisecond)
		s.rest()
		s.inKafka(r1, 1, "after its head start")
		s.inKafka(r2, 1, "after its head start")
	})
}

// Rows that were committed while nobody led wait once, together, from the moment
// at which they are known to be there; not each from its own reading.
func TestBacklogWaitsOnce(t *testing.T) {
	s := newScene(t, worldRules{})
	v := s.end(func(s *scene) {
		s.plan.tables[0].Mapping.HeadStart = 2 * time.Second
		s.a.kill()
		var rows []*dbRow
		for range 12 {
			rows = append(rows, s.row("k", 0))
		}
		s.a.boot()
		s.rest(evReceive)
		s.advance(2 * time.Second)
		for range 3 { // looks
			s.rest()
			s.advance(10 * time.Millisecond)
		}
		for _, r := range rows {
			s.inKafka(r, 1, "two seconds after the start")
		}
	})
	if v != nil {
		t.Error(v)
	}
}

// So do rows that the sweeper brings, page after page. But if no page of that time showed
// a row's transaction as ended, the row waits for a whole head start.
func TestSweptBacklogWaitsOnce(t *testing.T) {
	withRelay(t, twoSeconds, func(s *scene) {
		s.a.kill()
		s.loseSlot()
		var rows []*dbRow
		for range 60 { // more than fit into memory
			rows = append(rows, s.row("k", 0))
		}
		s.advance(3 * time.Second)
		s.a.boot()
		s.rest()
		late, running := s.open("late", 0)
		s.advance(1900 * time.Millisecond)
		s.commit(running, true)
		s.rest(evMark)
		s.inKafka(rows[0], 0, "within the head start")
		s.advance(100 * time.Millisecond)
		for range 20 { // pages and looks
			s.rest(evMark)
			s.rest()
			s.advance(10 * time.Millisecond)
		}
		for _, r := range rows {
			s.inKafka(r, 1, "two seconds after the start")
		}
		s.advance(1600 * time.Millisecond)
		s.rest(evMark)
		s.relaySends(late)
	})
}

// A commit waits for the standby for longer than the head start. The relay, which
// works when the commit returns, has its time from then on.
func TestHeadStartBeginsWhenTheRowIsVisible(t *testing.T) {
	withRelay(t, twoSeconds, func(s *scene) {
		r := s.invisible("k")
		s.rest()
		s.advance(3 * time.Second)
		s.rest() // not visible
		s.show(r.tx)
		s.advance(100 * time.Millisecond)
		s.rest(evMark)
		s.relaySends(r)
	})
}

// r1 is refused while r2 of its key is being looked at. The sweeper's page leaves
// out what is in flight: had r2 stayed, the page would bring r3 alone.
func TestParkTakesQueuedRows(t *testing.T) {
	withRelay(t, sideHeader, func(s *scene) {
		s.row("k", 1)
		s.rest(evArrive)
		s.row("k", 0)
		s.rest(evArrive, evQuery)
		look := s.a.check
		s.a.check = nil // takes long
		s.rest()
		s.row("k", 0)
		s.rest()
		s.advance(time.Second)
		s.rest()
		if s.a.check == nil {
			s.a.check = look
		}
		s.rest()
	})
}

// The sweeper has read r1, which was committed late and waits for its head start when the
// hand-back begins. The statement leaves it out, since it is in flight: without the park,
// a kill would leave it to nobody.
func TestHandBackWaitsForQueuedRows(t *testing.T) {
	withRelay(t, twoSeconds, func(s *scene) {
		r, late := s.open("k", 0)
		s.advance(3 * time.Second)
		s.parkStream()
		s.commit(late, true)
		for range 5 {
			s.rest()
			s.advance(300 * time.Millisecond)
			if !s.parked(outbox.StreamScope()) {
				s.fail("head start", r, "the park is gone, and %v waits for its head start", r)
			}
		}
		s.inKafka(r, 0, "within its head start")
		s.advance(time.Second)
		s.rest()
		s.advance(time.Second)
		s.rest()
		s.inKafka(r, 1, "after its head start")
	})
}

// The sweeper has read r1 of a parked cluster, and the next page, with r2 of its key,
// is on its way. The cluster is unusable for a moment, in which another key's park
// takes r1 from the queue: r2 must not pass it.
func TestRowThatLeavesTheQueueVoidsThePage(t *testing.T) {
	s := newScene(t, worldRules{})
	v := s.end(func(s *scene) {
		s.plan.tables[0].Mapping.Claim = outbox.ClaimRowLock
		s.plan.cfg.PageRows, s.plan.cfg.SmallRound = 2, 1
		s.restart()
		s.rest()
		s.usable(false)
		s.row("j", 1)
		r1 := s.row("k", 0)
		r1.locked = true
		s.row("k", 0)
		s.rest()
		s.usable(true)
		s.rest(evAnswer)
		s.must(evAnswer)
		page := s.a.sweep
		s.a.sweep = nil // takes long
		s.rest(evOutcome)
		s.usable(false)
		s.rest()
		s.usable(true)
		s.a.sweep, r1.locked = page, false
		s.rest()
	})
	if v != nil {
		t.Error(v)
	}
}

// The mark of a row is refused, and with the row's park too many keys are parked: the
// table's park takes r1 from the queue, or a page would bring r2 alone.
func TestTableParkForAnUnmarkedRowTakesQueuedRows(t *testing.T) {
	s := newScene(t, worldRules{})
	v := s.end(func(s *scene) {
		s.plan.tables[0].Mapping.HeadersTable = sideHeader.HeadersTable
		s.plan.cfg.MaxKeys = 2
		s.restart()
		s.rest()
		s.row("h", 1)
		s.row("i", 1)
		s.rest()
		s.row("j", 0).unmarked = 1
		s.rest(evMark)
		s.row("k", 0)
		s.rest(evMark, evQuery)
		look := s.a.check
		s.a.check = nil // takes long
		s.rest()
		s.row("k", 0)
		s.advance(sweepPause)
		s.rest()
		if s.a.check == nil {
			s.a.check = look
		}
		s.rest()
	})
	if v != nil {
		t.Error(v)
	}
}

// usable makes the sink tell process A whether the cluster can be used.
func (s *scene) usable(usable bool) {
	s.a.input(func() { s.a.core.Cluster(outbox.ClusterState{Cluster: "main", Usable: usable, Err: errMapping}) })
}

// A row is being claimed when the stream is parked. The claim that was made for
// nobody is given up, or nobody would ever get the row.
func TestClaimForNobodyIsGivenUp(t *testing.T) {
	withRelay(t, rowLock, func(s *scene) {
		s.row("k", 0)
		s.rest(evQuery)
		s.must(evQuery) // the row is locked
		s.retains(walBudget)
		s.retains(0)
		s.rest()
	})
}

// The connection breaks while a claim is made, which is answered late.
func TestLateClaimIsGivenUp(t *testing.T) {
	withRelay(t, rowLock, func(s *scene) {
		s.row("k", 0)
		s.rest(evQuery)
		s.must(evQuery)
		s.a.conn.dropped()
		s.rest()
	})
}

// The relay works on r1, so r2 of the same key waits for it. Meanwhile r2 is not kept locked.
func TestRowBehindATakenOneIsNotLocked(t *testing.T) {
	s := newScene(t, worldRules{})
	v := s.end(func(s *scene) {
		s.plan.tables[0].Mapping.Claim = outbox.ClaimRowLock
		s.restart()
		s.rest()
		held := []eventKind{evRelayDone}
		r1, r2 := s.row("k", 0), s.row("k", 0)
		r1.taken = true
		s.rest(held...)
		s.inKafka(r2, 0, "behind one that the relay has")
		if s.lockOf(r2) != nil {
			s.fail("claims", r2, "%v waits and is locked", r2)
		}
		s.relaySends(r1)
		s.advance(takenWait)
		s.rest(held...)
		s.inKafka(r2, 1, "when the relay is done")
	})
	if v != nil {
		t.Error(v)
	}
}

// Kafka cannot be reached. During the outage, rows that were never sent are not kept locked.
func TestNothingStaysLockedInAnOutage(t *testing.T) {
	withRelay(t, rowLock, func(s *scene) {
		s.row("k", 0)
		s.rest(evSend)
		s.kafka.down["main"] = true
		s.rest()
		if len(s.claims) > 0 {
			s.fail("claims", nil, "rows stay locked while Kafka cannot be reached")
		}
	})
}

// Kafka cannot be reached for some time. A row that waits is then published from its place, in its present
// state, or not at all.
func TestHeldRowGoesOutAsItIs(t *testing.T) {
	for name, first := range map[string]bool{"as inserted": false, "looked at first": true} {
		t.Run(name, func(t *testing.T) {
			play(t, func(s *scene) {
				s.plan.tables[0].Mapping.LookFirst = first
				s.restart()
				s.rest()
				changed, cancelled, deleted, later, behind := s.row("k", 0), s.row("k", 0), s.row("k", 0), s.row("k", 0), s.row("k", 0)
				s.rest(evSend)
				s.kafka.down["main"] = true
				s.rest()
				changed.version, cancelled.status, deleted.deleted, later.available = 1, statusCancelled, true, s.now.Add(time.Minute)
				s.advance(s.plan.heldFor() + 1)
				s.rest()
				delete(s.kafka.down, "main")
				s.rest()
				s.wentOutAsTheyAre(changed, behind, later, cancelled, deleted)
			})
		})
	}
}

// wentOutAsTheyAre says of rows that waited: the changed one went out in its new version, the one behind it, too, the withdrawn
// ones did not, nothing was parked for it, and the one that is due later goes out then.
func (s *scene) wentOutAsTheyAre(changed, behind, later *dbRow, withdrawn ...*dbRow) {
	s.inKafka(changed, 1, "after the wait")
	s.inKafka(behind, 1, "after the wait")
	for _, r := range append(withdrawn, later) {
		s.inKafka(r, 0, "after the wait")
	}
	if s.bad == nil && changed.first.meta.version != 1 {
		s.fail("I12", changed, "%v went out in version %d", changed, changed.first.meta.version)
	}
	if len(s.parks) > 0 {
		s.fail("parks", nil, "%d scopes are parked", len(s.parks))
	}
	s.advance(time.Minute)
	for range 10 { // the watch
		s.advance(time.Second)
		s.rest()
	}
	s.inKafka(later, 1, "when it is due")
}

// Rows wait in the WAL for longer than a blip, since memory was full, or a limit held them up. They go out as they are
// when they are read, or not at all, and before a row of their key that is new.
func TestLateRowGoesOutAsItIs(t *testing.T) {
	play(t, func(s *scene) {
		changed, cancelled, deleted, later := s.row("k", 0), s.row("k", 0), s.row("k", 0), s.row("k", 0)
		s.rest(evReceive)
		changed.version, cancelled.status, deleted.deleted, later.available = 1, statusCancelled, true, s.now.Add(time.Minute)
		s.advance(s.plan.heldFor() + time.Millisecond)
		behind := s.row("k", 0)
		s.rest()
		s.wentOutAsTheyAre(changed, behind, later, cancelled, deleted)
	})
}

// A clean stop in the middle of everything: what is queued is left to the next
// process, and nothing is published twice.
func TestCleanStopLeavesQueuedRows(t *testing.T) {
	for name, m := range map[string]outbox.Mapping{"head start": twoSeconds, "claims": rowLock, "side table": sideHeader} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, worldRules{})
			v := s.end(func(s *scene) {
				own := &s.plan.tables[0].Mapping
				own.HeadStart, own.Claim, own.HeadersTable, own.LookFirst = m.HeadStart, m.Claim, m.HeadersTable, m.LookFirst
				s.restart()
				s.rest()
				for range 3 {
					s.row("k", 0)
				}
				s.rest(evQuery)
				s.row("j", 0)
				s.a.draining = true
				s.a.input(s.a.core.Drain)
				s.rest()
				if s.a.up {
					t.Error("it does not stop")
				}
				s.a.boot()
			})
			if v != nil {
				t.Error(v)
			}
		})
	}
}

// In shadow rows are confirmed past under the stream's park, and nothing is
// published. A later start that is not in shadow publishes what the application's
// relay left over.
func TestShadowPassesNothingOver(t *testing.T) {
	play(t, func(s *scene) {
		s.plan.cfg.Shadow = true
		s.restart()
		s.rest(evParks)
		r1, r2 := s.row("k", 0), s.row("k", 0)
		s.rest(evParks)
		s.must(evStatus)
		s.rest()
		s.inKafka(r1, 0, "in shadow")
		s.relaySends(r1)
		s.advance(10 * time.Second)
		s.rest()
		s.inKafka(r2, 0, "in shadow")
		if s.slot.confirmed <= r2.tx.commit {
			s.fail("shadow", r2, "the position does not move in shadow")
		}
		s.plan.cfg.Shadow = false
		s.restart()
		s.rest()
		s.inKafka(r2, 1, "after the shadow")
	})
}

// The WAL does not show until when a row is the writer's. It is asked for soon, so
// that the row is published when it is due and not at the watch's next round.
func TestWritersRowIsOnTime(t *testing.T) {
	play(t, func(s *scene) {
		s.a.kill()
		s.plan.cfg.WatchEvery = time.Minute
		s.a.boot()
		s.rest()
		s.advance(10 * time.Second)
		s.rest()
		tx := s.begin()
		r := &dbRow{
			table: s.plan.tables[0], cluster: "main", topic: "x", key: "k",
			available: s.now.Add(3 * time.Second), late: true,
		}
		s.addRow(tx, r)
		s.commit(tx, true)
		for range 11 {
			s.rest()
			s.advance(250 * time.Millisecond)
		}
		s.inKafka(r, 0, "before it is due")
		for range 4 {
			s.rest()
			s.advance(250 * time.Millisecond)
		}
		s.inKafka(r, 1, "a second after it is due")
	})
}

// In one transaction rows are inserted and completed, put off, cancelled and deleted. What was
// committed goes out, in order with a row behind it.
func TestRowGoesOutAsItIs(t *testing.T) {
	withRelay(t, lookFirst, func(s *scene) {
		completed, tx := s.open("k", 0)
		var others []*dbRow
		for range 3 {
			r := &dbRow{table: completed.table, cluster: "main", topic: "x", key: "k"}
			s.addRow(tx, r)
			others = append(others, r)
		}
		later, cancelled, deleted := others[0], others[1], others[2]
		completed.version, cancelled.status, deleted.deleted = 1, statusCancelled, true
		later.available = s.now.Add(time.Minute)
		s.commit(tx, true)
		behind := s.row("k", 0)
		s.rest()
		s.inKafka(completed, 1, "at once")
		s.inKafka(behind, 1, "at once")
		for _, r := range others {
			s.inKafka(r, 0, "at once")
		}
		if s.bad == nil && completed.first.meta.version != 1 {
			s.fail("I12", completed, "%v went out in version %d", completed, completed.first.meta.version)
		}
		s.advance(time.Minute)
		s.rest()
		s.advance(5 * time.Second) // the watch
		s.rest()
		s.inKafka(later, 1, "when it is due")
		s.inKafka(cancelled, 0, "ever")
		s.inKafka(deleted, 0, "ever")
	})
}
