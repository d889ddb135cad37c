package checkpoint

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// This file has the database of the simulation: rows, transactions, snapshots, the write-ahead log, the slot
// and our own schema. It behaves like PostgreSQL where this matters to the rules of docs/internals/design.md:
//
//   - A commit is in the WAL, and is streamed, before it is visible to others
//     while it waits for a standby; a server crash makes it visible.
//   - pg_current_snapshot's xmax is the last completed xid plus one, so a running
//     transaction with a higher id is in progress without being listed.
//   - The slot's confirmed position on disk is older than the one confirmed, and
//     is what a crash leaves.
//   - A failover goes back to an earlier position of the WAL. What was behind it
//     never happened; positions and xids behind it are used again.

// chooser makes every choice of a run.
type chooser interface {
	// pick chooses one of the weights' indices.
	pick(weights []int) int
	intn(n int) int
	chance(percent int) bool
}

type randomChooser struct{ *rand.Rand }

func (r randomChooser) pick(weights []int) int {
	sum := 0
	for _, x := range weights {
		sum += x
	}
	n := r.IntN(sum)
	for i, x := range weights {
		if n -= x; n < 0 {
			return i
		}
	}
	return len(weights) - 1
}

func (r randomChooser) intn(n int) int          { return r.IntN(n) }
func (r randomChooser) chance(percent int) bool { return r.IntN(100) < percent }

// worldRules switches off single rules of the Core's surroundings: the driver, the database and the sink.
// test/mutants changes the rules of the Core itself.
type worldRules struct {
	startZero           bool // START_REPLICATION at 0/0, no position carried over
	fencing             bool // a new leader fences the old one's batches
	epochGuard          bool // writes to parks are guarded by the leader epoch
	lockGuard           bool // … and by the lock of the connection that raised it
	freshPage           bool // a page is read in a fresh snapshot
	insertAfterSnapshot bool // B is read after S was taken
	snapshotAfterXID    bool // an own xid is completed before the connection's snapshot
	guardedMark         bool // a mark overwrites PENDING only
	parksReadBack       bool // parks are read at start
	failedReadBack      bool // keys with a FAILED row start parked (block)
	epochContinuity     bool // a Core is thrown away when another led in between
	sinkBlocksKey       bool // the sink blocks the key of a refused row
	voidAnswers         bool // answers of an earlier connection are not delivered
	onePhase            bool // a prepared transaction is streamed at COMMIT PREPARED, not before
	uncoveredTold       bool // the Core is told which tables the publication lacks
	coveredNoticed      bool // … and the connection ends when the publication has them again
	drainsTopic         bool // a topic with more partitions is drained before they are used
	releasesOne         bool // the release of a topic is only for the cluster that blocks it
	unsureMarks         bool // marks are written again if the answer to their commit got lost
	lockedMarks         bool // marks wait while somebody has locked their rows
	retainsFlying       bool // retention does not delete rows in flight
	findsSameRow        bool // a mark or a look finds its row, and not a later row with the same id
}

type rowStatus uint8

const (
	statusPending rowStatus = iota
	statusSent
	statusFailed
	statusCancelled // by the application
)

func (s rowStatus) String() string { return [...]string{"PENDING", "SENT", "FAILED", "CANCELLED"}[s] }

// dbRow is a row of an outbox table, with what the checks need to remember.
type dbRow struct {
	n         int    // index in world.rows
	id        string // within its table
	table     *outbox.Table
	cluster   string
	topic     string
	key       string
	null      bool // NULL key
	tx        *txn
	order     int // value of the order column, assigned at insertion
	created   time.Time
	available time.Time // zero: at once
	foreign   bool      // inserted in a state that is not PENDING
	bad       error     // the row cannot become a record
	poison    int       // number of refusals to come; <0: refused for ever
	unmarked  int       // number of its marks to be refused; <0: refused for ever

	status   rowStatus
	deleted  bool
	attempts int

	version  int       // version of its content
	inserted time.Time // value of available at insertion
	// committed is the row's state when its transaction committed.
	committed struct {
		version int
		ours    bool // pending, and due
	}

	reissued       bool // a deleted row had the same id before
	wasUnmarked    bool // one of its marks was refused
	requeued       bool // the operator has put it back
	wasFailed      bool
	missed         bool      // the stream does not carry it
	told           bool      // … and the table's park said so when it was committed
	locked         bool      // an open transaction of an application has locked it
	late           bool      // the WAL does not show when it is available
	taken          bool      // the relay works on it, and has given it a status of its own
	dead           bool      // the relay worked on it, and died
	other          bool      // the relay has published it
	foundInvisible time.Time // a look of the leader did not see it yet
	undone         bool      // a failover has undone that it was terminal, gone or not due
	refusals       int       // how often Kafka refused it, or it was read with an error of its own
	unknown        int       // number of attempts that may have been charged twice
	spent          bool      // it used up its budget with one attempt
	copies         int       // number of copies in Kafka
	owed           int       // with exactly-once delivery: copies that must exist before the row may be SENT
	allowed        int       // number of copies that unknown outcomes explain
	first          *landing
}

func (r *dbRow) String() string {
	key := "key " + r.key
	if r.null {
		key = "no key"
	}
	return fmt.Sprintf("row %s (%s, %s, %s)", r.id, r.table.Name, r.topic, key)
}

// sameOrder reports whether an order is promised between the two rows.
func (r *dbRow) sameOrder(o *dbRow) bool {
	return !r.null && !o.null && r.key == o.key && r.topic == o.topic && r.table == o.table && r.cluster == o.cluster
}

// scheduled reports whether the row becomes available after its commit, or the WAL does not exclude that.
func (r *dbRow) scheduled() bool {
	return !r.available.IsZero() && (r.late || r.tx.state == txnOpen || r.available.After(r.tx.committedAt))
}

type txnState uint8

const (
	txnOpen txnState = iota
	txnCommitted
	txnAborted
	txnLost // committed, and then undone by a failover
)

type txn struct {
	xid         uint64
	rows        []*dbRow
	state       txnState
	visible     bool
	visibleStep int
	seq         int // commit order over the whole run
	start       outbox.LSN
	commit, end outbox.LSN
	committedAt time.Time
	prepared    bool // PREPARE TRANSACTION: it outlives sessions and the server
	undone      bool // undone by a failover
}

// running reports whether the transaction is in progress for snapshots.
func (t *txn) running() bool {
	return t.state == txnOpen || t.state == txnCommitted && !t.visible
}

// walRec is a record of the WAL that logical decoding sees: a commit, or a change of a table's definition.
type walRec struct {
	at     outbox.LSN
	tx     *txn
	ddl    *outbox.Table
	broken bool
}

type slot struct {
	exists    bool
	lost      bool
	confirmed outbox.LSN
	persisted outbox.LSN
	making    *making
}

// making is a slot that is being made. It waits twice for the transactions that are running.
type making struct {
	waits []*txn
	again bool
}

type undo struct {
	at outbox.LSN
	f  func()
}

// plan is the plan of a seed, drawn once.
type plan struct {
	steps    int
	keys     int
	topics   int // of each cluster
	nulls    bool
	overlap  bool // writers of one key overlap, so order columns need not follow commits
	idOrders bool // rows of a page that was cut come in the order of ids
	// stateless: the table keeps no state, so there is nothing to park, sweep,
	// mark or look at.
	stateless bool
	once      bool // delivery is exactly once
	offOnce   onceRules
	procs     int
	cfg       Config
	tables    []*outbox.Table
	clusters  []string
	weights   [numEvents]int
}

// world is the state of one run.
type world struct {
	chooser
	plan    plan
	off     worldRules
	trace   func(format string, args ...any)
	step    int
	healing bool
	// patience: the server takes its time to give up on a process that is stopped.
	patience bool
	now      time.Time

	rows      []*dbRow
	byID      map[rowID][]*dbRow
	ids       map[*outbox.Table]int
	txns      []*txn // running ones and those not long ended
	nextXID   uint64
	completed uint64 // latest completed xid
	commits   int
	orders    int
	wal       []*walRec
	insert    outbox.LSN
	undone    []undo
	slot      slot
	noWrite   map[*outbox.Table]bool // tables that refuse UPDATE
	broken    map[*outbox.Table]bool // tables whose definition does not fit the mapping
	paused    []outbox.Park          // what the operator has paused
	lapse     bool                   // the publication lacks our tables, and nobody notices it
	lacks     map[*outbox.Table]bool // tables that the publication lacks

	stoppedCleanly bool // the last process that streamed confirmed all that it published

	lock             *conn
	epoch, lastEpoch int
	failovers        int
	parks            map[outbox.Scope]outbox.Park

	kafka   kafka
	tallies map[string]*tally
	system  int // number of the database cluster
	offOnce onceRules
	procs   []*proc

	claims []*dbClaim

	strays   []stray
	metas    []copyMeta
	cursors  map[string]*cursor
	idOrders map[*outbox.Table]*idOrder

	events  []event
	pickBuf []int

	bad *violation
}

// stray is an effect of a process that is gone, which is still on its way.
type stray struct {
	what string
	f    func()
}

// violation is a broken invariant.
type violation struct {
	invariant string
	text      string
	row       *dbRow
	step      int
}

func (v *violation) Error() string {
	return fmt.Sprintf("%s broken at step %d: %s", v.invariant, v.step, v.text)
}

// fail records the first violation.
func (w *world) fail(invariant string, row *dbRow, format string, args ...any) {
	if w.bad != nil {
		return
	}
	w.bad = &violation{invariant, fmt.Sprintf(format, args...), row, w.step}
	w.note("!!! %s: %s", invariant, w.bad.text)
}

// note writes a line into the story.
func (w *world) note(format string, args ...any) {
	if w.trace != nil {
		w.trace("%5d %6.2fs  "+format, append([]any{w.step, w.now.Sub(epochStart).Seconds()}, args...)...)
	}
}

// write appends n bytes to the WAL, and returns the position before them.
func (w *world) write(n int) outbox.LSN {
	at := w.insert
	w.insert += outbox.LSN(n)
	return at
}

// logged writes a change to the WAL so that a failover can undo it.
func (w *world) logged(f func()) {
	w.undone = append(w.undone, undo{w.write(16), f})
}

// ---- transactions

func (w *world) begin() *txn {
	t := &txn{start: w.insert}
	w.txns = append(w.txns, t)
	return t
}

// assign gives a transaction its xid, at its first write.
func (w *world) assign(t *txn) {
	if t.xid != 0 {
		return
	}
	for uint32(w.nextXID) < 3 { // never used: invalid, bootstrap, frozen
		w.nextXID++
	}
	t.xid = w.nextXID
	w.nextXID++
	w.logged(func() { w.nextXID = t.xid })
}

func (w *world) complete(xid uint64) {
	if xid > w.completed {
		w.completed = xid
	}
}

func (w *world) commit(t *txn, visible bool) {
	if len(t.rows) == 0 {
		w.rollback(t)
		return
	}
	w.commits++
	t.seq = w.commits
	t.state, t.committedAt = txnCommitted, w.now
	t.commit = w.write(24)
	t.end = w.insert
	w.wal = append(w.wal, &walRec{at: t.commit, tx: t})
	w.undone = append(w.undone, undo{t.commit, func() { w.uncommit(t) }})
	for _, r := range t.rows {
		r.missed = r.missed || w.lapse || w.lacks[r.table]
		r.told = w.lacks[r.table] && w.toldOf(r.table)
		r.committed.version = r.version
		r.committed.ours = r.status == statusPending && !r.deleted && !r.available.After(w.now)
	}
	if visible {
		w.show(t)
	}
	w.note("database: xid %d commits at %v, visible %v: %v", t.xid, t.commit, visible, rowIDs(t.rows))
}

func (w *world) show(t *txn) {
	t.visible, t.visibleStep = true, w.step
	w.complete(t.xid)
	w.forget(t)
}

func (w *world) rollback(t *txn) {
	t.state = txnAborted
	if t.xid != 0 {
		w.complete(t.xid)
		w.note("database: xid %d rolls back", t.xid)
	}
	w.forget(t)
}

func (w *world) forget(t *txn) {
	for i, x := range w.txns {
		if x == t {
			w.txns = append(w.txns[:i], w.txns[i+1:]...)
			return
		}
	}
}

// ownXID completes a transaction of our own that wrote something.
func (w *world) ownXID() {
	t := &txn{}
	w.assign(t)
	w.complete(t.xid)
}

// addRow inserts a row.
func (w *world) addRow(t *txn, r *dbRow) {
	w.assign(t)
	w.orders++
	r.n, r.tx, r.order, r.allowed, r.inserted = len(w.rows), t, w.orders, 1, r.available
	r.created = w.now.Add(-time.Duration(w.orders) * time.Microsecond) // no two at once
	if !r.reissued {
		if w.plan.stateless {
			was := w.ids[r.table]
			w.undone = append(w.undone, undo{w.insert, func() { w.ids[r.table] = was }})
		}
		w.ids[r.table]++
		r.id = strconv.Itoa(w.ids[r.table]) // tables give out the same ids
	}
	w.rows = append(w.rows, r)
	w.byID[rowID{table: r.table, id: r.id}] = append(w.byID[rowID{table: r.table, id: r.id}], r)
	t.rows = append(t.rows, r)
	w.write(64)
	w.note("database: xid %d inserts %v%s", t.xid, r, r.traits())
}

func (r *dbRow) traits() string {
	s := ""
	if r.poison != 0 {
		s += fmt.Sprintf(", refused %d times", r.poison)
	}
	if r.bad != nil {
		s += ", without a record"
	}
	if r.scheduled() {
		s += ", scheduled"
	}
	if r.foreign {
		s += ", not PENDING"
	}
	if r.unmarked != 0 {
		s += fmt.Sprintf(", its marks refused %d times", r.unmarked)
	}
	if r.reissued {
		s += ", with the id of another"
	}
	return s
}

// exists reports whether the row is there for a fresh snapshot.
func (r *dbRow) exists() bool {
	return r.tx.state == txnCommitted && r.tx.visible && !r.deleted
}

// survives reports whether the row was committed and is still there.
func (r *dbRow) survives() bool { return r.tx.state == txnCommitted && !r.deleted }

// set changes a row's state in a logged way.
func (w *world) set(r *dbRow, status rowStatus, attempts int) {
	s, a := r.status, r.attempts
	w.logged(func() {
		if (r.status == statusSent || r.copies > 0) && r.status != statusPending && s == statusPending && !w.plan.once {
			r.allowed++ // the failover forgot that it was sent, or FAILED by one process while another published it
		}
		r.undone = r.undone || r.status != statusPending
		r.status, r.attempts = s, a
	})
	r.status, r.attempts = status, attempts
	r.wasFailed = r.wasFailed || status == statusFailed
}

func (w *world) remove(r *dbRow) {
	w.logged(func() {
		r.deleted, r.undone = false, true
		if !w.plan.once {
			r.allowed++
		}
	})
	r.deleted = true
}

// snapshot is pg_current_snapshot().
func (w *world) snapshot() outbox.Snapshot {
	s := outbox.Snapshot{Xmax: w.completed + 1}
	for _, t := range w.txns {
		if t.running() && t.xid != 0 && t.xid < s.Xmax {
			s.InProgress = append(s.InProgress, t.xid)
		}
	}
	sort.Slice(s.InProgress, func(i, j int) bool { return s.InProgress[i] < s.InProgress[j] })
	s.Xmin = s.Xmax
	if len(s.InProgress) > 0 {
		s.Xmin = s.InProgress[0]
	}
	return s
}

// ---- faults of the server

// crash ends every session. Waiting commits become visible, the slot is what
// was on disk.
func (w *world) crash() {
	w.note("database: crashes")
	w.endSessions()
	w.slot.confirmed = w.slot.persisted
}

func (w *world) endSessions() {
	for _, t := range append([]*txn(nil), w.txns...) {
		switch t.state {
		case txnOpen:
			if !t.prepared {
				w.rollback(t)
			}
		case txnCommitted:
			w.show(t)
		}
	}
	for _, r := range w.rows {
		r.locked = false
	}
	w.slot.making = nil
	w.breakClaims()
	for i := range w.strays {
		if w.chance(50) {
			w.strays[i].f()
		}
	}
	w.strays = w.strays[:0]
	if w.lock != nil {
		w.lock.dropped()
	}
	for _, p := range w.procs {
		p.sessionsEnded()
	}
}

// failover goes back to position p: what is behind it never happened.
func (w *world) failover(p outbox.LSN, withSlot bool) {
	w.note("database: fails over to a standby that has the WAL up to %v, with the slot: %v", p, withSlot)
	w.endSessions()
	w.failovers++
	for i := len(w.undone) - 1; i >= 0 && w.undone[i].at >= p; i-- {
		w.undone[i].f()
		w.undone = w.undone[:i]
	}
	for len(w.wal) > 0 && w.wal[len(w.wal)-1].at >= p {
		w.wal = w.wal[:len(w.wal)-1]
	}
	w.insert = p
	w.completed = w.nextXID - 1
	if w.plan.stateless { // names have the time in them
		w.advance(time.Millisecond)
	}
	if !withSlot {
		w.slot = slot{}
	}
	for _, t := range append([]*txn(nil), w.txns...) {
		if t.state == txnOpen && !t.prepared { // the failover has undone its PREPARE
			t.state = txnAborted
			w.forget(t)
		}
	}
	for _, r := range w.rows {
		r.told = false // the failover may have undone the park
	}
	w.cursors = map[string]*cursor{}
}

// ---- the slot

// confirm is a status update that has reached the server.
func (w *world) confirm(p outbox.LSN) {
	if p <= w.slot.confirmed {
		return
	}
	old := w.slot
	w.undone = append(w.undone, undo{w.insert, func() { w.slot = old; w.slot.making = nil }})
	w.slot.confirmed = p
}

func (w *world) persist() {
	w.slot.persisted = w.slot.confirmed
}

func (w *world) retained() uint64 {
	if !w.slot.exists || w.slot.lost {
		return 0
	}
	return uint64(w.insert - min(w.insert, w.slot.confirmed))
}

// startMaking starts CREATE_REPLICATION_SLOT.
func (w *world) startMaking() {
	w.slot = slot{making: &making{waits: w.running()}}
}

// running returns the transactions that making a slot waits for. A waiting commit
// is not among them: it is harder that way.
func (w *world) running() []*txn {
	var open []*txn
	for _, t := range w.txns {
		if t.state == txnOpen && t.xid != 0 {
			open = append(open, t)
		}
	}
	return open
}

// made goes on making the slot; true when it is made.
func (w *world) made() bool {
	m := w.slot.making
	for _, t := range m.waits {
		if t.state == txnOpen {
			return false
		}
	}
	if !m.again {
		m.again, m.waits = true, w.running()
		return false
	}
	w.write(8)
	old := w.slot
	old.making = nil
	w.undone = append(w.undone, undo{w.insert, func() { w.slot = old }})
	w.slot = slot{exists: true, confirmed: w.insert, persisted: w.insert}
	w.note("database: slot made at %v", w.insert)
	w.passedOver()
	return true
}

// ---- our own schema

// parkWrite is one try to write a ParkChange.
type parkWrite struct {
	change outbox.ParkChange
	epoch  int
	conn   *conn
	ran    bool
	fenced bool // another process leads: the write changes 0 rows
	orphan bool // the leading connection is gone: the write changes 0 rows
	lost   bool // the answer gets lost
}

// runParks executes the write on the server.
func (w *world) runParks(x *parkWrite) {
	x.ran = true
	x.fenced = x.epoch != w.epoch && !w.off.epochGuard
	x.orphan = x.conn != w.lock && !w.off.lockGuard && !w.off.epochGuard
	if x.fenced || x.orphan {
		w.note("parks: write of epoch %d refused, the epoch is %d", x.epoch, w.epoch)
		return
	}
	old := make(map[outbox.Scope]outbox.Park, len(w.parks))
	for k, v := range w.parks {
		old[k] = v
	}
	w.logged(func() {
		for s, p := range w.parks {
			if _, kept := old[s]; p.Unmarked() && !kept && !w.plan.once {
				w.row(&outbox.Row{Table: w.table(s.Table), ID: s.ID}).allowed++ // nobody knows any more that it was published
			}
		}
		w.parks = old
	})
	next := make(map[outbox.Scope]outbox.Park, len(w.parks)+1)
	for k, v := range w.parks {
		next[k] = v
	}
	for _, s := range x.change.Delete {
		w.note("parks: %v removed", s)
		delete(next, s)
	}
	for _, p := range x.change.Put {
		w.note("parks: %v written (%s)", p.Scope, p.Cause)
		p.Since, p.Next = p.Since.Round(0), p.Next.Round(0) // a column has no monotonic clock
		next[p.Scope] = p
	}
	w.parks = next
}

func (w *world) parkList() []outbox.Park {
	list := make([]outbox.Park, 0, len(w.parks))
	for _, p := range w.parks {
		list = append(list, p)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Scope.String() < list[j].Scope.String() })
	return list
}

// ---- reading rows

// copyMeta says from where a row came that was handed to a Core.
type copyMeta struct {
	row  *dbRow
	page bool
	step int // the step of the snapshot that set the row's place on the page
	// version of the content, and whether the last look before it was published read it.
	version int
	looked  bool
	seen    bool    // the last look found it as its transaction left it
	waited  *waited // it was read from the WAL long after its commit
}

// waited is the state of a row when its long wait was noticed.
type waited struct {
	was  dbRow
	seen bool // it was visible
	over int  // number of failovers before
}

func (w *world) noticed(r *dbRow) *waited { return &waited{*r, r.tx.visible, w.failovers} }

// checkWaited checks I12 for a row that waited: the row is published as it was when its wait was noticed, or
// in a newer version. A row that nobody has changed since its transaction may be published as it was
// inserted.
func (w *world) checkWaited(x *waited, r *dbRow, m *copyMeta) {
	switch {
	case !x.seen || r.requeued || r.undone || r.tx.undone || x.over != w.failovers:
	case !x.was.exists() || x.was.status != statusPending || x.was.available.After(w.now) && r.available.Equal(x.was.available):
		w.fail("I12", r, "%v is published after a wait, and was not to be", r)
	case m.version < x.was.version && (m.looked || x.was.version > r.committed.version):
		w.fail("I12", r, "%v is published after a wait in version %d, and had %d", r, m.version, x.was.version)
	}
}

// read makes the vocabulary's row of a row, as the decoder and the sweeper do.
func (w *world) read(r *dbRow, fromLog bool) *outbox.Row {
	m := copyMeta{row: r, page: !fromLog, step: w.step, version: r.version}
	available := r.available
	if fromLog {
		m.version, available = 0, r.inserted
	}
	w.metas = append(w.metas, m)
	row := &outbox.Row{
		Table: r.table, ID: r.id, Cluster: r.cluster, Topic: r.topic, Partition: -1,
		Timestamp: int64(len(w.metas) - 1), Pending: !r.foreign, Err: r.bad, CreatedAt: r.created.UnixMicro(),
	}
	if r.bad != nil {
		r.refusals++
	}
	if !r.null {
		row.Key = []byte(r.key)
	}
	if !available.IsZero() {
		row.AvailableAt = available.UnixMicro()
	}
	if fromLog && r.late {
		row.AvailableAt = outbox.Never
	}
	if fromLog {
		if w.now.Sub(r.tx.committedAt) > w.plan.heldFor() && r.table.LooksAgain() {
			w.metas[row.Timestamp].waited = w.noticed(r)
		}
		row.XID, row.Commit = uint32(r.tx.xid), r.tx.commit
		if !w.offOnce.timed {
			row.CommitTime = r.tx.committedAt.UnixMicro()
		}
	}
	return row
}

func (w *world) meta(row *outbox.Row) *copyMeta { return &w.metas[row.Timestamp] }

func rowIDs(rows []*dbRow) []string {
	ids := make([]string, len(rows))
	for i, r := range rows {
		ids[i] = r.id
	}
	return ids
}

// cursor is a query that stays open over several pages, for runs without the rule that forbids it.
type cursor struct {
	rows []*dbRow
	step int
}

// wanted reports whether a sweep's part wants the row.
func (w *world) wanted(part *outbox.SweepPart, r *dbRow, row *outbox.Row) bool {
	return r.pendingIn(part.Table) && !r.available.After(w.now) && covered(part, row) && !slices.Contains(part.ExcludeIDs, r.id)
}

func (r *dbRow) pendingIn(t *outbox.Table) bool {
	return r.table == t && r.exists() && r.status == statusPending && !r.foreign && !r.taken
}

// covered reports whether a part's scopes want the row.
func covered(part *outbox.SweepPart, row *outbox.Row) bool {
	included := len(part.Include) == 0
	for _, s := range part.Include {
		included = included || s.Contains(row)
	}
	if part.Known != nil && !slices.Contains(part.Known, outbox.TopicScope(row.Cluster, row.Topic)) {
		return false
	}
	for _, s := range part.Exclude {
		if s.Contains(row) {
			return false
		}
	}
	return included
}

// probe returns a row's vocabulary without a trace, to ask scopes about it.
func (r *dbRow) probe() *outbox.Row {
	row := &outbox.Row{Table: r.table, ID: r.id, Cluster: r.cluster, Topic: r.topic, CreatedAt: r.created.UnixMicro()}
	if !r.null {
		row.Key = []byte(r.key)
	}
	return row
}

// sweep reads a page, or returns a table that refuses the statement.
func (w *world) sweep(q *outbox.SweepRequest) (outbox.Page, *outbox.Table) {
	var page outbox.Page
	for i := range q.Parts {
		part := &q.Parts[i]
		if w.broken[part.Table] {
			return outbox.Page{}, part.Table
		}
		rows, step := w.inOrder(q, part, q.Limit-len(page.Rows))
		for _, r := range rows {
			if len(page.Rows) == q.Limit {
				page.More = true
				break
			}
			row := w.read(r, false)
			row.Aged = r.tx.xid < part.Horizon
			w.meta(row).step = step
			page.Rows = append(page.Rows, row)
		}
	}
	page.Snapshot = w.snapshot()
	return page, nil
}

// inOrder returns the rows of a part: all of them, or more than there is room for
// from the table's idOrder, which the sweeper makes when a page was cut (there
// only where that pays); and the step at which their order was read.
func (w *world) inOrder(q *outbox.SweepRequest, part *outbox.SweepPart, room int) ([]*dbRow, int) {
	old := func(rows []*dbRow) []*dbRow {
		return slices.DeleteFunc(rows, func(r *dbRow) bool {
			return !q.ForHandback && w.now.Sub(r.created) < r.table.Mapping.HeadStart
		})
	}
	idOrders := w.plan.idOrders && !w.off.freshPage && part.Include[0].Kind < outbox.ScopeKey
	if a := w.idOrders[part.Table]; idOrders && a != nil && room > 0 {
		if a.rows == nil {
			a.rows, a.step = w.readAgenda(part), w.step
		}
		rows := old(slices.DeleteFunc(slices.Clone(a.rows), func(r *dbRow) bool { return !w.wanted(part, r, r.probe()) }))
		if len(rows) >= room {
			return append(rows[:room:room], a.rows[0]), a.step // there is more
		}
		delete(w.idOrders, part.Table)
	}
	rows := old(w.source(part))
	if idOrders && len(rows) > room {
		w.idOrders[part.Table] = &idOrder{}
	}
	return rows, w.step
}

// idOrder is an order of rows, for the next page.
type idOrder struct {
	rows []*dbRow
	step int // the step at which it was read
}

// idOrderRows is the maximum number of rows in an idOrder.
const idOrderRows = 12

func (w *world) readAgenda(part *outbox.SweepPart) []*dbRow {
	rows := []*dbRow{}
	for _, r := range w.rows {
		if len(rows) < idOrderRows && r.pendingIn(part.Table) && covered(part, r.probe()) {
			rows = append(rows, r)
		}
	}
	return rows
}

// source returns the rows of a part, all of them. With the rule of the fresh page
// off it goes on with the cursor of an earlier page.
func (w *world) source(part *outbox.SweepPart) []*dbRow {
	name := fmt.Sprint(part.Table, part.Include)
	if c := w.cursors[name]; c != nil && len(c.rows) > 0 && w.off.freshPage {
		rows := c.rows
		c.rows = nil
		return rows
	}
	var rows []*dbRow
	for _, r := range w.rows {
		if w.wanted(part, r, r.probe()) {
			rows = append(rows, r)
		}
	}
	if w.off.freshPage && len(rows) > 1 {
		half := (len(rows) + 1) / 2
		w.cursors[name] = &cursor{rows: rows[half:], step: w.step}
		rows = rows[:half]
	}
	return rows
}

// anyBroken returns a table that refuses statements about the rows.
func (w *world) anyBroken(rows []*outbox.Row) *outbox.Table {
	for _, row := range rows {
		if w.broken[row.Table] {
			return row.Table
		}
	}
	return nil
}

func (w *world) watch(q *outbox.WatchRequest) (found outbox.Candidates, refused *outbox.Table) {
	for i := range q.Parts {
		part := &q.Parts[i]
		if w.broken[part.Table] {
			return found, part.Table
		}
		for _, r := range w.rows {
			if r.table == part.Table && r.exists() && r.status == statusPending && !r.foreign && r.available.After(w.now) &&
				(found.NextDue.IsZero() || r.available.Before(found.NextDue)) {
				found.NextDue = r.available
			}
			if w.now.Sub(r.created) < part.Table.Mapping.Grace || len(found.Rows) == q.Limit || !w.wanted(part, r, r.probe()) {
				continue
			}
			found.Rows = append(found.Rows, w.read(r, false))
		}
	}
	return found, nil
}

func (w *world) rewatch(rows []*outbox.Row) []*outbox.Row {
	var pending []*outbox.Row
	for _, row := range rows {
		if r := w.row(row); r.exists() && r.status == statusPending && !r.taken {
			pending = append(pending, row)
		}
	}
	return pending
}

// check looks at rows in one snapshot.
func (w *world) check(p *proc, rows []*outbox.Row) []outbox.Checked {
	answers := make([]outbox.Checked, len(rows))
	s := w.snapshot()
	for i, row := range rows {
		if answers[i].State == outbox.CheckAgain {
			continue
		}
		r := w.row(row)
		answers[i] = outbox.Checked{Row: row, State: outbox.CheckSettled}
		if rest := rows[i+1:]; w.chance(2) { // it is too long to be read with more of them
			for j, row := range rest {
				answers[i+1+j] = outbox.Checked{Row: row, State: outbox.CheckAgain}
			}
		}
		switch {
		case r.exists() && r.taken:
			answers[i].State = outbox.CheckTaken
		case r.exists() && r.status == statusPending && !r.foreign && row.Handle != 0 && (r.table.Mapping.NeedsLook() || row.Stale || row.Late):
			w.lookAt(&answers[i], r)
			if a := &answers[i]; a.Now != nil && row.Late && !row.Stale && !r.table.Mapping.NeedsLook() && r.version == r.committed.version && w.chance(50) {
				a.Now, w.meta(row).seen = nil, true
			}
		case r.exists() && r.status == statusPending && !r.foreign:
			answers[i].State = outbox.CheckPending
		case r.exists() && r.status == statusFailed:
			answers[i].State = outbox.CheckFailed
		case r.exists():
		case row.XID != 0 && !s.Ended(s.Widen(row.XID)):
			answers[i].State = outbox.CheckInvisible
			if p.conn != nil && p.conn == w.lock {
				r.foundInvisible = w.now
			}
		}
	}
	return answers
}

// lookAt answers with the row as it is now, in its place.
func (w *world) lookAt(a *outbox.Checked, r *dbRow) {
	if r.available.After(w.now) {
		a.State = outbox.CheckWaits
		return
	}
	m := *w.meta(a.Row)
	m.version, m.looked = r.version, true
	w.metas = append(w.metas, m)
	now := *a.Row
	now.Timestamp, now.Handle, now.Stale, now.Late = int64(len(w.metas)-1), 0, false, false
	a.State, a.Now = outbox.CheckPending, &now
}

// mark is one guarded UPDATE.
func (w *world) mark(m outbox.Mark) outbox.Marked {
	a := outbox.Marked{Row: m.Row, Kind: m.Kind, State: outbox.MarkedSettled}
	r := w.row(m.Row)
	s := w.snapshot()
	if w.plan.stateless {
		w.fail("contract", r, "%v keeps no state and is marked", r)
	}
	switch {
	case r.locked: // only with a rule switched off
	case w.noWrite[r.table]:
		a.State, a.Err = outbox.MarkedRefused, errNoUpdate
	case !r.exists() && m.Row.XID != 0 && !s.Ended(s.Widen(m.Row.XID)):
		a.State = outbox.MarkedInvisible
	case !r.exists():
	case r.status != statusPending && !w.off.guardedMark, r.taken:
	case r.unmarked != 0:
		a.State, a.Err, a.Alone = outbox.MarkedRefused, errNoMark, true
		r.unmarked, r.wasUnmarked = max(r.unmarked-1, -1), true
	case m.Kind == outbox.MarkSent:
		w.markSent(r)
		a.State = outbox.MarkedSent
	default:
		w.markAttempt(r, &m, &a)
	}
	return a
}

func (w *world) markSent(r *dbRow) {
	if r.copies == 0 {
		w.fail("I2", r, "%v is marked SENT and is not in Kafka", r)
	}
	if r.status != statusPending {
		w.fail("I5", r, "%v was %v and is marked SENT", r, r.status)
	}
	if r.copies < r.owed {
		w.fail("requeue", r, "%v was requeued, and is marked SENT without being published again", r)
	}
	if r.table.Mapping.Published == outbox.PublishedDelete {
		w.remove(r)
	}
	w.set(r, statusSent, r.attempts)
}

func (w *world) markAttempt(r *dbRow, m *outbox.Mark, a *outbox.Marked) {
	if r.status != statusPending {
		w.fail("I5", r, "%v was %v and is charged an attempt", r, r.status)
	}
	a.Attempts = r.attempts + 1
	if a.Attempts > r.refusals+r.unknown {
		w.fail("I7", r, "%v is charged attempt %d after %d refusals", r, a.Attempts, r.refusals)
	}
	budget := r.table.Mapping.Status.MaxAttempts
	if m.Spends {
		if m.Row.Err == nil || m.Row.XID != 0 {
			w.fail("I7", r, "%v spends its budget, and another try may go otherwise", r)
		}
		a.Attempts, r.spent = max(a.Attempts, budget), true
	}
	a.State = outbox.MarkedRetry
	status := statusPending
	if a.Attempts >= budget {
		a.State, status = outbox.MarkedFailed, statusFailed
	}
	w.set(r, status, a.Attempts)
}
