package status

import (
	"fmt"
	"strings"
	"time"
)

// Tally is what a stream that delivers exactly once knows of one Kafka cluster's journal.
type Tally struct {
	Cluster string `json:"cluster"`
	// Open: rows that were published may not be marked yet. A clean stop closes it.
	Open bool `json:"open"`
	// Waiting are units behind the tally's head: committed, and one of them is not noted yet; nil: only
	// a leader knows.
	Waiting *uint64 `json:"units_waiting,omitempty"`
	// Left are rows that were published and are marked later; at most MaxLeft are counted.
	Left int64 `json:"left_rows"`
	// Transactions since the process began; nil: not from a process.
	Transactions *Transactions `json:"transactions,omitempty"`
}

// MaxLeft is how many rows that are left are counted.
const MaxLeft = 100_000

// Transactions are a process's on one Kafka cluster.
type Transactions struct {
	Committed uint64 `json:"committed"`
	Aborted   uint64 `json:"aborted"`
	// LastAbort is the last one that was aborted; nil: none was.
	LastAbort *Abort `json:"last_abort,omitempty"`
}

// Abort is why a transaction was aborted.
type Abort struct {
	At    time.Time `json:"at"`
	Cause string    `json:"cause"` // unanswered, row_refused, stuck, ended_by_kafka
	Text  string    `json:"text"`
}

// AbortText says a cause in words.
func AbortText(cause string) string {
	switch cause {
	case "unanswered":
		return "Kafka did not answer a request"
	case "row_refused":
		return "Kafka refused a row"
	case "stuck":
		return "Kafka acknowledged nothing for 5 s"
	case "ended_by_kafka":
		return "Kafka had ended it"
	}
	return cause
}

// Text is the tally in words; led: somebody leads the stream.
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

// Led says that somebody leads the stream.
func (s *Stream) Led() bool { return s.Leader != nil && s.Leader.Intruder == "" }
