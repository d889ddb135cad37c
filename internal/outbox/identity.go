package outbox

// Identity is what a stream remembers, in outbox_cdc.leader, of the slot that
// it went on from. The zero value: nothing was ever streamed.
type Identity struct {
	Slot     string
	SystemID string // of the database cluster, from initdb
	Timeline uint32 // raised by every promotion
	// SlotPoint is the slot's confirmed position when the stream took it on, or to which the stream had
	// confirmed it before.
	SlotPoint LSN
	// Stopped is the position confirmed last by a clean stop, or 0 while
	// streaming. Nobody else moves the slot on.
	Stopped LSN
	// Publication is a mark that changes when the publication is re-created or
	// altered.
	Publication string
	// Relations are the tables' relations by OID, 0: there was none; nil: not known.
	Relations map[string]uint32
}
