package checkpoint

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// This file draws the plan of a seed, and lists the events that can happen next.

// eventKind is a kind of event.
type eventKind uint8

const (
	// The application and the database, in every run.
	evBegin eventKind = iota
	evInsert
	evCommit
	evRollback
	evVisible
	evTraffic
	evPersist
	evClock
	evRelay
	evRelayDone
	// Processes.
	evBoot
	evLead
	evConnect
	evMakeSlot
	evReceive
	evKeepalive
	evStatus
	evTick
	evTake
	evQuery
	evAnswer
	evParks
	evParksAnswer
	evCommand
	evFence
	evSend
	evArrive
	evSinkAnswer
	evOutcome
	evState
	evMark
	evMarked
	evNotice
	evResume
	evStopped
	evRetained
	evCommitPrepared
	evPublication
	evUnlock
	evPartitions
	// Faults. The kinds from here on happen only before the world is healed.
	evInvisible
	evRequeue
	evDelete
	evCrash
	evFailover
	evSlotLost
	evNoWrite
	evBroken
	evLapse
	evTopicDown
	evClusterDown
	evDrop
	evKill
	evFreeze
	evDrain
	evParksUnknown
	evMarkLost
	evStray
	evRelayDies
	evClaimBreaks
	evMode
	evPrepare
	evUncover
	evLock
	evSkew
	evAddPartition
	evRetain
	evPace
	evReissue
	evUnmarked
	evPause
	evChange
	numEvents
)

const (
	firstProc  = evBoot
	firstFault = evInvisible
)

// usual is how often a kind happens, against the others, before the seed's plan
// changes it.
var usual = [numEvents]int{
	evBegin: 6, evInsert: 12, evCommit: 12, evRollback: 1, evVisible: 6, evTraffic: 1, evPersist: 2, evClock: 6,
	evRelay: 1, evRelayDone: 6,
	evBoot: 8, evLead: 8, evConnect: 10, evMakeSlot: 6, evReceive: 20, evKeepalive: 3, evStatus: 5, evTick: 2, evTake: 20,
	evQuery: 12, evAnswer: 12, evParks: 10, evParksAnswer: 10, evCommand: 20, evFence: 10, evSend: 12, evArrive: 12,
	evSinkAnswer: 12, evOutcome: 15, evState: 10, evMark: 12, evMarked: 12, evNotice: 8, evResume: 3, evStopped: 8, evRetained: 1,
	evCommitPrepared: 1, evPublication: 4, evUnlock: 2, evPartitions: 6,
	evInvisible: 4, evRequeue: 1, evDelete: 1, evCrash: 1, evFailover: 1, evSlotLost: 1, evNoWrite: 1, evBroken: 1, evLapse: 1,
	evTopicDown: 1, evClusterDown: 1, evDrop: 1, evKill: 1, evFreeze: 1, evDrain: 1, evParksUnknown: 4, evMarkLost: 4,
	evStray: 2, evRelayDies: 1, evClaimBreaks: 1, evMode: 1,
	evPrepare: 3, evUncover: 1, evLock: 2, evSkew: 1, evAddPartition: 1, evRetain: 1, evPace: 2,
	evReissue: 1, evUnmarked: 1, evPause: 1, evChange: 4,
}

type event struct {
	kind eventKind
	f    func()
}

var epochStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// drawPlan draws the plan of a seed. Each seed has only some of the faults, and speeds of its own, because
// rare schedules come from such extremes.
func drawPlan(r *rand.Rand, often []eventKind) plan {
	p := plan{
		steps:   60 + r.IntN(500),
		keys:    1 + r.IntN(2),
		nulls:   r.IntN(4) == 0,
		overlap: r.IntN(3) == 0,
		procs:   1 + r.IntN(2),
	}
	p.tables = drawTables(r)
	if len(often) > 0 && !slices.Contains(often, evRelay) && !slices.Contains(often, evRelayDone) {
		p.besideNobody()
	}
	if p.stateless = len(often) == 0 && r.IntN(12) == 0; p.stateless {
		p.tables = p.tables[:1]
		p.tables[0].Mapping = outbox.Mapping{
			Published: outbox.PublishedNone, Grace: time.Second, OnFailed: p.tables[0].Mapping.OnFailed, Status: p.tables[0].Mapping.Status,
		}
	}
	p.clusters = []string{"main"}
	if r.IntN(4) == 0 {
		p.clusters = append(p.clusters, "other")
	}
	for _, t := range p.tables {
		t.Mapping.Cluster = outbox.ClusterMapping{Column: "cluster", Default: "main", Known: p.clusters}
	}
	p.cfg = Config{
		Tables: p.tables, MaxRows: 6 + r.IntN(20), MaxBytes: 1 << 20, PageRows: 1 + r.IntN(6), SmallRound: 1 + r.IntN(3),
		MaxKeys: 1 + r.IntN(3), BackoffMin: time.Second, BackoffMax: 4 * time.Second, WatchEvery: 3 * time.Second,
	}
	p.cfg.MaxRetryingKeys, p.cfg.HeldFor = 2*p.cfg.MaxKeys, p.heldFor()
	p.cfg.MaxTopics, p.topics = 1+r.IntN(3), 2
	if p.steps%11 == 0 && len(often) == 0 {
		p.topics = 1
	}
	if r.IntN(3) == 0 && (len(often) == 0 || slices.Contains(often, evTopicDown)) {
		p.manyTopics()
	}
	p.idOrders = p.cfg.MaxRows%3 == 0
	if r.IntN(6) == 0 {
		p.cfg.MaxBytes = p.cfg.MaxRows * rowBytes / 2
	}
	if r.IntN(3) == 0 {
		p.cfg.WALBudget = uint64(400 + r.IntN(2000))
	}
	faults := [...]int{1, 1, 2, 2, 3, 4, 5}[r.IntN(7)] // of six
	for k := range p.weights {
		switch kind := eventKind(k); {
		case kind == evPause: // in every fourth run
			p.weights[k] = max(0, 1-p.steps%4) * (1 + p.steps%9)
		case kind == evChange && len(often) > 0: // a world for one rule has them if the rule is about them
			p.weights[k] = 0
		case kind == evChange: // in every fifth
			p.weights[k] = max(0, 1-p.steps%5) * (1 + p.steps%7) * usual[k]
		case kind >= firstFault && r.IntN(6) >= faults:
			p.weights[k] = 0
		case kind == evFailover || kind == evLapse || kind == evBroken:
			p.weights[k] = usual[k] * r.IntN(2) * (1 + r.IntN(8))
		case kind >= firstFault:
			p.weights[k] = usual[k] * (1 + r.IntN(8))
		default:
			p.weights[k] = usual[k] * [...]int{1, 5, 5, 20}[r.IntN(4)] * 2
		}
	}
	if p.stateless {
		p.cfg.WALBudget = 0
		for _, k := range needState {
			p.weights[k] = 0
		}
	}
	if p.weights[evChange] > 0 && p.steps%2 == 0 || slices.Contains(often, evChange) {
		for _, t := range p.tables {
			t.Mapping.LookFirst = true
		}
	}
	for _, k := range often {
		if k == evRelay {
			p.besideRelay()
		}
		p.weights[k] = max(p.weights[k], usual[k]*(2+r.IntN(6)))
	}
	return p
}

// behindStandby makes half of the commits wait for a standby, and some of them for longer than a head start.
// So looks come before rows are visible.
func (p *plan) behindStandby() {
	p.weights[evInvisible] = max(p.weights[evInvisible], p.weights[evCommit])
	p.weights[evVisible] = min(p.weights[evVisible], p.weights[evClock])
}

// manyTopics lets more topics be missing than are parked one by one.
func (p *plan) manyTopics() {
	p.cfg.MaxTopics, p.topics = 1, len(topics)
}

// blocksKeys lets rows of one key become FAILED on two clusters, and block the key.
func (p *plan) blocksKeys() {
	p.clusters = []string{"main", "other"}
	for _, t := range p.tables {
		t.Mapping.Cluster.Known, t.Mapping.OnFailed, t.Mapping.Status.MaxAttempts = p.clusters, outbox.OnFailedBlock, 1
	}
}

// besideRelay gives every table a relay that publishes within its head start.
func (p *plan) besideRelay() {
	for _, t := range p.tables {
		t.Mapping.HeadStart, t.Mapping.Claim = max(t.Mapping.HeadStart, time.Second), outbox.ClaimNone
	}
}

// besideNobody leaves out what a search for something else need not meet.
func (p *plan) besideNobody() {
	for _, t := range p.tables {
		t.Mapping.HeadStart, t.Mapping.Claim, t.Mapping.HeadersTable = 0, outbox.ClaimNone, outbox.HeadersTable{}
	}
}

// needState are faults that a table without state does not survive, or that do
// not concern it.
var needState = []eventKind{evSlotLost, evFailover, evLapse, evBroken, evNoWrite, evRequeue, evDelete, evCrash, evMode, evUncover, evLock, evReissue, evUnmarked, evPause, evChange}

func drawTables(r *rand.Rand) []*outbox.Table {
	tables := []*outbox.Table{{Schema: "public", Name: "outbox"}}
	if r.IntN(3) == 0 {
		tables = append(tables, &outbox.Table{Schema: "public", Name: "events"})
	}
	if len(tables) == 2 && r.IntN(3) == 0 {
		tables = append(tables, &outbox.Table{Schema: "audit", Name: "outbox"})
	}
	for _, t := range tables {
		t.Mapping.Published = outbox.PublishedStatus
		if r.IntN(6) == 0 {
			t.Mapping.Published = outbox.PublishedDelete
		}
		t.Mapping.OnFailed = outbox.OnFailedSkip
		if r.IntN(4) == 0 {
			t.Mapping.OnFailed = outbox.OnFailedBlock
		}
		t.Mapping.Grace = time.Second
		t.Mapping.Status.MaxAttempts = 1 + r.IntN(3)
		if r.IntN(3) == 0 {
			t.Mapping.HeadStart = time.Duration(1+r.IntN(2)) * time.Second
		}
		if r.IntN(5) == 0 {
			t.Mapping.Claim = outbox.ClaimRowLock
		}
		if r.IntN(6) == 0 {
			t.Mapping.HeadersTable.Name = "headers"
		}
		if r.IntN(8) == 0 {
			t.Mapping.RetentionUnsent = retainAfter
		}
	}
	return tables
}

func newWorld(c chooser, p plan) *world {
	w := &world{
		chooser: c, plan: p, now: epochStart, patience: true, byID: map[rowID][]*dbRow{}, ids: map[*outbox.Table]int{}, lacks: map[*outbox.Table]bool{}, insert: 1000, nextXID: 100, completed: 99,
		noWrite: map[*outbox.Table]bool{}, broken: map[*outbox.Table]bool{}, parks: map[outbox.Scope]outbox.Park{},
		cursors: map[string]*cursor{}, idOrders: map[*outbox.Table]*idOrder{},
		tallies: map[string]*tally{}, offOnce: p.offOnce,
		kafka: kafka{journals: map[string]journal{}, down: map[string]bool{}, topicDown: map[string]bool{}, partitions: map[string]int{}, epochs: map[string]int{}},
	}
	if c.chance(30) { // near the wrap-around of 32-bit ids
		w.nextXID, w.completed = 1<<32-5, 1<<32-6
	}
	for i := range p.procs {
		w.procs = append(w.procs, &proc{w: w, name: string(rune('A' + i))})
	}
	if c.chance(70) || p.stateless { // made by init
		w.slot = slot{exists: true, confirmed: w.insert, persisted: w.insert}
	}
	return w
}

// list returns everything that can happen next.
func (w *world) list() []event {
	w.events = w.events[:0]
	w.listDatabase()
	for _, p := range w.procs {
		w.listProc(p)
	}
	if !w.healing {
		w.listFaults()
	}
	return w.events
}

func (w *world) can(kind eventKind, f func()) {
	if w.healing || w.plan.weights[kind] > 0 {
		w.events = append(w.events, event{kind, f})
	}
}

const maxRows = 24

func (w *world) listDatabase() {
	open := 0
	for _, t := range w.txns {
		switch t.state {
		case txnOpen:
			if !t.prepared {
				open++
				w.listTxn(t)
			}
			w.listPrepared(t)
		case txnCommitted:
			w.can(evVisible, func() { w.note("database: xid %d is visible now", t.xid); w.show(t) })
		}
	}
	if !w.healing && open < 3 && len(w.rows) < maxRows {
		w.can(evBegin, func() { w.begin() })
	}
	w.can(evTraffic, func() { w.ownXID(); w.write(40) })
	if w.slot.exists {
		w.can(evPersist, w.persist)
	}
	w.listRelay()
	w.listLocks()
	if !w.healing {
		w.listRetention()
		w.can(evClock, func() { w.advance(time.Duration(100+w.intn(1500)) * time.Millisecond) })
	}
}

func (w *world) listTxn(t *txn) {
	if !w.healing && len(t.rows) < 4 && len(w.rows) < maxRows {
		w.can(evInsert, func() { w.insertSome(t) })
	}
	if len(t.rows) > 0 || w.healing {
		w.can(evCommit, func() { w.commit(t, true) })
		w.can(evRollback, func() { w.rollback(t) })
	}
	for _, r := range t.rows {
		if !w.healing && r.status == statusPending && !r.deleted {
			w.can(evChange, func() { w.change(r) })
		}
	}
	if !w.healing && len(t.rows) > 0 {
		w.can(evInvisible, func() { w.commit(t, false) })
	}
}

// insertSome inserts a row of a drawn kind, if its key is free.
func (w *world) insertSome(t *txn) {
	r := w.drawRow()
	if w.free(t, r) {
		w.addRow(t, r)
	}
}

// free reports whether the transaction may write the row. If writers of a key must not overlap, the
// transaction waits for the other one's commit.
func (w *world) free(t *txn, r *dbRow) bool {
	if w.plan.overlap {
		return true
	}
	for _, o := range w.txns {
		if o == t || !o.running() {
			continue
		}
		for _, x := range o.rows {
			if x.sameOrder(r) {
				return false
			}
		}
	}
	return true
}

// topics are what rows go to, on each cluster.
var topics = [...]string{"x", "y", "z", "u"}

func (w *world) drawRow() *dbRow {
	r := &dbRow{table: w.plan.tables[w.intn(len(w.plan.tables))], topic: "x"}
	switch {
	case w.plan.topics > 2:
		r.topic = topics[w.intn(w.plan.topics)]
	case w.plan.topics > 1 && w.chance(25):
		r.topic = "y"
	}
	r.cluster = w.plan.clusters[w.intn(len(w.plan.clusters))]
	r.key = string(rune('a' + w.intn(w.plan.keys)))
	r.null = w.plan.nulls && w.chance(30)
	switch {
	case w.chance(12):
		r.poison = 1 + w.intn(2)
	case w.plan.stateless:
	case w.chance(4):
		r.poison = -1
	case w.chance(3):
		r.bad = errNoRecord
	case w.chance(4):
		r.available = w.now.Add(time.Duration(w.intn(8000)) * time.Millisecond)
		r.late = w.chance(50)
	case w.chance(2):
		r.foreign, r.status = true, statusSent
	case w.chance(6):
		r.available = w.now // by a column's default
	}
	if !w.plan.stateless && !r.foreign && w.plan.weights[evUnmarked] > 0 && w.chance(4) && !w.hasUnmarkable(r.table) {
		r.unmarked = -1
	}
	return r
}

// hasUnmarkable reports whether the table has a row whose marks are refused for ever. With
// more of them than Config.MaxKeys it may stop.
func (w *world) hasUnmarkable(t *outbox.Table) bool {
	return slices.ContainsFunc(w.rows, func(r *dbRow) bool { return r.table == t && r.unmarked < 0 })
}

func (w *world) advance(d time.Duration) {
	w.now = w.now.Add(d)
	for _, p := range w.procs {
		p.told = false
	}
}

// listProc lists what one process can do.
func (w *world) listProc(p *proc) {
	if !p.up {
		w.can(evBoot, p.boot)
		return
	}
	w.listOnTheWire(p)
	if p.frozen {
		w.can(evResume, func() { w.note("%v: goes on", p); p.frozen = false })
		return
	}
	w.listConn(p)
	if p.dirty {
		w.can(evTake, p.take)
	}
	if !p.told {
		w.can(evTick, p.tick)
	}
	w.listQueries(p)
	w.listRetain(p)
	w.listSink(p)
	w.listAnswers(p)
	if p.draining && p.core.Drained() && !p.dirty {
		w.can(evStopped, p.stopped)
	}
}

// listOnTheWire lists events that are on their way, and happen even if the process is stopped.
func (w *world) listOnTheWire(p *proc) {
	for _, l := range p.sink.queues {
		if b := l.wire; b != nil && !b.done && !w.kafka.down[l.cluster] {
			w.can(evArrive, func() { p.sink.arrive(b) })
		}
	}
	if p.write != nil && !p.write.ran && !p.write.lost {
		w.can(evParks, func() { w.runParks(p.write) })
	}
}

func (w *world) listConn(p *proc) {
	c := p.conn
	switch {
	case c == nil:
		if w.lock == nil && !p.draining {
			w.can(evLead, p.lead)
		}
		if w.healing && w.lock != nil && p.epoch != 0 && p.epoch != w.epoch && !w.off.epochContinuity { // the process learns, sooner or later, who leads
			w.can(evNotice, func() { p.discard("another leads") })
		}
		return
	case !c.alive:
		w.can(evNotice, p.notice)
		return
	case !c.connected:
		if !p.draining {
			w.can(evConnect, p.connectStep)
		}
		return
	case !c.streaming:
		if p.core.SlotMayBeMade() && !p.draining {
			w.can(evMakeSlot, func() { p.makeSlot() })
		}
		return
	}
	if p.core.Reading() && (c.cur != nil || c.next < len(w.wal)) {
		w.can(evReceive, p.receive)
	}
	w.listPublication(p)
	w.listPaused(p)
	w.can(evKeepalive, p.keepalive)
	w.can(evStatus, p.status)
	if w.plan.cfg.WALBudget > 0 {
		w.can(evRetained, func() { n := w.retained(); p.input(func() { p.core.Retained(n) }) })
	}
}

// makeSlot makes the slot a step further. Then the connection becomes one that
// streams: parks are read and the WAL's end is looked at once more.
func (p *proc) makeSlot() {
	w, c := p.w, p.conn
	if w.slot.making == nil {
		w.note("%v: makes the slot", p)
		w.startMaking()
		return
	}
	if !w.made() {
		return
	}
	c.parks, c.insert, c.lacking = w.parkList(), w.insert, w.lacking()
	p.connect(true)
}

func (w *world) listQueries(p *proc) {
	if q := p.check; q != nil {
		listQuery(p, q, func() { q.refuse, q.answer = w.anyBroken(q.ask), w.check(p, q.ask) }, func() {
			p.check = nil
			if q.refuse != nil {
				p.input(func() { p.core.CheckRefused(q.refuse, errMapping) })
				return
			}
			p.sawTerminal(q.answer)
			p.input(func() { p.core.Checked(q.answer) })
		})
	}
	if q := p.sweep; q != nil {
		listQuery(p, q, func() { q.answer, q.refuse = w.sweep(&q.ask); w.readInsert(&q.insert, &q.read) }, func() { p.swept(q) })
	}
	if q := p.watch; q != nil {
		listQuery(p, q, func() { q.answer, q.refuse = w.watch(&q.ask); w.readInsert(&q.insert, &q.read) }, func() {
			p.watch = nil
			if q.refuse != nil {
				p.input(func() { p.core.WatchRefused(q.refuse, errMapping) })
				return
			}
			q.answer.Insert = w.inserted(q.insert, q.read)
			w.write(8) // so that the WAL gets behind it
			if len(q.answer.Rows) == 0 {
				p.foundNone = p.core.now
			}
			p.input(func() { p.core.Watched(q.answer) })
		})
	}
	if q := p.rewatch; q != nil {
		listQuery(p, q, func() { q.refuse, q.answer = w.anyBroken(q.ask), w.rewatch(q.ask) }, func() {
			p.rewatch = nil
			if q.refuse != nil {
				p.input(func() { p.core.WatchRefused(q.refuse, errMapping) })
				return
			}
			p.input(func() { p.core.Rewatched(q.answer) })
		})
	}
	if q := p.failed; q != nil {
		listQuery(p, q, func() { q.answer, q.refuse = w.failedRows(), w.failedRefused() }, func() {
			p.failed = nil
			if q.refuse != nil {
				p.input(func() { p.core.FailedRefused(q.refuse, errMapping) })
				return
			}
			p.input(func() { p.core.FailedRows(q.answer) })
		})
	}
}

func listQuery[Q, A any](p *proc, q *query[Q, A], run, deliver func()) {
	w := p.w
	if !q.ran {
		if p.elsewhere() {
			return // refused, until the process sees that its connection is gone
		}
		w.can(evQuery, func() { run(); q.ran = true })
		return
	}
	w.can(evAnswer, deliver)
}

// readInsert reads the insert position right after the snapshot, or leaves it
// for later.
func (w *world) readInsert(at *outbox.LSN, read *bool) {
	if !*read && w.chance(50) {
		*at, *read = w.insert, true
	}
}

func (w *world) inserted(at outbox.LSN, read bool) outbox.LSN {
	if read {
		return at
	}
	return w.insert
}

func (p *proc) swept(q *query[outbox.SweepRequest, outbox.Page]) {
	w := p.w
	p.sweep = nil
	if q.refuse != nil {
		w.note("%v: sweep of %v refused", p, q.refuse)
		p.input(func() { p.core.SweepRefused(q.refuse, errMapping) })
		return
	}
	q.answer.Insert = w.inserted(q.insert, q.read)
	if q.ask.WriteWAL {
		w.write(8)
	}
	p.checkCauses(q.answer.Rows)
	w.note("%v: swept %v, more %v, snapshot %v, insert %v", p, outboxIDs(q.answer.Rows), q.answer.More, q.answer.Snapshot, q.answer.Insert)
	p.input(func() { p.core.Swept(q.answer) })
}

func outboxIDs(rows []*outbox.Row) []string {
	ids := make([]string, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	return ids
}

func (w *world) listSink(p *proc) {
	s := p.sink
	s.listPartitions()
	if len(s.cmds) > 0 {
		w.can(evCommand, s.command)
	}
	for _, cl := range w.plan.clusters {
		down := w.kafka.down[cl]
		switch {
		case s.epochs[cl] != 0 || down:
		case w.plan.once:
			if p.conn != nil && p.conn.connected {
				w.can(evFence, func() { p.recoverLate(cl) })
			}
		case p.conn != nil || p.draining && w.lock == nil:
			w.can(evFence, func() { s.fence(cl) })
		}
		if w.plan.once {
			down = down || s.epochs[cl] == 0
			s.listOnce(cl)
		}
		if s.told[cl] != down {
			w.can(evState, func() {
				s.told[cl] = down
				st := outbox.ClusterState{Cluster: cl, Usable: !down}
				if down {
					st.Err = errCluster
				}
				w.note("%v: cluster %s usable: %v", p, cl, !down)
				p.states = append(p.states, st)
			})
		}
	}
	for _, l := range s.queues {
		if w.plan.once {
			break
		}
		if l.part != draining && l.wire == nil && !l.waits() && s.epochs[l.cluster] != 0 && !w.kafka.down[l.cluster] {
			w.can(evSend, func() { s.send(l, 1+w.intn(3)) })
		}
		if b := l.wire; b != nil && b.done && !w.kafka.down[l.cluster] {
			w.can(evSinkAnswer, func() { s.answer(b) })
		}
	}
}

func (w *world) listAnswers(p *proc) {
	if len(p.outcomes) > 0 {
		w.can(evOutcome, p.outcome)
	}
	if len(p.states) > 0 {
		w.can(evState, func() {
			s := p.states[0]
			p.states = p.states[1:]
			p.input(func() {
				if s.Topics != nil {
					p.core.Topics(s.Cluster, s.Topics)
				} else {
					p.core.Cluster(s)
				}
			})
		})
	}
	p.listClaims()
	if w.plan.once {
		p.listOnceMarks()
	} else if list := p.markable(); len(list) > 0 {
		w.can(evMark, func() { p.runBatch(list, false) })
	}
	if len(p.answers) > 0 {
		w.can(evMarked, func() {
			n := 1 + w.intn(len(p.answers))
			a := p.answers[:n:n]
			p.answers = p.answers[n:]
			w.note("%v: %d answers to marks", p, n)
			p.input(func() { p.core.Marked(a) })
		})
	}
	switch x := p.write; {
	case x != nil && x.ran && !x.lost:
		w.can(evParksAnswer, func() { p.parksAnswered(false) })
	case x != nil && x.lost:
		w.can(evParksAnswer, func() { p.parksAnswered(true) })
	case x == nil && p.change != nil && p.conn != nil && p.conn.connected:
		w.can(evParks, p.tryParks)
	}
}

func (p *proc) outcome() {
	o := p.outcomes[0]
	p.outcomes = p.outcomes[1:]
	if p.w.plan.stateless && o.Unit != nil {
		p.positionsOf(o.Unit.Cluster).Add(o.Unit.Number, 0, o.Unit.UpTo, len(o.Rows))
		p.last[o.Unit.Cluster] = o.Unit.Number
	}
	p.w.note("%v: outcome: %s %v, scope %v, blocked %v", p, classNames[o.Class], outboxIDs(o.Rows), o.Scope, o.Blocked)
	p.input(func() { p.core.Outcome(o) })
}

// listFaults lists the faults.
func (w *world) listFaults() {
	w.listOperator()
	w.listReissue()
	w.listUnmarked()
	w.listPause()
	w.can(evCrash, w.crash)
	if n := len(w.undone); n > 0 {
		w.can(evFailover, func() {
			at := w.undone[n-1-w.intn(min(n, 12))].at
			w.failover(at, w.slot.exists && w.chance(50))
		})
	}
	if w.slot.exists && !w.slot.lost {
		w.can(evSlotLost, w.loseSlot)
	}
	for _, t := range w.plan.tables {
		w.can(evNoWrite, func() { w.noWrite[t] = !w.noWrite[t]; w.note("database: UPDATE of %v refused: %v", t, w.noWrite[t]) })
		w.can(evBroken, func() { w.define(t, !w.broken[t]) })
	}
	w.can(evLapse, func() {
		if w.plan.stateless {
			w.restoreDump()
			return
		}
		w.lapse = !w.lapse
		w.note("database: publication lacks the tables: %v", w.lapse)
	})
	for _, t := range w.plan.tables {
		w.can(evUncover, func() { w.uncover(t, !w.lacks[t]) })
	}
	for _, cl := range w.plan.clusters {
		for _, topic := range topics[:w.plan.topics] {
			id := topicID(cl, topic)
			w.can(evTopicDown, func() {
				w.kafka.topicDown[id] = !w.kafka.topicDown[id]
				w.note("kafka: topic %s refused: %v", id, w.kafka.topicDown[id])
			})
			if w.kafka.partitions[id] < 2 {
				w.can(evAddPartition, func() { w.addPartition(id) })
			}
		}
		w.can(evClusterDown, func() {
			w.kafka.down[cl] = !w.kafka.down[cl]
			w.note("kafka: cluster %s down: %v", cl, w.kafka.down[cl])
		})
	}
	if len(w.strays) > 0 {
		w.can(evStray, w.runStray)
	}
	for _, c := range w.claims {
		w.can(evClaimBreaks, func() { w.breakClaim(c) })
	}
	for _, p := range w.procs {
		if p.up {
			w.listProcFaults(p)
		}
	}
}

func (w *world) runStray() {
	i := w.intn(len(w.strays))
	s := w.strays[i]
	w.strays = append(w.strays[:i], w.strays[i+1:]...)
	w.note("late: %s", s.what)
	s.f()
}

// loseSlot loses the slot, by max_slot_wal_keep_size or because an operator drops it.
func (w *world) loseSlot() {
	w.note("database: slot lost")
	if w.lock != nil {
		w.lock.dropped()
	}
	if w.chance(50) {
		w.slot = slot{}
	} else {
		w.slot.lost = true
	}
}

// define changes a table's definition so that it fits its mapping, or no longer fits it.
func (w *world) define(t *outbox.Table, broken bool) {
	w.note("database: definition of %v broken: %v", t, broken)
	w.ownXID()
	was := w.broken[t]
	w.undone = append(w.undone, undo{w.insert, func() { w.broken[t] = was }})
	w.wal = append(w.wal, &walRec{at: w.write(16), ddl: t, broken: broken})
	w.broken[t] = broken
}

// listOperator lists what operators do to rows.
func (w *world) listOperator() {
	for _, r := range w.rows {
		if !r.exists() || r.foreign || r.taken || r.locked || w.lockOf(r) != nil {
			continue
		}
		if r.status == statusPending {
			w.can(evChange, func() { w.logged(w.change(r)) })
		}
		if r.status != statusPending {
			w.can(evRequeue, func() {
				w.note("operator: requeues %v, which was %v", r, r.status)
				r.requeued = true
				r.allowed++
				w.atomically(func() {
					w.owe(r)
					w.set(r, statusPending, 0)
				})
			})
		}
		if r.status != statusSent && w.chance(20) {
			w.can(evDelete, func() { w.note("operator: deletes %v", r); w.remove(r) })
		}
	}
}

// change lets the application change a waiting row, and returns a function that takes the change back.
func (w *world) change(r *dbRow) (undo func()) {
	was := *r
	undo = func() {
		if settled := r.deleted || r.status == statusCancelled; settled {
			r.undone = true
			if !w.plan.once {
				r.allowed++ // it may have been published before
			}
		}
		r.undone = r.undone || r.available.After(was.available) // who looked meanwhile left it to its time
		r.version, r.available, r.status, r.deleted = was.version, was.available, was.status, was.deleted
	}
	switch w.intn(6) {
	case 0:
		r.status = statusCancelled
	case 1:
		r.deleted = true
	case 2:
		r.available = w.now.Add(time.Duration(w.intn(4000)) * time.Millisecond)
	default:
		r.version++
	}
	w.note("application: changes %v: version %d, %v, available %v, deleted %v", r, r.version, r.status, r.available.Sub(epochStart), r.deleted)
	return undo
}

func (w *world) listProcFaults(p *proc) {
	w.can(evKill, p.kill)
	w.listSkew(p)
	w.listPace(p)
	w.can(evMode, func() {
		w.plan.cfg.Shadow = !w.plan.cfg.Shadow
		w.note("%v: is started again, in shadow: %v", p, w.plan.cfg.Shadow)
		p.kill()
		p.boot()
	})
	if !p.frozen {
		w.can(evFreeze, func() {
			w.note("%v: stopped by a signal", p)
			p.frozen = true
			if !w.patience && p.conn != nil && p.conn.alive {
				p.conn.dropped()
			}
		})
		if !p.draining {
			w.can(evDrain, func() {
				w.note("%v: drains", p)
				p.draining = true
				p.input(p.core.Drain)
			})
		}
		if list := p.markable(); len(list) > 0 && !w.plan.once {
			w.can(evMarkLost, func() { p.runBatch(list, true) })
		}
	}
	if p.conn != nil && p.conn.alive {
		w.can(evDrop, p.conn.dropped)
	}
	if p.write != nil && !p.write.lost && !p.write.fenced {
		w.can(evParksUnknown, func() {
			if !p.write.ran && w.chance(50) {
				w.runParks(p.write)
			}
			p.write.lost = true
			w.note("%v: the answer about parks gets lost, committed: %v", p, p.write.ran && !p.write.orphan)
		})
	}
}

// heal ends all faults, and brings everything that is open to its end.
func (w *world) heal() {
	w.note("---- healed")
	w.healing = true
	w.noWrite, w.kafka.down, w.kafka.topicDown = map[*outbox.Table]bool{}, map[string]bool{}, map[string]bool{}
	w.lapse, w.paused = false, nil
	for _, r := range w.rows {
		r.unmarked = min(r.unmarked, 0)
	}
	for _, t := range w.plan.tables {
		if w.lacks[t] {
			w.uncover(t, false)
		}
		if w.broken[t] {
			w.define(t, false)
		}
	}
	for len(w.strays) > 0 {
		w.runStray()
	}
	w.plan.cfg.Shadow = false
	for _, p := range w.procs {
		p.frozen, p.skew, p.told, p.quiet, p.asked = false, 0, false, false, time.Time{}
		if p.up {
			p.input(func() { p.core.Pace(time.Time{}, 0) })
		}
		if p.up && p.core.cfg.Shadow {
			p.kill()
		}
	}
	w.goOn()
}

// goOn commits a last row of each kind. So the WAL shows that all tables are whole again, and late events
// come before something.
func (w *world) goOn() {
	for _, table := range w.plan.tables {
		for _, topic := range topics[:w.plan.topics] {
			for _, cluster := range w.plan.clusters {
				t := w.begin()
				r := &dbRow{table: table, cluster: cluster, topic: topic, key: "a"}
				if !w.free(t, r) {
					r.key = "c"
				}
				w.addRow(t, r)
				w.commit(t, true)
			}
		}
	}
}

// next takes one event.
func (w *world) next() bool {
	events := w.list()
	w.pickBuf = w.pickBuf[:0]
	for _, e := range events {
		if w.healing {
			w.pickBuf = append(w.pickBuf, usual[e.kind])
		} else {
			w.pickBuf = append(w.pickBuf, w.plan.weights[e.kind])
		}
	}
	if len(events) == 0 {
		return false
	}
	w.step++
	events[w.pick(w.pickBuf)].f()
	w.checkStep()
	return w.bad == nil
}

// settleWithin is how long a healed world may take to settle everything. Each of its waits takes a few
// seconds. A row that takes longer is delayed by something that nothing explains. In 1,500 seeds the slowest
// took 31 seconds.
const settleWithin = time.Minute

// run does a whole run: first with faults, then in the healed world until all is settled. It returns the
// violation, if there is one.
func (w *world) run(steps int) *violation {
	for i := 0; i < steps && w.next(); i++ {
	}
	if w.bad != nil {
		return w.bad
	}
	w.heal()
	healed := w.now
	for i := 0; w.bad == nil && !w.settled(); i++ {
		if w.now.Sub(healed) > settleWithin {
			w.checkAtRest()
			break
		}
		if i%20 == 19 {
			w.advance(500 * time.Millisecond)
		}
		w.next()
	}
	w.checkEnd()
	return w.bad
}
