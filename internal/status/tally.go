package status

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Tally is what a stream that delivers exactly once knows of one Kafka cluster's journal.
type Tally struct {
	// Cluster is the name of the Kafka cluster.
	Cluster string `json:"cluster"`
	// Open is whether published rows may still lack their marks. A clean stop closes it.
	Open bool `json:"open"`
	// Waiting is how many committed units of rows are not noted in the database yet. Only a leader
	// knows.
	Waiting *uint64 `json:"units_waiting,omitempty"`
	// Left are the rows that were published and are marked later; at most 100,000 are counted.
	Left int64 `json:"left_rows"`
	// Transactions since the process started. Only a process knows.
	Transactions *Transactions `json:"transactions,omitempty"`
}

// MaxLeft is how many rows left are counted at most.
const MaxLeft = 100_000

// Transactions are a process's on one Kafka cluster.
type Transactions struct {
	// Committed is how many were committed.
	Committed uint64 `json:"committed"`
	// Aborted is how many were aborted; their rows went into the next one.
	Aborted uint64 `json:"aborted"`
	// LastAbort is the last one that was aborted. Missing: none was.
	LastAbort *Abort `json:"last_abort,omitempty"`
}

// Abort is why a transaction was aborted.
type Abort struct {
	// At is when it was aborted.
	At time.Time `json:"at"`
	// Cause is `unanswered`, `row_refused`, `stuck` or `ended_by_kafka`.
	Cause string `json:"cause"`
	// Text is the cause in words.
	Text string `json:"text"`
}

// AbortText returns a cause in words.
func AbortText(cause string) string {
	return cmp.Or(map[string]string{
		"unanswered":     "Kafka did not answer a request",
		"row_refused":    "Kafka refused a row",
		"stuck":          "Kafka acknowledged nothing for 5 s",
		"ended_by_kafka": "Kafka had ended it",
	}[cause], cause)
}

// Text returns the tally in words. led: a process leads the stream.
func (t *Tally) Text(led bool) string {
	var parts []string
	switch {
	case t.Open && led:
		parts = append(parts, "open, as always while the stream runs")
	case t.Open:
		return "open: the stream was not stopped cleanly, so some of the pending rows may be published; a start with delivery: exactly_once finds out which, and any other is refused"
	default:
		parts = append(parts, "closed: all that was published is marked")
	}
	if t.Waiting != nil {
		parts = append(parts, fmt.Sprintf("%d units of published rows are not noted as marked yet", *t.Waiting))
	}
	if t.Open {
		parts = append(parts, fmt.Sprintf("%d published rows are left to be marked", t.Left))
	}
	if n := t.Transactions; n != nil {
		text := fmt.Sprintf("since the start %d transactions committed, %d aborted", n.Committed, n.Aborted)
		if a := n.LastAbort; a != nil {
			text += fmt.Sprintf(", the last at %s: %s", a.At.Format(time.RFC3339), a.Text)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// Led reports whether a process leads the stream.
func (s *Stream) Led() bool { return s.Leader != nil && s.Leader.Intruder == "" }
