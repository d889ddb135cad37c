package outbox

// Mode is a stream's state as people see it, while a process leads or waits for the lead. docs/internals/design.md
// has what leads from one to another.
type Mode string

// The modes.
const (
	ModeStandby Mode = "standby" // no connection leads
	ModeStream  Mode = "stream"  // nothing is parked at stream scope
	ModeHold    Mode = "hold"    // a cluster is unusable, or rows of tables without state wait
	ModeSweep   Mode = "sweep"   // the stream is parked
	ModePaused  Mode = "paused"  // an operator wants nothing published
	ModeShadow  Mode = "shadow"  // nothing is published or marked
)

// Modes are all of them.
var Modes = []Mode{ModeStandby, ModeStream, ModeHold, ModeSweep, ModePaused, ModeShadow}
