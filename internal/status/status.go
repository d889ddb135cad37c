// Package status says how a stream stands, in the words and fields that the
// status command, the HTTP interface and whatever page is put on top of it
// share. It holds data and pure functions on it: it asks nobody, reads no clock
// and starts no goroutine. Packages pipeline and survey fill it in.
package status

import (
	"fmt"
	"time"
)

// Report is the body of GET /api/v1/status and the output of status --json.
// Fields are added, never renamed.
type Report struct {
	At time.Time `json:"at"`
	// Version of the process that answered; empty: none did.
	Version string `json:"version,omitempty"`
	// Process is the address that answered; empty: none did.
	Process string `json:"process,omitempty"`
	// Note says why there is no answer of a process.
	Note    string   `json:"note,omitempty"`
	Streams []Stream `json:"streams"`
}

// Where the word on a stream comes from.
const (
	FromProcess  = "process"
	FromDatabase = "database"
)

// The modes. The first six are those of docs/internals/design.md, as the process that
// leads, or waits as a standby, sees them.
const (
	ModeStream   = "stream"
	ModeHold     = "hold"
	ModeSweep    = "sweep"
	ModePaused   = "paused"
	ModeShadow   = "shadow"
	ModeStandby  = "standby"
	ModeStarting = "starting" // this process is connecting
	ModeStopped  = "stopped"  // no process leads
	ModeUnknown  = "unknown"  // neither process nor database could be asked
)

// Stream is how one stream stands.
type Stream struct {
	Name string `json:"name"`
	// Source: process or database.
	Source string `json:"source"`
	Mode   string `json:"mode"`
	// ModeText is the mode in words.
	ModeText string `json:"mode_text"`
	// Delivery is at_least_once or exactly_once; empty: not known.
	Delivery string `json:"delivery,omitempty"`
	// Tallies are those of a stream that delivers exactly once, by Kafka cluster.
	Tallies []Tally `json:"tallies,omitempty"`
	// Reason says why the stream is in a mode other than stream.
	Reason string  `json:"reason,omitempty"`
	Leader *Leader `json:"leader,omitempty"` // nil: nobody holds the leadership lock
	Slot   *Slot   `json:"slot,omitempty"`   // nil: unknown
	Tables []Table `json:"tables"`
	Parks  Parks   `json:"parks"`
	// Kafka says of each cluster whether it can be used; only a process knows.
	Kafka []Cluster `json:"kafka,omitempty"`
	// Limit is how fast rows may be taken; nil: as fast as they come, or not from
	// a process.
	Limit *Limit `json:"limit,omitempty"`
	// Flow is what went through the process; nil: not from a process.
	Flow *Flow `json:"flow,omitempty"`
	// Error says what could not be found out.
	Error string `json:"error,omitempty"`
}

// Leader is the process that leads, or who keeps every process from it.
type Leader struct {
	Name    string `json:"name"` // outbox-cdc/STREAM@HOST
	Address string `json:"address,omitempty"`
	PID     string `json:"backend_pid,omitempty"` // of the server's process
	Epoch   int64  `json:"epoch,omitempty"`
	Since   string `json:"since,omitempty"`
	// Intruder says that it holds the leadership lock without being a leader, and
	// what ends that; empty: it leads.
	Intruder string `json:"intruder,omitempty"`
	// Here: it is the process that answered.
	Here bool `json:"this_process"`
}

// Slot is the replication slot and the WAL that it holds back. Sizes in bytes.
type Slot struct {
	Name      string `json:"name"`
	Exists    bool   `json:"exists"`
	Active    bool   `json:"active"`
	WALStatus string `json:"wal_status,omitempty"` // reserved, extended, unreserved, lost
	Retained  uint64 `json:"retained_wal_bytes"`
	Budget    uint64 `json:"wal_budget_bytes"`
	// Safe is what may still be written before the server may drop the slot
	// (max_slot_wal_keep_size); nil: no limit is set.
	Safe *int64 `json:"safe_wal_bytes,omitempty"`
	// Lag is between the server's end and the confirmed position.
	Lag uint64 `json:"lag_bytes"`
	// LagSeconds is how long something has been waiting; nil: only a leader knows.
	LagSeconds *float64 `json:"lag_seconds,omitempty"`
	// Growth of Retained in bytes per second, and over how many seconds it was
	// measured, at most those of ForecastWindow; nil: only one sample was taken.
	Growth     *float64 `json:"retained_growth_bytes_per_second,omitempty"`
	GrowthOver float64  `json:"growth_measured_over_seconds,omitempty"`
	// Loss is when the slot is at an end at this rate; nil: not in sight.
	Loss *Loss `json:"loss,omitempty"`
}

// Table is one outbox table. Counts stop at a bound, so that asking is cheap.
type Table struct {
	Name string `json:"name"`
	// Pending rows, due or not; nil: unknown, or the table keeps no state.
	Pending       *int64 `json:"pending_rows,omitempty"`
	PendingCapped bool   `json:"pending_capped,omitempty"` // there are more
	// Oldest is the age of the oldest pending row, in seconds; 0: none, or no creation time is mapped.
	Oldest float64 `json:"pending_oldest_seconds"`
	// Failed rows; nil: unknown, or the table has no failed state.
	Failed       *int64 `json:"failed_rows,omitempty"`
	FailedCapped bool   `json:"failed_capped,omitempty"`
	Error        string `json:"error,omitempty"`
}

// Cluster is one Kafka cluster.
type Cluster struct {
	Name   string `json:"name"`
	Usable bool   `json:"usable"`
	Error  string `json:"error,omitempty"`
	// Fencing of former leaders: on, refused by the brokers, or off; empty: not known yet.
	Fencing string `json:"fencing,omitempty"`
}

// FencingRefused is a cluster's Fencing where the brokers do not let us fence.
const FencingRefused = "refused"

// Limit is what slows a stream down.
type Limit struct {
	RowsPerSecond float64 `json:"rows_per_second"`
	// Reason: configured, standby_lag, lock_waits or recovering.
	Reason string `json:"reason"`
}

// Text is the limit in words.
func (l *Limit) Text() string {
	why := map[string]string{
		"configured": "limits.rows_per_second", "standby_lag": "a standby falls behind", "lock_waits": "sessions wait for our locks",
		"recovering": "rising again, after others had to wait",
	}[l.Reason]
	return fmt.Sprintf("%.0f rows/s: %s", l.RowsPerSecond, why)
}

// Flow is what went through a process, which began counting at its start.
type Flow struct {
	Published uint64 `json:"published_rows"`
	Refused   uint64 `json:"refused_rows"` // attempts charged
	GivenUp   uint64 `json:"failed_rows"`  // became FAILED
	Left      uint64 `json:"left_rows"`    // of the log, that the mapping leaves to others
	// PerSecond is the mean of the last minute.
	PerSecond float64 `json:"published_rows_per_second"`
	InFlight  int     `json:"in_flight_rows"`
}
