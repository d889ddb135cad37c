package bench

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The figures of the docs are made of reports that are kept here, of quiet runs.
const (
	recordedBars  = "recorded/bench.json"
	recordedPeers = "recorded/bench-peers.json"
	docsFolder    = "../../docs"
)

// documents are what the docs have between markers, and the pictures, by file
// and marker; a picture has none.
func documents(bars []Result, peers PeerReport) map[[2]string]string {
	all := map[[2]string]string{}
	bars = slices.DeleteFunc(slices.Clone(bars), func(r Result) bool { return !isBar.MatchString(r.Bar) })
	if len(bars) > 0 {
		all[[2]string{"internals/performance.md", "bars"}] = barsInMarkdown(bars)
	}
	if len(peers.Relays) > 0 {
		all[[2]string{"compare.md", "peers"}] = peersInMarkdown(peers)
		for name, c := range chartsOf(peers) {
			all[[2]string{"images/" + name, ""}] = c.svg()
		}
	}
	return all
}

// recorded reads what was recorded; nothing where nothing was.
func recorded() (bars []Result, peers PeerReport, err error) {
	return bars, peers, errors.Join(readJSON(recordedBars, &bars), readJSON(recordedPeers, &peers))
}

func readJSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	return err
}

// record takes reports over into what is recorded: each bar of them in place of the one that was, which a later
// run on a machine of the same kind may do for some. What was not quiet is refused.
func record(barsFile, peersFile string) error {
	var bars []Result
	var peers PeerReport
	if err := errors.Join(readJSON(barsFile, &bars), readJSON(peersFile, &peers), os.MkdirAll(filepath.Dir(recordedBars), 0o755)); err != nil {
		return err
	}
	for _, r := range bars {
		if r.Value == nil || !r.Quiet {
			return fmt.Errorf("%s: %s, %s was not measured, or the machine was not quiet: it is not recorded", barsFile, r.Bar, r.What)
		}
	}
	if len(bars) > 0 {
		before, _, err := recorded()
		if err == nil {
			bars, err = merged(before, bars)
		}
		if err == nil {
			err = writeJSON(recordedBars, bars)
		}
		if err != nil {
			return err
		}
	}
	if len(peers.Relays) == 0 {
		return nil
	}
	if !peers.Quiet {
		return fmt.Errorf("%s: the machine was not quiet: it is not recorded", peersFile)
	}
	return peers.write(recordedPeers)
}

// merged has the later bars in place of the earlier of the same name.
func merged(before, later []Result) ([]Result, error) {
	for _, r := range before {
		if slices.ContainsFunc(later, func(l Result) bool { return l.Bar == r.Bar }) {
			continue
		}
		now := later[0]
		if r.Machine.Cores != now.Machine.Cores || r.Machine.CPU != now.Machine.CPU || r.Settings["rows"] != now.Settings["rows"] || r.Settings["rounds"] != now.Settings["rounds"] {
			return nil, fmt.Errorf("%s was recorded on another machine, or with other rows or rounds: measure all bars", r.Bar)
		}
		later = append(later, r)
	}
	slices.SortStableFunc(later, func(a, b Result) int { return cmp.Compare(barNumber(a.Bar), barNumber(b.Bar)) })
	return later, nil
}

func barNumber(bar string) (n int) {
	_, _ = fmt.Sscanf(bar, "B%d", &n) // of cost and scale: 0
	return n
}

// putDocuments writes the docs, or says what differs.
func putDocuments(write bool) error {
	bars, peers, err := recorded()
	if err != nil {
		return err
	}
	for place, body := range documents(bars, peers) {
		path := filepath.Join(docsFolder, place[0])
		old, err := os.ReadFile(path)
		if err != nil && (place[1] != "" || !errors.Is(err, os.ErrNotExist)) {
			return err
		}
		text := body
		if place[1] != "" {
			if text, err = between(string(old), place[1], body); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
		if text == string(old) {
			continue
		}
		if !write {
			return fmt.Errorf("%s does not say what was recorded: make bench-record", path)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// between puts a text between a page's markers.
func between(page, name, body string) (string, error) {
	begin, end := "<!-- figures: "+name+" -->\n", "<!-- end of figures: "+name+" -->"
	before, rest, ok := strings.Cut(page, begin)
	_, after, both := strings.Cut(rest, end)
	if !ok || !both {
		return "", fmt.Errorf("the markers %q and %q are missing", begin, end)
	}
	return before + begin + "\n" + body + "\n" + end + after, nil
}

// where a report was made.
func where(command string, m Machine, versions, settings map[string]string) string {
	return fmt.Sprintf("`%s` of %s: %d cores (%s), %.0f GiB, PostgreSQL %s, Kafka %s, %s rows, rounds: %s.\n\n",
		command, versions["outbox-cdc"], m.Cores, m.CPU, m.GiB, versions["postgres"], versions["kafka"], settings["rows"], settings["rounds"])
}

func inMarkdown(lines [][]string) string {
	var s strings.Builder
	for i, cells := range lines {
		s.WriteString("| " + strings.Join(cells, " | ") + " |\n")
		if i == 0 {
			s.WriteString(strings.Repeat("|---", len(cells)) + "|\n")
		}
	}
	return s.String()
}

func barsInMarkdown(all []Result) string {
	lines := [][]string{{"", "what", "value", "reference", "ratio", "bar", "", "CPU per row: program, PostgreSQL, Kafka", "peak memory"}}
	for _, r := range all {
		lines = append(lines, []string{r.Bar, r.What, withUnit(r.Value, r.Unit), withUnit(r.Reference, r.Unit), number(r.Ratio), r.Goal, met(r), perRow(r), withUnit(r.PeakRSS, "MiB")})
	}
	return where("make bench", all[0].Machine, all[0].Versions, all[0].Settings) + later(all) + inMarkdown(lines)
}

// later names the bars that another program than the first bar's was measured with.
func later(all []Result) string {
	var s strings.Builder
	for i, r := range all {
		if of := r.Versions["outbox-cdc"]; of != all[0].Versions["outbox-cdc"] && r.Bar != all[i-1].Bar {
			fmt.Fprintf(&s, "%s: of %s.\n\n", r.Bar, of)
		}
	}
	return s.String()
}

// perRow is what a row cost in CPU, where rows were what was counted.
func perRow(r Result) string {
	rows := 0.0
	if _, err := fmt.Sscan(r.Settings["rows"], &rows); err != nil || r.Unit != "rows/s" || r.CPU.OutboxCDC == nil {
		return ""
	}
	each := func(seconds *float64) string { return fmt.Sprintf("%.1f", valueOf(seconds)/rows*1e6) }
	return fmt.Sprintf("%s, %s, %s µs", each(r.CPU.OutboxCDC), each(r.CPU.Postgres), each(r.CPU.Kafka))
}

func peersInMarkdown(r PeerReport) string {
	s := where("make bench-peers", r.Machine, r.Versions, r.Settings) + inMarkdown(r.table()) + "\n"
	for _, relay := range r.Relays {
		if relay.Missing != "" {
			s += relay.Name + " was not measured: " + relay.Missing + ".\n\n"
		}
	}
	for _, name := range chartNames {
		s += fmt.Sprintf("![%s](images/%s)\n", chartsOf(r)[name].title, name)
	}
	return s
}

// chart is a picture of bars.
type chart struct {
	title, unit string
	names       []string
	values      []float64
}

var chartNames = []string{"peers-throughput.svg", "peers-cpu.svg", "peers-memory.svg", "peers-latency.svg"}

func chartsOf(r PeerReport) map[string]chart {
	of := func(title, unit, measure string) chart {
		c := chart{title: title, unit: unit}
		for _, relay := range r.Relays {
			if v := r.of(relay.Name, measure); v != nil {
				c.names, c.values = append(c.names, relay.Name), append(c.values, *v)
			}
		}
		return c
	}
	return map[string]chart{
		chartNames[0]: of("Rows that wait, published per second (more is better)", "rows/s", "rows_per_s"),
		chartNames[1]: of("CPU of the relay per row (less is better)", "µs", "relay_cpu_us"),
		chartNames[2]: of("Peak memory of the relay (less is better)", "MiB", "peak_mib"),
		chartNames[3]: of("Commit to readable at 1,000 rows/s, p99 (less is better)", "ms", "p99_1000_ms"),
	}
}

// svg is the picture.
func (c chart) svg() string {
	const line, left, widest, width = 30, 240, 340, 720
	var s strings.Builder
	height := 50 + line*len(c.names)
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13" role="img">`+"\n", width, height, width, height)
	fmt.Fprintf(&s, `<title>%s</title><rect width="100%%" height="100%%" fill="#fff"/><text x="12" y="24" font-weight="bold" fill="#222">%s</text>`+"\n", html.EscapeString(c.title), html.EscapeString(c.title))
	for i, name := range c.names {
		y, fill := 40+line*i, "#8a8f98"
		if strings.HasPrefix(name, "outbox-cdc") {
			fill = "#2563eb"
		}
		long := max(1, widest*c.values[i]/slices.Max(c.values))
		fmt.Fprintf(&s, `<text x="%d" y="%d" text-anchor="end" fill="#222">%s</text><rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/><text x="%.1f" y="%d" fill="#222">%s</text>`+"\n",
			left-8, y+16, html.EscapeString(name), left, y, long, line-8, fill, left+long+6, y+16, withUnit(&c.values[i], c.unit))
	}
	return s.String() + "</svg>\n"
}
