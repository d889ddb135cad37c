package page

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

// attention is a finding of a stream, with a link to more.
type attention struct {
	status.Finding
	Stream string `json:"stream"`
	// Link is where to look, or empty.
	Link, LinkText string `json:"-"`
}

func byLevel(a, b attention) int { return status.Worse(a.Level, b.Level) }

// needsOf returns what a stream needs, most urgent first. It is a pure function.
func needsOf(s *status.Stream) []attention {
	var list []attention
	for _, f := range s.Findings {
		a := attention{Finding: f, Stream: s.Name}
		switch {
		case f.Parked:
			a.Link, a.LinkText = streamPath(s.Name)+"#parks", "What is parked"
		case f.Failed:
			a.Link, a.LinkText = "/failed?"+url.Values{"stream": {s.Name}}.Encode(), "Look at them"
		}
		list = append(list, a)
	}
	return list
}

func rowsText(n int64, more bool) string {
	if n == 1 && !more {
		return "1 row is"
	}
	return cappedText(&n, more) + " rows are"
}

func streamPath(name string) string { return "/streams/" + url.PathEscape(name) }

func failedPath(stream, table string) string {
	return "/failed?" + url.Values{"stream": {stream}, "table": {table}}.Encode()
}

// thousands formats a count with separators.
func thousands[N int | int64 | uint64](n N) string {
	digits := fmt.Sprint(n)
	var out strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 && digits[i-1] != '-' {
			out.WriteByte(',')
		}
		out.WriteRune(d)
	}
	return out.String()
}
