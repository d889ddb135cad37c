package status

import (
	"cmp"
	"fmt"
	"math"
	"time"
)

// About rounds a duration to a value that people would say.
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

// Bytes formats a size in binary units.
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

var words = map[string]string{
	ModeStream:   "streaming",
	ModeHold:     "holding: rows wait",
	ModeSweep:    "sweeping: rows are read from the table, not from the WAL",
	ModePaused:   "paused: rows stay pending until outbox-cdc resume",
	ModeShadow:   "in shadow: rows are read and compared, nothing is published",
	ModeStandby:  "standby: another process leads",
	ModeStarting: "connecting",
	ModeStopped:  "stopped: no process leads",
	ModeUnknown:  "who leads is unknown",
}

// Words returns a mode in words.
func Words(mode string) string { return cmp.Or(words[mode], "unknown") }
