package metrics

import (
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

// Slot is what the server says of the stream's slot.
type Slot struct {
	// State is wal_status; empty: there is no slot.
	State string
	// Retained is the WAL that the slot holds back, in bytes.
	Retained uint64
	// Safe is how many bytes may still be written before the server may drop
	// the slot; negative: the server sets no bound.
	Safe int64
}

// slotStates are the words of pg_replication_slots.wal_status, and our own for
// a slot that is not there.
// https://www.postgresql.org/docs/current/view-pg-replication-slots.html
var slotStates = []string{"reserved", "extended", "unreserved", "lost", slotMissing}

const slotMissing = "missing"

// forecastWindow is how far back the rate of growth is measured.
const forecastWindow = 5 * time.Minute

// slot are the gauges of one stream's slot.
type slot struct {
	budget uint64
	safe   prometheus.Gauge
	lostIn prometheus.Gauge
	states map[string]prometheus.Gauge

	mu      sync.Mutex
	samples []sample // of the last forecastWindow, oldest first
}

type sample struct {
	at       time.Time
	retained uint64
}

func newSlot(f *families, stream string, budget uint64) *slot {
	s := &slot{
		budget: budget,
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

func (s *slot) tell(state Slot, now time.Time) {
	if state.State == "" {
		state.State = slotMissing
	}
	for name, gauge := range s.states {
		gauge.Set(number(name == state.State))
	}
	safe := math.Inf(1)
	if state.Safe >= 0 {
		safe = float64(state.Safe)
	}
	s.safe.Set(safe)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples = append(s.samples, sample{now, state.Retained})
	for now.Sub(s.samples[0].at) > forecastWindow {
		s.samples = s.samples[1:]
	}
	s.lostIn.Set(lostIn(state, s.budget, s.rate()))
}

// rate is by how many bytes a second the WAL held back grew over the window. A
// slot moves on in steps, so single steps are no trend.
func (s *slot) rate() float64 {
	first, last := s.samples[0], s.samples[len(s.samples)-1]
	if passed := last.at.Sub(first.at).Seconds(); passed > 0 {
		return (float64(last.retained) - float64(first.retained)) / passed
	}
	return 0
}

// lostIn is when the slot is at an end, in seconds. +Inf: not at this rate.
func lostIn(state Slot, budget uint64, rate float64) float64 {
	if loss := status.Predict(state.Retained, budget, state.Safe, rate); loss != nil {
		return loss.Seconds
	}
	return math.Inf(1)
}

// forget sets what only a leader knows to what says nothing.
func (s *slot) forget() {
	for _, gauge := range s.states {
		gauge.Set(0)
	}
	s.safe.Set(math.Inf(1))
	s.lostIn.Set(math.Inf(1))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples = nil
}
