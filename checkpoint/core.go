package checkpoint

import (
	"math"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Core is one stream's decisions. Inputs are methods; what they lead to is
// collected until Take.
type Core struct {
	cfg Config
	now time.Time
	// generation counts requests and failures: it says whether a scope failed after a
	// request was made.
	generation uint64

	connected, streaming, draining bool
	// unfinished: a clean stop of tables without state still reads the open transaction
	// to its end. Later ones are left to the next process.
	unfinished bool

	tables  tableSet
	ledger  ledger
	txs     unended
	rows    rowTable
	parks   parkSet
	writing *writing
	gate    *gate
	hb      *handback
	seeking bool // Failed is outstanding

	looks     looks
	headStart headStart
	sweeps    sweeps
	watch     watch
	retries   retries
	topics    topicSet
	down      map[string]bool // clusters that cannot be used
	retained  uint64          // bytes of WAL
	stalls    []*stall
	pace      pace

	mode  outbox.Mode
	ready Ready
	taken []outbox.Mark // returned by the last Take; the next one reuses its memory
}

// New returns a Core that has no connection yet.
func New(cfg Config) *Core {
	return &Core{
		cfg:       cfg,
		tables:    newTableSet(cfg.Tables),
		rows:      rowTable{entries: make([]entry, 1), byID: map[rowID]uint32{}},
		parks:     parkSet{byScope: map[outbox.Scope]*park{}, keys: map[string]int{}, blocked: map[string]int{}, unmarked: map[string]int{}},
		looks:     newLooks(cfg.Tables),
		headStart: headStart{tables: cfg.Tables},
		retries:   retries{refused: map[string]int{}},
		topics:    topicSet{proven: map[outbox.Scope]bool{}, listed: map[string]map[string]bool{}},
		down:      map[string]bool{},
		mode:      outbox.ModeStandby,
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

// SlotMayBeMade says that the stream's park is durable, so a slot may be made: that
// confirms a position.
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

// Drain begins a clean stop: nothing new is read, swept, watched or checked; what was
// never sent is withdrawn; what was sent is awaited and marked. Without state everything
// that was read is sent, since no mark would keep a row from being sent again.
func (c *Core) Drain() {
	c.draining, c.unfinished = true, c.tables.stateless && c.ledger.inTx && !c.tables.passedOver
	if c.hb != nil && c.hb.step != hbRemoving {
		c.abandonHandback()
	}
	if c.tables.stateless {
		return
	}
	c.dropGate()
	c.dropLooks()
	c.ready.Commands = append(c.ready.Commands, outbox.Command{Withdraw: new(outbox.StreamScope())})
}

// Drained says that nothing is in flight any more. Without a connection it does not wait
// for parks to be written: nothing was confirmed by them. Ask it after Take: parks of
// published rows that cannot be marked are written first, or the next start would publish
// these rows again.
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
	c.forgetUnwritten()
	if c.connected && !c.draining {
		c.markUnmarked()
		c.parkClusters()
		c.drainGate()
		if !c.looks.checking {
			c.checkBlocked()
		}
		c.seekFailed()
		c.leaveParked() // what leaves may have been all that a hand-back waits for
		c.startHandback()
		c.progressHandback()
		c.requestSweep()
		c.requestSnapshot()
		c.requestLooks()
		c.looks.checking = c.looks.checking || len(c.ready.Check) > 0
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
func (c *Core) currentMode() outbox.Mode {
	switch {
	case !c.connected:
		return outbox.ModeStandby
	case c.cfg.Shadow:
		return outbox.ModeShadow
	case c.parks.stream() != nil && c.parks.stream().Cause == outbox.CausePaused:
		return outbox.ModePaused
	case c.parks.stream() != nil:
		return outbox.ModeSweep
	case len(c.down) > 0 || len(c.stalls) > 0 || c.tables.passedOver:
		return outbox.ModeHold
	}
	return outbox.ModeStream
}

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
	// Waits are compared, not times: some times were read and have only the wall clock,
	// which may have been set since.
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
	at(c.txs.next)
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
	if c.gate != nil {
		at(c.gate.retry)
	}
	for _, s := range c.looks.queues {
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
