package page

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/slots"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/outbox-cdc/outbox-cdc/internal/localpg.(*process).wait"))
}

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

const hostile = `<script>alert(1)</script>"'><img src=x onerror=alert(2)>`

func ptr[T any](v T) *T { return &v }

// busy is a stream with something in every field.
func busy() (status.Stream, status.Activity) {
	st := status.Stream{
		Name: "orders", Source: status.FromProcess, Mode: status.ModeHold, Reason: hostile,
		Leader:   &status.Leader{Name: hostile, Address: "10.0.0.1", Epoch: 3, Since: "2030-01-01T11:00:00Z", Here: true},
		Standbys: []status.Standby{{Name: hostile, Address: "10.0.0.2", Since: "2030-01-01T11:30:00Z"}},
		Slot: &status.Slot{
			Name: "outbox_cdc_orders", Exists: true, WALStatus: "reserved", Retained: 6 << 30, Budget: 8 << 30, Safe: ptr(int64(10 << 30)), Lag: 5 << 20,
			LagSeconds: ptr(61.0), Growth: ptr(1e6), GrowthOver: 300, Loss: &status.Loss{Seconds: 2000, By: status.LossByBudget},
		},
		Tables:   []status.Table{{Name: "public.outbox", Pending: ptr(int64(1234)), Oldest: 90, Failed: ptr(int64(3))}},
		Parks:    status.Parks{Total: 201, Top: []status.ParkGroup{{Kind: "topic", Cause: "topic", Reason: hostile, Count: 1, Example: "topic " + hostile}}},
		Kafka:    []status.Cluster{{Name: "main", Error: hostile}, {Name: "other", Usable: true, Fencing: status.FencingRefused}},
		Flow:     &status.Flow{Published: 1234567, InFlight: 4321},
		Delivery: "exactly_once",
		Tallies: []status.Tally{{
			Cluster: "main", Open: true, Waiting: ptr(uint64(7)), Left: 2,
			Transactions: &status.Transactions{Committed: 99, Aborted: 1, LastAbort: &status.Abort{At: noon, Cause: "stuck", Text: hostile}},
		}},
	}
	a := status.Activity{
		Parks:     []status.Park{{Kind: "topic", Scope: hostile, Cause: "topic", Reason: hostile, Since: noon, Next: noon.Add(time.Minute)}},
		Errors:    []status.ErrorGroup{{About: hostile, Text: hostile, Count: 7, First: noon, Last: noon, Example: hostile}},
		Events:    []status.Event{{At: noon, Kind: "kafka", Text: hostile}},
		Topics:    []status.Topic{{Cluster: "main", Topic: hostile, Published: 5}},
		Rates:     status.Rates{WAL: 1e6, Published: 1000, Sent: 999.6},
		Positions: &status.Positions{Server: "0/3", Confirmed: "0/2", Restart: "0/1"},
	}
	for i := range 100 {
		at := noon.Add(-time.Hour + time.Duration(i)*10*time.Second)
		if i > 50 {
			at = at.Add(10 * time.Minute)
		}
		a.History = append(a.History, status.Point{At: at, PerSecond: float64(i), Lag: uint64(i)})
	}
	status.Judge(&st)
	return st, a
}

func config() Config {
	st, a := busy()
	return Config{
		Version: "1.2.3", Now: func() time.Time { return noon }, Log: zerolog.Nop(),
		Streams: []Stream{{
			Name: "orders", Report: func() status.Stream { return st }, Activity: func() status.Activity { return a },
			Database: "cdc@db:5432/orders", Configuration: "name: orders\n# " + hostile,
		}},
	}
}

func page(t *testing.T, cfg Config) *Page {
	t.Helper()
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func get(p http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

// harmless fails where what came from outside is anything but text.
func harmless(t *testing.T, what, body string) {
	t.Helper()
	for _, bad := range []string{"<script>alert", "<img src=x", `"'><`} {
		if strings.Contains(body, bad) {
			t.Errorf("%s: %s stands in the page", what, bad)
		}
	}
}

func TestStreamsAreShown(t *testing.T) {
	p := page(t, config())
	for path, want := range map[string][]string{
		"/": {
			"Delivered exactly once", "Tally of cluster main: open, as always", "7 units of published rows", "99 transactions committed, 1 aborted, the last at 2030",
			"Action needed", "Kafka cluster main cannot be used", "Nothing is lost", "WAL held back: 6 GiB of 8 GiB (wal_budget)", "10 GiB more",
			"at the WAL budget in about 33 min", "4,321", "1,000 rows/s", "1,234 pending", "<polyline", `aria-label="Rows published in the last hour: at most 99 rows/s"`,
		},
		"/streams/orders": {"What happened", "other refuses to fence former leaders", "0/3", ", from 10.0.0.2, since", "cdc@db:5432/orders", "name: orders", "and 200 more", `<time datetime="2030-01-01T12:00:00Z"`, "Times"},
	} {
		w := get(p, path)
		body := w.Body.String()
		if w.Code != 200 || !strings.Contains(w.Header().Get("Content-Security-Policy"), "default-src 'none'") {
			t.Error(path, w.Code, w.Header())
		}
		for _, s := range want {
			if !strings.Contains(body, s) {
				t.Errorf("%s: no %q in\n%s", path, s, body)
			}
		}
		harmless(t, path, body)
		if !strings.Contains(body, "&lt;script&gt;alert(1)") {
			t.Errorf("%s: what came from outside is not shown", path)
		}
	}
	for _, path := range []string{"/streams/none", "/none", "/static/", "/static/../page.go", "/failed/act"} {
		if w := get(p, path); w.Code != 404 && w.Code != 307 && w.Code != 301 {
			t.Error(path, w.Code)
		}
	}
	for _, path := range []string{"/static/page.css", "/static/page.js", "/static/icon.svg", "/api/v1/openapi.yaml"} {
		if w := get(p, path); w.Code != 200 || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Error(path, w.Code)
		}
	}
}

// Another site's page cannot make us ask the database; a link from one works.
func TestEmbeddedInAnotherSite(t *testing.T) {
	p := page(t, config())
	for headers, want := range map[string]int{
		"": 200, "none navigate document ?1": 200, "same-origin cors empty": 200, "cross-site navigate document ?1": 200,
		"cross-site no-cors image": 403, "cross-site navigate iframe ?1": 403, "cross-site navigate document": 403, "same-site cors empty": 403,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		for i, value := range strings.Fields(headers) {
			r.Header.Set([]string{"Sec-Fetch-Site", "Sec-Fetch-Mode", "Sec-Fetch-Dest", "Sec-Fetch-User"}[i], value)
		}
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%q: %d, want %d", headers, w.Code, want)
		}
	}
}

// What is paused is not tried again by itself; a reason does not name its table a second time.
func TestParksAreShown(t *testing.T) {
	cfg := config()
	cfg.Streams[0].Activity = func() status.Activity {
		return status.Activity{Parks: []status.Park{
			{Kind: "stream", Scope: "stream", Cause: "paused", Reason: "paused by ann"},
			{Kind: "table", Scope: "table a.b", Cause: "mapping", Reason: "table a.b: column gone"},
		}}
	}
	body := get(page(t, cfg), "/streams/orders").Body.String()
	for _, want := range []string{">when resumed<", ">now<", ">column gone <"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in\n%s", want, body)
		}
	}
}

func TestWhatIsNotKnownYet(t *testing.T) {
	cfg := config()
	cfg.Streams[0].Report = func() status.Stream {
		st := status.Stream{Name: "orders", Mode: status.ModeStandby, Leader: &status.Leader{Name: "outbox-cdc/orders@a"}, Tables: []status.Table{{Name: "public.outbox"}}}
		status.Judge(&st)
		return st
	}
	cfg.Streams[0].Activity = func() status.Activity { return status.Activity{} }
	p := page(t, cfg)
	for path, want := range map[string][]string{
		"/":               {"Nothing to do here", "This process is on standby. What the stream does is known to its leader", "standby: another process leads: outbox-cdc/orders@a", "the leader knows"},
		"/streams/orders": {"What is parked is not known here", "No errors since", "This process publishes nothing: its leader does", "Nothing yet."},
	} {
		for _, s := range want {
			if body := get(p, path).Body.String(); !strings.Contains(body, s) || strings.Contains(body, "Everything works") || strings.Contains(body, "0 parked") {
				t.Errorf("%s: no %q, or what is not known, in\n%s", path, s, body)
			}
		}
	}
}

func TestBar(t *testing.T) {
	for name, c := range map[string]struct {
		slot  *status.Slot
		used  int
		level string
	}{
		"budget only":    {&status.Slot{Retained: 1, Budget: 10}, 100, "good"},
		"over":           {&status.Slot{Retained: 20, Budget: 10}, 1000, "bad"},
		"server first":   {&status.Slot{Retained: 5, Budget: 10, Safe: ptr(int64(1))}, 833, "warn"},
		"server later":   {&status.Slot{Retained: 4, Budget: 10, Safe: ptr(int64(16))}, 400, "good"},
		"lost":           {&status.Slot{Budget: 10, WALStatus: "lost"}, 1000, "bad"},
		"safe is passed": {&status.Slot{Retained: 5, Budget: 10, Safe: ptr(int64(-3))}, 1000, "bad"},
	} {
		b := barOf(c.slot)
		if b == nil || b.Used != c.used || b.Level != c.level || name == "lost" && b.End != "" {
			t.Errorf("%s: %+v", name, b)
		}
	}
	for seconds, want := range map[float64]string{toldLoss - 1: "It is at the WAL budget in about 48.0 h", toldLoss: "At this rate no limit is reached"} {
		if b := barOf(&status.Slot{Retained: 1, Budget: 10, Growth: ptr(1.0), Loss: &status.Loss{Seconds: seconds, By: status.LossByBudget}}); !strings.HasPrefix(b.End, want) {
			t.Errorf("%v s: %s", seconds, b.End)
		}
	}
	if b := barOf(&status.Slot{Retained: 1, Budget: 10}); !strings.Contains(b.End, "not known yet") {
		t.Errorf("nothing was measured: %s", b.End)
	}
	if barOf(nil) != nil || barOf(&status.Slot{}) != nil {
		t.Error("a bar of nothing")
	}
}

func TestCharts(t *testing.T) {
	_, a := busy()
	for i := range a.History {
		a.History[i].Retained = uint64(i) << 20
		if i >= 40 && i < 60 {
			a.History[i].P50, a.History[i].P99 = 0.002, 2.5
		}
	}
	charts := chartsOf(a.History, 0, noon)
	if len(charts) != 3 {
		t.Fatalf("%d charts", len(charts))
	}
	rate, latency, wal := charts[0], charts[1], charts[2]
	if got := rate.Lines[0].Stretches; len(got) != 2 || !strings.HasPrefix(got[0], "0,100 1,99 2,98 ") {
		t.Errorf("a gap of ten minutes: %q", got)
	}
	for name, c := range map[string]struct{ got, want any }{
		"rows":            {rate.Ticks, []string{"100 rows/s", "50 rows/s", "0 rows/s"}},
		"an hour":         {rate.Times, []string{"60 min ago", "30 min ago", "now"}},
		"six minutes":     {chartsOf(a.History[98:], 0, a.History[99].At)[0].Times, []string{"6 min ago", "3 min ago", "now"}},
		"time":            {latency.Ticks, []string{"10 s", "1 s", "100 ms", "10 ms", "1 ms"}},
		"bytes":           {wal.Ticks, []string{"128 MiB", "64 MiB", "0 B"}},
		"in words":        {wal.Text, "WAL held back by the slot in the last hour: at most 99 MiB"},
		"the first":       {rate.Points[0], chartPoint{0, 6, "59 min ago: 5.0 rows/s"}},
		"each of several": {latency.Points[0].Text, "53 min ago: p50 2 ms, p99 2.5 s"},
		"the last":        {rate.Points[len(rate.Points)-1].Text, "33 min ago: 99 rows/s"},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: %q, want %q", name, c.got, c.want)
		}
	}
	// A sample after the axis's end, which moves by steps, stays on it; a single one is a dot.
	late := []status.Point{{At: noon.Add(-2 * time.Minute), PerSecond: 1}, {At: noon.Add(9 * time.Second), PerSecond: 1}}
	if c := chartsOf(late, 0, noon.Add(9*time.Second))[0]; !reflect.DeepEqual(c.Lines[0].Dots, []string{"240,50", "357,50"}) || len(c.Lines[0].Stretches) > 0 || c.Points[1].X+c.Points[1].Width > chartWidth {
		t.Errorf("beyond the axis: %+v, %+v", c.Lines, c.Points)
	}
	// Less than there is, as asked for: what is older is left out of the scale, too.
	short := chartsOf(a.History, 20*time.Minute, a.History[99].At)[0]
	if !reflect.DeepEqual(short.Times, []string{"20 min ago", "10 min ago", "now"}) || !strings.HasPrefix(short.Lines[0].Stretches[0], "0,") || short.Text != "Rows published in the last 20 min: at most 99 rows/s" {
		t.Errorf("twenty minutes: %+v", short)
	}
	if len(chartsOf(nil, 0, noon)) > 0 || len(chartsOf(a.History[:1], 0, noon)) > 0 {
		t.Error("a line of nothing")
	}
}

func TestChartsOfATopic(t *testing.T) {
	_, a := busy()
	samples := []status.TopicPoint{{PerSecond: 1}, {PerSecond: 2, P50: 0.25, P99: 0.5}, {PerSecond: 3, P50: 0.25, P99: 2}}
	charts := chartsOfTopic(&status.Topic{Topic: "t", History: samples}, a.History, 0, noon)
	if len(charts) != 2 {
		t.Fatalf("%d charts", len(charts))
	}
	place := 360 - int(noon.Sub(a.History[len(a.History)-1].At)/chartStep)
	for i, want := range []struct {
		at   int
		text string
	}{{place - 2, "Rows published to t in the last hour: at most 3.0 rows/s"}, {place - 1, "Time from created_at to t in the last hour: at most 2 s"}} {
		if c := charts[i]; !strings.HasPrefix(c.Lines[0].Stretches[0], fmt.Sprintf("%d,", want.at)) || c.Text != want.text {
			t.Errorf("%+v", c)
		}
	}
	if charts := chartsOfTopic(&status.Topic{Topic: "t"}, a.History, 0, noon); len(charts) > 0 {
		t.Errorf("%+v", charts)
	}
}

func TestTicksAreRound(t *testing.T) {
	for most, want := range map[float64]float64{0: 2, 1.5: 2, 3: 10, 11: 20, 60: 100, 100: 100, 101: 200, 333_000: 1_000_000} {
		if got := roundCount(most); got != want {
			t.Errorf("%v: %v, want %v", most, got, want)
		}
	}
	for seconds, want := range map[float64]string{3e-6: "3 µs", 0.00095: "950 µs", 0.0042: "4.2 ms", 0.0996: "100 ms", 1: "1 s", 59: "59 s", 90: "1 min", 7200: "2.0 h"} {
		if got := durationText(seconds); got != want {
			t.Errorf("%v: %q, want %q", seconds, got, want)
		}
	}
}

// Live updates come at once, and when something changed; Close ends them.
func TestLive(t *testing.T) {
	cfg := config()
	p := page(t, cfg)
	p.every = time.Millisecond
	server := httptest.NewServer(p)
	defer server.Close()
	res, err := http.Get(server.URL + "/live?stream=orders") //nolint:noctx // a test's
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	begin := make([]byte, 6)
	if _, err := io.ReadFull(res.Body, begin); err != nil || string(begin) != "data: " || res.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%q %v", begin, err)
	}
	p.Close()
	rest, err := io.ReadAll(res.Body)
	if err != nil || !strings.Contains(string(rest), `id="lane-orders"`) {
		t.Errorf("%v: %.200s", err, rest)
	}
	for line := range strings.Lines(string(begin) + string(rest)) {
		if line != "\n" && !strings.HasPrefix(line, "data: ") && !strings.HasPrefix(line, ":") {
			t.Fatalf("a line of an event: %q", line)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestTooManyWatch(t *testing.T) {
	p := page(t, config())
	for range maxWatching {
		p.watching <- struct{}{}
	}
	if w := get(p, "/live"); w.Code != http.StatusServiceUnavailable {
		t.Error(w.Code)
	}
	if w := get(p, "/live?stream=none"); w.Code != http.StatusNotFound {
		t.Error(w.Code)
	}
}

func TestForms(t *testing.T) {
	f, other := newForms(), newForms()
	good := f.token("ops", noon)
	for name, err := range map[string]error{
		"ours":            f.ours(good, "ops", noon.Add(formLife)),
		"too old":         f.ours(good, "ops", noon.Add(formLife+time.Second)),
		"another user":    f.ours(good, "eve", noon),
		"another process": other.ours(good, "ops", noon),
		"none":            f.ours("", "ops", noon),
		"nonsense":        f.ours("AAAA", "ops", noon),
		"a later stamp":   f.ours("B"+good[1:], "ops", noon),
	} {
		if (err == nil) != (name == "ours") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSameOrigin(t *testing.T) {
	for name, c := range map[string]struct {
		site, origin string
		ours         bool
	}{
		"a browser":        {"same-origin", "https://cdc.example:9187", true},
		"behind a proxy":   {"same-origin", "https://other.example", true},
		"an older browser": {"", "http://example.com", true},
		"another site":     {"cross-site", "http://example.com", false},
		"a sister site":    {"same-site", "http://example.com", false},
		"another origin":   {"", "http://evil.example", false},
		"another port":     {"", "http://example.com:81", false},
		"no origin":        {"", "", false},
		"a sandbox":        {"", "null", false},
	} {
		r := httptest.NewRequest(http.MethodPost, "http://example.com/failed/act", nil)
		if c.site != "" {
			r.Header.Set("Sec-Fetch-Site", c.site)
		}
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		if err := sameOrigin(r); (err == nil) != c.ours {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPayloadForms(t *testing.T) {
	for _, c := range []struct{ payload, as, want, text string }{
		{`{"b":1,"a":12345678901234567890}`, "", "json", "{\n  \"b\": 1,\n  \"a\": 12345678901234567890\n}"},
		{`{"b":1}`, "text", "text", `{"b":1}`},
		{`plain`, "", "text", `plain`},
		{`plain`, "json", "text", `plain`},
		{"\xff\x00", "text", "hex", "00000000  ff 00                                             |..|\n"},
		{`a`, "hex", "hex", "00000000  61                                                |a|\n"},
	} {
		if as, text := printed([]byte(c.payload), c.as); as != c.want || text != c.text {
			t.Errorf("%q as %q: %q %q", c.payload, c.as, as, text)
		}
	}
}

func TestNumbers(t *testing.T) {
	if thousands(1234567) != "1,234,567" || thousands(-123) != "-123" || thousands(-1234) != "-1,234" || thousands(999) != "999" || rateText(0.26) != "0.3 rows/s" || rateText(0) != "0 rows/s" {
		t.Error(thousands(1234567), thousands(-1234), rateText(0.26))
	}
	if got := string(moment("<b>")); got != "&lt;b&gt;" {
		t.Error(got)
	}
	if got := string(breakable("public.outbox_events-<b>")); got != "public.<wbr>outbox_<wbr>events-<wbr>&lt;b&gt;" { // not in a word
		t.Error(got)
	}
}

func slotsOf(list []Server, err error) func(context.Context) ([]Server, error) {
	return func(context.Context) ([]Server, error) { return list, err }
}

func TestSlots(t *testing.T) {
	cfg := config()
	list := []Server{{Server: "db:5432", Slots: []slots.Slot{
		{Name: "outbox_cdc_old", Type: "logical", Whose: slots.Orphan, Retained: 5 << 30, Frees: 4 << 30, Dropping: "no stream uses it", WALStatus: "reserved", InactiveSince: "2030-01-01T11:00:00Z"},
		{Name: "other", Type: "logical", Whose: slots.Other, Client: &slots.Client{Application: hostile, PID: 7}, Safe: ptr(int64(1 << 30))},
	}}, {Server: "empty:5432"}, {Server: "gone:5432", Error: hostile}}
	cfg.Slots = slotsOf(list, nil)
	w := get(page(t, cfg), "/slots")
	body := w.Body.String()
	for _, want := range []string{"outbox-cdc slots drop outbox_cdc_old", "4 GiB", "no limit", "1 GiB", "outbox-cdc init", "&lt;script&gt;"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in\n%s", want, body)
		}
	}
	harmless(t, "slots", body)
	cfg.Slots = slotsOf(nil, io.ErrUnexpectedEOF)
	p := page(t, cfg)
	if w := get(p, "/slots"); w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), "unexpected EOF") {
		t.Error(w.Code, w.Body)
	}
	var e problem
	if w := get(p, "/api/v1/slots"); w.Code != http.StatusBadGateway || json.Unmarshal(w.Body.Bytes(), &e) != nil || e.Error == "" {
		t.Error(w.Code, w.Body)
	}
	for range maxAsking {
		p.asking <- struct{}{}
	}
	if w := get(p, "/slots"); w.Code != http.StatusServiceUnavailable {
		t.Error(w.Code)
	}
}

func TestFilterGoesThroughTheAddress(t *testing.T) {
	q := url.Values{"stream": {"a&b"}, "table": {"public.x"}, "error": {"^a\\+b$"}, "since": {"2h"}}
	f := filterOf(q)
	if f.query().Encode() != q.Encode() || !f.Narrowed() {
		t.Error(f)
	}
	if _, err := rowID(`["1"]`, &outbox.Table{Mapping: outbox.Mapping{ID: []string{"a", "b"}}}); err == nil {
		t.Error("half an id")
	}
}

// Charts show as much time as is asked for, and live updates do the same.
func TestTimeOfCharts(t *testing.T) {
	cfg := config()
	p := page(t, cfg)
	for path, wants := range map[string][]string{
		"/?span=6m":                {`data-live="/live?span=6m0s"`, `<a href="?span=6m0s" aria-current="true">6 min</a>`, "longer: your Prometheus"},
		"/streams/orders?span=20m": {`data-live="/live?span=20m0s&amp;stream=orders"`, `<a href="?span=1h0m0s">60 min</a>`},
		"/?span=7m":                {`data-live="/live"`, `<a href="?span=" aria-current="true">as long as there is</a>`},
	} {
		body := get(p, path).Body.String()
		for _, want := range wants {
			if !strings.Contains(body, want) {
				t.Errorf("%s: no %s in %s", path, want, body)
			}
		}
	}
	cfg.Dashboard = "https://grafana.example/d/x?a=1&b=2"
	if body := get(page(t, cfg), "/").Body.String(); !strings.Contains(body, `<a href="https://grafana.example/d/x?a=1&amp;b=2">longer</a>`) {
		t.Error(body)
	}
}

// slow takes an answer when it is let.
type slow struct {
	*httptest.ResponseRecorder
	began, let chan struct{}
}

func (s slow) Write(b []byte) (int, error) {
	s.began <- struct{}{}
	<-s.let
	return s.ResponseRecorder.Write(b)
}

// What was read of a database is in memory until the answer is taken, so a request keeps its turn
// until then.
func TestATurnLastsUntilTheAnswerIsTaken(t *testing.T) {
	cfg := config()
	cfg.Slots = slotsOf(nil, nil)
	p := page(t, cfg)
	for _, path := range []string{"/slots", "/api/v1/slots"} {
		began, let := make(chan struct{}), make(chan struct{})
		var all sync.WaitGroup
		for range maxAsking {
			all.Go(func() {
				p.ServeHTTP(slow{httptest.NewRecorder(), began, let}, httptest.NewRequest(http.MethodGet, path, nil))
			})
		}
		for range maxAsking {
			<-began
		}
		if w := get(p, path); w.Code != http.StatusServiceUnavailable {
			t.Errorf("%s while %d answers are not taken: %d", path, maxAsking, w.Code)
		}
		close(let)
		go func() {
			for range began { // further pieces of the answers
			}
		}()
		all.Wait()
		close(began)
		if w := get(p, path); w.Code != http.StatusOK {
			t.Errorf("%s when they are taken: %d", path, w.Code)
		}
	}
}
