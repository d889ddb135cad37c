// Package history judges a run of outbox-cdc from outside: what applications
// inserted and committed, which records are in the topics, and which states the
// tables have at the end. Check compares these with the invariants of
// docs/internals/design.md. It does not read databases or topics, and does not know
// how outbox-cdc works: test suites record a History, and pass it to Check.
package history

import (
	"bytes"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// Outcome is what a writer knows about the outcome of its transaction.
type Outcome uint8

// The outcomes. A COMMIT whose answer was lost is Unknown: the table tells.
// TakenBack is a transaction that was committed, or perhaps was, on a server
// whose last moments a failover or a restored backup took back: its rows may be
// in a topic, and are not in the table.
const (
	Unknown Outcome = iota
	Committed
	RolledBack
	TakenBack
)

func (o Outcome) String() string {
	return [...]string{"with unknown outcome", "committed", "rolled back", "taken back"}[o]
}

// Insert is one row as its writer saw it.
type Insert struct {
	// Ref names the insert in the row's payload. It is the writer's own, drawn
	// once per attempt, so that a row which was rolled back is told apart from
	// the one which took its place.
	Ref   string
	Table string
	Topic string
	Key   string
	Keyed bool // false: no key, and no order
	// Seq is the row's place among the rows of its table, topic and key: it
	// was counted under a lock that was held until after the commit. 0: the
	// row has no place.
	Seq     int64
	Outcome Outcome
	// Refused says that Kafka refuses the record because of its content.
	Refused bool
	// At is when the writer knew the outcome; Add sets it.
	At time.Time
}

// Record is one record of a topic.
type Record struct {
	Ref       string // empty: the value is none that a writer wrote
	Topic     string
	Partition int32
	Offset    int64
	Key       string
	Keyed     bool
	Seq       int64
	EventID   string    // of the header that consumers dedupe by; empty: none
	At        time.Time // the record's timestamp; zero: not known
}

// Status is the state of a row, according to its table.
type Status string

// The states, whatever values or timestamps the table keeps them in.
const (
	Pending Status = "PENDING"
	Sent    Status = "SENT"
	Failed  Status = "FAILED"
)

// State is a row of the table at the end.
type State struct {
	Ref    string
	Status Status
}

// Rewrite is a terminal state that was left, as a trigger on the table saw it.
type Rewrite struct {
	Ref      string
	From, To string
}

// Sample is a measurement of the server and the program during the run. Its fields are measured in their
// order, so that the verdicts are valid whatever happens in between.
type Sample struct {
	// PID is the server process that uses the slot; 0: none.
	PID int
	// Confirmed is the slot's confirmed position; 0: there is no slot.
	Confirmed uint64
	// Retained is how many bytes of the WAL the slot retains.
	Retained uint64
	// Pending are rows that were PENDING and under no park, in one snapshot that is
	// younger than Confirmed. They may be some of those only.
	Pending []string
	// End is the end of the WAL, read when that snapshot had been taken: what the
	// snapshot shows was committed before it.
	End uint64
	// Memory is the maximum resident memory of a process so far, in bytes; 0: unknown.
	Memory uint64
}

// History is everything that is known of a run.
type History struct {
	Inserts  []Insert
	Records  []Record
	States   []State
	Rewrites []Rewrite
	Samples  []Sample // in the order of time, all of one server
}

// Log collects inserts from several writers.
type Log struct {
	mu      sync.Mutex
	inserts []Insert
	counts  [4]int
}

// Add records inserts of one transaction.
func (l *Log) Add(inserts ...Insert) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from, now := len(l.inserts), time.Now()
	l.inserts = append(l.inserts, inserts...)
	for i := from; i < len(l.inserts); i++ {
		l.inserts[i].At = now
		l.counts[l.inserts[i].Outcome]++
	}
}

// TakeBack says of the inserts recorded from the given one on that a failover
// or a restored backup took back those that are not there any more, and how
// many these are. Nobody may read Inserts meanwhile.
func (l *Log) TakeBack(from int, there func(ref string) bool) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := from; i < len(l.inserts); i++ {
		in := &l.inserts[i]
		if in.Outcome == RolledBack || there(in.Ref) {
			continue
		}
		l.counts[in.Outcome]--
		in.Outcome = TakenBack
		l.counts[in.Outcome]++
		n++
	}
	return n
}

// Inserts returns the inserts that have been recorded so far.
func (l *Log) Inserts() []Insert {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inserts[:len(l.inserts):len(l.inserts)]
}

// Count returns the number of inserts with that outcome so far.
func (l *Log) Count(o Outcome) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts[o]
}

// The value of a record is ref|seq|key|n|xxx…, with n times x. SQL can build
// it, and a value that was cut, mixed up or defaulted shows.

// Value returns a record's value as writers build it.
func Value(ref string, seq int64, key string, pad int) []byte {
	return fmt.Appendf(nil, "%s|%d|%s|%d|%s", ref, seq, key, pad, bytes.Repeat([]byte("x"), pad))
}

// ParseValue reads a record's value; ok is false for one that no writer wrote.
func ParseValue(value []byte) (ref string, seq int64, key string, ok bool) {
	parts := bytes.SplitN(value, []byte("|"), 5)
	if len(parts) != 5 {
		return "", 0, "", false
	}
	seq, err := strconv.ParseInt(string(parts[1]), 10, 64)
	pad, padErr := strconv.Atoi(string(parts[3]))
	if err != nil || padErr != nil || len(parts[4]) != pad || len(bytes.Trim(parts[4], "x")) != 0 {
		return "", 0, "", false
	}
	return string(parts[0]), seq, string(parts[2]), true
}
