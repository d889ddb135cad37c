package checkpoint

import "github.com/outbox-cdc/outbox-cdc/internal/outbox"

// Ready is what the driver has to do now. The requests (Check, Claim, Sweep, Watch, Rewatch, Failed, Parks)
// are outstanding until they are answered. If one fails for a passing reason, the code that carries it out
// repeats it until it is answered or the connection ends. The repeated request is unchanged; its snapshot
// is new.
type Ready struct {
	// Commands are for the sink, in this order.
	Commands []outbox.Command
	// Marks are to be written to the tables. Marks of different rows may be reordered.
	Marks []outbox.Mark
	// Check has rows to look at. Answer: Checked or CheckRefused.
	Check []*outbox.Row
	// Unclaim has claimed rows to unlock, before anything else is claimed.
	Unclaim []*outbox.Row
	// Claim has rows of one table. Those that are PENDING are to be locked until they are marked or
	// unclaimed. Answer: Claimed or ClaimRefused. An answer that has locked rows must be delivered even if
	// the connection has ended.
	Claim []*outbox.Row
	// Sweep asks for a page, for sweeping or for a hand-back. Answer: Swept or SweepRefused.
	Sweep *outbox.SweepRequest
	// Watch asks for candidates: PENDING rows that the stream may have missed. Answer: Watched or
	// WatchRefused.
	Watch *outbox.WatchRequest
	// Rewatch asks which of these rows are still PENDING. Answer: Rewatched or WatchRefused.
	Rewatch []*outbox.Row
	// Failed asks for the rows of Connected.Failed again. Answer: FailedRows or FailedRefused.
	Failed bool
	// Parks has parks to write and to remove. Answer: ParksWritten.
	Parks *outbox.ParkChange
	// Notes are for logs and metrics.
	Notes []Note
}

// Note is one event for logs and metrics.
type Note struct {
	Kind NoteKind
	Park outbox.Park
	Mode outbox.Mode
	Row  *outbox.Row
	// Reason is the error's text of NoteUnfit, NoteFailed and NoteStalled.
	Reason string
	Cause  outbox.Cause
	N      int
}

// NoteKind says what a Note is about.
type NoteKind uint8

// The kinds of notes.
const (
	NoteParked   NoteKind = iota + 1 // Park
	NoteUnparked                     // Park
	NoteMode                         // Mode
	NoteMissed                       // N rows that the watch found; Cause says why
	NoteUnfit                        // Row cannot become a record, and is charged; Reason is why
	NoteFailed                       // Row used up its budget; Reason is its last error
	NoteStalled                      // Row of a table without state was refused; the rows behind it and the confirmed position wait for it
)

func (c *Core) note(n Note) { c.ready.Notes = append(c.ready.Notes, n) }
