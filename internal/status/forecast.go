package status

import (
	"math"
	"time"
)

// Forecast predicts when a slot reaches a bound: its wal_budget, or what the server keeps for it. It is the only code
// that does: page, status command and metric all show its result, so they cannot contradict one another. The zero
// value is ready. It is not safe for concurrent use.
type Forecast struct {
	samples []retainedAt // from the last ForecastWindow, oldest first
}

type retainedAt struct {
	at       time.Time
	retained uint64
}

// ForecastWindow is how far back growth is measured. A slot in use advances in steps of seconds to minutes,
// which are not a trend.
const ForecastWindow = 5 * time.Minute

// forecastOver is the shortest time over which growth is measured. Over less, a single step would look like a
// trend.
const forecastOver = time.Minute

// Tell takes a sample of the slot. It fills in how fast the slot's WAL grows and when the slot reaches a bound, if that
// is known.
func (f *Forecast) Tell(at time.Time, slot *Slot) {
	if !slot.Exists || slot.WALStatus == "lost" {
		f.samples = nil // a lost slot holds nothing back, and a new one begins at its own size
		return
	}
	f.samples = append(f.samples, retainedAt{at, slot.Retained})
	for at.Sub(f.samples[0].at) > ForecastWindow {
		f.samples = f.samples[1:]
	}
	first := f.samples[0]
	over := at.Sub(first.at)
	if over < forecastOver {
		return
	}
	growth := (float64(slot.Retained) - float64(first.retained)) / over.Seconds()
	slot.Growth, slot.GrowthOver = &growth, over.Seconds()
	slot.Loss = predict(slot, growth)
}

// Loss is when a slot is at an end if WAL goes on being held back at the rate
// last seen.
type Loss struct {
	// Seconds from now.
	Seconds float64 `json:"seconds"`
	// By is `budget` (`wal_budget` is used up: the slot moves on and the table is swept) or
	// `server` (`max_slot_wal_keep_size` is used up: the server may drop the slot).
	By string `json:"by"`
}

// The values of Loss.By.
const (
	LossByBudget = "budget"
	LossByServer = "server"
)

// predict returns when a slot reaches a bound if its retained WAL grows by growth bytes per second: when the budget is
// used up (0: there is none), or what the server keeps, whichever comes first. nil: not in sight.
func predict(slot *Slot, growth float64) *Loss {
	if growth <= 0 || math.IsNaN(growth) || math.IsInf(growth, 0) {
		return nil
	}
	var loss *Loss
	if slot.Budget > 0 && !slot.Unbounded && slot.HeldBy == "" && slot.StalledBy == "" { // otherwise advancing the slot would not help
		left := max(0, float64(slot.Budget)-float64(slot.Retained))
		loss = &Loss{Seconds: left / growth, By: LossByBudget}
	}
	if slot.Safe != nil && (loss == nil || float64(*slot.Safe)/growth < loss.Seconds) {
		loss = &Loss{Seconds: float64(*slot.Safe) / growth, By: LossByServer}
	}
	return loss
}

// Bound returns the nearer one of wal_budget and what the server keeps for the slot, in bytes, and which one
// it is; 0: there is neither.
func (s *Slot) Bound() (limit uint64, by string) {
	if s.Safe == nil {
		return s.Budget, LossByBudget
	}
	if kept := s.Retained + uint64(max(0, *s.Safe)); s.Budget == 0 || kept < s.Budget { // #nosec G115 -- not negative
		return kept, LossByServer
	}
	return s.Budget, LossByBudget
}
