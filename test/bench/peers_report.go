package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
)

// PeerReport is what `make bench-peers` says, in JSON.
type PeerReport struct {
	Relays   []PeerRelay       `json:"relays"`
	Figures  []PeerFigure      `json:"figures"`
	Rounds   []PeerRound       `json:"rounds"`
	Quiet    bool              `json:"quiet"`
	Machine  Machine           `json:"machine"`
	Versions map[string]string `json:"versions"`
	Settings map[string]string `json:"settings"`
}

// PeerRelay is who took part.
type PeerRelay struct {
	Name          string `json:"name"`
	Version       string `json:"version"`
	Configuration string `json:"configuration"`
	// Missing says why it was not measured.
	Missing string `json:"missing"`
}

// PeerFigure is one measure of one relay: the median of its rounds.
type PeerFigure struct {
	Relay   string    `json:"relay"`
	Measure string    `json:"measure"`
	What    string    `json:"what"`
	Unit    string    `json:"unit"`
	Value   float64   `json:"value"`
	Rounds  []float64 `json:"rounds"`
}

// PeerRound is what the machine was like in a round.
type PeerRound struct {
	Relay string `json:"relay"`
	What  string `json:"what"`
	Conditions
}

// measures in the table's order.
var measures = []struct{ name, what, unit string }{
	{"rows_per_s", "Rows that wait, from the start of the process to the last row", "rows/s"},
	{"rows_per_s_steady", "the same, from the first row to the last", "rows/s"},
	{"relay_cpu_us", "CPU per row: relay", "µs"},
	{"postgres_cpu_us", "PostgreSQL", "µs"},
	{"kafka_cpu_us", "Kafka", "µs"},
	{"peak_mib", "Peak memory", "MiB"},
	{"p50_200_ms", "Commit to readable at 200 rows/s, p50", "ms"},
	{"p99_200_ms", "p99", "ms"},
	{"p50_1000_ms", "Commit to readable at 1,000 rows/s, p50", "ms"},
	{"p99_1000_ms", "p99", "ms"},
	{"kills_recovery_s", "6 kills of the relay: until rows arrive again, median", "s"},
	{"kills_recovery_max_s", "longest", "s"},
	{"kills_failed", "not within a minute", "times"},
	{"kills_duplicates", "duplicates", "rows"},
	{"kills_lost", "not published", "rows"},
	{"brokers_recovery_s", "2 kills of the broker: from its return until rows arrive again", "s"},
	{"brokers_failed", "not within a minute", "times"},
	{"brokers_duplicates", "duplicates", "rows"},
	{"brokers_lost", "not published", "rows"},
	{"slot_recovery_s", "The slot is dropped during a stop: from the start until new rows arrive", "s"},
	{"slot_failed", "not within a minute", "times"},
	{"slot_duplicates", "duplicates", "rows"},
	{"slot_lost", "not published", "rows"},
}

// kafkaItself is a column of its own: what no relay can be faster than.
const kafkaItself = "Kafka alone"

// tournament measures all relays, one after the other in each round.
type tournament struct {
	*bench
	relays []*relay
	found  map[string]map[string][]float64 // by relay and measure
	report PeerReport
}

// run takes the rounds: throughput and latency of each relay in turn, and
// faults once.
func (n *tournament) run(t *testing.T) {
	for i := range n.rounds {
		n.take(t, kafkaItself, fmt.Sprint("latency ", i+1), n.kafkaAlone)
		for _, r := range n.relays {
			n.take(t, r.name, fmt.Sprint("throughput ", i+1), func(t *testing.T) figures { return n.relayThroughput(t, r) })
			n.take(t, r.name, fmt.Sprint("latency ", i+1), func(t *testing.T) figures { return n.relayLatency(t, r) })
		}
	}
	for _, r := range n.relays {
		n.take(t, r.name, "faults", func(t *testing.T) figures { return n.relayFaults(t, r) })
	}
}

// take runs one relay's round, again when it was not quiet, and keeps its figures.
func (n *tournament) take(t *testing.T, relay, what string, round func(t *testing.T) figures) {
	if n.missing(relay) {
		return
	}
	var got figures
	var c Conditions
	for try := 0; try <= n.repeats; try++ {
		got = nil
		c = n.observed(func() { t.Run(relay+", "+what, func(t *testing.T) { got = round(t) }) })
		if c.Noise == "" || got == nil {
			break
		}
		fmt.Printf("%s, %s was not quiet: %s\n", relay, what, c.Noise)
	}
	n.report.Rounds = append(n.report.Rounds, PeerRound{Relay: relay, What: what, Conditions: c})
	for name, value := range got {
		if n.found[relay] == nil {
			n.found[relay] = map[string][]float64{}
		}
		n.found[relay][name] = append(n.found[relay][name], value)
	}
}

func (n *tournament) missing(name string) bool {
	for _, r := range n.relays {
		if r.name == name {
			return r.missing != ""
		}
	}
	return false
}

// finish makes the report.
func (n *tournament) finish() PeerReport {
	r := &n.report
	r.Quiet = true
	for i := range r.Rounds { // a later round may have been faster
		round := &r.Rounds[i]
		round.Noise = round.noise(n.fastest)
		r.Quiet = r.Quiet && round.Noise == ""
	}
	r.Machine, r.Versions = machine(), n.versions()
	r.Settings = n.settings()
	for _, relay := range append([]*relay{{name: kafkaItself, version: r.Versions["kafka"]}}, n.relays...) {
		r.Relays = append(r.Relays, PeerRelay{relay.name, relay.version, relay.configuration, relay.missing})
		for _, m := range measures {
			if rounds := n.found[relay.name][m.name]; len(rounds) > 0 {
				r.Figures = append(r.Figures, PeerFigure{relay.name, m.name, m.what, m.unit, median(rounds), rounds})
			}
		}
	}
	return *r
}

// of is a relay's figure; nil: not measured.
func (r PeerReport) of(relay, measure string) *float64 {
	for _, f := range r.Figures {
		if f.Relay == relay && f.Measure == measure {
			return &f.Value
		}
	}
	return nil
}

// table has a line for each measure that anybody has, and a column for each
// relay.
func (r PeerReport) table() (lines [][]string) {
	head := []string{""}
	for _, relay := range r.Relays {
		head = append(head, strings.TrimSpace(relay.Name+" "+relay.Version))
	}
	lines = append(lines, head)
	for _, m := range measures {
		line, any := []string{m.what + ", " + m.unit}, false
		for _, relay := range r.Relays {
			v := r.of(relay.Name, m.name)
			any = any || v != nil
			line = append(line, number(v))
		}
		if any {
			lines = append(lines, line)
		}
	}
	return lines
}

// print writes the table for people.
func (r PeerReport) print(to io.Writer) {
	t := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, line := range r.table() {
		fmt.Fprintln(t, strings.Join(line, "\t"))
	}
	_ = t.Flush() // as every print here
	for _, relay := range r.Relays {
		if relay.Missing != "" {
			fmt.Fprintf(to, "%s was not measured: %s\n", relay.Name, relay.Missing)
		}
	}
	if !r.Quiet {
		fmt.Fprintln(to, "NOT QUIET: others used the machine as well; these figures are not to be recorded")
	}
}

func (r PeerReport) write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
