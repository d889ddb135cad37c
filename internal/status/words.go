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

// WALText returns a sentence that compares the WAL that the slot holds back with its nearer bound, and names
// the other bound.
func (s *Slot) WALText() string {
	limit, by := s.Bound()
	held := Bytes(s.Retained) + " of " + Bytes(limit)
	switch {
	case s.WALStatus == "lost":
		return Bytes(s.Retained) + ": the server gave it up, " + s.Lost
	case by == LossByServer:
		return held + " (max_slot_wal_keep_size, the server's limit); wal_budget is " + Bytes(s.Budget)
	case s.Safe == nil && (s.At.IsZero() || s.Lost != ""): // the server's limit is not read yet
		return held + " (wal_budget)"
	case s.Safe == nil:
		return held + " (wal_budget); the server has no limit (max_slot_wal_keep_size)"
	}
	return held + " (wal_budget); the server allows " + Bytes(uint64(*s.Safe)) + " more" // #nosec G115 -- the budget is nearer
}

// EndText returns a sentence about when the slot reaches its bound, and on what that rests.
func (s *Slot) EndText() string {
	switch {
	case s.Growth == nil:
		return "not known yet: the process that leads, or outbox-cdc status --watch, measures for a minute"
	case s.GrowthOver < ForecastWindow.Seconds()*9/10:
		return s.Loss.Text() + " (by the last " + About(time.Duration(s.GrowthOver*float64(time.Second))) + ")"
	}
	return s.Loss.Text()
}

// Text returns the loss in words.
func (l *Loss) Text() string {
	if l == nil {
		return "not in sight"
	}
	about := "in about " + About(time.Duration(min(l.Seconds, 1e8)*float64(time.Second)))
	if l.By == LossByServer {
		return "lost " + about + ": the server keeps no more for it (max_slot_wal_keep_size)"
	}
	if l.Seconds <= 0 {
		return "above the WAL budget: it moves on and the table is swept"
	}
	return "at the WAL budget " + about + ": then it moves on and the table is swept"
}
