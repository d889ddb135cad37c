package metrics

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

// slotStates are the words of pg_replication_slots.wal_status, and our own for
// a slot that is not there.
// https://www.postgresql.org/docs/current/view-pg-replication-slots.html
var slotStates = []string{"reserved", "extended", "unreserved", "lost", slotMissing}

const slotMissing = "missing"

// slot are the gauges of one stream's slot.
type slot struct {
	safe   prometheus.Gauge
	lostIn prometheus.Gauge
	states map[string]prometheus.Gauge
}

func newSlot(f *families, stream string) *slot {
	s := &slot{
		safe:   f.safeWAL.WithLabelValues(stream),
		lostIn: f.lostIn.WithLabelValues(stream),
		states: map[string]prometheus.Gauge{},
	}
	for _, state := range slotStates {
		s.states[state] = f.slotState.WithLabelValues(stream, state)
	}
	s.forget()
	return s
}

func (s *slot) tell(told *status.Slot) {
	state := told.WALStatus
	if state == "" {
		state = slotMissing
	}
	for name, gauge := range s.states {
		gauge.Set(number(name == state))
	}
	safe := math.Inf(1)
	if told.Safe != nil {
		safe = float64(*told.Safe)
	}
	s.safe.Set(safe)
	lostIn := math.Inf(1) // not at this rate
	if told.Loss != nil {
		lostIn = told.Loss.Seconds
	}
	s.lostIn.Set(lostIn)
}

// forget sets what only a leader knows to what says nothing.
func (s *slot) forget() {
	for _, gauge := range s.states {
		gauge.Set(0)
	}
	s.safe.Set(math.Inf(1))
	s.lostIn.Set(math.Inf(1))
}
