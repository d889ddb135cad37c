package checkpoint

import "github.com/outbox-cdc/outbox-cdc/internal/outbox"

// Ready is what is to be done now. Requests (Check, Claim, Sweep, Watch, Rewatch,
// Failed, Parks) are outstanding until answered; a request that failed for a passing
// reason is repeated by the code that carries it out, unchanged but for a fresh
// snapshot, until it is answered or the connection ends.
type Ready struct {
	// Commands to the sink, in order.
	Commands []outbox.Command
	// Marks to write back. Marks of different rows may be reordered.
	Marks []outbox.Mark
	// Check: rows to look at. Answer: Checked or CheckRefused.
	Check []*outbox.Row
	// Unclaim: claimed rows to unlock, before anything else is claimed.
	Unclaim []*outbox.Row
	// Claim: rows of one table to lock, those that are PENDING, until they are
	// marked or given up. Answer: Claimed or ClaimRefused. An answer that has locked
	// rows is delivered whatever became of the connection.
	Claim []*outbox.Row
	// Sweep: a page to read, for sweeping or for a hand-back. Answer: Swept or
	// SweepRefused.
	Sweep *outbox.SweepRequest
	// Watch: candidates to look for. Answer: Watched or WatchRefused.
	Watch *outbox.WatchRequest
	// Rewatch: which of these are still PENDING? Answer: Rewatched.
	Rewatch []*outbox.Row
	// Failed: read what is Connected.Failed again. Answer: FailedRows or FailedRefused.
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
	Mode outbox.Mode
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

func (c *Core) note(n Note) { c.ready.Notes = append(c.ready.Notes, n) }
