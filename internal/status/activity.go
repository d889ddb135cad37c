package status

import (
	"cmp"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Activity is what a process remembers of a stream, beyond its present state. All of it is bounded, and lost
// when the process ends.
type Activity struct {
	// Parks are single scopes, the widest first; the report counts them all.
	Parks []Park `json:"parks"`
	// Errors are the last ones, those alike counted together, the newest first.
	Errors []ErrorGroup `json:"errors"`
	// Events are what happened to the stream, the newest first.
	Events []Event `json:"events"`
	// History is the last hour, the oldest first; while another process leads none is added.
	History []Point `json:"history"`
	Rates   Rates   `json:"rates"`
	// Topics are what became of rows by topic since the process began.
	Topics []Topic `json:"topics"`
	// Positions in the WAL; nil: not known yet.
	Positions *Positions `json:"positions,omitempty"`
}

// Park is one scope that is left to the sweeper.
type Park struct {
	Kind   string    `json:"scope"`
	Scope  string    `json:"what"` // in words
	Cause  string    `json:"cause"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
	Next   time.Time `json:"next_try,omitzero"` // zero: as soon as it can be
}

// ErrorGroup is errors with the same text about the same thing.
type ErrorGroup struct {
	About string    `json:"about"` // a topic, a Kafka cluster, or the stream
	Text  string    `json:"text"`
	Count int       `json:"count"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	// Example is the id of a row, where a row was refused.
	Example string `json:"example,omitempty"`
}

// Event is one thing that happened.
type Event struct {
	At   time.Time `json:"at"`
	Kind string    `json:"kind"` // mode, leader, slot, kafka, park, publication
	Text string    `json:"text"`
}

// Point is one sample of the history.
type Point struct {
	At        time.Time `json:"at"`
	PerSecond float64   `json:"published_rows_per_second"`
	Lag       uint64    `json:"lag_bytes"`
	Retained  uint64    `json:"retained_wal_bytes"`
	// Half and 99 % of the rows were acknowledged within this many seconds after their
	// created_at; 0: no row with one was.
	P50 float64 `json:"p50_seconds,omitempty"`
	P99 float64 `json:"p99_seconds,omitempty"`
}

// Topic is one topic's counts. Those beyond the first 200 count as other.
type Topic struct {
	Cluster   string `json:"cluster"`
	Topic     string `json:"topic"`
	Published uint64 `json:"published_rows"`
	Refused   uint64 `json:"refused_rows"`
	Bytes     uint64 `json:"published_bytes"` // before compression
	// History is what the topic had of the last points of the stream's history.
	History []TopicPoint `json:"-"`
}

// TopicPoint is a topic's part of a Point, in the same units.
type TopicPoint struct{ PerSecond, P50, P99 float32 }

// Rates are means since the sample before the last, a few seconds.
type Rates struct {
	WAL       float64 `json:"wal_bytes_per_second"`
	Published float64 `json:"published_rows_per_second"`
	Sent      float64 `json:"sent_rows_per_second"`
}

// Positions are LSNs as PostgreSQL prints them.
type Positions struct {
	Server    string `json:"server"`    // the end of its WAL
	Confirmed string `json:"confirmed"` // all before is done
	Restart   string `json:"restart"`   // the server keeps all from here
}

// MaxParks is how many single parks an Activity lists.
const MaxParks = 200

// ListParks lists parks one by one, widest first, then oldest first.
func ListParks(parks []outbox.Park) []Park {
	sorted := slices.Clone(parks)
	slices.SortStableFunc(sorted, func(a, b outbox.Park) int {
		return cmp.Or(cmp.Compare(a.Scope.Kind, b.Scope.Kind), a.Since.Compare(b.Since))
	})
	list := []Park{}
	for i := range sorted[:min(len(sorted), MaxParks)] {
		p := &sorted[i]
		list = append(list, Park{
			Kind: p.Scope.Kind.String(), Scope: p.Scope.String(), Cause: string(p.Cause),
			Reason: p.Reason, Since: p.Since, Next: p.Next,
		})
	}
	return list
}
