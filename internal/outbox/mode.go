package outbox

// Mode is the state of a stream as people see it. docs/internals/design.md says what leads from one mode to
// another.
type Mode string

// The modes.
const (
	ModeStandby Mode = "standby" // this process does not lead
	ModeStream  Mode = "stream"  // the stream as a whole is not parked
	ModeHold    Mode = "hold"    // a cluster is unusable, or rows of tables without state wait
	ModeSweep   Mode = "sweep"   // the stream is parked
	ModePaused  Mode = "paused"  // an operator has paused the stream
	ModeShadow  Mode = "shadow"  // nothing is published or marked
)

// Modes are all modes.
var Modes = []Mode{ModeStandby, ModeStream, ModeHold, ModeSweep, ModePaused, ModeShadow}
