package page

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

// This file draws a bar, and the course of the last hour, as numbers for SVG.

// bar shows the WAL that a slot holds back, relative to the nearer of its bounds, on a line of 1000 units.
type bar struct {
	Used  int
	Level string
	Text  string
	End   string // when the slot reaches its bound, in words
	Soon  bool   // that is soon
}

const barWidth = 1000

// toldLoss is the longest time to a slot's bound that is shown. With little WAL held back, the amount always grows or shrinks
// a bit, which means nothing.
const toldLoss = 48 * 3600 // seconds

// barOf returns the bar for a slot; nil: there is nothing to draw.
func barOf(s *status.Slot) *bar {
	if s == nil || s.Budget == 0 && s.Safe == nil {
		return nil
	}
	limit, _ := s.Bound()
	share := min(1, float64(s.Retained)/float64(max(limit, 1)))
	b := &bar{Used: int(math.Round(share * barWidth)), Level: "good", Text: "WAL held back: " + s.WALText(), End: "At this rate no limit is reached within two days."}
	switch {
	case s.Growth == nil:
		b.End = "When a limit is reached is not known yet: that is measured for a minute."
	case s.Loss != nil && s.Loss.Seconds < toldLoss:
		b.End, b.Soon = "It is "+s.EndText()+".", s.Loss.Seconds < status.UrgentLoss
	}
	switch {
	case s.WALStatus == "lost": // the slot is lost
		b.Used, b.Level, b.End = barWidth, "bad", ""
	case share >= 0.9:
		b.Level = "bad"
	case share >= 0.5:
		b.Level = "warn"
	}
	return b
}

// chart shows the last hour of one or more values, or as much of it as is known. Its lines are in units of
// chartWidth by chartHeight. The labels of its axes are text of the page.
type chart struct {
	Title  string
	Text   string   // the whole chart in words
	Ticks  []string // at equal distances, highest first
	Times  []string // at equal distances, oldest first
	Lines  []chartLine
	Points []chartPoint
}

// chartLine is one value. Each stretch between two gaps is one polyline, or a dot.
type chartLine struct {
	Name, Class     string
	Stretches, Dots []string
}

// chartPoint is the text for one place that the reader points at.
type chartPoint struct {
	X, Width int
	Text     string
}

const (
	chartWidth, chartHeight = 360, 100
	chartStep               = 10 * time.Second // the distance of samples
	chartDot                = 3                // half of a dot's width
	chartGap                = 35 * time.Second // more than three samples apart
	chartPoints             = 60               // largest number of points
)

// chartSpans are the possible lengths of time. A chart uses the one that was asked for, or the first that is
// long enough.
var chartSpans = []time.Duration{6 * time.Minute, 20 * time.Minute, time.Hour}

// spanOf returns the span that a request asks for, or 0.
func spanOf(r *http.Request) time.Duration {
	asked, err := time.ParseDuration(r.URL.Query().Get("span"))
	if err != nil || !slices.Contains(chartSpans, asked) {
		return 0
	}
	return asked
}

// spanChoice is a link to the same page with charts of another span.
type spanChoice struct {
	Text, Query string
	Here        bool
}

func choicesOf(span time.Duration) []spanChoice {
	choices := []spanChoice{{"as long as there is", "", span == 0}}
	for _, one := range chartSpans {
		choices = append(choices, spanChoice{fmt.Sprintf("%d min", int(one.Minutes())), one.String(), span == one})
	}
	return choices
}

func lastText(span time.Duration) string {
	if span == 0 || span == time.Hour {
		return "hour"
	}
	return status.About(span)
}

// lately returns the samples within the span.
func lately(history []status.Point, span time.Duration, now time.Time) []status.Point {
	if span == 0 {
		return history
	}
	first := slices.IndexFunc(history, func(p status.Point) bool { return now.Sub(p.At) <= span })
	if first < 0 {
		return nil
	}
	return history[first:]
}

// timeline is a chart's horizontal axis, which ends now.
type timeline struct {
	now  time.Time
	span time.Duration
}

func (t timeline) x(at time.Time) int {
	return min(max(0, chartWidth-int(t.now.Sub(at)*chartWidth/t.span)), chartWidth)
}

func agoText(ago time.Duration) string {
	if ago < time.Minute {
		return status.About(ago) + " ago"
	}
	return strconv.Itoa(int(ago.Minutes())) + " min ago"
}

// series is one value over time.
type series struct {
	name, class string
	value       func(p *status.Point) (float64, bool) // false: the point has no value
}

// scale is a chart's vertical axis.
type scale struct {
	ticks []string // highest first
	y     func(float64) float64
}

// chartOf draws a chart; nil: there is too little to draw.
func chartOf(title string, history []status.Point, span time.Duration, now time.Time, axis func(least, most float64) scale, print func(float64) string, all ...series) *chart {
	least, most, n := math.Inf(1), 0.0, 0
	for _, s := range all {
		for i := range history {
			if v, ok := s.value(&history[i]); ok {
				least, most, n = min(least, v), max(most, v), n+1
			}
		}
	}
	if n < 2 {
		return nil
	}
	a, line := axis(least, most), timeline{now: now.Truncate(chartStep), span: span} // so that a page with live updates changes only with the samples
	for i := 0; span == 0 && i < len(chartSpans); i++ {
		if line.span = chartSpans[i]; line.now.Sub(history[0].At) <= line.span {
			break
		}
	}
	times := []string{agoText(line.span), agoText(line.span / 2), "now"}
	c := &chart{Title: title, Ticks: a.ticks, Times: times, Text: title + " in the last " + lastText(span) + ": at most " + print(most)}
	for _, s := range all {
		drawn := chartLine{Name: s.name, Class: s.class}
		var points []string
		var last int // x of the last point
		end := func() {
			if len(points) == 1 {
				_, y, _ := strings.Cut(points[0], ",")
				drawn.Dots, points = append(drawn.Dots, fmt.Sprintf("%d,%s", min(max(chartDot, last), chartWidth-chartDot), y)), nil
			}
			if len(points) > 0 {
				drawn.Stretches, points = append(drawn.Stretches, strings.Join(points, " ")), nil
			}
		}
		for i := range history {
			v, ok := s.value(&history[i])
			if i > 0 && history[i].At.Sub(history[i-1].At) > chartGap || !ok {
				end()
			}
			if ok {
				last = line.x(history[i].At)
				points = append(points, fmt.Sprintf("%d,%.0f", last, a.y(v)))
			}
		}
		end()
		c.Lines = append(c.Lines, drawn)
	}
	c.Points = pointsOf(history, line, print, all)
	return c
}

// pointsOf returns a text for each stretch of time that has samples. It tells the highest value in the
// stretch.
func pointsOf(history []status.Point, line timeline, print func(float64) string, all []series) []chartPoint {
	var list []chartPoint
	width := int(max(line.span/chartPoints, chartStep) * chartWidth / line.span)
	placeOf := func(p *status.Point) int { return min(line.x(p.At)/width, (chartWidth-1)/width) }
	for i := 0; i < len(history); {
		place := placeOf(&history[i])
		most, known := make([]float64, len(all)), make([]bool, len(all))
		for ; i < len(history) && placeOf(&history[i]) == place; i++ {
			for k, s := range all {
				if v, ok := s.value(&history[i]); ok {
					most[k], known[k] = max(most[k], v), true
				}
			}
		}
		var said []string
		for k, s := range all {
			if known[k] {
				said = append(said, strings.TrimSpace(s.name+" "+print(most[k])))
			}
		}
		if len(said) > 0 {
			ago := max(0, line.now.Sub(history[i-1].At))
			list = append(list, chartPoint{place * width, width, agoText(ago) + ": " + strings.Join(said, ", ")})
		}
	}
	return list
}

// linear returns an axis from 0 to a number that round rounds up to.
func linear(round func(float64) float64, print func(float64) string) func(least, most float64) scale {
	return func(_, most float64) scale {
		top := round(most)
		return scale{[]string{print(top), print(top / 2), print(0)}, func(v float64) float64 { return chartHeight * (1 - v/top) }}
	}
}

// decades returns an axis of powers of ten, with at least one of them.
func decades(print func(float64) string) func(least, most float64) scale {
	return func(least, most float64) scale {
		low, high := math.Floor(math.Log10(max(least, 1e-9))), math.Ceil(math.Log10(max(most, 1e-9)))
		high = max(high, low+1)
		var ticks []string
		for power := high; power >= low; power-- {
			ticks = append(ticks, print(math.Pow(10, power)))
		}
		return scale{ticks, func(v float64) float64 { return chartHeight * (high - math.Log10(max(v, 1e-9))) / (high - low) }}
	}
}

// roundCount returns 2, 10, 20, 100 and so on. Half of such a number is round too.
func roundCount(most float64) float64 {
	for top := 2.0; ; top *= 10 {
		switch {
		case most <= top:
			return top
		case most <= 5*top:
			return 5 * top
		}
	}
}

// roundBytes returns a power of two, at least 1024.
func roundBytes(most float64) float64 {
	return math.Exp2(math.Ceil(math.Log2(max(most, 1024))))
}

// chartsOf returns the charts of one stream that have something to draw.
func chartsOf(history []status.Point, span time.Duration, now time.Time) []*chart {
	history = lately(history, span, now)
	return drawn(append(rowCharts("Rows published", "Time from created_at to Kafka", history, span, now),
		chartOf("WAL held back by the slot", history, span, now, linear(roundBytes, bytesText), bytesText,
			series{"", "a", func(p *status.Point) (float64, bool) { return float64(p.Retained), true }})))
}

// chartsOfTopic returns the charts of one topic. Its samples end with the stream's history.
func chartsOfTopic(t *status.Topic, history []status.Point, span time.Duration, now time.Time) []*chart {
	n := min(len(t.History), len(history))
	own := slices.Clone(history[len(history)-n:])
	for i, sample := range t.History[len(t.History)-n:] {
		own[i].PerSecond, own[i].P50, own[i].P99 = float64(sample.PerSecond), float64(sample.P50), float64(sample.P99)
	}
	return drawn(rowCharts("Rows published to "+t.Topic, "Time from created_at to "+t.Topic, lately(own, span, now), span, now))
}

// rowCharts draws how many rows were published, and how long they took.
func rowCharts(rows, times string, history []status.Point, span time.Duration, now time.Time) []*chart {
	return []*chart{
		chartOf(rows, history, span, now, linear(roundCount, rateText), rateText,
			series{"", "a", func(p *status.Point) (float64, bool) { return p.PerSecond, true }}),
		chartOf(times, history, span, now, decades(powerText), durationText,
			series{"p50", "a", func(p *status.Point) (float64, bool) { return p.P50, p.P50 > 0 }},
			series{"p99", "b", func(p *status.Point) (float64, bool) { return p.P99, p.P99 > 0 }}),
	}
}

// drawn returns the charts that have something to draw.
func drawn(charts []*chart) []*chart {
	return slices.DeleteFunc(charts, func(c *chart) bool { return c == nil })
}

func bytesText(f float64) string { return status.Bytes(uint64(max(0, f))) }

// durationText formats seconds with about two digits.
func durationText(seconds float64) string {
	switch {
	case seconds >= 60:
		return status.About(time.Duration(seconds * float64(time.Second)))
	case seconds >= 1:
		return digits(seconds) + " s"
	case seconds >= 1e-3:
		return digits(seconds*1e3) + " ms"
	}
	return digits(seconds*1e6) + " µs"
}

// powerText formats a power of ten of seconds.
func powerText(seconds float64) string {
	if seconds >= 60 {
		return digits(seconds) + " s"
	}
	return durationText(seconds)
}

func digits(f float64) string {
	if f < 9.95 {
		return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0")
	}
	return strconv.FormatFloat(f, 'f', 0, 64)
}
