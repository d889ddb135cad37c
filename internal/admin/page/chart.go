package page

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

// This file draws: a bar and a sparkline, as numbers for SVG.

// bar is the WAL that a slot holds back, against its bounds, on a line of 1000.
type bar struct {
	Used, Budget, Limit int // Limit 0: the server has none
	Level               string
	Text                string
	End                 string // when it is at an end
	Soon                bool   // that is near
}

const barWidth = 1000

// barOf draws the WAL of a slot; nil: there is nothing to draw.
func barOf(s *status.Slot) *bar {
	if s == nil || s.Budget == 0 && s.Safe == nil {
		return nil
	}
	limit := uint64(0)
	if s.Safe != nil {
		limit = s.Retained + uint64(max(0, *s.Safe))
	}
	scale := float64(max(s.Retained, s.Budget, limit, 1))
	at := func(n uint64) int { return int(math.Round(float64(n) / scale * barWidth)) }
	b := &bar{Used: at(s.Retained), Budget: at(s.Budget), Limit: at(limit), Level: "good", Text: barText(s), End: "No end of it is in sight."}
	if s.Loss != nil {
		b.End, b.Soon = "It is "+s.Loss.Text()+".", s.Loss.Seconds < urgentLoss
	}
	first := s.Budget
	if limit > 0 && (first == 0 || limit < first) {
		first = limit
	}
	switch share := float64(s.Retained) / float64(max(first, 1)); {
	case share >= 0.9:
		b.Level = "bad"
	case share >= 0.5:
		b.Level = "warn"
	}
	return b
}

func barText(s *status.Slot) string {
	text := status.Bytes(s.Retained) + " of WAL held back"
	if s.Budget > 0 {
		text += ", budget " + status.Bytes(s.Budget)
	}
	if s.Safe == nil {
		return text + ", the server sets no limit"
	}
	return text + ", the server allows " + status.Bytes(uint64(max(0, *s.Safe))) + " more"
}

// spark is a line of the last hour.
type spark struct {
	Lines []string // points of polylines: one for each stretch without a gap
	Text  string
	Top   string // the most, with its unit
}

const (
	sparkWidth, sparkHeight = 360, 40
	sparkSpan               = time.Hour
	sparkGap                = 35 * time.Second // longer than three samples apart
)

// sparkOf draws one value of the history.
func sparkOf(history []status.Point, now time.Time, name string, value func(status.Point) float64, print func(float64) string) *spark {
	var top, last float64
	for _, p := range history {
		top, last = max(top, value(p)), value(p)
	}
	if len(history) < 2 {
		return nil
	}
	s := &spark{Top: print(top), Text: fmt.Sprintf("%s in the last hour: at most %s, now %s", name, print(top), print(last))}
	var line []string
	before := time.Time{}
	for _, p := range history {
		if !before.IsZero() && p.At.Sub(before) > sparkGap {
			s.Lines, line = append(s.Lines, strings.Join(line, " ")), nil
		}
		before = p.At
		x := sparkWidth * (1 - now.Sub(p.At).Seconds()/sparkSpan.Seconds())
		y := sparkHeight - 2 - value(p)/max(top, 1e-9)*(sparkHeight-4)
		line = append(line, fmt.Sprintf("%.1f,%.1f", max(0, x), y))
	}
	s.Lines = append(s.Lines, strings.Join(line, " "))
	return s
}
