package checkpoint

import (
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Connected describes a replication connection on which this process leads.
type Connected struct {
	// Parks are the parks that our table held after this process began to lead.
	Parks []outbox.Park
	// Failed has FAILED rows of tables with on_failed: block: one row of each key that has any (Table, ID,
	// Cluster, Topic and Key suffice).
	Failed []*outbox.Row
	// Streaming says that the slot is sound and START_REPLICATION (at 0/0) follows or has followed. Without
	// Streaming, the stream is parked for Cause and Reason. Once that park is durable (see SlotMayBeMade),
	// publication and slot are made, and Connect is called again with Streaming set.
	Streaming bool
	Cause     outbox.Cause
	Reason    string
	// Insert is the WAL insert position, read after this process began to lead and, with Streaming, before
	// START_REPLICATION. Rows up to it are looked at before they are published.
	Insert outbox.LSN
	// Uncovered are tables whose rows the WAL lacks, or brings wrongly, on this connection. They are parked
	// and swept.
	Uncovered []Uncovered
	// Snapshot was taken after this connection's start.
	Snapshot outbox.Snapshot
	// Unmarked are published rows that are not marked yet, read together with the journals of an
	// exactly-once stream. Connect passes them to Core.Unmarked.
	Unmarked []*outbox.Row
	// Paused are the scopes that an operator has paused, see Core.Pause.
	Paused []outbox.Park
	// Unrecovered are clusters of an exactly-once stream whose journals could not be read, so it is not
	// known which rows were published there. They are unusable until Cluster says otherwise.
	Unrecovered []string
	// Published is set for an exactly-once stream of tables without state. It reports whether a row of the
	// WAL was published before this connection. No row that commits behind PublishedTo was.
	Published   func(*outbox.Row) bool
	PublishedTo outbox.LSN
}

// Uncovered is a table that is left to the sweeper on this connection, and why.
type Uncovered struct {
	Table  *outbox.Table
	Reason string
	// Refused says that the publication covers the table, but the table could not be read.
	Refused bool
}

// Connect begins a replication connection. It is called a second time to make the connection streaming, see
// Connected. Rows in flight from an earlier connection stay in flight.
func (c *Core) Connect(conn Connected) {
	c.connected, c.streaming = true, conn.Streaming
	c.parks.changes++ // so that the list of parks is shown again
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
		// The park stays in our table. A later start without Shadow sweeps the rows that the application's
		// own relay has left PENDING, and hands the stream back.
		if p := c.parks.stream(); p == nil || p.Cause != outbox.CauseShadow {
			c.park(outbox.StreamScope(), outbox.CauseShadow, "the stream is in shadow: it publishes and marks nothing", time.Time{})
		}
	case !conn.Streaming:
		c.park(outbox.StreamScope(), conn.Cause, conn.Reason, time.Time{})
	default:
		c.gate = &gate{check: conn.Insert}
	}
}

// parkUncovered leaves tables to the sweeper until the next connection, because the WAL does not carry
// their rows, or because it is not known which of their keys are blocked.
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

// readParks takes over the parks that our table holds. Parks that only memory has are written again. A
// stream without state ignores parks from a time when its tables had state: nothing would sweep them now.
func (c *Core) readParks(parks []outbox.Park) {
	if c.tables.stateless {
		return
	}
	held := map[outbox.Scope]bool{}
	for _, read := range parks {
		held[read.Scope] = true
		if read.Scope.Table != "" && c.tables.byName[read.Scope.Table] == nil {
			continue // the park belongs to a table of an earlier configuration: leave it in our table
		}
		if c.parks.of(read.Scope) == nil {
			p := c.park(read.Scope, read.Cause, read.Reason, c.nextOf(read))
			p.Since, p.RowID, p.written = read.Since, read.RowID, p.version
			p.recall()
		} else if p := c.parks.of(read.Scope); p.Cause != read.Cause || p.RowID != read.RowID {
			p.written = 0 // a failover has undone our latest write of the park: write it again
		}
	}
	for _, p := range c.parks.list {
		c.parks.wake(p)
		p.asked = p.asked || held[p.Scope]
		// While a write of parks is outstanding, the read may have come before it.
		p.durable = p.inTally || held[p.Scope] && c.writing == nil
		if !p.durable {
			p.written = 0
		}
	}
}

// nextOf returns when a park that was read from our table is tried next. The wait is at most the longest
// backoff from now, because the clock that wrote the time, or our own, may have been wrong.
func (c *Core) nextOf(read outbox.Park) time.Time {
	if !read.Next.After(c.now) {
		return time.Time{}
	}
	return c.now.Add(min(read.Next.Sub(c.now), max(c.cfg.BackoffMax, c.cfg.WatchEvery)))
}

// Disconnect ends the connection. Its ledger, looks, kept rows, rounds and hand-backs are void. Outstanding
// requests are void, too: the driver must not deliver their answers, and must not repeat Parks. If a write
// of parks is under way, it has no effect once the next leadership has raised the leader epoch; the next
// leadership reads the parks only after that.
func (c *Core) Disconnect() {
	c.connected, c.streaming = false, false
	c.abandonHandback()
	c.dropGate()
	c.dropLooks()
	c.dropStalls()
	for _, p := range c.parks.list {
		c.parks.takeHolds(p)
		p.sweptOut = false
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
