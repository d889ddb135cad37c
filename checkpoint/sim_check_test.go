package checkpoint

import (
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// This file checks the invariants of docs/internals/design.md: I2, I5 and I7 where a row
// is marked (sim_world_test.go), the others here.

// checkLanding checks I3, I4 and I10 when a record comes into Kafka's log.
func (w *world) checkLanding(r *dbRow, l *landing) {
	if r.tx.state == txnAborted && !r.tx.undone || r.tx.state == txnOpen && !r.tx.undone {
		w.fail("I10", r, "%v was published and its transaction never committed", r)
	}
	w.checkVersion(r, &l.meta)
	if r.copies > r.allowed {
		w.fail("I4", r, "%v is in Kafka %d times, %d are explained", r, r.copies, r.allowed)
	}
	if r.first != nil {
		return
	}
	r.first = l
	w.checkBlocked(r)
	for _, o := range w.rows {
		if o.first != nil && o != r && o.sameOrder(r) && r.before(o) && !w.lateByNature(r, o) {
			w.fail("I3", r, "%v (commit %d) is first published after %v (commit %d)", r, r.tx.seq, o, o.tx.seq)
		}
	}
}

// checkVersion checks I12 of what we publish. What a failover took back had been committed.
func (w *world) checkVersion(r *dbRow, m *copyMeta) {
	if m.row == nil || r.tx.undone || r.undone {
		return
	}
	switch {
	case r.table.Mapping.NeedsLook() && !m.looked:
		w.fail("I12", r, "%v is published as it was before it was looked at", r)
	case m.looked && !r.committed.ours && !r.scheduled() && !r.requeued:
		w.fail("I12", r, "%v is published and was not to be when it was committed", r)
	case (m.looked || m.page) && m.version < r.committed.version:
		w.fail("I12", r, "%v is published in version %d, and %d was committed", r, m.version, r.committed.version)
	}
}

// checkBlocked checks that no row passes a FAILED one of its key where that
// blocks the key.
func (w *world) checkBlocked(r *dbRow) {
	if r.table.Mapping.OnFailed != outbox.OnFailedBlock {
		return
	}
	for _, o := range w.rows {
		if o.sameOrder(r) && o.before(r) && o.exists() && o.status == statusFailed && !w.lateByNature(o, r) {
			w.fail("block", r, "%v is published though %v is FAILED", r, o)
		}
	}
}

// checkMissed checks that only rows that the stream does not carry count as missed. After
// a failover that the process has not noticed it cannot know.
func (w *world) checkMissed(p outbox.Park) {
	for _, r := range w.rows {
		marked := r.requeued && r.status == statusSent                                                                                             // by a late mark
		there := r.exists() && r.status == statusPending || r.deleted || r.status == statusCancelled || r.tx.state == txnLost || marked || r.other // since it was looked at
		if p.Scope.Contains(r.probe()) && there && (r.requeued || r.missed || r.undone || r.scheduled() || r.reissued) {
			return
		}
	}
	w.fail("missed", nil, "%v is parked for a row that the stream missed, and there is none", p.Scope)
}

// before reports whether r comes before o in the WAL.
func (r *dbRow) before(o *dbRow) bool {
	if r.tx == o.tx {
		return r.n < o.n
	}
	return r.tx.seq < o.tx.seq
}

// lateByNature is the list of documented exceptions for r published after o.
func (w *world) lateByNature(r, o *dbRow) bool {
	if r.requeued || r.scheduled() || r.reissued || r.missed && !r.told || r.undone || r.tx.undone || r.other || o.other {
		return true
	}
	if o.first == nil {
		return false
	}
	m := &o.first.meta
	seen := r.tx.visible && r.tx.visibleStep <= m.step
	return m.page && (!seen || r.order > o.order)
}

// checkStep checks what must hold at every moment.
func (w *world) checkStep() {
	passed := outbox.LSN(0)
	if w.slot.exists && !w.slot.lost {
		passed = w.slot.confirmed
	}
	for _, p := range w.procs {
		passed = max(passed, w.checkProc(p))
	}
	for _, r := range w.rows {
		if r.survives() && r.tx.commit < passed && r.unsettled() && !w.leftToSweeper(r) {
			w.fail("I6", r, "%v is PENDING, no park covers it, and %v, behind its commit at %v, is confirmed", r, passed, r.tx.commit)
		}
	}
}

// leftToSweeper reports whether the row may be PENDING below the confirmed position.
func (w *world) leftToSweeper(r *dbRow) bool {
	if r.foreign || r.requeued || r.scheduled() || r.missed || r.undone || r.taken || r.reissued {
		return true
	}
	if w.plan.once && w.tallyOf(r.cluster).left[r] {
		return true
	}
	row := r.probe()
	for s := range w.parks {
		if s.Contains(row) {
			return true
		}
	}
	return false
}

// checkProc checks one process and gives the position that it may confirm at
// any moment.
func (w *world) checkProc(p *proc) outbox.LSN {
	if p.core == nil {
		return 0
	}
	w.checkMemory(p)
	if err := p.core.inconsistency(); err != nil {
		w.fail("parts", nil, "%v: %v", p, err)
	}
	c := p.conn
	if c == nil || !c.alive || !c.streaming {
		return 0
	}
	at := p.core.Confirm()
	if at < c.confirm {
		w.fail("I6", nil, "%v: the confirmed position goes back from %v to %v", p, c.confirm, at)
	}
	if at > w.insert {
		w.fail("I6", nil, "%v: confirms %v, the WAL ends at %v", p, at, w.insert)
	}
	c.confirm = max(c.confirm, at)
	return at
}

// unsettled reports whether the row still has to be published or, where it has a
// state, marked.
func (r *dbRow) unsettled() bool {
	if !r.table.Stateful() {
		return r.copies == 0
	}
	return r.status == statusPending
}

// blocked reports whether the row waits behind a FAILED row of a key that only the
// operator frees.
func (w *world) blocked(r *dbRow) bool {
	if r.table.Mapping.OnFailed != outbox.OnFailedBlock {
		return false
	}
	for _, o := range w.rows {
		if o.exists() && o.status == statusFailed && outbox.KeyScope(o.probe()) == outbox.KeyScope(r.probe()) { // on whichever cluster
			return true
		}
	}
	return false
}

// settled reports whether a healed world has settled everything.
func (w *world) settled() bool {
	for _, t := range w.txns {
		if t.state == txnOpen && t.xid != 0 || t.state == txnCommitted {
			return false
		}
	}
	for _, r := range w.rows {
		if !w.rowSettled(r) {
			return false
		}
	}
	for _, p := range w.parks {
		if !w.staysParked(p) {
			return false
		}
	}
	for _, p := range w.procs {
		if p.up && p.draining {
			return false // wait for the clean stop to end
		}
	}
	if len(w.claims) > 0 {
		return false
	}
	if w.lock == nil || !w.lock.streaming || !w.slot.exists {
		return false
	}
	for _, rec := range w.wal {
		if rec.tx != nil && rec.tx.end > w.slot.confirmed {
			return false
		}
	}
	return w.lock.p.idle()
}

// staysParked reports whether a park waits for the operator: a blocked key's, or that of a
// table with too many of them.
func (w *world) staysParked(p outbox.Park) bool {
	if p.Scope.Kind >= outbox.ScopeKey {
		return p.Cause == outbox.CauseBlocked || slices.ContainsFunc(w.rows, func(r *dbRow) bool {
			return p.Scope.Contains(r.probe()) && (r.stuck() || (p.Unmarked() || w.plan.once && w.remembered(r)) && r.exists() && r.unmarked < 0)
		})
	}
	if p.Scope.Kind != outbox.ScopeTable {
		return false
	}
	blocked := 0
	for _, o := range w.parks {
		if o.Scope.Kind >= outbox.ScopeKey && o.Scope.Table == p.Scope.Table && w.staysParked(o) {
			blocked++
		}
	}
	for _, r := range w.rows {
		if w.plan.once && r.unmarked < 0 && r.exists() && r.table.String() == p.Scope.Table && w.tallyOf(r.cluster).left[r] {
			blocked++
		}
	}
	return blocked > w.plan.cfg.MaxKeys/2
}

func (w *world) rowSettled(r *dbRow) bool {
	return !r.survives() || !r.unsettled() || r.foreign || r.missed && !r.table.Stateful() || w.blocked(r) || w.behindStuck(r.probe()) ||
		r.unmarked < 0 && r.copies > 0 && w.remembered(r)
}

// idle reports whether the process has nothing on its way.
func (p *proc) idle() bool {
	return len(p.sink.pending()) == 0 && len(p.sink.cmds) == 0 && len(p.outcomes) == 0 && len(p.marks) == 0 &&
		len(p.answers) == 0 && p.change == nil && !p.dirty
}

// checkAtRest says what keeps a healed world from coming to rest.
func (w *world) checkAtRest() {
	for _, p := range w.procs {
		p.describe()
	}
	for _, r := range w.rows {
		if !w.rowSettled(r) {
			w.fail("I1", r, "%v is %v and stays so", r, r.status)
			return
		}
	}
	for _, p := range w.parks {
		if !w.staysParked(p) {
			w.fail("I11", nil, "%v stays parked for %s", p.Scope, p.Cause)
			return
		}
	}
	if w.lock == nil || !w.lock.streaming {
		w.fail("I11", nil, "nobody streams")
		return
	}
	if len(w.claims) > 0 {
		w.fail("claims", nil, "%d claims stay open", len(w.claims))
		return
	}
	w.fail("I11", nil, "the confirmed position stays at %v, the WAL's end is %v", w.slot.confirmed, w.insert)
}

// checkEnd checks what must be true when everything is settled.
func (w *world) checkEnd() {
	for _, r := range w.rows {
		if !r.survives() || r.foreign {
			continue
		}
		if r.status == statusSent && r.copies == 0 {
			w.fail("I2", r, "%v is SENT and is not in Kafka", r)
		}
		if r.status == statusFailed && !r.spent && r.refusals+r.unknown < r.table.Mapping.Status.MaxAttempts {
			w.fail("I7", r, "%v is FAILED after %d refusals", r, r.refusals)
		}
	}
}

// checkMemory checks I9. The rows of one input, and those of a page that was requested before, may exceed
// the bound.
func (w *world) checkMemory(p *proc) {
	if n := p.core.looks.claims.open; n > maxClaims || n < 0 {
		w.fail("I9", nil, "%v: %d claims are open", p, n)
	}
	rows, _, bytes := p.core.Memory()
	if most := w.plan.cfg.MaxBytes + (maxChunk+w.plan.cfg.PageRows)*rowBytes; bytes > most {
		w.fail("I9", nil, "%v: %d bytes in memory, at most %d may be", p, bytes, most)
	}
	if most := w.plan.cfg.MaxRows + maxChunk + w.plan.cfg.PageRows; rows > most {
		w.fail("I9", nil, "%v: %d rows in memory, at most %d may be", p, rows, most)
	}
}

// describe writes the state of a Core into the story.
func (p *proc) describe() {
	c := p.core
	if c == nil || p.w.trace == nil {
		return
	}
	p.w.note("%v: connected %v streaming %v rows %d in flight %d waiting %d ledger %d keys %v remarks %v broken %v down %v retained %d started %v discards %v writing %v checking %v sweep %v",
		p, c.connected, c.streaming, c.rows.count, c.rows.inFlight, c.parks.holds, c.ledger.len(), c.parks.keys, c.retries.refused, c.tables.broken, c.down, c.retained, c.txs.started, c.txs.discarded, c.writing != nil, c.looks.checking, c.sweeps.page != nil)
	for _, o := range c.parks.list {
		p.w.note("%v: park %v %s phase %d durable %v version %d/%d awaiting %d waiting %d ready %v next %v nextSweep %v",
			p, o.Scope, o.Cause, o.phase, o.durable, o.written, o.version, o.awaiting, len(o.waiting), o.sweptOut, o.Next.Sub(p.w.now), o.nextSweep.Sub(p.w.now))
	}
	for e := range c.rows.flying() {
		p.w.note("%v: row %s state %d", p, e.row.ID, e.state)
	}
	if c.hb != nil {
		p.w.note("%v: hand-back %+v", p, *c.hb)
	}
	if c.gate != nil {
		p.w.note("%v: gate %+v", p, *c.gate)
	}
	p.w.note("%v: sink cmds %d pending %d blocked %v, marks %d answers %d outcomes %d", p, len(p.sink.cmds), len(p.sink.pending()), p.sink.blocked, len(p.marks), len(p.answers), len(p.outcomes))
	for _, it := range p.sink.pending() {
		p.w.note("%v: sink row %s class %d sent %v", p, it.row.ID, it.class, it.sent)
	}
}
