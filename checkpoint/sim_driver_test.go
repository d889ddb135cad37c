package checkpoint

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// This file has the process of the simulation: a Core, a sink, a status updater, a sweeper and the driver
// between them, as in package pipeline. Where the driver fulfils a duty to the Core, a comment says so.

// proc is one process. It survives restarts, as a pod does.
type proc struct {
	w        *world
	name     string
	up       bool
	frozen   bool // SIGSTOP
	draining bool

	core *Core
	sink *sink
	// terminal are rows that a look found to be SENT, FAILED or gone.
	terminal map[*outbox.Row]bool
	paused   []outbox.Park        // the pauses that the process knows of
	flew     map[*outbox.Row]bool // the rows that were in flight when it learned of them
	told     bool                 // Tick was called with the present time
	dirty    bool                 // Take is due
	conn     *conn
	epoch    int // the last epoch that this process raised with this Core; 0: none
	start    outbox.LSN

	failovers int           // number of failovers before this process led
	readParks uint64        // the Core's generation when the parks had been read
	skew      time.Duration // of its wall clock
	retain    *retention
	// quiet says that no input came since the last Take. After that Take, NextTick said wake.
	quiet            bool
	said             told
	wake             time.Duration // by the monotonic clock; 0: never
	asked, foundNone time.Time     // when the last search for missed rows began, and when one found none

	claiming *claimQuery
	late     []*claimQuery // answers of earlier connections

	check   *query[[]*outbox.Row, []outbox.Checked]
	sweep   *query[outbox.SweepRequest, outbox.Page]
	watch   *query[outbox.WatchRequest, outbox.Candidates]
	rewatch *query[[]*outbox.Row, []*outbox.Row]
	failed  *query[struct{}, []*outbox.Row]

	change *outbox.ParkChange // the outstanding change
	write  *parkWrite         // the present try to write it

	marks    []outbox.Mark
	answers  []outbox.Marked
	outcomes []outbox.Outcome
	states   []outbox.ClusterState

	// For exactly-once delivery with tables without state.
	published exactlyonce.Published
	positions map[string]*exactlyonce.Positions
	last      map[string]uint64 // units that are delivered, but not noted
	noting    *noting
}

// query is one request to the database and its answer.
type query[Q, A any] struct {
	ask    Q
	answer A
	ran    bool
	insert outbox.LSN
	read   bool // insert was read
	refuse *outbox.Table
}

// conn is a replication connection on which the process leads.
type conn struct {
	w         *world
	p         *proc
	alive     bool // from the point of view of the server
	parks     []outbox.Park
	lacking   []*outbox.Table // tables that the publication was found to lack
	haveParks bool
	inspected bool
	sound     bool
	insert    outbox.LSN
	connected bool // Connect was called
	streaming bool
	next      int // index into the WAL
	sent      outbox.LSN
	cur       *walRec
	begun     bool
	pos       int
	unread    map[*outbox.Table]bool // tables for which TableBroken was called
	confirm   outbox.LSN             // the highest result of Confirm

	recovered bool // with exactly-once delivery: the journals were read
	read      []string
	left      []*outbox.Row
}

func (p *proc) String() string { return p.name }

// sawTerminal remembers the rows that a look found to be terminal.
func (p *proc) sawTerminal(answers []outbox.Checked) {
	for _, a := range answers {
		if a.State == outbox.CheckFailed || a.State == outbox.CheckSettled {
			p.terminal[a.Row] = true
		}
	}
}

// boot starts the process with a new Core.
func (p *proc) boot() {
	p.terminal = map[*outbox.Row]bool{}
	p.up, p.frozen, p.draining = true, false, false
	p.fresh()
	p.w.note("%v: starts", p)
}

// fresh gives the process a new Core and a new sink.
func (p *proc) fresh() {
	p.dropClaims()
	p.core, p.said = New(p.w.plan.cfg), told{mode: outbox.ModeStandby, parked: map[outbox.Scope]bool{}}
	p.sink = newSink(p)
	p.epoch, p.told, p.dirty, p.paused = 0, false, false, nil
	p.voidQueries()
	p.change, p.write, p.retain = nil, nil, nil
	p.marks, p.answers, p.outcomes, p.states = nil, nil, nil, nil
	p.published, p.positions, p.last, p.noting = exactlyonce.Published{}, map[string]*exactlyonce.Positions{}, map[string]uint64{}, nil
}

func (p *proc) voidQueries() {
	p.endClaiming()
	p.check, p.sweep, p.watch, p.rewatch, p.failed = nil, nil, nil, nil, nil
}

// input gives the Core an input: it sets the time first, and calls Take now or later.
func (p *proc) input(f func()) {
	if !p.told {
		p.core.Tick(p.clock())
		p.told = true
	}
	f()
	p.dirty, p.quiet = true, false
	if p.w.chance(70) {
		p.take()
	}
}

// take carries out what the Core demands.
func (p *proc) take() {
	w := p.w
	p.dirty = false
	r := p.core.Take()
	p.checkWake(&r)
	p.tell(r.Notes)
	p.checkPaused(r.Commands)
	p.sink.cmds = append(p.sink.cmds, r.Commands...)
	for _, m := range r.Marks {
		w.note("%v: wants %s of row %s", p, markNames[m.Kind], m.Row.ID)
		p.wantMark(m)
	}
	p.giveUp(r.Unclaim)
	p.ask(&r)
	if r.Parks != nil {
		if p.change != nil {
			w.fail("contract", nil, "%v: a second ParkChange while one is outstanding", p)
		}
		p.change = r.Parks
	}
}

// told is what notes have told so far, and the list of parks as it was last shown.
type told struct {
	mode    outbox.Mode
	parked  map[outbox.Scope]bool
	shown   []outbox.Park
	changes uint64
}

// checkNotes checks that notes report every park and every mode once, and that ParkChanges counts each
// change of the parks.
func (p *proc) checkNotes(notes []Note) {
	c, said := p.core, &p.said
	for _, n := range notes {
		switch n.Kind {
		case NoteParked:
			said.parked[n.Park.Scope] = true
		case NoteUnparked:
			if !said.parked[n.Park.Scope] {
				p.w.fail("notes", nil, "%v: %v is handed back, and was not parked", p, n.Park.Scope)
			}
			delete(said.parked, n.Park.Scope)
		case NoteMode:
			if n.Mode == said.mode {
				p.w.fail("notes", nil, "%v: mode %s once more", p, n.Mode)
			}
			said.mode = n.Mode
		}
	}
	shown := c.Parks()
	for _, park := range shown {
		if !said.parked[park.Scope] {
			p.w.fail("notes", nil, "%v: nothing was said of the park of %v", p, park.Scope)
		}
	}
	if len(shown) != len(said.parked) {
		p.w.fail("notes", nil, "%v: %d parks, %d were told of", p, len(shown), len(said.parked))
	}
	if c.ParkChanges() == said.changes && !slices.Equal(shown, said.shown) {
		p.w.fail("notes", nil, "%v: the parks have changed, and nobody counts it", p)
	}
	said.shown, said.changes = shown, c.ParkChanges()
	if want := c.expectedMode(); said.mode != want {
		p.w.fail("notes", nil, "%v: told mode %s, it is %s", p, said.mode, want)
	}
}

// expectedMode returns the mode that the Core must have, according to the definitions of the modes.
func (c *Core) expectedMode() outbox.Mode {
	stream := c.parks.of(outbox.StreamScope())
	for _, is := range []struct {
		mode outbox.Mode
		true bool
	}{
		{outbox.ModeStandby, !c.connected},
		{outbox.ModeShadow, c.cfg.Shadow},
		{outbox.ModePaused, stream != nil && stream.Cause == outbox.CausePaused},
		{outbox.ModeSweep, stream != nil},
		{outbox.ModeHold, len(c.down)+len(c.stalls) > 0},
	} {
		if is.true {
			return is.mode
		}
	}
	return outbox.ModeStream
}

// tell writes the Core's notes into the story.
func (p *proc) tell(notes []Note) {
	if n := len(p.core.Parks()); n != len(p.core.parks.list) {
		p.w.fail("contract", nil, "%v: %d parks are listed, there are %d", p, n, len(p.core.parks.list))
	}
	p.checkNotes(notes)
	for _, n := range notes {
		switch n.Kind {
		case NoteParked:
			p.w.note("%v: parks %v (%s)", p, n.Park.Scope, n.Park.Cause)
			if o := p.core.parks.of(n.Park.Scope); n.Park.Reason == missedReason && o != nil && o.failedAt > p.readParks && p.failovers == p.w.failovers {
				p.w.checkMissed(n.Park)
			}
		case NoteUnparked:
			p.w.note("%v: hands %v back", p, n.Park.Scope)
		case NoteMode:
			p.w.note("%v: mode %s", p, n.Mode)
		case NoteMissed:
			p.w.note("%v: %d rows missed (%s)", p, n.N, n.Cause)
		}
	}
}

// ask sends the requests of a Ready.
func (p *proc) ask(r *Ready) {
	w := p.w
	if p.conn == nil && (len(r.Check) > 0 || len(r.Claim) > 0 || r.Sweep != nil || r.Watch != nil || len(r.Rewatch) > 0 || r.Failed) {
		w.fail("contract", nil, "%v: a request without a connection", p)
		return
	}
	once := func(what string, outstanding bool) {
		w.note("%v: requests %s", p, what)
		if outstanding {
			w.fail("contract", nil, "%v: a second %s while one is outstanding", p, what)
		}
	}
	if len(r.Check) > 0 {
		once("check", p.check != nil)
		p.check = &query[[]*outbox.Row, []outbox.Checked]{ask: r.Check}
	}
	if len(r.Claim) > 0 {
		once("claim", p.claiming != nil)
		p.claiming = &claimQuery{query: query[[]*outbox.Row, []outbox.Checked]{ask: r.Claim}}
	}
	if r.Sweep != nil {
		once("sweep", p.sweep != nil)
		w.note("%v: sweep %+v", p, describe{r.Sweep})
		p.sweep = &query[outbox.SweepRequest, outbox.Page]{ask: *r.Sweep}
		p.early(&p.sweep.insert, &p.sweep.read)
	}
	if r.Watch != nil {
		once("watch", p.watch != nil)
		p.busy()
		p.watch = &query[outbox.WatchRequest, outbox.Candidates]{ask: *r.Watch}
	}
	if len(r.Rewatch) > 0 {
		once("rewatch", p.rewatch != nil)
		p.rewatch = &query[[]*outbox.Row, []*outbox.Row]{ask: r.Rewatch}
	}
	if r.Failed {
		once("failed", p.failed != nil)
		p.failed = &query[struct{}, []*outbox.Row]{}
	}
}

// early reads the insert position too early, if the rule that forbids this is off.
func (p *proc) early(at *outbox.LSN, read *bool) {
	if p.w.off.insertAfterSnapshot {
		*at, *read = p.w.insert, true
	}
}

// describe prints a sweep request in a short form.
type describe struct{ *outbox.SweepRequest }

func (d describe) String() string {
	s := fmt.Sprintf("limit %d for a hand-back %v", d.Limit, d.ForHandback)
	for _, part := range d.Parts {
		s += fmt.Sprintf(" [%s include %v exclude %v ids %v]", part.Table.Name, part.Include, part.Exclude, part.ExcludeIDs)
	}
	return s
}

// ---- connection

// lead takes the lock on a new replication connection and raises the epoch.
func (p *proc) lead() {
	w := p.w
	p.conn = &conn{w: w, p: p, alive: true, unread: map[*outbox.Table]bool{}}
	w.lock = p.conn
	old := w.epoch
	published := len(w.kafka.log)
	w.logged(func() {
		w.epoch = old
		for _, l := range w.kafka.log[published:] {
			if l.proc == p && !w.plan.once {
				l.row.allowed++ // the former leader may lead again with these rows in memory, and nothing tells it that another process led in between
			}
		}
	})
	w.ownXID()
	w.lastEpoch++ // a failover undoes the epoch in the database; still, no epoch is used twice
	w.epoch = w.lastEpoch
	w.note("%v: leads, epoch %d", p, w.epoch)
	for _, o := range w.procs {
		if o != p && o.up && o.core != nil {
			o.excuse() // the rows that it still has on their way may be published again
		}
	}
	// Another process led in between. So everything is void that this Core believes and has outstanding, a
	// removal of a park for example.
	if p.epoch != 0 && (p.epoch != old && !w.off.epochContinuity || w.plan.once && !w.offOnce.voidCore) {
		c := p.conn
		p.dispose("another led in between")
		p.fresh()
		p.conn = c
	}
	p.epoch, p.failovers = w.epoch, w.failovers
}

// connectStep takes the next step of a start or reconnect.
func (p *proc) connectStep() {
	w, c := p.w, p.conn
	switch {
	case w.plan.once && !c.recovered:
		c.recovered = p.recoverAll(c)
	case !c.haveParks:
		c.haveParks, c.parks = true, w.parkList()
		if w.off.parksReadBack {
			c.parks = nil
		}
	case !c.inspected:
		c.inspected, c.insert, c.lacking = true, w.insert, w.lacking()
		c.sound = w.slot.exists && !w.slot.lost && w.slot.confirmed <= w.insert
	default:
		p.connect(c.sound)
	}
}

// connect calls Connect. If streaming, START_REPLICATION happens here.
func (p *proc) connect(streaming bool) {
	w, c := p.w, p.conn
	if streaming {
		c.begin(p)
	}
	if !w.off.snapshotAfterXID {
		w.ownXID()
	}
	in := Connected{Parks: c.parks, Failed: w.failedRows(), Streaming: streaming, Insert: c.insert, Snapshot: w.snapshot()}
	in.Paused = w.paused
	p.sees(in.Paused)
	if w.plan.once {
		p.recoveries(&in)
	}
	if !streaming {
		in.Cause, in.Reason = outbox.CauseSlot, "slot missing or unsound"
	}
	for _, t := range c.lacking {
		if !w.off.uncoveredTold {
			in.Uncovered = append(in.Uncovered, Uncovered{Table: t, Reason: "the publication lacks it"})
		}
	}
	if w.off.failedReadBack {
		in.Failed = nil
	}
	c.connected, c.streaming = true, streaming
	w.note("%v: connects, streaming %v from %v, insert %v, snapshot %v, parks %v", p, streaming, c.sent, c.insert, in.Snapshot, scopes(c.parks))
	p.input(func() { p.core.Connect(in); p.readParks = p.core.generation })
}

func scopes(parks []outbox.Park) []outbox.Scope {
	list := make([]outbox.Scope, len(parks))
	for i := range parks {
		list[i] = parks[i].Scope
	}
	return list
}

// begin is START_REPLICATION: it streams whole transactions from the confirmed position on.
func (c *conn) begin(p *proc) {
	w := c.w
	from := w.slot.confirmed
	if w.off.startZero {
		from = max(from, p.start)
	}
	c.next, c.sent = 0, from
	if w.plan.stateless && !w.stoppedCleanly && !w.plan.once {
		w.excuseFrom(from)
	}
	w.stoppedCleanly = false
	for c.next < len(w.wal) && w.wal[c.next].tx != nil && w.wal[c.next].at < from ||
		c.next < len(w.wal) && w.wal[c.next].tx == nil && w.wal[c.next].at < from {
		c.next++
	}
}

// excuseFrom allows one more copy of each row that was published and not confirmed. There is no status that
// keeps such a row from being streamed again.
func (w *world) excuseFrom(at outbox.LSN) {
	for _, r := range w.rows {
		if r.tx.state == txnCommitted && r.tx.commit >= at {
			r.allowed++
		}
	}
}

// failedRows returns one FAILED row of each key that waits for the operator, as the sweeper does.
func (w *world) failedRows() []*outbox.Row {
	var failed []*outbox.Row
	have := map[outbox.Scope]bool{}
	for _, r := range w.rows {
		row := r.probe()
		key := outbox.KeyScope(row)
		if r.exists() && r.status == statusFailed && r.table.Mapping.OnFailed == outbox.OnFailedBlock && !r.null && !have[key] {
			have[key] = true
			failed = append(failed, row)
		}
	}
	return failed
}

// failedRefused returns a table that refuses the query for FAILED rows, or nil.
func (w *world) failedRefused() *outbox.Table {
	for _, t := range w.plan.tables {
		if t.Mapping.OnFailed == outbox.OnFailedBlock && w.broken[t] {
			return t
		}
	}
	return nil
}

// dropped ends the connection on the server's side: the lock and the slot are free.
func (c *conn) dropped() {
	c.alive = false
	if c.w.lock == c {
		c.w.lock = nil
	}
	if c.w.slot.making != nil {
		c.w.slot.making = nil
	}
	c.w.note("%v: its replication connection ends", c.p)
}

// notice makes the process see that its connection is gone.
func (p *proc) notice() {
	p.w.note("%v: notices", p)
	p.conn = nil
	if x := p.write; x != nil && !x.ran && !x.lost {
		p.w.strays = append(p.w.strays, stray{"parks of " + p.name, func() { p.w.runParks(x) }})
	}
	p.change, p.write = nil, nil
	if !p.w.off.voidAnswers {
		p.voidQueries()
	}
	p.input(p.core.Disconnect)
	if p.w.off.voidAnswers {
		return
	}
	if p.check != nil || p.sweep != nil || p.watch != nil || p.rewatch != nil || p.failed != nil {
		p.w.fail("contract", nil, "%v: a request without a connection", p)
	}
}

// sessionsEnded breaks every other connection of the process, too.
func (p *proc) sessionsEnded() {
	if p.write != nil && !p.write.ran && p.w.chance(50) {
		p.w.runParks(p.write)
	}
	if p.write != nil {
		p.write.lost = true
	}
}

// ---- the WAL

// receive takes the next piece of the WAL.
func (p *proc) receive() {
	w, c := p.w, p.conn
	if c.cur == nil {
		c.cur, c.begun, c.pos = w.wal[c.next], false, 0
		c.next++
	}
	rec := c.cur
	switch {
	case rec.tx == nil:
		c.cur, c.sent = nil, max(c.sent, rec.at)
		return
	case !c.begun:
		c.begun = true
		w.note("%v: log: begin xid %d, commit %v", p, rec.tx.xid, rec.tx.commit)
		p.input(func() { p.core.Begin(rec.tx.begun()) })
	case c.pos < len(rec.tx.rows):
		p.receiveRows(rec.tx)
	default:
		c.cur, c.sent = nil, rec.tx.end
		w.note("%v: log: commit xid %d, end %v", p, rec.tx.xid, rec.tx.end)
		p.input(func() { p.core.Commit(rec.tx.end) })
	}
}

func (t *txn) begun() outbox.Transaction {
	return outbox.Transaction{XID: uint32(t.xid), Commit: t.commit, End: t.end, Time: t.committedAt.UnixMicro()}
}

// maxChunk is the maximum number of rows in one input.
const maxChunk = 3

// receiveRows gives the Core some rows. If a table's definition at this place of the WAL does not fit its
// mapping, the process reports this once and skips the table's rows.
func (p *proc) receiveRows(t *txn) {
	w, c := p.w, p.conn
	var rows []*outbox.Row
	for n := 1 + w.intn(maxChunk); n > 0 && c.pos < len(t.rows); n-- {
		r := t.rows[c.pos]
		broken := w.brokenAt(r.table, t)
		if broken != c.unread[r.table] {
			if len(rows) > 0 {
				break
			}
			p.definition(r.table, broken)
		}
		c.pos++
		if broken && !r.missed {
			w.note("%v: log: passes %v over", p, r)
			p.input(func() { p.core.Passed(uint32(t.xid)) })
		}
		if !broken && !r.missed {
			rows = append(rows, w.read(r, true))
			w.note("%v: log: %v", p, r)
		}
	}
	if len(rows) > 0 {
		p.input(func() { p.core.ServerTime(w.now.UnixMicro()); p.core.Rows(rows) })
	}
}

func (p *proc) definition(t *outbox.Table, broken bool) {
	p.conn.unread[t] = broken
	p.w.note("%v: log: %v broken: %v", p, t, broken)
	if broken {
		p.input(func() { p.core.TableBroken(t, errMapping) })
	} else {
		p.input(func() { p.core.TableMapped(t) })
	}
}

// brokenAt reports whether the table's definition was broken when the transaction committed.
func (w *world) brokenAt(t *outbox.Table, tx *txn) bool {
	broken := false
	for _, rec := range w.wal {
		if rec.at >= tx.commit {
			break
		}
		if rec.ddl == t {
			broken = rec.broken
		}
	}
	return broken
}

func (p *proc) keepalive() {
	c := p.conn
	end := c.sent
	if c.cur == nil && c.next == len(p.w.wal) {
		end = p.w.insert
	}
	p.w.note("%v: keepalive %v", p, end)
	p.input(func() { p.core.Keepalive(end) })
}

// status sends a standby status update.
func (p *proc) status() {
	at := p.core.Confirm()
	if at > p.w.slot.confirmed {
		p.w.note("%v: confirms %v", p, at)
	}
	p.start = at
	p.w.confirm(at)
}

// ---- parks

// tryParks starts a write of the outstanding change.
func (p *proc) tryParks() { p.write = &parkWrite{change: *p.change, epoch: p.epoch, conn: p.conn} }

// parksAnswered ends a try to write parks.
func (p *proc) parksAnswered(lost bool) {
	x := p.write
	p.write = nil
	switch {
	case x.fenced && x.epoch == p.epoch:
		p.discard("its epoch is over")
	case x.orphan && x.conn == p.conn:
		p.notice() // its connection has ended: it is tried again on the next one
	case x.fenced || x.orphan:
		// the try belongs to an earlier connection of this process, and is repeated
	case lost:
		p.w.note("%v: outcome of the parks is unknown", p)
		p.change = nil
		p.input(func() { p.core.ParksWritten(outbox.ParksUnknown) })
	default:
		p.change = nil
		p.w.note("%v: parks committed", p)
		p.input(func() { p.core.ParksWritten(outbox.ParksCommitted) })
	}
}

// ---- marks

// runBatch writes some marks in one transaction. With unsure, the answer to its COMMIT gets lost: either all
// marks were written, or none.
func (p *proc) runBatch(list []int, unsure bool) {
	w := p.w
	from := w.intn(len(list))
	batch := list[from : from+1+w.intn(len(list)-from)]
	committed := !unsure || w.chance(50)
	for i := len(batch) - 1; i >= 0; i-- {
		switch {
		case committed:
			p.runMark(batch[i], unsure)
		case w.off.unsureMarks:
			p.believe(batch[i])
		}
	}
}

// believe takes the mark as written.
func (p *proc) believe(i int) {
	m := p.marks[i]
	p.marks = append(p.marks[:i:i], p.marks[i+1:]...)
	p.answers = append(p.answers, outbox.Marked{Row: m.Row, Kind: m.Kind, State: outbox.MarkedSettled})
}

// runMark writes one mark, which is the earliest of its row.
func (p *proc) runMark(i int, lost bool) {
	m := p.marks[i]
	a := p.w.mark(m)
	p.w.note("%v: %s of row %s: %s, reply lost: %v", p, markNames[m.Kind], m.Row.ID, markStates[a.State], lost)
	if a.State == outbox.MarkedFailed && (p.conn == nil || p.conn != p.w.lock) {
		p.w.row(m.Row).undone = true // a new leader cannot know
	}
	if lost {
		if a.State == outbox.MarkedRetry || a.State == outbox.MarkedFailed {
			p.w.row(m.Row).unknown++
		}
		return // asked again
	}
	p.marks = append(p.marks[:i:i], p.marks[i+1:]...)
	p.answers = append(p.answers, a)
}

func (p *proc) markable() (list []int) {
	for i := range p.marks {
		r := p.w.row(p.marks[i].Row)
		first := p.w.lockOf(r) == nil && (!r.locked || p.w.off.lockedMarks)
		for j := 0; j < i && first; j++ {
			first = p.w.row(p.marks[j].Row) != r
		}
		if first {
			list = append(list, i)
		}
	}
	return list
}

// ---- ends

// held returns the rows that this process may have published, while the database does not know it.
func (p *proc) held() map[*dbRow]bool {
	rows := map[*dbRow]bool{}
	add := func(row *outbox.Row) { rows[p.w.row(row)] = true }
	for _, it := range p.sink.pending() {
		if it.sent {
			add(it.row)
		}
	}
	for _, o := range p.outcomes {
		for _, row := range o.Rows {
			add(row)
		}
	}
	for _, m := range p.marks {
		add(m.Row)
	}
	for _, c := range p.w.claims {
		for _, m := range c.marks {
			if c.p == p {
				add(m.Row)
			}
		}
	}
	for _, l := range p.w.kafka.log {
		if l.proc == p && l.row.status == statusPending {
			rows[l.row] = true
		}
	}
	return rows
}

// excuse allows one more copy of each row that held returns.
func (p *proc) excuse() {
	if p.w.plan.once {
		return
	}
	for r := range p.held() {
		if !p.w.remembered(r) {
			r.allowed++
		}
	}
}

// discard ends the leadership and the Core. The process starts again.
func (p *proc) discard(why string) {
	p.w.note("%v: starts over: %s", p, why)
	p.dispose(why)
	if p.conn != nil && p.conn.alive {
		p.conn.dropped()
	}
	p.conn = nil
	p.draining = false
	p.fresh()
}

// dispose leaves requests that are on their way behind as strays.
func (p *proc) dispose(string) {
	w := p.w
	p.excuse()
	for _, l := range p.sink.queues {
		if b := l.wire; b != nil && !b.done {
			s := p.sink
			w.strays = append(w.strays, stray{"batch of " + p.name, func() { s.arrive(b) }})
		}
	}
	if x := p.write; x != nil && !x.ran && !x.lost {
		w.strays = append(w.strays, stray{"parks of " + p.name, func() { w.runParks(x) }})
	}
	if w.plan.once {
		p.strayOnce()
		for _, tx := range p.sink.txs {
			w.strays = append(w.strays, stray{"commit of " + p.name, func() { w.commitOnce(p, tx) }})
		}
		return
	}
	for _, m := range p.marks {
		w.strays = append(w.strays, stray{"mark of " + p.name, func() { w.strayMark(m) }})
	}
}

func (w *world) strayMark(m outbox.Mark) {
	if !w.chance(50) || w.lockOf(w.row(m.Row)) != nil || w.row(m.Row).locked {
		return
	}
	a := w.mark(m)
	w.note("database: %s of row %s, of a process that is gone: %s", markNames[m.Kind], m.Row.ID, markStates[a.State])
	if a.State == outbox.MarkedFailed {
		w.row(m.Row).undone = true // the new leader cannot know
	}
}

func (p *proc) kill() {
	p.w.note("%v: killed", p)
	p.dispose("killed")
	if p.conn != nil && p.conn.alive {
		p.conn.dropped()
	}
	p.dropClaims()
	p.conn, p.up, p.core, p.sink = nil, false, nil, nil
}

// stopped is the end of a clean stop.
func (p *proc) stopped() {
	p.w.note("%v: has stopped", p)
	for _, it := range p.sink.pending() {
		if it.sent {
			p.w.fail("I4", p.w.meta(it.row).row, "%v stopped with row %s in its sink", p, it.row.ID)
		}
	}
	if p.conn != nil && p.conn.alive {
		if p.conn.streaming {
			p.status()
			p.w.stoppedCleanly = true
			p.noteLast()
		}
		p.conn.dropped()
	}
	for _, o := range p.core.parks.list {
		if r := p.w.row(&outbox.Row{Table: p.w.table(cmp.Or(o.Scope.Table, "public.outbox")), ID: o.Scope.ID}); o.Unmarked() && r != nil && !p.w.remembered(r) {
			if p.core.connected && p.conn != nil && p.conn.alive {
				p.w.fail("I4", r, "%v stopped and nobody remembers that %v was published", p, r)
			}
			r.allowed++
		}
	}
	if x := p.write; x != nil && !x.ran && !x.lost {
		x := x
		p.w.strays = append(p.w.strays, stray{"parks of " + p.name, func() { p.w.runParks(x) }})
	}
	for _, c := range p.w.claims {
		if c.p == p && c.told && len(c.open)+len(c.marks) > 0 {
			p.w.fail("contract", nil, "%v stopped with a claim", p)
		}
	}
	p.dropClaims()
	p.conn, p.up, p.core, p.sink = nil, false, nil, nil
}

var (
	markNames  = [...]string{"", "SENT", "an attempt"}
	markStates = [...]string{"", "written", "to be retried", "FAILED", "settled already", "not visible", "refused"}
	classNames = [...]string{"", "delivered", "refused", "withdrawn", "left", "stale"}
)
