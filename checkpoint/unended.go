package checkpoint

import (
	"maps"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// unended are the transactions that a hand-back's snapshot must show as visible or ended. Each is forgotten
// when a snapshot shows it ended.
type unended struct {
	// started are the transactions that were in progress in the snapshot taken after the connection's
	// start.
	started []uint64
	// discarded are the transactions whose rows were discarded since, each with the generation of its last
	// discarded row.
	discarded map[uint32]uint64
	next      time.Time // when a page's snapshot may be asked for, if there are too many
}

// begin forgets the transactions of the last connection: after a failover their ids mean nothing.
func (u *unended) begin(s *outbox.Snapshot) {
	u.started = slices.Clone(s.InProgress)
	u.discarded = map[uint32]uint64{}
}

// discard notes that a row of the transaction was discarded. An xid of 0 is unknown.
func (u *unended) discard(xid uint32, generation uint64) {
	if xid != 0 {
		u.discarded[xid] = generation
	}
}

func (u *unended) xids() []uint32 { return slices.Collect(maps.Keys(u.discarded)) }

// observe forgets transactions that the snapshot shows ended. It reports whether all those have ended that
// were known when the snapshot was asked for.
func (u *unended) observe(s *outbox.Snapshot, generation uint64) bool {
	u.started = slices.DeleteFunc(u.started, s.Ended)
	ended := len(u.started) == 0
	for xid, at := range u.discarded {
		switch {
		case s.Ended(s.Widen(xid)):
			delete(u.discarded, xid)
		case at < generation:
			ended = false
		}
	}
	return ended
}
