// Package checkpoint decides, for one stream, what may be published, marked,
// parked, swept and confirmed. It is pure: no I/O, no clock, no goroutine, no
// randomness. The pipeline's driver goroutine feeds it what happened (the WAL,
// outcomes, answers, time) and carries out what Take returns; nobody else
// calls it. docs/internals/design.md states the rules, and the simulation in this
// package checks them.
//
// Core is not safe for concurrent use.
package checkpoint

import (
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Config bounds a Core. Every field is required.
type Config struct {
	Tables []*outbox.Table

	// MaxRows and MaxBytes bound the rows in memory: queued, sent, acked and
	// unmarked, and kept. At the bound the WAL is not read.
	MaxRows  int
	MaxBytes int
	// PageRows is the most rows of one sweep page.
	PageRows int
	// SmallRound is the size of a sweep round, in rows, after which a hand-back
	// may begin.
	SmallRound int
	// MaxKeys is how many keys of a table may be parked before the table is.
	MaxKeys int
	// MaxTopics is how many topics that cannot be used are parked one by one.
	MaxTopics int
	// MaxRetryingKeys is how many keys of a parked table may wait for a retry while it
	// is swept. With more a sweep would only find more of them, without end.
	MaxRetryingKeys int
	// BackoffMin and BackoffMax bound the wait before a parked scope's next
	// try; it doubles from one to the other.
	BackoffMin, BackoffMax time.Duration
	// WALBudget is how many bytes of WAL the slot may retain; 0: no limit.
	WALBudget uint64
	// WatchEvery is how often rows that the stream missed are looked for.
	WatchEvery time.Duration
	// Shadow: nothing is published, swept or marked. The stream is parked, so that
	// its rows are confirmed past, and stays so until a start without Shadow.
	Shadow bool
}

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
	// Uncovered are tables whose rows do not, or not rightly, come through the
	// WAL on this connection: they are parked and swept.
	Uncovered []Uncovered
	// Snapshot taken after this connection's start.
	Snapshot outbox.Snapshot
	// Left are published rows that are not marked yet, as read together with the
	// journals of a stream that delivers exactly once, and told once: see Core.Left.
	Left []*outbox.Row
	// Paused is what an operator has paused: see Core.Pause.
	Paused []outbox.Park
	// Unrecovered are clusters of such a stream whose journals could not be read: what
	// was published there is not known. They are unusable until Cluster says otherwise.
	Unrecovered []string
	// Published, of such a stream of tables without state, says of a row of the WAL that it
	// was published before this connection. It says so of none that commits behind PublishedTo.
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

// Ready is what is to be done now. Requests (Check, Claim, Sweep, Watch, Rewatch,
// Failed, Parks) are outstanding until answered; a request that failed for a passing
// reason is repeated by the code that carries it out, unchanged but for a fresh
// snapshot, until it is answered or the connection ends.
type Ready struct {
	// Commands to the sink, in order.
	Commands []outbox.Command
	// Marks to write back. Marks of different rows may be reordered.
	Marks []outbox.Mark
	// Check: rows to look at. Answer: Checked.
	Check []*outbox.Row
	// Unclaim: rows claimed whose locks are given up, before anything is claimed.
	Unclaim []*outbox.Row
	// Claim: rows of one table to lock, those that are PENDING, until they are
	// marked or given up. Answer: Claimed or ClaimRefused. An answer that has locked
	// rows is delivered whatever became of the connection.
	Claim []*outbox.Row
	// Sweep: a page to read, for sweeping or for a hand-back. Answer: Swept or
	// SweepRefused.
	Sweep *outbox.SweepRequest
	// Watch: candidates to look for. Answer: Watched.
	Watch *outbox.WatchRequest
	// Rewatch: which of these are still PENDING? Answer: Rewatched.
	Rewatch []*outbox.Row
	// Failed: read what Connected.Failed is once more. Answer: FailedRows or
	// FailedRefused.
	Failed bool
	// Parks to write. Answer: ParksWritten.
	Parks *outbox.ParkChange
	// Notes for logs and metrics.
	Notes []Note
}

// Note is something that a person or a metric wants to know.
type Note struct {
	Kind NoteKind
	Park outbox.Park
	Mode Mode
	Row  *outbox.Row
	// Reason is the error's text of NoteFailed and NoteStalled.
	Reason string
	Cause  outbox.Cause
	N      int
}

// NoteKind is what a Note is about.
type NoteKind uint8

// The kinds of notes.
const (
	NoteParked   NoteKind = iota + 1 // Park
	NoteUnparked                     // Park
	NoteMode                         // Mode
	NoteMissed                       // N rows found by the watcher; Cause says why
	NoteFailed                       // Row used up its budget; Reason is its last error
	NoteStalled                      // Row of a table without state was refused: the stream waits for it
)

// Mode is the stream's state as people see it.
type Mode string

// The modes.
const (
	ModeStandby Mode = "standby" // another process leads
	ModeStream  Mode = "stream"  // nothing is parked at stream scope
	ModeHold    Mode = "hold"    // a broker is unusable and memory is full
	ModeSweep   Mode = "sweep"   // the stream is parked
	ModePaused  Mode = "paused"  // an operator wants nothing published
	ModeShadow  Mode = "shadow"  // nothing is published or marked
)
