// Package failpoint lets tests kill the real program, or hold it up, at named
// places. It does nothing unless built with -tags failpoints; then the
// environment variable OUTBOX_FAILPOINT=NAME:N kills the process with SIGKILL at
// the Nth hit, and OUTBOX_FAILPOINT=NAME:N:DURATION has whoever comes there wait
// that long, once, at the Nth hit. The program's own packages call it at their
// effects; it decides nothing.
package failpoint

// The places.
const (
	AfterDecode     = "after-decode"      // rows of the log reached the driver
	BeforeProduce   = "before-produce"    // a produce request is made, nothing was sent
	AfterProduce    = "after-produce"     // a produce request was handed to its connection, nothing answered
	AfterAck        = "after-ack"         // Kafka acknowledged, nothing marked yet
	BeforeMark      = "before-mark"       // in write-back, before COMMIT
	AfterMark       = "after-mark"        // in write-back, after COMMIT, nobody knows yet
	BeforeConfirm   = "before-confirm"    // before a status message with a new position
	ModeChange      = "mode-change"       // the mode has changed, nobody was told
	BeforeParkWrite = "before-park-write" // before parks are written
	AfterParkWrite  = "after-park-write"  // after parks were written, nobody knows yet
	InHandback      = "in-hand-back"      // a hand-back's statement was answered
	BeforeSlot      = "before-slot"       // the stream is parked, the slot not made
	AfterSlot       = "after-slot"        // the slot was made, streaming has not begun
)

// Names are all of the places, in the order in which a row comes by.
func Names() []string {
	return []string{
		AfterDecode, BeforeProduce, AfterProduce, AfterAck, BeforeMark, AfterMark, BeforeConfirm,
		ModeChange, BeforeParkWrite, AfterParkWrite, InHandback, BeforeSlot, AfterSlot,
	}
}
