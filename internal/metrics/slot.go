package metrics

import (
	"cmp"
	"math"

	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

// slotStates are the words of pg_replication_slots.wal_status, and our own for
// a slot that is not there.
// https://www.postgresql.org/docs/current/view-pg-replication-slots.html
var slotStates = []string{"reserved", "extended", "unreserved", "lost", slotMissing}

const slotMissing = "missing"

// Slot tells what the server says of the slot, and the forecast of its end.
func (s *Stream) Slot(told *status.Slot) {
	s.retained.Set(float64(told.Retained))
	safe, lostIn := math.Inf(1), math.Inf(1) // no bound, not at this rate
	if told.Safe != nil {
		safe = float64(*told.Safe)
	}
	if told.Loss != nil {
		lostIn = told.Loss.Seconds
	}
	s.setSlot(cmp.Or(told.WALStatus, slotMissing), safe, lostIn)
}

// setSlot sets what only a leader knows; an empty state and infinities say nothing.
func (s *Stream) setSlot(state string, safe, lostIn float64) {
	for _, name := range slotStates {
		s.slotState.WithLabelValues(name).Set(number(name == state))
	}
	s.safeWAL.Set(safe)
	s.lostIn.Set(lostIn)
}

func (s *Stream) forgetSlot() { s.setSlot("", math.Inf(1), math.Inf(1)) }
