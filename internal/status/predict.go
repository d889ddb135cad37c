package status

import (
	"fmt"
	"math"
	"time"
)

// Loss is when a slot is at an end if WAL goes on being held back at the rate
// last seen.
type Loss struct {
	// Seconds from now.
	Seconds float64 `json:"seconds"`
	// By: budget (wal_budget of the configuration: the slot moves on and the
	// stream is swept) or server (max_slot_wal_keep_size: the server may drop
	// the slot).
	By string `json:"by"`
}

// What ends a slot.
const (
	LossByBudget = "budget"
	LossByServer = "server"
)

// Predict says when a slot that holds back retained bytes is at an end, growing
// by so many bytes per second: whichever comes first of the budget (0: none)
// and what the server keeps (safe; negative: no limit). nil: not in sight.
func Predict(retained, budget uint64, safe int64, growth float64) *Loss {
	if growth <= 0 || math.IsNaN(growth) || math.IsInf(growth, 0) {
		return nil
	}
	var loss *Loss
	if budget > 0 {
		left := 0.0
		if retained < budget {
			left = float64(budget - retained)
		}
		loss = &Loss{Seconds: left / growth, By: LossByBudget}
	}
	if safe >= 0 && (loss == nil || float64(safe)/growth < loss.Seconds) {
		loss = &Loss{Seconds: float64(safe) / growth, By: LossByServer}
	}
	return loss
}

// Text says it to people.
func (l *Loss) Text() string {
	if l == nil {
		return "not in sight"
	}
	about := "in about " + About(time.Duration(min(l.Seconds, 1e8)*float64(time.Second)))
	if l.By == LossByServer {
		return "lost " + about + ": the server keeps no more for it (max_slot_wal_keep_size)"
	}
	return "at the WAL budget " + about + ": then it moves on and the table is swept"
}

// About rounds a duration to what people say.
func About(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%.1f h", d.Hours())
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// Bytes prints a size in binary units.
func Bytes(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	f, u := float64(n), 0
	for f >= 1024 && u < len(units)-1 {
		f /= 1024
		u++
	}
	if f >= 100 || f == math.Trunc(f) {
		return fmt.Sprintf("%.0f %s", f, units[u])
	}
	return fmt.Sprintf("%.1f %s", f, units[u])
}

// Growth tells a rate from samples, taken at different times. The zero value is
// ready. It is not safe for concurrent use.
type Growth struct {
	at    time.Time
	bytes uint64
	rate  float64
	known bool
}

// growthOver is the least time between two samples that a rate is told from:
// over less, a few checkpoints' worth of noise would be a prediction.
const growthOver = 500 * time.Millisecond

// Sample adds a sample and returns the rate in bytes per second; false: not
// known yet.
func (g *Growth) Sample(at time.Time, bytes uint64) (float64, bool) {
	if g.at.IsZero() {
		g.at, g.bytes = at, bytes
		return 0, false
	}
	if passed := at.Sub(g.at); passed >= growthOver {
		g.rate, g.known = (float64(bytes)-float64(g.bytes))/passed.Seconds(), true
		g.at, g.bytes = at, bytes
	}
	return g.rate, g.known
}

// Words says a mode in words.
func Words(mode string) string {
	switch mode {
	case ModeStream:
		return "streaming"
	case ModeHold:
		return "holding: a Kafka cluster cannot be used, its rows wait"
	case ModeSweep:
		return "sweeping: rows are read from the table, not from the log"
	case ModeShadow:
		return "in shadow: rows are read and compared, nothing is published"
	case ModeStandby:
		return "standing by: another process leads"
	case ModeStarting:
		return "connecting"
	case ModeStopped:
		return "stopped: no process leads"
	}
	return "unknown"
}
