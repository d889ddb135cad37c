package admin

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/outbox-cdc/outbox-cdc/internal/metrics"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func stream(name string, report status.Stream) Stream {
	report.Name = name
	status.Judge(&report)
	return Stream{
		Name: name, Report: func() status.Stream { return report },
		Status: func() metrics.Status { return metrics.Status{Leader: report.Led(), Heard: noon.Add(-9 * time.Second)} },
	}
}

// handler returns the handler of a process on this machine.
func handler(t *testing.T, cfg Config) http.Handler {
	t.Helper()
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:9187"
	}
	h, err := Handler(cfg, func() time.Time { return noon })
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// request returns a request to an IP address, as probes and scrapers send it.
func request(method, path string) *http.Request {
	r := httptest.NewRequest(method, path, nil)
	r.Host = "10.0.0.7:9187"
	return r
}

// A standby is ready if it has been seen able to lead. A leader is ready if it can publish the rows of every
// cluster and every table.
func TestReadyIsWhoCouldDoItsWork(t *testing.T) {
	park := func(kind string, cause outbox.Cause) func(*status.Stream) {
		return func(s *status.Stream) {
			s.Parks.Top = []status.ParkGroup{{Kind: kind, Cause: string(cause), Reason: "because", Example: kind + " x"}}
		}
	}
	for name, c := range map[string]struct {
		mode     string
		unproven string
		report   func(*status.Stream)
		reason   string
	}{
		"a standby that was not seen to work": {"standby", "no such topic", nil, "It has not been seen to be able to do its work: no such topic"},
		"a leader that was not seen to work":  {"stream", "no such topic", nil, "It has not been seen to be able to do its work: no such topic"},
		"not begun":                           {"starting", "", nil, "It is connecting to the database."},
		"a standby":                           {"standby", "", nil, ""},
		"a leader":                            {"stream", "", nil, ""},
		"leading, not streaming":              {"stream", "", func(s *status.Stream) { s.Deaf = true }, "The replication connection is not streaming yet."},
		"swept, not streaming":                {"sweep", "", func(s *status.Stream) { s.Deaf = true }, ""},
		"silent":                              {"stream", "", func(s *status.Stream) { s.Silence = 11 * time.Second }, "Nothing was heard on the replication connection for 11 s."},
		"failing":                             {"starting", "", func(s *status.Stream) { s.Error = "wal_level is replica" }, "It does not work: wal_level is replica"},
		"Kafka is away": {
			"hold", "", func(s *status.Stream) { s.Kafka = []status.Cluster{{Name: "main", Error: "refused"}} },
			"Kafka cluster main cannot be used: refused",
		},
		"a table cannot be marked":  {"stream", "", park("table", outbox.CauseWriteBack), "table x: because"},
		"a table is swept":          {"stream", "", park("table", outbox.CausePublication), ""},
		"the stream is swept":       {"sweep", "", park("stream", outbox.CauseSlot), ""},
		"one topic is not there":    {"stream", "", park("topic", outbox.CauseTopic), ""},
		"a key waits for its retry": {"stream", "", park("key", outbox.CauseRowError), ""},
	} {
		report := status.Stream{Mode: c.mode, Unproven: c.unproven}
		if c.report != nil {
			c.report(&report)
		}
		s := stream("s", report)
		if got := readinessOf(s, noon); got.Reason != c.reason || got.Ready != (c.reason == "") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request(http.MethodGet, path))
	return w.Code, w.Body.String()
}

func TestHandler(t *testing.T) {
	registry := metrics.New("1.2.3", "abc")
	registry.Stream("good", []*outbox.Table{{Schema: "public", Name: "outbox"}}, 1)
	good := stream("good", status.Stream{Mode: "standby"})
	bad := stream("bad", status.Stream{Mode: "starting"})
	h := handler(t, Config{Metrics: registry.Handler(), Streams: []Stream{good, bad}, Version: "1.2.3"})
	for path, want := range map[string]int{
		"/": 200, "/healthz": 200, "/metrics": 200, "/readyz": 503, "/readyz?stream=good": 200, "/readyz?stream=bad": 503, "/readyz?stream=none": 404, "/other": 404,
	} {
		if code, body := get(t, h, path); code != want {
			t.Errorf("%s: %d, want %d: %s", path, code, want, body)
		}
	}
	_, body := get(t, h, "/readyz")
	var r Readiness
	if err := json.Unmarshal([]byte(body), &r); err != nil || r.Ready || len(r.Streams) != 2 || !r.Streams[0].Ready || r.Streams[1].Reason == "" {
		t.Errorf("%v: %s", err, body)
	}
	if _, body := get(t, h, "/metrics"); !strings.Contains(body, `outbox_cdc_rows_published_total{stream="good",table="public.outbox"} 0`) {
		t.Errorf("no metrics of the stream:\n%s", body)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request(http.MethodPost, "/healthz"))
	if w.Code != http.StatusForbidden {
		t.Errorf("POST: %d", w.Code)
	}
}

func TestRunServesUntilTheEnd(t *testing.T) {
	s, err := Listen(Config{Listen: "127.0.0.1:0", Metrics: http.NotFoundHandler()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	res, err := http.Get("http://" + s.Address() + "/healthz") //nolint:noctx // a test's
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadAll(res.Body)
	_ = res.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if _, err := Listen(Config{Listen: s.Address(), Metrics: http.NotFoundHandler()}); err == nil || !strings.Contains(err.Error(), "http.listen") {
		t.Errorf("the address was free: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
