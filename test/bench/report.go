package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// Result is one line of bench.json. What was not measured is null.
type Result struct {
	// Bar is B1 to B12, or the name of a measurement without a bar.
	Bar string `json:"bar"`
	// What was measured, in words.
	What string `json:"what"`
	// Value is the median of the rounds, in Unit.
	Value *float64 `json:"value"`
	Unit  string   `json:"unit"`
	// Reference is what Value is held against, of the same unit and run; Ratio
	// is Value by Reference, the median of the rounds' own ratios.
	Reference *float64 `json:"reference"`
	Ratio     *float64 `json:"ratio"`
	// Goal is the bar in words, OK whether it was reached, and MissedBy how much
	// was missing.
	Goal     string `json:"goal"`
	OK       *bool  `json:"ok"`
	MissedBy string `json:"missed_by"`
	// CPU is the seconds of CPU that each part used in the median round.
	CPU CPU `json:"cpu_seconds"`
	// PeakRSS of outbox-cdc in MiB, the largest of all rounds.
	PeakRSS *float64 `json:"peak_rss_mib"`
	// WALPerRow is the WAL that the server wrote while the rows were delivered,
	// in bytes per row; the application's own INSERTs are not in it.
	WALPerRow *float64 `json:"wal_bytes_per_row"`
	// Rounds are the values of each round, in their order.
	Rounds []float64 `json:"rounds"`
	// Conditions are what the machine was like in each of them, and Quiet says
	// that they all count.
	Conditions []Conditions `json:"conditions"`
	Quiet      bool         `json:"quiet"`
	// Note says why something was not measured, or what else is to know.
	Note string `json:"note"`

	Machine  Machine           `json:"machine"`
	Versions map[string]string `json:"versions"`
	Settings map[string]string `json:"settings"`
}

// CPU is seconds of CPU, user and system. Kafka's is not known where it is the
// fake one inside the bench.
type CPU struct {
	OutboxCDC *float64 `json:"outbox-cdc"`
	Postgres  *float64 `json:"postgres"`
	Kafka     *float64 `json:"kafka"`
}

// Machine is where it was measured.
type Machine struct {
	OS    string  `json:"os"`
	Arch  string  `json:"arch"`
	CPU   string  `json:"cpu"`
	Cores int     `json:"cores"`
	GiB   float64 `json:"memory_gib"`
	// Load is the load average of the last minute when the bench began.
	Load string `json:"load"`
}

// median of at least one value; of an even number the lower middle, which is a
// round that took place.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)-1)/2]
}

// percentile p (0 to 1) of at least one value, by the nearest rank.
func percentile(values []float64, p float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(p * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

func writeJSON(path string, results []Result) error {
	text, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// writeTable is the same for people.
func writeTable(to io.Writer, results []Result) {
	t := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	row := func(cells ...string) { fmt.Fprintln(t, strings.Join(cells, "\t")) }
	row("", "WHAT", "VALUE", "REFERENCE", "RATIO", "GOAL", "", "CPU S: CDC", "POSTGRES", "KAFKA", "MIB", "WAL/ROW")
	var notes []string
	for _, r := range results {
		row(
			r.Bar, r.What, withUnit(r.Value, r.Unit), withUnit(r.Reference, r.Unit), number(r.Ratio), r.Goal, met(r),
			number(r.CPU.OutboxCDC), number(r.CPU.Postgres), number(r.CPU.Kafka), number(r.PeakRSS), number(r.WALPerRow),
		)
		if r.Note != "" {
			notes = append(notes, fmt.Sprintf("%s, %s: %s", r.Bar, r.What, r.Note))
		}
	}
	_ = t.Flush() // as every print here
	for _, n := range notes {
		fmt.Fprintln(to, n)
	}
}

func met(r Result) string {
	switch {
	case r.Value == nil:
		return "NOT MEASURED"
	case !r.Quiet:
		return "NOT QUIET"
	case r.OK == nil:
		return ""
	case *r.OK:
		return "ok"
	}
	return "MISSED by " + r.MissedBy
}

func withUnit(v *float64, unit string) string {
	if v == nil {
		return ""
	}
	return number(v) + " " + unit
}

// number is a value with three digits, and thousands apart.
func number(v *float64) string {
	switch {
	case v == nil:
		return ""
	case math.Abs(*v) < 1000:
		digits := 2
		if *v == math.Trunc(*v) {
			digits = 0
		}
		if math.Abs(*v) >= 100 {
			digits = 0
		}
		return fmt.Sprintf("%.*f", digits, *v)
	}
	digits := fmt.Sprintf("%.0f", math.Abs(*v))
	var groups []string
	for len(digits) > 3 {
		groups = append([]string{digits[len(digits)-3:]}, groups...)
		digits = digits[:len(digits)-3]
	}
	text := strings.Join(append([]string{digits}, groups...), ",")
	if *v < 0 {
		return "-" + text
	}
	return text
}
