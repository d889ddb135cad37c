package checkpoint

import (
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Connected describes a replication connection on which this process leads.
type Connected struct {
	// Parks as read from our table after leading.
	Parks []outbox.Park
	// Failed are FAILED rows of tables with on_failed: block, one of every key that
	// has one (Table, ID, Cluster, Topic and Key suffice).
	Failed []*outbox.Row
	// Streaming says that the slot is sound and START_REPLICATION (at 0/0) will
	// follow or has followed. Otherwise the stream is parked for Cause and
	// Reason; once that park is durable (see SlotMayBeMade) publication and
	// slot are made, and Connect is called again with Streaming set.
	Streaming bool
	Cause     outbox.Cause
	Reason    string
	// Insert is the WAL insert position read after leading and, with
	// Streaming, before START_REPLICATION: rows up to it are checked first.
	Insert outbox.LSN
	// Uncovered are tables whose rows the WAL lacks, or brings wrongly, on this
	// connection: they are parked and swept.
	Uncovered []Uncovered
	// Snapshot taken after this connection's start.
	Snapshot outbox.Snapshot
	// Unmarked are published rows that are not marked yet, read with the journals of an
	// exactly-once stream. They are told once: see Core.Unmarked.
	Unmarked []*outbox.Row
	// Paused is what an operator has paused: see Core.Pause.
	Paused []outbox.Park
	// Unrecovered are clusters of such a stream whose journals could not be read, so what
	// was published there is not known. They are unusable until Cluster says otherwise.
	Unrecovered []string
	// Published, for an exactly-once stream of tables without state, says that a row of the WAL
	// was published before this connection. No row that commits behind PublishedTo was.
	Published   func(*outbox.Row) bool
	PublishedTo outbox.LSN
}

// Uncovered is a table that the publication does not cover, and why.
type Uncovered struct {
	Table  *outbox.Table
	Reason string
	// Refused says that the table is covered, but could not be read.
	Refused bool
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
	c.Unmarked(conn.Unmarked)
	for _, name := range conn.Unrecovered {
		c.down[name] = true
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

// readParks takes over what our table holds. What only memory knows is written again. A
// stream without state may find parks from when its tables had one: nothing would sweep
// them now.
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
		p.asked = p.asked || held[p.Scope]
		// While a change is outstanding what was read may be old.
		p.durable = p.inTally || held[p.Scope] && c.writing == nil
		if !p.durable {
			p.written = 0
		}
	}
}

// nextOf is when a park that was read is tried next, by our monotonic clock: at most the
// longest wait from now, since the clock that wrote it, or ours, may have been wrong.
func (c *Core) nextOf(read outbox.Park) time.Time {
	if !read.Next.After(c.now) {
		return time.Time{}
	}
	return c.now.Add(min(read.Next.Sub(c.now), max(c.cfg.BackoffMax, c.cfg.WatchEvery)))
}

// Disconnect ends the connection: its ledger, checks, kept rows, rounds and hand-backs
// are void. So are outstanding requests: their answers must not be delivered, and Parks
// must not be tried again. A try under way has no effect once the next leadership has
// raised the epoch, and only then does that one read the parks.
func (c *Core) Disconnect() {
	c.connected, c.streaming = false, false
	c.abandonHandback()
	c.dropGate()
	c.dropLooks()
	c.dropStalls()
	for _, p := range c.parks.list {
		c.parks.takeHolds(p)
		p.ready = false
		if p.phase == absorbed {
			p.phase, p.written = sweeping, 0
		}
	}
	c.writing = nil
	c.sweeps.page, c.looks.checking = nil, false
	c.dropSought()
	c.looks.held.again()
	for e := range c.rows.flying() {
		e.tx, e.found = noTx, 0
	}
	c.ledger.reset()
	c.ready.Check, c.ready.Sweep, c.ready.Watch, c.ready.Rewatch = nil, nil, nil, nil
	c.ready.Failed, c.ready.Parks = false, nil
}
