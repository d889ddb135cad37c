// Package failpoint lets tests kill the real program, hold it up, or have it meet
// an error, at named places. It does nothing unless built with -tags failpoints;
// then the environment variable OUTBOX_FAILPOINT says what happens there:
//
//	NAME:N           the process is killed with SIGKILL at the Nth hit
//	NAME:N:DURATION  a goroutine that comes there waits that long, once, at the Nth hit
//	NAME:N:error     a goroutine that comes there gets an error, once, at the Nth hit
//
// Several are separated by commas. What was done is said on standard error. The
// program's own packages call it at their effects; it decides nothing, and what an
// error means is what a lost connection means there.
package failpoint

// The places, and in brackets what is lost by an error there.
const (
	AfterDecode     = "after-decode"      // rows of the WAL reached the driver (the replication connection)
	BeforeProduce   = "before-produce"    // a produce request is made, nothing was sent (the broker's connection)
	AfterProduce    = "after-produce"     // a produce request was handed to its connection, nothing answered (that connection)
	BeforeCommit    = "before-commit"     // Kafka acknowledged a transaction's records, its end is not asked for yet (the coordinator's connection)
	AfterAck        = "after-ack"         // Kafka acknowledged, nothing marked yet (the replication connection)
	BeforeMark      = "before-mark"       // in write-back, before COMMIT (its connection)
	AfterMark       = "after-mark"        // in write-back, after COMMIT, nobody knows yet (the answer)
	BeforeConfirm   = "before-confirm"    // before a status message with a new position (the replication connection)
	ModeChange      = "mode-change"       // the mode has changed, nobody was told (the lead)
	BeforeParkWrite = "before-park-write" // before parks are written (the connection)
	AfterParkWrite  = "after-park-write"  // after parks were written, nobody knows yet (the answer)
	InHandback      = "in-hand-back"      // a hand-back's statement was answered (the answer)
	BeforeSlot      = "before-slot"       // the stream is parked, the slot not made (the replication connection)
	AfterSlot       = "after-slot"        // the slot was made, streaming has not begun (the replication connection)
)

// Names are all of the places, in the order in which a row comes by.
func Names() []string {
	return []string{
		AfterDecode, BeforeProduce, AfterProduce, BeforeCommit, AfterAck, BeforeMark, AfterMark, BeforeConfirm,
		ModeChange, BeforeParkWrite, AfterParkWrite, InHandback, BeforeSlot, AfterSlot,
	}
}
