package checkpoint

import (
	"math"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Core makes the decisions for one stream. Its methods take the inputs, and Take returns what has to be
// done.
type Core struct {
	cfg Config
	now time.Time
	// generation counts requests and failures. Their numbers tell whether a scope failed after a request was
	// made.
	generation uint64

	connected, streaming, draining bool
	// unfinished says that a clean stop of tables without state still reads the open transaction to its end.
	// Later transactions are left to the next process.
	unfinished bool

	tables  tableSet
	ledger  ledger
	txs     unended
	rows    rowTable
	parks   parkSet
	writing *writing
	gate    *gate
	hb      *handback
	seeking bool // the request Ready.Failed is outstanding

	looks     looks
	headStart headStart
	sweeps    sweeps
	watch     watch
	retries   retries
	topics    topicSet
	down      map[string]bool // clusters that cannot be used
	retained  uint64          // WAL that the slot retains, in bytes
	stalls    []*stall
	pace      pace

	mode  outbox.Mode
	ready Ready
	taken []outbox.Mark // the Marks that the last Take returned; the next one reuses their memory
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

// Tick sets the current time, at which all inputs before the next Tick happen. It ignores times that are
// earlier by the monotonic clock. It takes a time that is equal by that clock, because the wall clock may
// have been set in between.
func (c *Core) Tick(now time.Time) {
	if !now.Before(c.now) {
		c.now = now
	}
}

// SlotMayBeMade reports whether a slot may be made, which confirms a position. With state in the tables, the
// stream's park must be durable first.
func (c *Core) SlotMayBeMade() bool {
	p := c.parks.stream()
	return c.tables.stateless || p != nil && p.durable
}

// Retained takes the number of bytes of WAL that the slot retains. Above three quarters of WALBudget the
// stream is parked, so that the slot moves on before the budget itself is reached.
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

// Drain begins a clean stop. From now on nothing new is read, swept, watched or checked. Rows that were
// never sent are withdrawn; rows that were sent are awaited and marked. Tables without state have no marks
// that would keep the next process from sending a row again. So their open transaction is read to its end,
// and all rows that were read are sent.
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

// Drained reports whether the clean stop is complete: nothing is in flight, and no write of parks is
// outstanding. Without a connection it does not wait for parks, because no position was confirmed by them.
// Call it after Take, which requests the parks of published rows that cannot be marked: without these parks,
// the next start would publish the rows again.
func (c *Core) Drained() bool {
	if c.connected && (c.unfinished || len(c.stalls) > 0) {
		return false
	}
	return c.draining && c.rows.inFlight == 0 && (c.writing == nil || !c.connected)
}

// Take returns what the driver has to do, and forgets it. The Marks are valid until the next Take.
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
		c.leaveParked() // a hand-back may wait only for rows that leave here
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

// Reading reports whether more of the WAL may be read.
func (c *Core) Reading() bool {
	if !c.connected || !c.streaming || c.tables.passedOver || c.draining && !c.unfinished || c.ledger.len()+c.parks.holds > ledgerFactor*c.cfg.MaxRows {
		return false
	}
	if p := c.parks.stream(); p != nil {
		if p.phase == sweeping {
			return true // the rows are discarded, so they need no memory
		}
		return c.ledger.inTx && !c.full() // during a hand-back: only to the end of the open transaction
	}
	return !c.full() && !c.paced()
}

// Confirm returns the position that may be confirmed on this connection, or 0 if there is none yet. Within a
// connection it never goes back.
func (c *Core) Confirm() outbox.LSN { return c.ledger.confirmed }

// Memory returns the number of rows in memory, how many of them are in flight, and the size of all in bytes.
func (c *Core) Memory() (rows, inFlight, bytes int) {
	return c.rows.count, c.rows.inFlight, c.rows.bytes
}

// InFlight returns the ids of the table's rows in flight. Retention must not delete these rows.
func (c *Core) InFlight(t *outbox.Table) []string { return c.rows.ids()[t] }

// currentMode returns the stream's mode. Take adds a NoteMode when it has changed.
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

// Parks returns all parks, in the order of parking.
func (c *Core) Parks() []outbox.Park {
	parks := make([]outbox.Park, 0, len(c.parks.list))
	for _, p := range c.parks.list {
		parks = append(parks, p.Park)
	}
	return parks
}

// ParkChanges returns a number that grows whenever the result of Parks becomes outdated.
func (c *Core) ParkChanges() uint64 { return c.parks.changes }

// NextTick returns the time at which Tick has to be called at the latest, even if no input comes; zero: no
// such time.
func (c *Core) NextTick() time.Time {
	// Waits are compared, not times. Times that were read have no monotonic clock, and the wall clock may
	// have been set since.
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
