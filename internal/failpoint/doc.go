// Package failpoint lets tests kill the real program, delay it, or make it meet an error, at named places. It
// does nothing unless the program is built with -tags failpoints. Then the environment variable
// OUTBOX_FAILPOINT says what happens:
//
//	NAME:N           the process is killed with SIGKILL at the Nth hit
//	NAME:N:DURATION  the goroutine that makes the Nth hit waits for that long, once
//	NAME:N:error     the goroutine that makes the Nth hit gets an error, once
//
// Several are separated by commas. Each action is reported on standard error. The program's packages call
// Here where they have an effect outside of the process. The package decides nothing. An error at a place
// means the same as a lost connection there.
package failpoint

// The places, with what an error there loses in brackets.
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

// Names returns the names of all places, in the order in which a row passes them.
func Names() []string {
	return []string{
		AfterDecode, BeforeProduce, AfterProduce, BeforeCommit, AfterAck, BeforeMark, AfterMark, BeforeConfirm,
		ModeChange, BeforeParkWrite, AfterParkWrite, InHandback, BeforeSlot, AfterSlot,
	}
}
