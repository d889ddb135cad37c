// Package failpoint lets tests kill the real program at named places. It does
// nothing unless built with -tags failpoints; then the environment variable
// OUTBOX_FAILPOINT=NAME:N kills the process with SIGKILL at the Nth hit.
package failpoint

// The places.
const (
	AfterDecode     = "after-decode"      // rows of the log reached the driver
	AfterAck        = "after-ack"         // Kafka acknowledged, nothing marked yet
	BeforeMark      = "before-mark"       // in write-back, before COMMIT
	AfterMark       = "after-mark"        // in write-back, after COMMIT, nobody knows yet
	BeforeConfirm   = "before-confirm"    // before a status message with a new position
	BeforeParkWrite = "before-park-write" // before parks are written
	AfterParkWrite  = "after-park-write"  // after parks were written, nobody knows yet
	InHandback      = "in-hand-back"      // a hand-back's statement was answered
	BeforeSlot      = "before-slot"       // the stream is parked, the slot not made
	AfterSlot       = "after-slot"        // the slot was made, streaming has not begun
)
