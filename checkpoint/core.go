package checkpoint

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Waits of the core's own, short against anything a person sets.
const (
	invisibleWait = 50 * time.Millisecond  // before asking again for a row that is not visible yet
	takenWait     = 250 * time.Millisecond // before asking again for a row that another relay has
	lookPause     = 5 * time.Millisecond   // between looks at rows after their head start
	heldFor       = 5 * time.Second        // that rows which change stay in memory in an outage, as they were looked at
	askSoon       = 500 * time.Millisecond // until it is asked when a writer's row becomes due
	sweepPause    = 250 * time.Millisecond // between sweeps of a scope that found nothing to do
	handbackLimit = 10 * time.Second       // a hand-back that takes longer gives up and is tried again
	ledgerFactor  = 8                      // unsettled transactions and holds, per row of MaxRows
	maxKeysASweep = 500                    // parked keys in one sweep or hand-back
)

// Core is one stream's decisions. Inputs are methods; what they lead to is
// collected until Take.
type Core struct {
	cfg Config
	now time.Time
	// generation counts requests and failures, so that an answer can be told from
	// what happened since its request.
	generation uint64

	connected, streaming, draining bool
	// unfinished: of tables without state, a clean stop reads the transaction that
	// was open to its end; later ones are left to the next process.
	unfinished bool

	tables   tableSet
	ledger   ledger
	txs      unended
	rows     rowTable
	parks    parkSet
	writing  *writing
	gate     *gate
	hb       *handback
	checking bool // Check is outstanding
	seeking  bool // Failed is outstanding

	headStart headStart
	sweeps    sweeps
	watch     watch
	retries   retries
	topics    topicSet
	down      map[string]time.Time // clusters that cannot be used, since when
	retained  uint64               // bytes of WAL
	stalls    []*stall
	pace      pace

	mode  Mode
	ready Ready
	taken []outbox.Mark // by the last Take; its memory is used again
}

// New returns a Core that has no connection yet.
func New(cfg Config) *Core {
	return &Core{
		cfg:       cfg,
		tables:    newTableSet(cfg.Tables),
		rows:      rowTable{entries: make([]entry, 1), byID: map[rowID]uint32{}},
		parks:     parkSet{byScope: map[outbox.Scope]*park{}, keys: map[string]int{}, blocked: map[string]int{}, unmarked: map[string]int{}},
		headStart: newHeadStart(cfg.Tables),
		retries:   retries{refused: map[string]int{}},
		topics:    topicSet{proven: map[outbox.Scope]bool{}, listed: map[string]map[string]bool{}},
		down:      map[string]time.Time{},
		mode:      ModeStandby,
	}
}

// Tick tells the time. Every other input happens at the last time told. Times are
// ordered by the monotonic clock. Where it has not moved, the newer wall clock counts:
// somebody may have set it.
func (c *Core) Tick(now time.Time) {
	if !now.Before(c.now) {
		c.now = now
	}
}

// Connect begins a replication connection (or makes one streaming, see
// Connected). Rows still in flight from an earlier connection stay in flight.
func (c *Core) Connect(conn Connected) {
	c.connected, c.streaming = true, conn.Streaming
	c.parks.changes++ // they are shown again
	c.headStart.seen, c.headStart.horizons = nil, nil
	c.Inserted(conn.Insert)
	c.headStart.sight(&conn.Snapshot, c.now)
	c.txs.begin(&conn.Snapshot)
	c.rows.carry()
	c.readParks(conn.Parks)
	c.Left(conn.Left)
	for _, name := range conn.Unrecovered {
		c.down[name] = c.now
		c.park(outbox.ClusterScope(name), outbox.CauseCluster, unrecovered, time.Time{})
	}
	c.tables.before, c.tables.passedOver = publishedBefore{conn.Published, conn.PublishedTo}, false
	for _, r := range conn.Failed {
		c.block(r)
	}
	c.parkUncovered(conn.Uncovered)
	c.Pause(conn.Paused)
	c.watch = watch{at: c.now.Add(c.cfg.WatchEvery)}
	switch {
	case c.tables.stateless:
	case c.cfg.Shadow:
		// A later start that is not in shadow finds the park, sweeps what the application's
		// own relay left over, and hands back.
		if p := c.parks.stream(); p == nil || p.Cause != outbox.CauseShadow {
			c.park(outbox.StreamScope(), outbox.CauseShadow, "the stream is in shadow: it publishes and marks nothing", time.Time{})
		}
	case !conn.Streaming:
		c.park(outbox.StreamScope(), conn.Cause, conn.Reason, time.Time{})
	default:
		c.gate = &gate{check: conn.Insert}
	}
}

// parkUncovered leaves tables to the sweeper until the next connection: the WAL
// does not carry their rows, or it is not known which of their keys are blocked.
func (c *Core) parkUncovered(tables []Uncovered) {
	clear(c.tables.lacking)
	clear(c.tables.broken) // every connection describes its tables again
	if c.tables.stateless {
		return
	}
	for _, u := range tables {
		c.tables.lacking[u.Table.String()] = true
		cause := outbox.CausePublication
		if u.Refused {
			cause = outbox.CauseWriteBack
		}
		c.park(outbox.TableScope(u.Table), cause, u.Reason, time.Time{})
	}
}

// readParks takes over what our table holds. What only memory knows is
// written again. Tables without state had one before, if there are any: nothing would
// sweep them now.
func (c *Core) readParks(parks []outbox.Park) {
	if c.tables.stateless {
		return
	}
	held := map[outbox.Scope]bool{}
	for _, read := range parks {
		held[read.Scope] = true
		if read.Scope.Table != "" && c.tables.byName[read.Scope.Table] == nil {
			continue // a table of an earlier configuration: its park stays in our table
		}
		if c.parks.of(read.Scope) == nil {
			p := c.park(read.Scope, read.Cause, read.Reason, c.nextOf(read))
			p.Since, p.RowID, p.written = read.Since, read.RowID, p.version
			p.recall()
		} else if p := c.parks.of(read.Scope); p.Cause != read.Cause || p.RowID != read.RowID {
			p.written = 0 // a failover has taken ours back
		}
	}
	for _, p := range c.parks.list {
		c.parks.wake(p)
		// While a change is outstanding what was read may be old.
		p.durable = p.left || held[p.Scope] && c.writing == nil
		if !p.durable {
			p.written = 0
		}
	}
}

// nextOf is when a park is tried next, by our monotonic clock. It was written by
// a clock that may have been wrong, and ours may be set right, so it counts for no
// more than the longest wait.
func (c *Core) nextOf(read outbox.Park) time.Time {
	if !read.Next.After(c.now) {
		return time.Time{}
	}
	return c.now.Add(min(read.Next.Sub(c.now), max(c.cfg.BackoffMax, c.cfg.WatchEvery)))
}

// Disconnect ends the connection: the WAL's ledger, checks, kept rows, rounds
// and hand-backs of it are void. Outstanding requests are void too: their answers
// must not be delivered any more, and Parks must not be tried any more; a try
// that is under way cannot take effect once the epoch was raised, after which
// the parks are read.
func (c *Core) Disconnect() {
	c.connected, c.streaming = false, false
	c.abandonHandback()
	c.dropGate()
	c.dropHeadStart()
	c.dropStalls()
	for _, p := range c.parks.list {
		c.parks.takeHolds(p)
		p.ready = false
		if p.phase == absorbed {
			p.phase, p.written = sweeping, 0
		}
	}
	c.writing = nil
	c.sweeps.page, c.checking = nil, false
	c.dropSought()
	for e := range c.rows.flying() {
		e.tx = noTx
	}
	c.ledger.reset()
	c.ready.Check, c.ready.Sweep, c.ready.Watch, c.ready.Rewatch = nil, nil, nil, nil
	c.ready.Failed, c.ready.Parks = false, nil
}

// SlotMayBeMade says that the stream's park is durable, so that a slot, whose
// making confirms a position, may be made.
func (c *Core) SlotMayBeMade() bool {
	p := c.parks.stream()
	return c.tables.stateless || p != nil && p.durable
}

// Retained tells how many bytes of WAL the slot retains. At three quarters of
// the budget the stream is parked, so that the budget itself is not reached.
func (c *Core) Retained(bytes uint64) {
	c.retained = bytes
	if c.cfg.WALBudget == 0 || bytes <= c.cfg.WALBudget/4*3 || c.tables.stateless || !c.streaming || c.cfg.Shadow {
		return
	}
	if p := c.parks.stream(); p != nil && p.releasesInFlight {
		return
	}
	p := c.park(outbox.StreamScope(), outbox.CauseWALBudget, "the slot retains nearly as much WAL as its budget allows", time.Time{})
	p.releasesInFlight = true
	c.withdraw(p)
}

// withdraw takes back what was never sent of a parked scope.
func (c *Core) withdraw(p *park) {
	c.awaitAnswers(p)
	c.ready.Commands = append(c.ready.Commands, outbox.Command{Withdraw: new(p.Scope)})
}

// Cluster takes the sink's word on a cluster.
func (c *Core) Cluster(s outbox.ClusterState) {
	if s.Usable {
		delete(c.down, s.Cluster)
		return
	}
	if !c.unusable(s.Cluster) {
		c.down[s.Cluster] = c.now
	}
}

func (c *Core) unusable(cluster string) bool {
	_, down := c.down[cluster]
	return down
}

// parkClusters lets the rows of usable clusters pass those of an unusable one,
// once its rows use up the memory that the others wait for. Where rows are
// claimed it does not wait: they would stay locked for as long as the outage lasts. Nor does it
// wait for long where rows change: what they were when they were looked at becomes old.
func (c *Core) parkClusters() {
	if len(c.down) == 0 || c.tables.stateless {
		return
	}
	othersWait := len(c.clusters()) > 1 && (c.full() || c.parks.stream() != nil)
	for _, name := range slices.Sorted(maps.Keys(c.down)) {
		old := c.headStart.changes() && !c.down[name].Add(heldFor).After(c.now)
		if (othersWait || c.headStart.claims() || old) && c.parks.of(outbox.ClusterScope(name)) == nil {
			p := c.park(outbox.ClusterScope(name), outbox.CauseCluster, "the Kafka cluster is unusable", time.Time{})
			c.withdraw(p)
		}
	}
}

// clusters are the Kafka clusters that rows of the stream can go to.
func (c *Core) clusters() map[string]bool {
	all := map[string]bool{}
	for _, t := range c.cfg.Tables {
		if m := t.Mapping.Cluster; m.Column == "" {
			all[m.Default] = true
		} else {
			for _, name := range m.Known {
				all[name] = true
			}
		}
	}
	return all
}

// Drain begins a clean stop: nothing new is read, swept, watched or checked;
// what was never sent is withdrawn; what was sent is awaited and marked. Tables
// without state have no mark that would keep a row from being sent again, so
// of theirs everything read is sent.
func (c *Core) Drain() {
	c.draining, c.unfinished = true, c.tables.stateless && c.ledger.inTx && !c.tables.passedOver
	if c.hb != nil && c.hb.step != hbRemoving {
		c.abandonHandback()
	}
	if c.tables.stateless {
		return
	}
	c.dropGate()
	c.dropHeadStart()
	c.ready.Commands = append(c.ready.Commands, outbox.Command{Withdraw: new(outbox.StreamScope())})
}

// Drained says that nothing is in flight any more. A change of parks is not
// waited for without a connection that leads: nothing was confirmed on it. To be asked
// after Take: what was published and cannot be marked is written down first, or the
// next start would publish it again.
func (c *Core) Drained() bool {
	if c.connected && (c.unfinished || len(c.stalls) > 0) {
		return false
	}
	return c.draining && c.rows.inFlight == 0 && (c.writing == nil || !c.connected)
}

// Take returns what is to be done and forgets it. Its Marks are valid until the
// next Take.
func (c *Core) Take() Ready {
	c.parks.wakeDue(c.now)
	c.markAgain()
	c.retryStalls()
	if c.connected && !c.draining {
		c.markUnmarked()
		c.parkClusters()
		c.drainGate()
		if !c.checking {
			c.checkBlocked()
		}
		c.seekFailed()
		c.leaveParked() // what leaves may have been all that a hand-back waits for
		c.startHandback()
		c.progressHandback()
		c.requestSweep()
		c.requestLooks()
		c.checking = c.checking || len(c.ready.Check) > 0
		c.progressWatch()
		c.wantTopics()
	}
	if c.connected {
		c.writeParks()
	}
	c.parks.rest(c.now)
	if m := c.currentMode(); m != c.mode {
		c.mode = m
		c.note(Note{Kind: NoteMode, Mode: m})
	}
	r := c.ready
	clear(c.taken)
	c.ready, c.taken = Ready{Marks: c.taken[:0]}, r.Marks
	return r
}

// Reading says whether the WAL may be read further.
func (c *Core) Reading() bool {
	if !c.connected || !c.streaming || c.tables.passedOver || c.draining && !c.unfinished || c.ledger.len()+c.parks.holds > ledgerFactor*c.cfg.MaxRows {
		return false
	}
	if p := c.parks.stream(); p != nil {
		if p.phase == sweeping {
			return true // rows are discarded: they need no memory
		}
		return c.ledger.inTx && !c.full() // a hand-back: up to the transaction's end
	}
	return !c.full() && !c.paced()
}

// full says that the bound of rows or bytes in memory is reached.
func (c *Core) full() bool {
	return c.rows.count >= c.cfg.MaxRows || c.rows.bytes >= c.cfg.MaxBytes
}

// Confirm is the position that may be confirmed on this connection; it never
// goes back within one. Zero: none yet.
func (c *Core) Confirm() outbox.LSN { return c.ledger.confirmed }

// Memory is how many rows are in memory, how many of them are in flight, and their bytes.
func (c *Core) Memory() (rows, inFlight, bytes int) {
	return c.rows.count, c.rows.inFlight, c.rows.bytes
}

// InFlight are the ids of the table's rows in flight, which retention must leave
// alone.
func (c *Core) InFlight(t *outbox.Table) []string { return c.rows.ids()[t] }

// currentMode is what a Note tells when it changes.
func (c *Core) currentMode() Mode {
	switch {
	case !c.connected:
		return ModeStandby
	case c.cfg.Shadow:
		return ModeShadow
	case c.parks.stream() != nil && c.parks.stream().Cause == outbox.CausePaused:
		return ModePaused
	case c.parks.stream() != nil:
		return ModeSweep
	case len(c.down) > 0 || len(c.stalls) > 0 || c.tables.passedOver:
		return ModeHold
	}
	return ModeStream
}

func (c *Core) note(n Note) { c.ready.Notes = append(c.ready.Notes, n) }

// Parks lists what is parked, in the order of parking.
func (c *Core) Parks() []outbox.Park {
	parks := make([]outbox.Park, 0, len(c.parks.list))
	for _, p := range c.parks.list {
		parks = append(parks, p.Park)
	}
	return parks
}

// ParkChanges counts what changes the list of parks.
func (c *Core) ParkChanges() uint64 { return c.parks.changes }

// NextTick is when Tick should be called at the latest even if nothing
// happens, or zero.
func (c *Core) NextTick() time.Time {
	// Waits are compared, not times: some were read and are of the wall clock, which
	// may have been set since the others were made.
	const never = math.MaxInt64
	least := time.Duration(never)
	at := func(t time.Time) {
		if wait := t.Sub(c.now); wait > 0 {
			least = min(least, wait)
		}
	}
	at(c.watch.at)
	at(c.watch.due)
	at(c.pace.until)
	at(c.topics.askAt)
	for _, p := range c.parks.awake {
		at(p.Next)
		at(p.nextSweep)
	}
	if len(c.parks.asleep) > 0 {
		at(c.parks.asleep[0].wakesAt())
	}
	for _, m := range c.retries.list {
		at(m.at)
	}
	for _, s := range c.stalls {
		at(s.next)
	}
	if c.headStart.changes() {
		for _, since := range c.down {
			at(since.Add(heldFor))
		}
	}
	if c.gate != nil {
		at(c.gate.retry)
	}
	for _, s := range c.headStart.queues {
		at(s.retry)
		at(s.next)
		if len(s.queue) > 0 {
			at(c.rows.entries[s.queue[0]].due)
		}
	}
	if c.hb != nil {
		at(c.hb.retry)
		at(c.hb.deadline)
	}
	if least == never {
		return time.Time{}
	}
	return c.now.Add(least)
}
