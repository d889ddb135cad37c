package exactlyonce

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

var journalAt = Partition{Topic: "journal"}

// world is everything in the simulation. Each step is one action, and the invariants are checked after each
// step.
type world struct {
	rng   *rand.Rand // nil: nothing is random
	cfg   Config
	off   map[string]bool // rules of the code around the Machine that are switched off
	kafka *kafka
	db    *database
	past  []*database
	net   []*message
	procs []*proc

	leader     *proc
	clock      int64
	contents   int
	requeued   map[string]int // by content: number of requeues so far
	excused    map[string]int // by content: records from a process that delivered at least once
	late       map[string]bool
	poison     map[string]bool
	locked     map[string]bool
	missing    map[Partition]bool // partitions that cannot be added
	forbidden  map[Partition]bool // partitions that take no record of ours
	held       map[*message]bool  // messages that a test handles itself
	stale      int                // number of reads to come that see only the beginning of the journal
	legacy     []*legacyBatch
	split      map[*database]bool // old primaries that are still running
	script     []func()           // actions of the application, once a process is running
	stateless  bool
	everSealed bool
	damaged    bool // the journal was damaged on purpose
	refusedErr error
	knownParts int
	kinds      int // number of kinds of faults
	unordered  bool
	dirty      bool

	happened  map[string]int // counts of events, for the reader of TestSimulation -v
	steps     int
	story     []string
	violation error
}

// message is a request on its way to Kafka or the database, and its answer.
type message struct {
	from    *proc
	m       *Machine
	req     *Request
	db      *database
	query   query
	done    func(any)
	handled bool
	answer  Answer
	result  any
	lost    bool // nobody waits for the answer any more
}

type legacyBatch struct {
	at    Partition
	epoch int16
	rec   *Record
}

type action struct {
	name string
	do   func()
}

func newWorld(seed uint64, parts int) *world {
	w := &world{
		cfg: Config{Journal: journalAt, MaxRows: 3, BatchRows: 2, BatchBytes: func(string) int { return 1 << 20 }, UnitRows: 2, UnitBytes: 120, PageBytes: 1000},
		off: map[string]bool{}, happened: map[string]int{},
		kafka: newKafka(parts), db: &database{tally: Tally{Marked: map[uint64]int64{}}, nextID: 1},
		requeued: map[string]int{}, excused: map[string]int{}, late: map[string]bool{}, poison: map[string]bool{},
		locked: map[string]bool{}, missing: map[Partition]bool{}, forbidden: map[Partition]bool{}, held: map[*message]bool{}, split: map[*database]bool{}, knownParts: parts,
	}
	for _, name := range strings.Split(*simOff, ",") {
		w.off[name] = true
	}
	if seed > 0 {
		w.rng = rand.New(rand.NewPCG(seed, 21))
	}
	return w
}

func (w *world) chance(n int) bool { return w.rng != nil && w.rng.IntN(n) == 0 }

func (w *world) note(format string, args ...any) {
	w.story = append(w.story, fmt.Sprintf("%4d %s", w.steps, fmt.Sprintf(format, args...)))
}

func (w *world) fail(format string, args ...any) {
	if w.violation == nil {
		w.violation = fmt.Errorf(format, args...)
		w.note("VIOLATION %v", w.violation)
	}
}

func (w *world) unusable(parts []Partition) []Partition {
	var out []Partition
	for _, p := range parts {
		if w.missing[p] {
			out = append(out, p)
		}
	}
	return out
}

// ---- the network ----

func (p *proc) send(r *Request) {
	p.w.net = append(p.w.net, &message{from: p, m: p.m, req: r})
}

// query sends a transaction to the database. If its answer is lost, it is sent again.
func (p *proc) query(q query, done func(any)) {
	p.asking++
	p.w.net = append(p.w.net, &message{from: p, m: p.m, db: p.db, query: q, done: done})
}

func (m *message) what() string {
	if m.req == nil {
		return m.from.name + " query"
	}
	text := fmt.Sprintf("%s %s", m.from.name, []string{"?", "Init", "Add", "Commit", "Abort", "Produce", "Read", "Last", "Ends"}[m.req.Kind])
	if m.req.Batch != nil {
		text += fmt.Sprintf(" %s/%d seq %d", m.req.Batch.At.Topic, m.req.Batch.At.Number, m.req.Batch.Seq)
	}
	return fmt.Sprintf("%s epoch %d", text, m.req.As.Epoch)
}

// handle lets the request take effect.
func (w *world) handle(m *message) {
	m.handled = true
	if m.req != nil {
		m.answer = w.kafka.handle(w, m.req)
		w.note("%s handled: class %d", m.what(), m.answer.Class)
		w.dirty = true
		return
	}
	switch {
	case m.db == w.db:
		w.commit(m.query, m)
	case w.split[m.db]: // the old primary still serves those that are connected to it
		m.result = m.query(m.db)
		w.happened["transactions on an old primary"]++
	default:
		m.lost = true
		return // the connection went to a server that is gone
	}
	w.note("%s committed", m.what())
}

// commit runs a transaction, and remembers the state before it.
func (w *world) commit(q query, m *message) {
	w.past = append(w.past, w.db.clone())
	if len(w.past) > 6 {
		w.past = w.past[1:]
	}
	result := q(w.db)
	if m != nil {
		m.result = result
	}
	w.dirty = true
}

// deliver gives the answer to the process that asked, if it still waits.
func (w *world) deliver(m *message) {
	w.remove(m)
	p := m.from
	if p.m != m.m && (m.req != nil || m.m != nil) || !slices.Contains(w.procs, p) || m.db != p.db && m.req == nil {
		return
	}
	if m.req != nil {
		p.m.Answer(m.req, m.answer)
		p.take()
		return
	}
	p.asking--
	if m.done != nil {
		m.done(m.result)
	}
	if p.m != nil {
		p.take()
	}
}

// lose ends the connection: the answer is lost. The request may still be handled. The process that asked
// repeats it if it has to.
func (w *world) lose(m *message) {
	w.note("%s lost (handled: %v)", m.what(), m.handled)
	w.happened["requests or answers lost"]++
	p := m.from
	waits := p.m == m.m && slices.Contains(w.procs, p) && (m.req != nil || m.db == p.db)
	zombie := *m
	if m.handled {
		w.remove(m)
	} else {
		m.lost = true
		if w.chance(2) { // it is handled later
			w.held[m] = true
		}
	}
	if !waits {
		return
	}
	if m.req != nil {
		p.m.Answer(m.req, Answer{Class: Silence})
		p.take()
		return
	}
	w.net = append(w.net, &message{from: p, m: zombie.m, db: zombie.db, query: zombie.query, done: zombie.done})
}

func (w *world) remove(m *message) {
	w.net = slices.DeleteFunc(w.net, func(x *message) bool { return x == m })
}

// ---- actions ----

// progress returns the actions of a world without faults, the next one first.
func (w *world) progress() []action {
	var out []action
	if w.kafka.markable() {
		out = append(out, action{"marker", func() { w.kafka.mark(); w.dirty = true }})
	}
	for _, m := range w.net {
		switch {
		case w.held[m]:
		case m.handled && m.lost:
			out = append(out, action{"forgotten", func() { w.remove(m) }})
		case m.handled:
			out = append(out, action{"answer to " + m.what(), func() { w.deliver(m) }})
		case m.lost && m.req != nil && m.req.Kind >= Read:
			out = append(out, action{"forgotten", func() { w.remove(m) }})
		default:
			out = append(out, action{m.what(), func() { w.handle(m) }})
		}
	}
	for _, p := range w.procs {
		out = append(out, p.work()...)
	}
	if len(w.script) > 0 && slices.ContainsFunc(w.procs, func(p *proc) bool { return p.phase == running }) {
		out = append(out, action{"application", func() { next := w.script[0]; w.script = w.script[1:]; next() }})
	}
	for _, b := range w.legacy {
		out = append(out, action{"delayed batch of the old mode", func() { w.landLegacy(b) }})
	}
	return out
}

func (w *world) landLegacy(b *legacyBatch) {
	w.legacy = slices.DeleteFunc(w.legacy, func(x *legacyBatch) bool { return x == b })
	if !w.kafka.legacyProduce(b.at, b.epoch, b.rec) {
		return
	}
	w.note("delayed batch of the old mode lands: %s", b.rec.Row.Value)
	if w.everSealed && b.at.Number < int32(w.knownParts) {
		w.fail("a batch of the old mode landed after the partition was sealed")
	}
	w.excused[string(b.rec.Row.Value)]++
	w.dirty = true
}

func (w *world) start() *proc {
	p := &proc{w: w, name: fmt.Sprintf("P%d", len(w.story)%1000)}
	w.procs = append(w.procs, p)
	w.note("%s starts", p.name)
	p.lead()
	return p
}

func (w *world) kill(p *proc) {
	w.note("%s killed", p.name)
	w.happened["kills"]++
	w.procs = slices.DeleteFunc(w.procs, func(x *proc) bool { return x == p })
	if w.leader == p {
		w.leader = nil
	}
	for _, m := range w.net {
		if m.from == p {
			m.lost = true
		}
	}
}

// reaches reports whether there is a server at the other end of the process's connection.
func (p *proc) reaches() bool { return p.db == p.w.db || p.w.split[p.db] }

func (w *world) insert(key string, part int32, visible bool) {
	w.contents++
	w.clock++
	row := dbRow{
		content: fmt.Sprintf("c%d", w.contents), key: key, at: Partition{"t", part}, created: w.clock, visible: visible,
	}
	w.commit(func(d *database) any {
		row.id = d.nextID
		d.nextID++
		row.lsn = len(d.wal) + 1
		row.xid = uint32(row.lsn)
		d.rows, d.wal = append(d.rows, row), append(d.wal, row)
		return nil
	}, nil)
	w.note("insert id %d %s key %s visible %v", row.id, row.content, key, visible)
}

// reinsert deletes a row and inserts another one with the same id.
func (w *world) reinsert(i int) {
	w.contents++
	w.clock++
	w.commit(func(d *database) any {
		row := d.rows[i]
		row.content, row.created, row.status, row.requeues = fmt.Sprintf("c%d", w.contents), w.clock, pending, 0
		row.lsn = len(d.wal) + 1
		row.xid = uint32(row.lsn)
		d.rows[i] = row
		d.wal = append(d.wal, row)
		w.note("id %d again, now %s", row.id, row.content)
		return nil
	}, nil)
}

func (w *world) requeue(i int) {
	w.commit(func(d *database) any {
		r := &d.rows[i]
		r.status = pending
		r.requeues++
		w.requeued[r.content]++
		w.late[r.key] = true
		w.note("requeue %s", r.content)
		w.happened["requeues"]++
		return nil
	}, nil)
}

// failover returns to the state after an earlier commit. Commits that waited become visible.
func (w *world) failover(back int) {
	before := w.db
	w.split[before] = w.chance(2)
	back = min(back, len(w.past))
	if back > 0 {
		w.db = w.past[len(w.past)-back].clone()
	} else {
		w.db = w.db.clone()
	}
	w.past = nil
	for i := range w.db.rows {
		w.db.rows[i].visible = true
	}
	w.db.confirmed = min(w.db.confirmed, w.db.saved)
	if w.off["together"] { // the tally is stored elsewhere than the marks
		w.db.tally = before.tally
	}
	clear(w.locked)
	w.leader = nil
	w.unordered = w.unordered || back > 0
	w.dirty = true
	w.note("failover, %d commits lost", back)
	w.happened["failovers"]++
}

func (w *world) timeout() {
	if w.kafka.coord.state == ongoing {
		w.note("the coordinator ends the open transaction")
		w.happened["timeouts"]++
		w.kafka.fenceEpoch()
		w.dirty = true
	}
}

func (w *world) leftMoves(p *proc) bool {
	for _, l := range p.left {
		r := p.db.find(l.Name.ID)
		if r == nil && p.gone(l) || r != nil && r.visible && (r.status != pending || !w.locked[r.content]) {
			return true
		}
	}
	return false
}

// do runs one action and checks the invariants.
func (w *world) do(a action) {
	w.steps++
	if a.name != "" && !strings.HasPrefix(a.name, "answer") {
		w.note("%s", a.name)
	}
	a.do()
	if w.dirty {
		w.dirty = false
		w.check()
	}
}

// run runs without new faults until nothing is left to do.
func (w *world) run() {
	for range 3000 {
		if w.violation != nil {
			return
		}
		next := w.progress()
		if len(next) == 0 {
			return
		}
		w.do(next[0])
	}
	w.fail("no end after 3000 steps without faults")
}

// settle removes all faults, and checks that everything ends well.
func (w *world) settle() {
	clear(w.locked)
	clear(w.missing)
	clear(w.forbidden)
	clear(w.held)
	clear(w.split)
	for _, l := range w.kafka.logs {
		l.down = false
	}
	for i := range w.db.rows {
		w.db.rows[i].visible = true
	}
	for w.violation == nil {
		w.run()
		for i := range w.db.rows {
			w.db.rows[i].visible = true
		}
		w.run()
		if w.leader != nil && w.leader.phase == running && w.leader.db == w.db || w.damaged {
			break
		}
		w.start()
	}
	if w.kafka.coord.state == ongoing { // its process has ended, and its timeout has passed
		w.timeout()
		w.run()
	}
	if w.kafka.cut {
		w.happened["repairs cut off"]++
	}
	if w.violation == nil && !w.damaged && !w.kafka.cut {
		w.checkEnd()
	}
}

// ---- invariants ----

// check checks that no row is in Kafka more often than it may be (E1), that every SENT row is there (E2,
// I2), that no requeue is swallowed, and that the rows of a key are in order (I3).
func (w *world) check() {
	if w.kafka.cut {
		return
	}
	published := w.kafka.published()
	for content, n := range published {
		if allowed := 1 + w.requeued[content] + w.excused[content]; n > allowed {
			w.fail("E1: %s is there %d times, may be %d times", content, n, allowed)
		}
	}
	for i := range w.db.rows {
		if r := &w.db.rows[i]; r.status == failed && published[r.content] > w.requeued[r.content]+w.excused[r.content] {
			w.fail("E1: %s is FAILED, and there", r.content)
		}
		if r := &w.db.rows[i]; r.status == sent && published[r.content] < r.requeues+1 {
			w.fail("E2: %s is SENT and published %d times of %d", r.content, published[r.content], r.requeues+1)
		}
	}
	if !w.unordered {
		w.checkOrder()
	}
}

func (w *world) checkOrder() {
	position := map[string]int{}
	for _, r := range w.db.wal {
		position[r.content] = r.lsn
	}
	for _, l := range w.kafka.logs {
		last, seen := map[string]int{}, map[string]bool{}
		for _, e := range l.entries {
			for _, r := range e.recs {
				content := string(r.Row.Value)
				if e.aborted || e.open || seen[content] || w.late[r.Key] || w.excused[content] > 0 {
					continue
				}
				seen[content] = true
				if position[content] < last[r.Key] {
					w.fail("I3: %s comes after a later row of key %s", content, r.Key)
				}
				last[r.Key] = position[content]
			}
		}
	}
}

// checkEnd checks that every row is there (I1), and that no transaction holds consumers up (E3).
func (w *world) checkEnd() {
	published := w.kafka.published()
	if w.stateless {
		for _, r := range w.db.wal {
			if published[r.content] == 0 {
				w.fail("I1: %s was never published", r.content)
			}
		}
	}
	for i := range w.db.rows {
		switch r := &w.db.rows[i]; {
		case w.stateless:
		case r.status == pending:
			w.fail("I1: %s (id %d) stays PENDING", r.content, r.id)
		case r.status == failed && !w.poison[r.content]:
			w.fail("I7: %s is FAILED", r.content)
		case r.status == sent && published[r.content] < r.requeues+1:
			w.fail("I1: %s was published %d times of %d", r.content, published[r.content], r.requeues+1)
		}
	}
	// A coordinator that gives up ends leaves them missing in partitions whose leader has not been asked
	// since.
	unheard := func(p Partition) bool {
		return w.kafka.drops && p.Number >= int32(w.knownParts) && w.leader != nil && !w.leader.m.sound[p]
	}
	if w.kafka.held(unheard) {
		w.fail("E3: an open transaction holds consumers up")
	}
	if n := len(w.db.tally.Left); n > 0 {
		w.fail("%d names are left for ever", n)
	}
}
