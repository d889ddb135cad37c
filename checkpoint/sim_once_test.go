package checkpoint

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// This file is exactly-once delivery in the simulation: the sink publishes in Kafka
// transactions, what a transaction published is in the cluster's journal, and the
// transaction of the database that marks a unit of it notes it in the tally. What
// package internal/exactlyonce shows of its Machine is taken for granted here: an epoch
// ends all that was under way under earlier ones, and the process that has it has read what they
// committed. Here it is about the Core: whether rows of all its ways (log, gate, sweep,
// hand-back, parks) are published once.

// journal is a cluster's; unit n is journal[n-1].
type journal []onceUnit

type onceUnit struct {
	rows  []*dbRow
	place exactlyonce.Unit // of rows of a table without state
}

// tally is what the database knows of a journal.
type tally struct {
	noted map[int]bool
	left  map[*dbRow]bool
	// Of tables without state: units up to head name no rows that commit behind settled.
	head    uint64
	settled outbox.LSN
	system  int // the database cluster that settled is a position of
}

// onceRules are switched off one by one: each has to be needed.
type onceRules struct {
	recovers    bool // nothing is looked at before the journal was read
	leftBrought bool // the Core hears of rows that were left
	together    bool // a unit is noted in the transaction of its marks
	notedOnce   bool // a unit that was noted is not marked again
	leftOnce    bool // … nor a row that is not left any more
	voidCore    bool // a connection has a Core and a sink of its own
	unrecovered bool // a cluster that was not recovered is parked before anything is read
	drainsTx    bool // a topic is drained of what is in a transaction before it uses new partitions
	guarded     bool // a look or a page is read where the leader's lock is held
	wholeUnits  bool // an outcome has all rows of its unit

	// Of tables without state.
	position  bool // rows up to the tally's position are not published again
	allRead   bool // the WAL is not read before every journal was
	inOrder   bool // the head passes a unit when the rows of all units before it are settled, too
	ownServer bool // a position is noted where the leader's lock is held
	ownSystem bool // … and counts on the database cluster that it is of
	timed     bool // names say when a row was committed
}

// onceTx is a Kafka transaction of a sink.
type onceTx struct {
	cluster   string
	epoch     int
	open      []*batch // not answered
	acked     []*item
	from      map[*item]*partitionQueue
	units     []*outbox.Unit
	rows      [][]*item // of each unit
	committed bool
	asked     bool // for the commit
	doubt     bool // the answer to the commit got lost
}

// exactlyOnce changes a plan.
func (p *plan) exactlyOnce() {
	p.once = true
	if p.stateless {
		p.keepsNoState()
	}
	p.besideNobody()
	p.weights[evMode], p.weights[evRelay] = 0, 0
}

// keepsNoState is a table without state, in a world that takes commits and positions back.
func (p *plan) keepsNoState() {
	m := &p.tables[0].Mapping
	p.stateless, p.tables, p.cfg.WALBudget = true, p.tables[:1], 0
	p.cfg.Tables = p.tables
	*m = outbox.Mapping{Published: outbox.PublishedNone, Grace: m.Grace, OnFailed: m.OnFailed, Status: m.Status, Cluster: m.Cluster}
	for _, k := range needState {
		p.weights[k] = 0
	}
	p.weights[evCrash], p.weights[evFailover], p.weights[evSlotLost], p.weights[evLapse] = p.steps%3, p.steps%5, p.steps%7/6, p.steps%8/7
}

// ---- the sink

// listOnce lists what the transaction of a cluster can do.
func (s *sink) listOnce(cl string) {
	w, tx := s.w, s.txs[cl]
	switch {
	case w.kafka.down[cl] || s.epochs[cl] == 0:
	case tx == nil:
		if waiting := s.waiting(cl); len(waiting) > 0 {
			w.can(evSend, func() { s.beginTx(cl, waiting) })
		}
	case tx.doubt:
		w.can(evFence, func() { s.seal(tx) })
	case len(tx.open) == 0:
		w.can(evSend, func() { s.commit(tx, false) })
		if !w.healing {
			w.can(evMarkLost, func() { s.commit(tx, true) })
		}
	default:
		for _, b := range tx.open {
			if b.done {
				w.can(evSinkAnswer, func() { s.answerOnce(tx, b) })
			}
		}
		if !w.healing {
			w.can(evMarkLost, func() { s.giveUp(tx) })
		}
	}
}

func (s *sink) waiting(cl string) (queues []*partitionQueue) {
	for _, l := range s.queues {
		if l.cluster == cl && l.part != draining && !l.waits() {
			queues = append(queues, l)
		}
	}
	return queues
}

// beginTx puts a batch of some queues on the wire.
func (s *sink) beginTx(cl string, queues []*partitionQueue) {
	tx := &onceTx{cluster: cl, epoch: s.epochs[cl], from: map[*item]*partitionQueue{}}
	s.txs[cl] = tx
	for i, l := range queues {
		if i > 0 && s.w.chance(40) {
			continue
		}
		if s.send(l, 1+s.w.intn(3)); l.wire == nil {
			continue
		}
		l.wire.tx = tx
		tx.open = append(tx.open, l.wire)
		for _, it := range l.wire.items {
			tx.from[it] = l
		}
	}
}

// arriveOnce is Kafka's side of a batch in a transaction.
func (s *sink) arriveOnce(b *batch) {
	w := s.w
	b.done = true
	switch {
	case b.tx.epoch != w.kafka.epochs[b.queue.cluster]:
		b.result = errFenced
		return
	case w.kafka.topicDown[topicID(b.queue.cluster, b.queue.topic)]:
		b.result = errTopic
		return
	}
	for _, it := range b.items {
		if r := w.meta(it.row).row; r.poison != 0 {
			r.poison = max(r.poison-1, min(r.poison, -1))
			r.refusals++
			w.note("kafka: refuses %v", r)
			b.result = errRefused
			return
		}
		b.landed++
	}
}

// answerOnce: what was appended is delivered when its transaction is committed.
func (s *sink) answerOnce(tx *onceTx, b *batch) {
	l := b.queue
	l.wire = nil
	tx.open = slices.DeleteFunc(tx.open, func(o *batch) bool { return o == b })
	tx.acked = append(tx.acked, b.items[:b.landed]...)
	rest := b.items[b.landed:]
	switch b.result {
	case errFenced:
		s.p.discard("its epoch of " + tx.cluster + " is over")
		return
	case errRefused:
		s.refuse(l, rest)
	case errTopic:
		s.topicError(l, rest)
	}
	s.emit()
}

// inTransaction reports whether rows of the queue may come back when their transaction is
// aborted.
func (s *sink) inTransaction(l *partitionQueue) bool {
	tx := s.txs[l.cluster]
	return tx != nil && !s.w.offOnce.drainsTx && slices.ContainsFunc(tx.acked, func(it *item) bool { return tx.from[it] == l })
}

// giveUp leaves a transaction whose partitions do not answer.
func (s *sink) giveUp(tx *onceTx) {
	s.w.note("%v: sink: gives its transaction on %s up", s.p, tx.cluster)
	for _, b := range tx.open {
		b.queue.wire = nil
		tx.acked = append(tx.acked, b.items...)
	}
	tx.open, tx.doubt = nil, true
}

// commit ends a transaction; lost: nobody hears the answer, and it may come late.
func (s *sink) commit(tx *onceTx, lost bool) {
	w := s.w
	if len(tx.acked) == 0 {
		delete(s.txs, tx.cluster)
		return
	}
	tx.name()
	tx.asked = true
	switch {
	case lost && w.chance(50):
		tx.doubt = true
		w.strays = append(w.strays, stray{"commit of " + s.p.name, func() { w.commitOnce(s.p, tx) }})
	default:
		w.commitOnce(s.p, tx)
		tx.doubt = lost
	}
	switch {
	case tx.doubt:
	case tx.committed:
		s.delivered(tx)
	default:
		s.p.discard("its epoch of " + tx.cluster + " is over")
	}
}

// name makes units of at most two rows of one table.
func (tx *onceTx) name() {
	byTable := map[*outbox.Table][]*item{}
	var tables []*outbox.Table
	for _, it := range tx.acked {
		if byTable[it.row.Table] == nil {
			tables = append(tables, it.row.Table)
		}
		byTable[it.row.Table] = append(byTable[it.row.Table], it)
	}
	for _, t := range tables {
		for part := range slices.Chunk(byTable[t], 2) {
			tx.units = append(tx.units, &outbox.Unit{Cluster: tx.cluster, Rows: len(part)})
			tx.rows = append(tx.rows, part)
		}
	}
}

// commitOnce is Kafka's side of the commit: all of it, or nothing.
func (w *world) commitOnce(p *proc, tx *onceTx) {
	if !tx.asked || tx.committed || tx.epoch != w.kafka.epochs[tx.cluster] {
		return
	}
	tx.committed = true
	for i, u := range tx.units {
		var named onceUnit
		u.Number = uint64(len(w.kafka.journals[tx.cluster])) + 1
		named.place.Number = u.Number
		for _, it := range tx.rows[i] {
			named.rows = append(named.rows, w.meta(it.row).row)
			if w.plan.stateless {
				named.place.Names = append(named.place.Names, exactlyonce.NameInLog(it.row))
				u.UpTo = max(u.UpTo, it.row.Commit)
			}
		}
		named.place.UpTo = u.UpTo
		w.kafka.journals[tx.cluster] = append(w.kafka.journals[tx.cluster], named)
		w.note("kafka: unit %d of %s: %v", u.Number, tx.cluster, rowIDs(named.rows))
	}
	for _, it := range tx.acked {
		w.land(p, it.row)
	}
}

// seal finds out what became of a transaction, under a new epoch.
func (s *sink) seal(tx *onceTx) {
	if tx.epoch != s.w.kafka.epochs[tx.cluster] {
		s.p.discard("its epoch of " + tx.cluster + " is over")
		return
	}
	s.fence(tx.cluster)
	if tx.committed {
		s.delivered(tx)
		return
	}
	s.w.note("%v: sink: its transaction on %s was aborted", s.p, tx.cluster)
	delete(s.txs, tx.cluster)
	for _, it := range slices.Backward(tx.acked) {
		l := tx.from[it]
		if s.draining[topicID(l.cluster, l.topic)] {
			s.move([]*item{it}, l, s.queueOf(l.cluster, l.topic, draining))
		} else {
			l.queue = slices.Concat([]*item{it}, l.queue)
		}
	}
}

// delivered gives each unit's rows in one outcome.
func (s *sink) delivered(tx *onceTx) {
	delete(s.txs, tx.cluster)
	for i, u := range tx.units {
		o := outbox.Outcome{Class: outbox.Delivered, Unit: u}
		for _, it := range tx.rows[i] {
			o.Rows = append(o.Rows, it.row)
			l := tx.from[it]
			l.order = slices.DeleteFunc(l.order, func(x *item) bool { return x == it })
		}
		if s.w.offOnce.wholeUnits && len(o.Rows) > 1 {
			s.p.outcomes = append(s.p.outcomes, outbox.Outcome{Class: outbox.Delivered, Unit: u, Rows: o.Rows[1:]})
			o.Rows = o.Rows[:1]
		}
		s.p.outcomes = append(s.p.outcomes, o)
	}
	s.emit()
}

// ---- the database

func (w *world) tallyOf(cl string) *tally {
	if w.tallies[cl] == nil {
		w.tallies[cl] = &tally{noted: map[int]bool{}, left: map[*dbRow]bool{}}
	}
	return w.tallies[cl]
}

// atomically has a failover undo all that f writes, or nothing.
func (w *world) atomically(f func()) {
	from := len(w.undone)
	f()
	for i := from; i < len(w.undone); i++ {
		w.undone[i].at = w.undone[len(w.undone)-1].at
	}
}

// owe: a row that was requeued has to be published once more before it is marked. But a failover may take an earlier
// requeue back: its record is in Kafka and settles the row. So does the record of a leader that published the row
// while an earlier leader's attempt made it FAILED (seed 269591), or the application cancelled it (seed 419).
func (w *world) owe(r *dbRow) {
	if !w.plan.once || w.failovers > 0 {
		return
	}
	was := r.owed
	w.logged(func() { r.owed = was })
	r.owed = r.copies + 1
	if r.status != statusSent {
		r.owed = max(was, r.copies)
	}
}

func (w *world) noteUnit(cl string, unit int) {
	t := w.tallyOf(cl)
	was := t.noted[unit]
	w.logged(func() { t.noted[unit] = was })
	t.noted[unit] = true
}

func (w *world) leave(cl string, r *dbRow, left bool) {
	t := w.tallyOf(cl)
	was := t.left[r]
	w.logged(func() { t.left[r] = was })
	t.left[r] = left
}

// later reports whether the row is not there and may come to be.
func (r *dbRow) later() bool { return r.tx.running() && !r.deleted }

// recover reads a cluster's journal under a new epoch, and marks what it names.
func (p *proc) recover(cl string) {
	w := p.w
	p.sink.fence(cl)
	if w.offOnce.recovers {
		return
	}
	if w.plan.stateless {
		p.readNames(cl)
		return
	}
	for i, u := range w.kafka.journals[cl] {
		if !w.tallyOf(cl).noted[i+1] {
			w.note("%v: recovers unit %d of %s", p, i+1, cl)
			w.atomically(func() { w.recoverUnit(cl, i+1, u) })
		}
	}
}

func (w *world) recoverUnit(cl string, unit int, u onceUnit) {
	w.noteUnit(cl, unit)
	for _, r := range u.rows {
		switch {
		case r.later(), r.exists() && r.status == statusPending && (r.locked || r.unmarked != 0 || w.noWrite[r.table]):
			w.leave(cl, r, true)
		case r.exists() && r.status == statusPending:
			w.markSent(r)
		}
	}
}

// leftRows returns the rows that the tally names as left, as a recovery reads them.
func (w *world) leftRows(cl string) (rows []*outbox.Row) {
	for _, r := range w.rows {
		if w.tallyOf(cl).left[r] && !w.offOnce.leftBrought {
			rows = append(rows, r.probe())
		}
	}
	return rows
}

// recoverAll runs the recovery before Connect, and reports whether it is over. A cluster that does not
// answer is recovered later. If nothing can be swept later, recoverAll waits for the cluster.
func (p *proc) recoverAll(c *conn) (over bool) {
	over = true
	for _, cl := range p.w.plan.clusters {
		switch {
		case slices.Contains(c.read, cl):
		case p.w.kafka.down[cl]:
			over = false
		default:
			c.read = append(c.read, cl)
			p.recover(cl)
			c.left = append(c.left, p.w.leftRows(cl)...)
		}
	}
	return over || !p.w.plan.stateless || p.w.offOnce.allRead
}

// recoveries are what the first Connect tells: the rows left, once, and the clusters
// whose journals were not read.
func (p *proc) recoveries(in *Connected) {
	in.Unmarked, p.conn.left = p.conn.left, nil
	if p.w.plan.stateless {
		p.publishedBefore(in)
		return
	}
	for _, cl := range p.w.plan.clusters {
		if p.sink.epochs[cl] == 0 && !p.w.offOnce.unrecovered {
			in.Unrecovered = append(in.Unrecovered, cl)
			p.sink.told[cl] = true
		}
	}
}

// recoverLate is the recovery of a cluster that answers at last.
func (p *proc) recoverLate(cl string) {
	p.recover(cl)
	p.input(func() { p.core.Unmarked(p.w.leftRows(cl)) })
}

// elsewhere reports whether a statement would be run on a server on which the process does
// not lead: one that was promoted, maybe, and does not know of marks that were answered.
// Each look and page asks whether the leader's lock is held, in its own statement.
func (p *proc) elsewhere() bool {
	return p.w.plan.once && !p.w.offOnce.guarded && p.conn != p.w.lock
}

// ---- marks

// listOnceMarks lists units, rows that were left and attempts to be written.
func (p *proc) listOnceMarks() {
	w := p.w
	if w.plan.stateless {
		p.listPositions()
		return
	}
	var units []*outbox.Unit
	for _, m := range p.marks {
		if m.Unit != nil && !slices.Contains(units, m.Unit) {
			units = append(units, m.Unit)
		}
	}
	for _, u := range units {
		w.can(evMark, func() { p.markUnit(u, false) })
		if !w.healing {
			w.can(evMarkLost, func() { p.markUnit(u, true) })
		}
	}
	for _, i := range p.markable() {
		m := p.marks[i]
		switch {
		case m.Unit != nil:
		case m.Kind == outbox.MarkSent:
			w.can(evMark, func() { p.markLeft(m, false) })
			if !w.healing {
				w.can(evMarkLost, func() { p.markLeft(m, true) })
			}
		default:
			w.can(evMark, func() { p.runMark(slices.IndexFunc(p.marks, func(o outbox.Mark) bool { return o == m }), false) })
		}
	}
}

// markUnit is the transaction that marks a unit's rows and notes it.
func (p *proc) markUnit(u *outbox.Unit, lost bool) {
	var marks []outbox.Mark
	for _, m := range p.marks {
		if m.Unit == u {
			marks = append(marks, m)
		}
	}
	if len(marks) != u.Rows && !p.w.offOnce.wholeUnits {
		p.w.fail("contract", nil, "%v: %d marks of unit %d, which names %d rows", p, len(marks), u.Number, u.Rows)
	}
	if lost && p.w.chance(50) {
		return
	}
	p.w.note("%v: marks unit %d of %s: %v, answer lost: %v", p, u.Number, u.Cluster, marks, lost)
	var answers []outbox.Marked
	p.w.atomically(func() { answers = p.w.writeUnit(u, marks) })
	if !lost {
		for _, a := range answers {
			p.answeredMark(a)
		}
	}
}

func (p *proc) answeredMark(a outbox.Marked) {
	i := slices.IndexFunc(p.marks, func(m outbox.Mark) bool { return m.Row == a.Row && m.Kind == a.Kind })
	if a.State == 0 { // locked: the status updater tries it again
		p.marks[i].Unit, p.marks[i].InTally = nil, true
		return
	}
	p.marks = append(p.marks[:i:i], p.marks[i+1:]...)
	p.answers = append(p.answers, a)
}

// writeUnit marks what can be marked and leaves the rest. Of a unit that was noted before
// only rows that are left are marked.
func (w *world) writeUnit(u *outbox.Unit, marks []outbox.Mark) (answers []outbox.Marked) {
	repeated := w.tallyOf(u.Cluster).noted[int(u.Number)] && !w.offOnce.notedOnce
	if !repeated && !w.offOnce.together {
		w.noteUnit(u.Cluster, int(u.Number))
	}
	for _, m := range marks {
		r := w.row(m.Row)
		if repeated && !w.tallyOf(u.Cluster).left[r] {
			answers = append(answers, outbox.Marked{Row: m.Row, Kind: m.Kind, State: outbox.MarkedSettled})
			continue
		}
		answers = append(answers, w.markOrLeave(u.Cluster, m, r))
	}
	return answers
}

func (w *world) markOrLeave(cl string, m outbox.Mark, r *dbRow) outbox.Marked {
	a := outbox.Marked{Row: m.Row, Kind: m.Kind}
	switch {
	case r.later():
		a.State = outbox.MarkedInvisible
	case r.locked && r.exists() && r.status == statusPending:
	default:
		a = w.mark(m)
	}
	left := a.State == 0 || a.State == outbox.MarkedInvisible || a.State == outbox.MarkedRefused
	if left != w.tallyOf(cl).left[r] {
		w.leave(cl, r, left)
	}
	return a
}

// markLeft is the transaction that marks a row that was left.
func (p *proc) markLeft(m outbox.Mark, lost bool) {
	w := p.w
	if lost && w.chance(50) {
		return
	}
	r := w.row(m.Row)
	a := outbox.Marked{Row: m.Row, Kind: m.Kind, State: outbox.MarkedSettled}
	if !m.InTally {
		w.fail("contract", r, "%v: a mark of %v with no unit that is not said to be in the tally", p, r)
	}
	if w.tallyOf(r.cluster).left[r] || w.offOnce.leftOnce {
		w.atomically(func() { a = w.markOrLeave(r.cluster, m, r) })
	}
	a.Row = m.Row
	w.note("%v: marks %v, which was left: %s, answer lost: %v", p, r, markStates[a.State], lost)
	if !lost {
		p.answeredMark(a)
	}
}

// ---- tables without state

// readNames reads what a journal names behind the tally's head.
func (p *proc) readNames(cl string) {
	for i := range p.w.kafka.journals[cl] {
		u := &p.w.kafka.journals[cl][i].place
		if u.Number > p.w.tallyOf(cl).head {
			p.published.Add(u)
			p.positionsOf(cl).Add(u.Number, 0, u.UpTo, 0)
		}
	}
}

func (p *proc) positionsOf(cl string) *exactlyonce.Positions {
	if p.positions[cl] == nil {
		p.positions[cl] = &exactlyonce.Positions{}
	}
	return p.positions[cl]
}

// publishedBefore is what a connection that streams is told.
func (p *proc) publishedBefore(in *Connected) {
	if !in.Streaming {
		return
	}
	published := p.published
	p.published = exactlyonce.Published{}
	var settled outbox.LSN
	for _, cl := range p.w.plan.clusters {
		t := p.w.tallyOf(cl)
		was := t.settled
		if was > in.Insert || t.system != p.w.system && !p.w.offOnce.ownSystem {
			p.w.note("%v: forgets position %v", p, was)
			was = 0
		}
		p.w.settleTally(t, t.head, max(was, p.w.slot.confirmed-1), p.w.system)
		settled = max(settled, t.settled)
		in.PublishedTo = max(in.PublishedTo, p.positionsOf(cl).Before(in.Insert), settled)
	}
	if !p.w.offOnce.position {
		published.Settled = settled
	}
	in.Published = published.Take
	p.w.note("%v: published before: up to %v", p, settled)
}

// noting is a position on its way into a tally.
type noting struct {
	conn    *conn
	cluster string
	head    uint64
	settled outbox.LSN
	system  int
}

// notable returns a position that can be noted.
func (p *proc) notable(cl string) (n noting, ok bool) {
	n = noting{conn: p.conn, cluster: cl, settled: p.core.Settled(), system: p.w.system}
	n.head = p.positionsOf(cl).Passed(n.settled).Number
	if p.w.offOnce.inOrder {
		n.head = max(n.head, p.last[cl])
	}
	return n, n.head > 0
}

// listPositions lists positions to be noted.
func (p *proc) listPositions() {
	w := p.w
	if n := p.noting; n != nil {
		w.can(evMark, func() { p.noting = nil; p.notePosition(n, false) })
		if !w.healing {
			w.can(evMarkLost, func() { p.noting = nil; p.notePosition(n, true) })
		}
		return
	}
	if p.conn == nil || !p.conn.streaming {
		return
	}
	for _, cl := range w.plan.clusters {
		if n, ok := p.notable(cl); ok {
			w.can(evMark, func() { p.noting = &n })
		}
	}
}

func (p *proc) notePosition(n *noting, lost bool) {
	if lost && p.w.chance(50) {
		return
	}
	if p.w.notePosition(n) && !lost {
		p.positionsOf(n.cluster).Noted(n.head)
		delete(p.last, n.cluster)
	}
}

// notePosition is the statement.
func (w *world) notePosition(n *noting) bool {
	t := w.tallyOf(n.cluster)
	if n.head < t.head || n.conn != w.lock && !w.offOnce.ownServer {
		return false
	}
	w.note("database: unit %d of %s, everything up to %v is settled", n.head, n.cluster, n.settled)
	settled := n.settled
	if t.system == n.system {
		settled = max(t.settled, settled)
	}
	w.settleTally(t, n.head, settled, n.system)
	return true
}

func (w *world) settleTally(t *tally, head uint64, settled outbox.LSN, system int) {
	was := *t
	w.logged(func() { t.head, t.settled, t.system = was.head, was.settled, was.system })
	t.head, t.settled, t.system = head, settled, system
}

// noteLast notes positions at a clean stop.
func (p *proc) noteLast() {
	for _, cl := range p.w.plan.clusters {
		if n, ok := p.notable(cl); ok {
			p.w.notePosition(&n)
		}
	}
}

// passedOver: rows that a new slot does not bring are lost, and said to be.
func (w *world) passedOver() {
	for _, r := range w.rows {
		r.missed = r.missed || w.plan.stateless && r.tx.state == txnCommitted && r.copies == 0
	}
}

// restoreDump goes on with a dump in another database cluster, whose WAL has not come as far. init makes the slot.
func (w *world) restoreDump() {
	w.note("database: a dump is restored into another database cluster")
	w.endSessions()
	for _, t := range slices.Clone(w.txns) {
		t.prepared = false
		w.rollback(t)
	}
	w.passedOver()
	w.system++
	w.wal, w.undone, w.insert = nil, nil, max(500, w.insert-300)
	w.slot = slot{exists: true, confirmed: w.insert, persisted: w.insert}
	for _, r := range w.rows {
		r.tx.commit, r.tx.end = 0, 0
	}
}

// strayOnce are marks of a process that is gone, on their way still.
func (p *proc) strayOnce() {
	w := p.w
	if n := p.noting; n != nil {
		w.strays = append(w.strays, stray{"position of " + p.name, func() { w.notePosition(n) }})
	}
	units := map[*outbox.Unit][]outbox.Mark{}
	for _, m := range p.marks {
		if m.Unit != nil {
			units[m.Unit] = append(units[m.Unit], m)
		}
	}
	for _, m := range p.marks {
		if marks := units[m.Unit]; m.Unit != nil && marks[0] == m && len(marks) == m.Unit.Rows {
			w.strays = append(w.strays, stray{fmt.Sprintf("marks of unit %d of %s", m.Unit.Number, m.Unit.Cluster), func() {
				w.atomically(func() { w.writeUnit(m.Unit, marks) })
			}})
		}
	}
}

// ---- tests

func onceWorld(off onceRules) switches {
	return switches{about: func(p *plan) { p.exactlyOnce(); p.offOnce = off }}
}

// onceWorlds returns worlds with exactly-once delivery, with and without state in the tables.
func onceWorlds() switches {
	return switches{about: func(p *plan) {
		if p.stateless = p.stateless || p.steps%4 == 0; p.stateless {
			p.keepsNoState()
		}
		p.exactlyOnce()
	}}
}

func onceWorldWithoutState(off onceRules) switches {
	return switches{about: func(p *plan) { p.keepsNoState(); p.exactlyOnce(); p.offOnce = off }}
}

// TestSimulationOnce: with exactly-once delivery every row is in Kafka once, whatever
// fails, and all else holds as ever.
func TestSimulationOnce(t *testing.T) {
	t.Parallel()
	n := *simSeeds
	if n == defaultSeeds {
		n /= 3 // next to TestSimulation's
	}
	playSeeds(t, n, onceWorlds())
}

// onceRule is a rule to be switched off, in a world with these faults. long: it takes many seeds.
type onceRule struct {
	name  string
	off   onceRules
	often []eventKind
	long  bool
}

// matter fails where nothing breaks without a rule, or something breaks with it.
func (r *onceRule) matter(t *testing.T, of func(onceRules) switches) {
	if r.long && os.Getenv("OUTBOX_TEST_LONG") == "" {
		return
	}
	t.Run(r.name, func(t *testing.T) {
		t.Parallel()
		without, with := of(r.off), of(onceRules{})
		without.often, with.often = r.often, r.often
		seed, v := firstBroken(1, ruleSeeds, without)
		if v == nil {
			t.Fatalf("%d seeds without it broke nothing", ruleSeeds)
		}
		t.Logf("seed %d: %v", seed, v)
		if _, v := firstBroken(seed, 1, with); v != nil {
			t.Fatalf("with the rule, too: %v", v)
		}
	})
}

// TestOnceRulesMatter: without any of the rules something breaks.
func TestOnceRulesMatter(t *testing.T) {
	t.Parallel()
	if ruleSeeds == 0 || testing.Short() {
		t.Skip("thousands of seeds")
	}
	for _, r := range []onceRule{
		{"recovers", onceRules{recovers: true}, nil, false},
		{"leftBrought", onceRules{leftBrought: true}, nil, false},
		{"together", onceRules{together: true}, []eventKind{evRequeue}, false},
		{"notedOnce", onceRules{notedOnce: true}, []eventKind{evMarkLost, evRequeue}, false},
		{"leftOnce", onceRules{leftOnce: true}, []eventKind{evMarkLost, evRequeue, evInvisible, evLock}, true},
		{"voidCore", onceRules{voidCore: true}, []eventKind{evFailover, evDrop}, true},
		{"unrecovered", onceRules{unrecovered: true}, []eventKind{evClusterDown, evKill}, true},
		{"wholeUnits", onceRules{wholeUnits: true}, nil, false},
		{"drainsTx", onceRules{drainsTx: true}, []eventKind{evAddPartition, evClusterDown, evMarkLost}, true},
		{"guarded", onceRules{guarded: true}, []eventKind{evFailover, evSlotLost}, true},
	} {
		r.matter(t, onceWorld)
	}
	for _, r := range []onceRule{
		{"no state: recovers", onceRules{recovers: true}, nil, false},
		{"no state: position", onceRules{position: true}, nil, false},
		{"no state: allRead", onceRules{allRead: true}, []eventKind{evClusterDown, evKill}, false},
		{"no state: inOrder", onceRules{inOrder: true}, []eventKind{evClusterDown, evKill}, false},
		{"no state: ownServer", onceRules{ownServer: true}, []eventKind{evKill}, true},
		{"no state: ownSystem", onceRules{ownSystem: true}, nil, true},
		{"no state: timed", onceRules{timed: true}, []eventKind{evKill}, true},
	} {
		r.matter(t, onceWorldWithoutState)
	}
}
