package checkpoint

import (
	"slices"
	"time"
	"unsafe"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// This file has further faults of the simulation: prepared transactions, tables that the publication lacks,
// locked rows, retention, wrong clocks, and topics that get more partitions.

// row returns the row to which a statement applies: the existing row with this id and creation time, or else
// the last row that had them.
func (w *world) row(row *outbox.Row) *dbRow {
	var last *dbRow
	for _, r := range w.byID[rowID{table: row.Table, id: row.ID}] {
		if row.CreatedAt != 0 && row.CreatedAt != r.created.UnixMicro() && !w.off.findsSameRow {
			continue
		}
		last = r
		if r.exists() {
			break
		}
	}
	return last
}

func (w *world) table(name string) *outbox.Table {
	return w.plan.tables[slices.IndexFunc(w.plan.tables, func(t *outbox.Table) bool { return t.String() == name })]
}

// listReissue lists rows that an application can delete, and then insert another row with the same id.
func (w *world) listReissue() {
	for _, r := range w.rows {
		if !r.exists() || r.taken || r.locked || w.lockOf(r) != nil || len(w.rows) >= maxRows || !w.chance(30) {
			continue
		}
		w.can(evReissue, func() {
			w.note("application: deletes %v, and gives its id to another", r)
			w.remove(r)
			t, o := w.begin(), w.drawRow()
			o.table, o.id, o.reissued = r.table, r.id, true
			o.unmarked = max(o.unmarked, 0)
			if !w.free(t, o) {
				o.key, o.null = "c", false
			}
			w.addRow(t, o)
		})
	}
}

// listUnmarked lists rows whose marks can begin to be refused.
func (w *world) listUnmarked() {
	for _, r := range w.rows {
		if r.exists() && r.status == statusPending && r.unmarked == 0 && !r.taken && w.chance(20) {
			w.can(evUnmarked, func() {
				r.unmarked = 1 + w.intn(4)
				w.note("database: refuses %d marks of %v", r.unmarked, r)
			})
		}
	}
}

// remembered reports whether our schema knows that the row was published.
func (w *world) remembered(r *dbRow) bool {
	p, ok := w.parks[outbox.RowScope(r.probe())]
	return ok && p.Unmarked() || w.plan.once && w.tallyOf(r.cluster).left[r]
}

// stuck reports whether the row can never be published or charged, because its key waits for the operator.
func (r *dbRow) stuck() bool {
	return r.exists() && r.status == statusPending && r.unmarked < 0 && r.copies == 0 && (r.poison < 0 || r.bad != nil)
}

// behindStuck reports whether a row of the same key is stuck.
func (w *world) behindStuck(row *outbox.Row) bool {
	return slices.ContainsFunc(w.rows, func(r *dbRow) bool {
		return r.stuck() && outbox.KeyScope(r.probe()) == outbox.KeyScope(row)
	})
}

// ---- prepared transactions

// listPrepared lists what can happen to a transaction that is ready to commit.
func (w *world) listPrepared(t *txn) {
	switch {
	case t.prepared:
		w.can(evCommitPrepared, func() { w.commit(t, true) })
		w.can(evCommitPrepared, func() { w.rollback(t) })
	case !w.healing && len(t.rows) > 0:
		w.can(evPrepare, func() { w.prepare(t) })
	}
}

// prepare is PREPARE TRANSACTION: the transaction outlives its session. With a two_phase slot, the WAL would
// bring it here.
func (w *world) prepare(t *txn) {
	w.note("database: xid %d is prepared", t.xid)
	t.prepared = true
	w.logged(func() { t.prepared = false })
	if w.off.onePhase {
		t.commit = w.write(24)
		t.end = w.insert
		w.wal = append(w.wal, &walRec{at: t.commit, tx: t})
	}
}

// uncommit is a failover to a position before the commit. A prepared transaction still exists there, and can
// be committed again.
func (w *world) uncommit(t *txn) {
	t.state, t.visible, t.undone = txnLost, false, true
	if !t.prepared {
		return
	}
	t.state = txnOpen
	w.txns = append(w.txns, t)
	for _, r := range t.rows {
		r.allowed++
		r.first = nil
	}
}

// ---- the publication

// toldOf reports whether rows of the table are certain to be left to the sweeper: the leader found that the
// publication lacks the table, and the table's park is durable.
func (w *world) toldOf(t *outbox.Table) bool {
	_, parked := w.parks[outbox.TableScope(t)]
	return (parked || w.off.uncoveredTold) && w.lock != nil && w.lock.connected && slices.Contains(w.lock.lacking, t)
}

// lacking returns the tables that a new connection finds missing from the publication.
func (w *world) lacking() (tables []*outbox.Table) {
	for _, t := range w.plan.tables {
		if w.lacks[t] {
			tables = append(tables, t)
		}
	}
	return tables
}

func (w *world) uncover(t *outbox.Table, lacks bool) {
	w.note("database: publication lacks %v: %v", t, lacks)
	was := w.lacks[t]
	w.logged(func() { w.lacks[t] = was })
	w.lacks[t] = lacks
}

// listPublication is the driver's regular check of the publication. The connection ends if the publication
// has changed since the connection's start.
func (w *world) listPublication(p *proc) {
	for _, t := range w.plan.tables {
		lacked := slices.Contains(p.conn.lacking, t)
		if lacked != w.lacks[t] && (!lacked || !w.off.coveredNoticed) {
			w.can(evPublication, func() {
				w.note("%v: sees that the publication lacks %v: %v", p, t, w.lacks[t])
				p.conn.dropped()
			})
			return
		}
	}
}

// ---- the operator

// listPause lists what operators can pause and resume.
func (w *world) listPause() {
	scopes := []outbox.Scope{outbox.StreamScope()}
	for _, t := range w.plan.tables {
		scopes = append(scopes, outbox.TableScope(t))
	}
	for _, s := range scopes {
		w.can(evPause, func() {
			if i := slices.IndexFunc(w.paused, func(p outbox.Park) bool { return p.Scope == s }); i >= 0 {
				w.paused = slices.Delete(slices.Clone(w.paused), i, i+1)
				w.note("operator: resumes %v", s)
			} else {
				w.paused = append(slices.Clone(w.paused), outbox.Park{Scope: s, Cause: outbox.CausePaused, Since: w.now})
				w.note("operator: pauses %v", s)
			}
		})
	}
}

// listPaused is the driver's regular query for the scopes that are paused.
func (w *world) listPaused(p *proc) {
	if p.conn == nil || !p.conn.connected || slices.Equal(p.paused, w.paused) {
		return
	}
	w.can(evPause, func() {
		w.note("%v: sees what is paused", p)
		p.sees(w.paused)
		p.input(func() { p.core.Pause(p.paused) })
	})
}

// sees notes which scopes the process knows to be paused from now on. Rows that are on their way to the sink
// by then still go there.
func (p *proc) sees(paused []outbox.Park) {
	p.paused, p.flew = paused, map[*outbox.Row]bool{}
	for e := range p.core.rows.flying() {
		p.flew[e.row] = true
	}
}

// checkPaused checks that no row is published of a scope that the process knows to be paused.
func (p *proc) checkPaused(commands []outbox.Command) {
	for _, c := range commands {
		for _, row := range c.Publish {
			for _, s := range p.paused {
				if s.Scope.Contains(row) && !p.flew[row] {
					p.w.fail("paused", p.w.row(row), "%v: row %s is published while %v is paused", p, row.ID, s.Scope)
				}
			}
		}
	}
}

// ---- rows

// listLocks lists rows that applications lock and unlock.
func (w *world) listLocks() {
	for _, r := range w.rows {
		switch {
		case r.locked:
			w.can(evUnlock, func() { w.note("application: unlocks %v", r); r.locked = false })
		case !w.healing && r.exists() && w.lockOf(r) == nil && w.chance(20):
			w.can(evLock, func() { w.note("application: locks %v", r); r.locked = true })
		}
	}
}

// listRetention lists rows that were sent long ago and may be deleted.
func (w *world) listRetention() {
	for _, r := range w.rows {
		if r.exists() && r.status == statusSent && !r.foreign && !r.taken && !r.locked && w.lockOf(r) == nil && r.table.Mapping.Published == outbox.PublishedStatus {
			w.can(evRetain, func() { w.note("retention: deletes %v, which was sent", r); w.remove(r) })
		}
	}
}

// retainAfter is the age from which retention deletes unsent rows.
const retainAfter = 4 * time.Second

// retention is one round that deletes unsent rows.
type retention struct {
	table  *outbox.Table
	flying []string
}

// listRetain lists the steps of the process's retention of unsent rows.
func (w *world) listRetain(p *proc) {
	if w.healing || p.conn == nil || !p.conn.connected || p.core.cfg.Shadow {
		return
	}
	if x := p.retain; x != nil {
		w.can(evRetain, func() { p.retain = nil; p.deleteUnsent(x) })
		return
	}
	for _, t := range w.plan.tables {
		if t.Mapping.RetentionUnsent > 0 {
			w.can(evRetain, func() { p.retain = &retention{t, p.core.InFlight(t)} })
		}
	}
}

// deleteUnsent does not delete rows that were in flight when the round began. Rows that came into flight
// later are delivered all the same.
func (p *proc) deleteUnsent(x *retention) {
	w := p.w
	flying := p.core.InFlight(x.table)
	for _, r := range w.rows {
		if r.table != x.table || !r.exists() || r.foreign || r.taken || r.locked || w.lockOf(r) != nil ||
			r.status == statusSent || w.now.Sub(r.created) < r.table.Mapping.RetentionUnsent {
			continue
		}
		if slices.Contains(x.flying, r.id) {
			if !w.off.retainsFlying {
				continue
			}
			if slices.Contains(flying, r.id) {
				w.fail("retention", r, "%v is deleted by its retention while it is in flight", r)
			}
		}
		w.note("retention: deletes %v, which is %v", r, r.status)
		w.remove(r)
	}
}

// ---- clocks

// clock returns the process's time, which has a wall clock that may be wrong and a monotonic clock that
// nobody sets.
func (p *proc) clock() time.Time {
	return clockTime(p.w.now.Add(p.skew), p.w.now.Sub(epochStart))
}

// clockTime makes a time with both clocks, as time.Now does. Package time has no function for this.
// TestClockTime checks that such a time behaves as it should.
func clockTime(wall time.Time, monotonic time.Duration) time.Time {
	const hasMonotonic, shift = 1 << 63, 30
	parts := struct {
		wall uint64
		ext  int64
		loc  *time.Location
	}{wall: hasMonotonic | uint64(wall.Unix()-wallStart)<<shift | uint64(wall.Nanosecond()), ext: int64(monotonic) + 1}
	return *(*time.Time)(unsafe.Pointer(&parts))
}

var wallStart = time.Date(1885, 1, 1, 0, 0, 0, 0, time.UTC).Unix()

// skews are the errors that a wall clock may have.
var skews = [...]time.Duration{0, 0, 20 * time.Millisecond, -20 * time.Millisecond, 3 * time.Second, -3 * time.Second, time.Hour, -time.Hour}

func (w *world) listSkew(p *proc) {
	w.can(evSkew, func() {
		p.skew = skews[w.intn(len(skews))]
		p.told, p.quiet, p.asked = false, false, time.Time{}
		w.note("%v: its clock is wrong by %v", p, p.skew)
	})
}

// listPace limits, for a while, how fast rows come into memory.
func (w *world) listPace(p *proc) {
	if p.frozen {
		return
	}
	w.can(evPace, func() {
		d, page := time.Duration(w.intn(3000))*time.Millisecond, w.intn(3)
		w.note("%v: no row for %v, then pages of %d", p, d, page)
		p.input(func() { p.core.Pace(p.clock().Add(d), page) })
	})
}

// busy checks that a round of the watch that found nothing is not repeated at once.
func (p *proc) busy() {
	now := p.core.now
	if p.asked.Equal(now) && p.foundNone.Equal(now) {
		p.w.fail("busy", nil, "%v looks for missed rows again at once, though it found none", p)
	}
	p.asked, p.foundNone = now, time.Time{}
}

// tick sets the time, without another input.
func (p *proc) tick() {
	quiet := p.quiet
	p.core.Tick(p.clock())
	p.told, p.dirty = true, true
	p.quiet = quiet
	if p.w.chance(70) {
		p.take()
	}
}

// checkWake checks that NextTick is no later than the next thing that has to be done if no input comes
// before.
func (p *proc) checkWake(r *Ready) {
	now := p.w.now.Sub(epochStart)
	if p.quiet && (p.wake == 0 || now < p.wake) && !r.empty() {
		p.w.fail("contract", nil, "%v: there is something to do before NextTick says so, %v: %+v", p, p.wake-now, *r)
	}
	p.quiet, p.wake = p.told, 0 // otherwise the clock may have been set since the last Tick
	if next := p.core.NextTick(); !next.IsZero() {
		if !next.After(p.core.now) {
			p.w.fail("contract", nil, "%v: NextTick is past", p)
		}
		p.wake = now + next.Sub(p.clock())
	}
}

func (r *Ready) empty() bool {
	return len(r.Commands)+len(r.Marks)+len(r.Check)+len(r.Unclaim)+len(r.Claim)+len(r.Rewatch) == 0 && r.Sweep == nil && r.Watch == nil && !r.Failed && r.Parks == nil
}

// checkCauses checks that each row of a page is counted, under exactly one cause.
func (p *proc) checkCauses(rows []*outbox.Row) {
	n := 0
	for _, some := range p.core.Causes(rows) {
		n += len(some)
	}
	if n != len(rows) {
		p.w.fail("contract", nil, "%v: %d rows of a page have a cause, of %d", p, n, len(rows))
	}
}

// rowBytes is the maximum size of a row of the simulation.
var rowBytes = new(outbox.Row).Size() + 44

// ---- partitions

// addPartition is an operator who adds a partition.
func (w *world) addPartition(topic string) {
	w.kafka.partitions[topic]++
	w.note("kafka: topic %s has %d partitions", topic, w.kafka.parts(topic))
}

func (k *kafka) parts(topic string) int { return 2 + k.partitions[topic] }

// listPartitions: a sink learns of new partitions whenever it asks. Rows in the topic's queues wait for the
// rows on the wire. Then all of them go to their new partitions.
func (s *sink) listPartitions() {
	for _, cl := range s.w.plan.clusters {
		for _, topic := range topics[:s.w.plan.topics] {
			id := topicID(cl, topic)
			if s.known(id) == s.w.kafka.parts(id) {
				continue
			}
			s.w.can(evPartitions, func() { s.adopt(cl, topic) })
		}
	}
}

func topicID(cluster, topic string) string { return cluster + "/" + topic }

func (s *sink) known(id string) int { return 2 + s.partitions[id] }

// adopt begins to use new partitions, or begins to drain the topic for them.
func (s *sink) adopt(cluster, topic string) {
	id := topicID(cluster, topic)
	if s.w.off.drainsTopic {
		s.partitions[id] = s.w.kafka.partitions[id]
		return
	}
	waiting := s.queueOf(cluster, topic, draining)
	s.draining[id] = true
	flying := false
	for _, l := range s.queues {
		if l.cluster != cluster || l.topic != topic || l == waiting {
			continue
		}
		s.move(l.queue, l, waiting)
		l.queue = nil
		flying = flying || l.wire != nil || s.inTransaction(l)
	}
	if flying {
		return
	}
	s.w.note("%v: sink: topic %s has %d partitions now", s.p, id, s.w.kafka.parts(id))
	s.partitions[id] = s.w.kafka.partitions[id]
	delete(s.draining, id)
	for _, it := range waiting.queue {
		l := s.queueFor(it.row)
		s.move([]*item{it}, waiting, l)
		l.queue = append(l.queue, it)
	}
	waiting.queue = nil
}

// move takes items from one queue to another, which then owes their outcomes. Items that wait for partitions
// are put in front: items that were on the wire when the draining began come back later than those behind
// them.
func (s *sink) move(items []*item, from, to *partitionQueue) {
	for _, it := range items {
		from.order = slices.DeleteFunc(from.order, func(o *item) bool { return o == it })
	}
	if to.part == draining {
		to.queue = slices.Concat(items, to.queue)
		to.order = slices.Concat(items, to.order)
		return
	}
	to.order = append(to.order, items...)
}

// draining is the number of the queue where a topic's rows wait that have no partition yet.
const draining = -1
