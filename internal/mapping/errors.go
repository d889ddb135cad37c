package mapping

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Error says why a table's columns do not fit its mapping. It has every fault that was found, at least one.
type Error struct {
	Table  *outbox.Table
	Faults []ColumnFault
}

// ColumnFault is one column, or one setting of a mapping, that does not fit.
type ColumnFault struct {
	Column  string // empty: the fault is only in the mapping
	Type    string // the column's type; empty if the column does not exist
	Problem string // what is wrong
	Hint    string // what to do
}

// Error returns all faults in one line.
func (e *Error) Error() string {
	faults := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		faults[i] = f.String()
	}
	return "table " + e.Table.String() + ": " + strings.Join(faults, "; ")
}

// String returns the fault with its remedy.
func (f ColumnFault) String() string {
	var subject string
	switch {
	case f.Column == "":
		subject = "the mapping"
	case f.Type == "":
		subject = fmt.Sprintf("column %q", f.Column)
	default:
		subject = fmt.Sprintf("column %q (%s)", f.Column, f.Type)
	}
	return subject + " " + f.Problem + ": " + f.Hint
}

// RowError says why a row cannot become a record. Its text is short, names the column, and contains nothing
// of key, payload or headers.
type RowError struct {
	Column  string
	Problem string
}

func (e *RowError) Error() string { return fmt.Sprintf("column %q %s", e.Column, e.Problem) }

// fault is what is wrong with a value, worded to follow a column's name; empty: nothing.
type fault string

func illegalTopic(topic string) fault {
	switch {
	case topic == "":
		return "gives an empty topic name: write one into the row, or map the topic to what every row has"
	case len(topic) > 249:
		return fault("gives a topic name of " + strconv.Itoa(len(topic)) + " bytes, more than Kafka's 249: correct the row, or have topic.map give another name")
	}
	return fault("gives the topic " + quoted(topic) + ", which is no legal Kafka topic name (a to z, A to Z, 0 to 9, dot, _ and -): correct the row, or have topic.map give another name")
}

func unmapped(name []byte) fault {
	return fault("has " + quoted(string(name)) + ", for which topic.map has no topic: add it there, or topic.otherwise")
}

func unknownCluster(name []byte) fault {
	if len(name) == 0 {
		return "names no Kafka cluster, and there is no default: write one into the row, or set kafka.default"
	}
	return fault("names the Kafka cluster " + quoted(string(name)) + ", which is not configured, and there is no default: add it to kafka.clusters, or correct the row")
}

func quoted(name string) string {
	const most = 60 // how many bytes of a name an error's text repeats
	if len(name) > most {
		return strconv.QuoteToASCII(name[:most]) + "…"
	}
	return strconv.QuoteToASCII(name)
}
