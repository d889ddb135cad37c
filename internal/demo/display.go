package demo

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"
)

// frame is the content of one drawing.
type frame struct {
	at                                 time.Time
	rows                               int // number of rows to insert; 0: no limit
	inserted, published, sent, pending int
	p50, p99                           time.Duration // since the previous frame
	retained                           int64         // bytes of WAL that the slot holds back; -1: there is no slot
}

// display shows the progress: in a terminal as a panel that is redrawn, otherwise as lines. With JSON it
// shows only the summary.
type display struct {
	o Options

	mu      sync.Mutex
	began   time.Time
	last    frame
	lines   int       // number of lines of the panel, to be overwritten
	history []float64 // p99 in milliseconds, one value per second
	settled time.Time // time of the newest value of history
	worst   time.Duration
	resting bool // nothing more is drawn
}

// start sets the beginning of the clock that lines show.
func (d *display) start(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.began, d.last = at, frame{at: at}
	d.settled = at
}

// say prints a line above the panel.
func (d *display) say(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.print(line + "\n")
}

// rest prints a line below the last frame and ends the drawing.
func (d *display) rest(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines, d.resting = 0, true
	d.print(line + "\n")
}

// event prints an event with its time.
func (d *display) event(what string) {
	d.say(fmt.Sprintf("%4ds  *** %s", int(time.Since(d.began).Seconds()), what))
}

// print writes text in place of the panel, which is drawn again below. The caller holds mu.
func (d *display) print(text string) {
	if d.o.JSON {
		return
	}
	if d.lines > 0 { // remove the panel from the terminal
		fmt.Fprintf(d.o.Out, "\x1b[%dA\x1b[J", d.lines)
		d.lines = 0
	}
	fmt.Fprint(d.o.Out, text)
}

func (d *display) draw(f frame) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.o.JSON || d.resting || d.began.IsZero() {
		return
	}
	d.worst = max(d.worst, f.p99)
	if f.at.Sub(d.settled) >= time.Second {
		d.history = append(d.history, millis(d.worst))
		d.worst, d.settled = 0, f.at
	}
	if d.o.Live {
		d.panel(f)
	} else {
		d.print(fmt.Sprintf("%4ds  inserted %9s  published %9s  SENT %9s  pending %7s  p50 %8s  p99 %8s  WAL %8s\n",
			int(math.Round(f.at.Sub(d.began).Seconds())), thousands(f.inserted), thousands(f.published), thousands(f.sent), thousands(f.pending),
			brief(f.p50), brief(f.p99), size64(f.retained)))
	}
	d.last = f
}

// panel returns a frame for terminals.
func (d *display) panel(f frame) {
	width := max(40, min(d.o.Width, 100))
	rate := func(now, before int) string {
		seconds := f.at.Sub(d.last.at).Seconds()
		if seconds <= 0 {
			return ""
		}
		return thousands(int(float64(now-before)/seconds)) + "/s"
	}
	bar := func(name string, now, before int) string {
		total := max(f.rows, f.inserted, 1)
		room := width - 44
		full := min(room, now*room/total)
		return fmt.Sprintf("  %-10s %11s  %s%s  %10s", name, thousands(now),
			strings.Repeat("█", max(0, full)), strings.Repeat("░", max(0, room-full)), rate(now, before))
	}
	rows := []string{
		"",
		bar("inserted", f.inserted, d.last.inserted),
		bar("published", f.published, d.last.published),
		bar("SENT", f.sent, d.last.sent),
		fmt.Sprintf("  %-10s %11s  latency p50 %s, p99 %s   retained WAL %s", "pending", thousands(f.pending), brief(f.p50), brief(f.p99), size64(f.retained)),
		fmt.Sprintf("  %-10s %10ds  p99 %s", "elapsed", int(f.at.Sub(d.began).Seconds()), curve(d.history, width-30)),
		"",
	}
	d.print(strings.Join(rows, "\n") + "\n")
	d.lines = len(rows)
}

// curve draws values as small bars, newest on the right.
func curve(values []float64, width int) string {
	const steps = "▁▂▃▄▅▆▇█"
	values = values[max(0, len(values)-width):]
	top := 1.0
	for _, v := range values {
		top = max(top, v)
	}
	var b strings.Builder
	for _, v := range values {
		// Logarithmic, so that an outage does not flatten the other values.
		i := int(math.Log1p(v) / math.Log1p(top) * 7)
		b.WriteRune([]rune(steps)[min(7, max(0, i))])
	}
	return b.String()
}

func (d *display) sum(s *Summary) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.o.JSON {
		_ = json.NewEncoder(d.o.Out).Encode(s) // if nobody reads, nobody is told
		return
	}
	d.lines = 0
	verdict := "every committed row arrived once and in order"
	if !s.Good() {
		verdict = "NOT GOOD: see above"
	}
	fmt.Fprintf(d.o.Out, `
  inserted      %11s   rows committed, on PostgreSQL %s
  published     %11s   records, on %s
  SENT          %11s   FAILED %s
  lost          %11s
  duplicated    %11s
  out of order  %11s   per key, against the order of commits
  latency       %11s   p50, from COMMIT to the consumer; p99 %s
  throughput    %9s/s   %.1f s from the first insert to the last row SENT

%s
`,
		thousands(s.Inserted), s.Postgres, thousands(s.Published), s.Kafka, thousands(s.Sent), thousands(s.Failed),
		thousands(s.Lost), thousands(s.Duplicates), thousands(s.OutOfOrder),
		fmt.Sprintf("%.1f ms", s.Latency.P50), fmt.Sprintf("%.1f ms", s.Latency.P99),
		thousands(int(s.RowsPerSecond)), s.Seconds, verdict)
}

// thousands formats 1234567 as 1,234,567.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// brief formats a latency with about three digits; 0 means no value.
func brief(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1fms", millis(d))
	case d < 10*time.Second:
		return fmt.Sprintf("%.0fms", millis(d))
	}
	return fmt.Sprintf("%.0fs", d.Seconds())
}

// size64 formats bytes; negative: there is no slot.
func size64(n int64) string {
	switch {
	case n < 0:
		return "no slot"
	case n < 1<<20:
		return fmt.Sprintf("%.0fKiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1fMiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1fGiB", float64(n)/(1<<30))
}

func millis(d time.Duration) float64 { return round(float64(d.Nanoseconds())/1e6, 3) }

func round(v float64, digits int) float64 {
	p := math.Pow(10, float64(digits))
	return math.Round(v*p) / p
}
