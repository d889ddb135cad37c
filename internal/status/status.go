// Package status has the state of a stream in the words and fields that the status command, the HTTP
// interface and the operator's page share. It has data types and pure functions on them. It asks nobody,
// reads no clock and starts no goroutine. Packages pipeline and survey fill it in.
package status

import (
	"fmt"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Report is the body of GET /api/v1/status and the output of status --json.
// Fields are added, never renamed.
type Report struct {
	// At is when it was asked.
	At time.Time `json:"at"`
	// Version of the process that answered. Missing: none did.
	Version string `json:"version,omitempty"`
	// Process is the address of the process that answered. Missing: none did.
	Process string `json:"process,omitempty"`
	// Note is why no process answered.
	Note string `json:"note,omitempty"`
	// Streams are the streams that were asked about.
	Streams []Stream `json:"streams"`
}

// The values of Stream.Source.
const (
	FromProcess  = "process"
	FromDatabase = "database"
)

// The modes. The first six are those of the process (outbox.Modes).
const (
	ModeStream   = string(outbox.ModeStream)
	ModeHold     = string(outbox.ModeHold)
	ModeSweep    = string(outbox.ModeSweep)
	ModePaused   = string(outbox.ModePaused)
	ModeShadow   = string(outbox.ModeShadow)
	ModeStandby  = string(outbox.ModeStandby)
	ModeStarting = "starting" // the process is connecting
	ModeStopped  = "stopped"  // no process leads
	ModeUnknown  = "unknown"  // neither process nor database answered
)

// Stream is how one stream stands.
type Stream struct {
	// Name of the stream.
	Name string `json:"name"`
	// Source is where the state comes from: `process` or `database`. The database knows neither the state
	// of Kafka nor the flow.
	Source string `json:"source"`
	// Mode is `stream`, `hold`, `sweep`, `paused`, `shadow`, `standby`, `starting` (the process is
	// connecting), `stopped` (no process leads) or `unknown` (nobody could be asked).
	Mode string `json:"mode"`
	// ModeText is the mode in words, with a short account of faults.
	ModeText string `json:"mode_text"`
	// Level is the worst of the findings: `bad`, `warn`, `note` or `good`. A standby and a stream in shadow are a `note`.
	Level string `json:"level"`
	// Findings are faults and events that somebody should know, the worst first. Readiness, the page and mode_text go by them.
	Findings []Finding `json:"findings,omitempty"`
	// Delivery is `at_least_once` or `exactly_once`. Missing: not known.
	Delivery string `json:"delivery,omitempty"`
	// Tallies are the states of the journals, one for each Kafka cluster, of a stream that delivers exactly once.
	Tallies []Tally `json:"tallies,omitempty"`
	// Reason is why the mode is not `stream`.
	Reason string `json:"reason,omitempty"`
	// Leader is the session that holds the leadership lock. Missing: nobody does.
	Leader *Leader `json:"leader,omitempty"`
	// Standbys are the processes that wait for the lead, at most 20. Missing: none does, or nobody could be asked; a
	// standby itself does not know the others.
	Standbys []Standby `json:"standbys,omitempty"`
	// Slot is the replication slot and the WAL that it holds back. Missing: not known.
	Slot *Slot `json:"slot,omitempty"`
	// Tables are the outbox tables of the stream.
	Tables []Table `json:"tables"`
	// Parks are the scopes that are left to the sweeper.
	Parks Parks `json:"parks"`
	// Kafka is the clusters, and whether they can be used. Only a process knows.
	Kafka []Cluster `json:"kafka,omitempty"`
	// Limit is how fast rows may be taken. Missing: there is no limit, or no process answered.
	Limit *Limit `json:"limit,omitempty"`
	// Flow is what went through the process since it started. Only a process knows.
	Flow *Flow `json:"flow,omitempty"`
	// Error is why a part of the state could not be read, or why the process does not work.
	Error string `json:"error,omitempty"`
	// ErrorSince is since when the process does not work. Missing: it works, or no process answered.
	ErrorSince time.Time `json:"error_since,omitzero"`
	// Unreachable: the database could not be asked, so that what is known of it is old.
	Unreachable bool `json:"-"`
	// Unproven is why the stream has not been seen to be able to do its work since the process started.
	Unproven string `json:"-"`
	// Deaf: the process leads, and nothing came on the replication connection yet.
	Deaf bool `json:"-"`
	// Silence is for how long nothing was heard on the replication connection, where that is too long.
	Silence time.Duration `json:"-"`
}

// Unaware reports whether the parks and the flow of rows are unknown, as opposed to empty.
func (s *Stream) Unaware() bool {
	return s.Mode == ModeStandby || s.Slot == nil && s.Parks.Total == 0 && (s.Mode == ModeUnknown || s.Mode == ModeStarting)
}

// Leader is the process that leads, or who keeps every process from it.
type Leader struct {
	// Name is the `application_name` of its session: `outbox-cdc/STREAM@HOST`.
	Name string `json:"name"`
	// Address of its client, where that is known.
	Address string `json:"address,omitempty"`
	// PID of the server process of its session.
	PID string `json:"backend_pid,omitempty"`
	// Epoch is the number of this leadership: it grows with each.
	Epoch int64 `json:"epoch,omitempty"`
	// Since is when its session began, or when the process that answered took the lead.
	Since string `json:"since,omitempty"`
	// Intruder says who holds the leadership lock without being a leader, and how to end that
	// session; the mode is then `stopped`. Missing: it leads.
	Intruder string `json:"intruder,omitempty"`
	// Here is whether it is the process that answered.
	Here bool `json:"this_process"`
}

// Standby is a process that waits for the lead.
type Standby struct {
	// Name is the `application_name` of its session: `outbox-cdc/STREAM@HOST`.
	Name string `json:"name"`
	// Address of its client, where that may be seen.
	Address string `json:"address,omitempty"`
	// Since is when its session began, where that may be seen.
	Since string `json:"since,omitempty"`
}

// Slot is the replication slot and the WAL that it holds back. Sizes in bytes.
type Slot struct {
	// Name of the slot.
	Name string `json:"name"`
	// Exists is whether the server has it.
	Exists bool `json:"exists"`
	// Active is whether somebody reads from it.
	Active bool `json:"active"`
	// WALStatus is `reserved`, `extended`, `unreserved` or `lost`, as in `pg_replication_slots`.
	WALStatus string `json:"wal_status,omitempty"`
	// Lost is why the server has invalidated the slot, with the limit that did it; where `wal_status` is not
	// `lost`, the one before it, within the last hour. Missing: it has not.
	Lost string `json:"lost_because,omitempty"`
	// LostSince is when the process that leads saw that. Missing: it has not, or the database alone was asked.
	LostSince time.Time `json:"lost_since,omitzero"`
	// Retained is the WAL that it holds back.
	Retained uint64 `json:"retained_wal_bytes"`
	// Budget is the `wal_budget` of the configuration.
	Budget uint64 `json:"wal_budget_bytes"`
	// Safe is how much WAL may still be written before the server may drop the slot. Missing: the server
	// sets no limit (`max_slot_wal_keep_size`), or the slot is lost.
	Safe *int64 `json:"safe_wal_bytes,omitempty"`
	// At is when it was read. Missing: it was made or lost since, so who reads it and the server's limit are not known.
	At time.Time `json:"read_at,omitzero"`
	// HeldBy is the open transaction that has the slot hold back most of `wal_budget`, which no sweep
	// frees. Missing: none does.
	HeldBy string `json:"held_by,omitempty"`
	// StalledBy is the notice with which the server says why it sends nothing from the slot: a standby of
	// `synchronized_standby_slots` is away, for instance. Missing: it sends.
	StalledBy string `json:"stalled_by,omitempty"`
	// StalledSince is when this notice first came.
	StalledSince time.Time `json:"stalled_since,omitzero"`
	// Unbounded: the tables keep no state, so that the budget does not end the slot.
	Unbounded bool `json:"-"`
	// Lag is the WAL between the server's end and the confirmed position.
	Lag uint64 `json:"lag_bytes"`
	// LagSeconds is how long something has been waiting. Only a leader knows.
	LagSeconds *float64 `json:"lag_seconds,omitempty"`
	// Growth of `retained_wal_bytes`. Missing: not measured for a minute yet.
	Growth *float64 `json:"retained_growth_bytes_per_second,omitempty"`
	// GrowthOver is the time that the growth was measured over, from 60 to 300.
	GrowthOver float64 `json:"growth_measured_over_seconds,omitempty"`
	// Loss is when the slot ends at this rate. Missing: not in sight, or the growth is not known.
	Loss *Loss `json:"loss,omitempty"`
}

// Table is one outbox table. Counts stop at a bound, so that asking is cheap.
type Table struct {
	// Name of the table.
	Name string `json:"name"`
	// Pending rows, due or not. Missing: not counted yet, too many to count, or the table keeps no
	// state.
	Pending *int64 `json:"pending_rows,omitempty"`
	// PendingCapped is true where there are more than `pending_rows`.
	PendingCapped bool `json:"pending_capped,omitempty"`
	// Oldest is the age of the oldest pending row whose time has come; 0: there is none, or no creation time is mapped.
	Oldest float64 `json:"pending_oldest_seconds"`
	// Failed rows. Missing: not counted yet, `failed_unknown`, or the table has no failed state.
	Failed *int64 `json:"failed_rows,omitempty"`
	// FailedUnknown is true where no index finds failed rows and the table is too large to read: they were not counted,
	// or only at the time told.
	FailedUnknown bool `json:"failed_unknown,omitempty"`
	// FailedCapped is true where there are more than `failed_rows`.
	FailedCapped bool `json:"failed_capped,omitempty"`
	// CountedAt is when the pending rows were counted.
	CountedAt time.Time `json:"counted_at,omitzero"`
	// FailedAt is when the failed rows were counted.
	FailedAt time.Time `json:"failed_counted_at,omitzero"`
	// Error is why the rows could not be counted.
	Error string `json:"error,omitempty"`
}

// Cluster is one Kafka cluster.
type Cluster struct {
	// Name of the cluster.
	Name string `json:"name"`
	// Usable is whether records can be sent to it.
	Usable bool `json:"usable"`
	// Error is why it cannot be used.
	Error string `json:"error,omitempty"`
	// Since is since when it can be used, or cannot.
	Since time.Time `json:"since,omitzero"`
	// Fencing of former leaders: `on`, `refused` (by the brokers) or `off`. Missing: not known yet.
	Fencing string `json:"fencing,omitempty"`
}

// FencingRefused is a cluster's Fencing if the brokers do not let us fence.
const FencingRefused = "refused"

// Limit is what slows a stream down.
type Limit struct {
	// RowsPerSecond is the most rows that may be taken in a second.
	RowsPerSecond float64 `json:"rows_per_second"`
	// Reason is `configured`, `standby_lag`, `lock_waits` or `recovering`.
	Reason string `json:"reason"`
}

// Text returns the limit in words.
func (l *Limit) Text() string {
	why := map[string]string{
		"configured": "limits.rows_per_second", "standby_lag": "a standby falls behind", "lock_waits": "sessions wait for our locks",
		"recovering": "rising again, after others had to wait",
	}[l.Reason]
	return fmt.Sprintf("%.0f rows/s: %s", l.RowsPerSecond, why)
}

// Flow is what went through a process, which began counting at its start.
type Flow struct {
	// Published rows: Kafka acknowledged them.
	Published uint64 `json:"published_rows"`
	// Refused is how often a row was refused and charged an attempt.
	Refused uint64 `json:"refused_rows"`
	// GivenUp are the rows that became FAILED.
	GivenUp uint64 `json:"failed_rows"`
	// Left are the rows that were read from the WAL and that the mapping leaves to others.
	Left uint64 `json:"left_rows"`
	// PerSecond is the mean of the last minute.
	PerSecond float64 `json:"published_rows_per_second"`
	// InFlight are the rows that were read and are not marked yet.
	InFlight int `json:"in_flight_rows"`
}
