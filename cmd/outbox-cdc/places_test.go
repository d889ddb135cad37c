package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/internal/admin"
	"github.com/outbox-cdc/outbox-cdc/internal/admin/page"
	"github.com/outbox-cdc/outbox-cdc/internal/metrics"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
)

// places are where people and programs read the state of a stream.
type places struct {
	stream *status.Stream
	server http.Handler
}

func newPlaces(t *testing.T) *places {
	t.Helper()
	p := &places{}
	report := func() status.Stream { return *p.stream }
	registry := metrics.New("1", "a")
	m := registry.Stream("orders", nil, 1)
	m.Findings(report)
	shown, err := page.New(page.Config{
		Now: func() time.Time { return fixture.Noon }, Log: zerolog.Nop(),
		Streams: []page.Stream{{Name: "orders", Report: report, Activity: func() status.Activity { return status.Activity{} }}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(shown.Close)
	p.server, err = admin.Handler(admin.Config{
		Listen: "127.0.0.1:1", Metrics: registry.Handler(), Page: shown, Log: zerolog.Nop(),
		Streams: []admin.Stream{{Name: "orders", Report: report, Status: func() metrics.Status { return metrics.Status{} }}},
	}, func() time.Time { return fixture.Noon })
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *places) get(path string) (int, string) {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = "127.0.0.1"
	w := httptest.NewRecorder()
	p.server.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// Each trouble, alone and together with each other one, is shown everywhere: in the headline, the card and
// the box of both pages, by the status command, as JSON, by /readyz and in the metrics. (Package status tests
// that its alert exists.)
func TestEveryPlaceTellsEveryTrouble(t *testing.T) {
	p := newPlaces(t)
	for x := range fixture.Situations {
		p.stream = &x.Stream
		for place, text := range p.told(t, x) {
			for _, one := range x.Troubles {
				found := findingOf(&x.Stream, &one, place == "status")
				if one.Level != status.Note && !strings.Contains(strings.Join(strings.Fields(text), " "), strings.Join(strings.Fields(found), " ")) {
					t.Fatalf("%s: %s does not tell %q: %s", x.Name, place, found, text)
				}
			}
			if !strings.Contains(text, x.Stream.ModeText) {
				t.Fatalf("%s: %s has another headline than %q: %s", x.Name, place, x.Stream.ModeText, text)
			}
		}
		p.levels(t, x)
	}
}

// told returns what each place shows, as plain text.
func (p *places) told(t *testing.T, x *fixture.Situation) map[string]string {
	t.Helper()
	told := map[string]string{}
	for _, path := range []string{"/", "/streams/orders"} {
		_, body := p.get(path)
		told[path] = html.UnescapeString(body)
	}
	_, body := p.get("/api/v1/status")
	var report status.Report
	if err := json.Unmarshal([]byte(body), &report); err != nil || len(report.Streams) != 1 {
		t.Fatalf("%s: %v: %s", x.Name, err, body)
	}
	told["JSON"] = report.Streams[0].ModeText
	for _, f := range report.Streams[0].Findings {
		told["JSON"] += "\n" + f.Text
	}
	var out bytes.Buffer
	if err := printStatus(&out, &report); err != nil {
		t.Fatal(err)
	}
	told["status"] = out.String()
	for _, f := range x.Stream.Findings {
		if f.Parked && regexp.MustCompile(`(?m)^  (trouble|look at) +`+regexp.QuoteMeta(f.Text)).MatchString(out.String()) {
			t.Fatalf("%s: status says twice what is parked: %s", x.Name, out.String())
		}
	}
	return told
}

// levels checks that color, box, readiness and metrics follow the worst finding.
func (p *places) levels(t *testing.T, x *fixture.Situation) {
	t.Helper()
	worst := x.Worst()
	box := map[string]string{status.Note: status.Good}[worst] // a note is nothing to do
	if box == "" {
		box = worst
	}
	for _, path := range []string{"/", "/streams/orders"} {
		_, body := p.get(path)
		if !strings.Contains(body, `class="mode `+worst+`"`) || !strings.Contains(body, `id="attention" class="attention `+box+`"`) || strings.Contains(body, "more</") {
			t.Fatalf("%s: %s is not %s: %s", x.Name, path, worst, body)
		}
	}
	want := map[bool]int{true: http.StatusServiceUnavailable, false: http.StatusOK}[x.Unready()]
	if code, body := p.get("/readyz"); code != want {
		t.Fatalf("%s: /readyz answers %d, want %d: %s", x.Name, code, want, body)
	}
	counts := map[string]int{}
	for _, f := range x.Stream.Findings {
		counts[f.Level]++
	}
	for _, level := range []string{status.Bad, status.Warn, status.Note} {
		line := fmt.Sprintf(`outbox_cdc_findings{level=%q,stream="orders"} %d`, level, counts[level])
		if _, body := p.get("/metrics"); !strings.Contains(body, line) {
			t.Fatalf("%s: the metrics have no %s", x.Name, line)
		}
	}
}

// findingOf returns the text of the finding about a trouble. The status command lists parks instead.
func findingOf(s *status.Stream, one *fixture.Trouble, listed bool) string {
	for _, f := range s.Findings {
		if f.Alert != one.Alert || f.Level != one.Level {
			continue
		}
		for _, g := range s.Parks.Top {
			if listed && f.Parked && f.Text == g.Text() {
				return g.Scopes() + " (" + g.Cause + "): " + g.Reason + ", since"
			}
		}
		return f.Text
	}
	return "a finding of " + one.Name
}
