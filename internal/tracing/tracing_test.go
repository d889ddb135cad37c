package tracing

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func recorded(t *testing.T) (*Stream, *tracetest.InMemoryExporter) {
	t.Helper()
	memory := tracetest.NewInMemoryExporter()
	p, err := newProvider(t.Context(), "1.2.3", sdk.WithSyncer(memory))
	if err != nil {
		t.Fatal(err)
	}
	return p.Stream("orders"), memory
}

func row(table *outbox.Table, id, traceparent string) *outbox.Row {
	r := &outbox.Row{Table: table, ID: id, Topic: "events", Cluster: "main", Value: []byte("12345"), Commit: 0x1000}
	if traceparent != "" {
		r.Headers = []outbox.Header{{Name: "traceparent", Value: []byte(traceparent)}}
	}
	return r
}

func named(t *testing.T, spans tracetest.SpanStubs, name string) tracetest.SpanStub {
	t.Helper()
	for _, s := range spans {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no span %s among %v", name, spans)
	return tracetest.SpanStub{}
}

func attributes(s tracetest.SpanStub) map[attribute.Key]string {
	all := map[attribute.Key]string{}
	for _, a := range s.Attributes {
		all[a.Key] = a.Value.String()
	}
	return all
}

func has(t *testing.T, s tracetest.SpanStub, want map[attribute.Key]string) {
	t.Helper()
	got := attributes(s)
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s: %s is %q, want %q", s.Name, k, got[k], v)
		}
	}
}

func TestSpanOfDecoding(t *testing.T) {
	s, memory := recorded(t)
	began := time.Unix(100, 0)
	s.Decoded(3, began, began.Add(time.Millisecond))
	span := named(t, memory.GetSpans(), "outbox decode")
	has(t, span, map[attribute.Key]string{"outbox.stream": "orders", "messaging.batch.message_count": "3"})
	if span.Parent.IsValid() || span.EndTime.Sub(span.StartTime) != time.Millisecond {
		t.Errorf("%+v", span)
	}
}

// A row's span is a child of the context that the row carries, lasts from its
// sending to its acknowledgement, and is linked to its batch; the batch ends
// with the last mark.
func TestSpansOfABatch(t *testing.T) {
	s, memory := recorded(t)
	table := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{Published: outbox.PublishedStatus}}
	a, b := row(table, "1", parent), row(table, "2", "")
	sent := time.Unix(100, 0)
	s.Outcome(outbox.Outcome{Rows: []*outbox.Row{a, b}, Class: outbox.Delivered, Sent: sent}, sent.Add(time.Second))
	s.Marked([]outbox.Marked{{Row: a, State: outbox.MarkedSent}, {Row: b, State: outbox.MarkedInvisible}}, sent.Add(2*time.Second))
	for _, span := range memory.GetSpans() {
		if span.Name == "outbox batch" {
			t.Error("the batch ended before its last mark")
		}
	}
	s.Marked([]outbox.Marked{{Row: b, State: outbox.MarkedSettled}}, sent.Add(3*time.Second))

	spans := memory.GetSpans()
	if len(spans) != 4 {
		t.Fatalf("%d spans", len(spans))
	}
	batch, send := named(t, spans, "outbox batch"), named(t, spans, "send events")
	if got := send.Parent; got.TraceID().String() != parent[3:35] || got.SpanID().String() != parent[36:52] || !got.IsRemote() {
		t.Errorf("parent %v", got)
	}
	if send.SpanKind != trace.SpanKindProducer || !send.StartTime.Equal(sent) || !send.EndTime.Equal(sent.Add(time.Second)) {
		t.Errorf("%+v", send)
	}
	if len(send.Links) != 1 || send.Links[0].SpanContext.SpanID() != batch.SpanContext.SpanID() {
		t.Errorf("links %v", send.Links)
	}
	has(t, send, map[attribute.Key]string{
		"messaging.system": "kafka", "messaging.destination.name": "events", "messaging.message.id": "1",
		"messaging.message.body.size": "5", "outbox.table": "public.outbox", "outbox.outcome": "success",
	})
	has(t, batch, map[attribute.Key]string{
		"messaging.batch.message_count": "2", "outbox.marked": "1", "outbox.not_marked": "1", "outbox.stream": "orders", "outbox.commit_lsn": "0/1000",
	})
	if !batch.EndTime.Equal(sent.Add(3 * time.Second)) {
		t.Errorf("the batch ends %v", batch.EndTime)
	}
	for name, end := range map[string]time.Time{"publish": sent.Add(time.Second), "mark": sent.Add(3 * time.Second)} {
		if part := named(t, spans, name); part.Parent.SpanID() != batch.SpanContext.SpanID() || !part.EndTime.Equal(end) {
			t.Errorf("%s: %+v", name, part)
		}
	}
}

// A refused row has a failed span in its trace, and no batch.
func TestSpanOfARefusedRow(t *testing.T) {
	s, memory := recorded(t)
	table := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{Published: outbox.PublishedStatus}}
	s.Outcome(outbox.Outcome{Rows: []*outbox.Row{row(table, "1", parent)}, Class: outbox.Refused, Err: errors.New("too large")}, time.Unix(100, 0))
	spans := memory.GetSpans()
	if len(spans) != 1 || spans[0].Status.Code != codes.Error || spans[0].Status.Description != "too large" {
		t.Fatalf("%+v", spans)
	}
	has(t, spans[0], map[attribute.Key]string{"outbox.outcome": "failure"})
}

// The names that the replaced relay's spans had.
func TestNamesOfIM2BE(t *testing.T) {
	s, memory := recorded(t)
	table := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
		ID: []string{"aggregate_id", "event_id"}, Published: outbox.PublishedStatus, MetricsCompat: "im2be",
	}}
	r := row(table, outbox.JoinID("A", "E"), parent)
	s.Outcome(outbox.Outcome{Rows: []*outbox.Row{r}, Class: outbox.Delivered}, time.Unix(100, 0))
	s.Marked([]outbox.Marked{{Row: r, State: outbox.MarkedSent}}, time.Unix(101, 0))
	spans := memory.GetSpans()
	if len(spans) != 2 {
		t.Fatalf("%d spans", len(spans))
	}
	has(t, named(t, spans, "im2be.outbox.publish.hot"), map[attribute.Key]string{"topic": "events", "event.id": "E", "aggregate.id": "A", "outcome": "success"})
	has(t, named(t, spans, "im2be.outbox.poller.tick"), map[attribute.Key]string{"batch.size": "1", "success.count": "1", "failure.count": "0"})
}

// A context that is not sampled, or no context, makes no span of a row; a
// broken one is no context.
func TestRowsWithoutContext(t *testing.T) {
	s, memory := recorded(t)
	table := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{Published: outbox.PublishedNone}}
	rows := []*outbox.Row{row(table, "1", ""), row(table, "2", "broken"), row(table, "3", parent[:53]+"00")}
	s.Outcome(outbox.Outcome{Rows: rows, Class: outbox.Delivered}, time.Unix(100, 0))
	for _, span := range memory.GetSpans() {
		if span.Name == "send events" {
			t.Errorf("%+v", span)
		}
	}
	named(t, memory.GetSpans(), "outbox batch") // ends at once: the table keeps no state
}

// The end of a leadership leaves no batch open.
func TestAbandon(t *testing.T) {
	s, memory := recorded(t)
	table := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{Published: outbox.PublishedStatus}}
	s.Outcome(outbox.Outcome{Rows: []*outbox.Row{row(table, "1", ""), row(table, "2", "")}, Class: outbox.Delivered}, time.Unix(100, 0))
	s.Abandon(time.Unix(101, 0))
	if batch := named(t, memory.GetSpans(), "outbox batch"); batch.Status.Code != codes.Error || len(s.open) != 0 {
		t.Errorf("%+v, %d open", batch, len(s.open))
	}
}

// Without a collector nothing is there and nothing is paid.
func TestNoCollectorCostsNothing(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
	p, err := New(t.Context(), "")
	if p != nil || err != nil {
		t.Fatal(p, err)
	}
	s := p.Stream("orders")
	table := &outbox.Table{Schema: "public", Name: "outbox"}
	rows := []*outbox.Row{row(table, "1", parent)}
	marks := []outbox.Marked{{Row: rows[0], State: outbox.MarkedSent}}
	o := outbox.Outcome{Rows: rows, Class: outbox.Delivered}
	if n := testing.AllocsPerRun(100, func() {
		s.Decoded(1, time.Time{}, time.Time{})
		s.Outcome(o, time.Time{})
		s.Marked(marks, time.Time{})
		s.Abandon(time.Time{})
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if err := p.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestEnvironment(t *testing.T) {
	for _, c := range []struct {
		name   string
		env    map[string]string
		wanted bool
		fails  bool
	}{
		{"nothing", nil, false, false},
		{"an endpoint", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, true, false},
		{"an endpoint for traces", map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, true, false},
		{"switched off", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "TRUE"}, false, false},
		{"no exporter", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, false, false},
		{"another exporter", map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, false, true},
	} {
		got, err := wanted(func(name string) string { return c.env[name] })
		if got != c.wanted || (err != nil) != c.fails {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
	if _, err := newExporter(t.Context(), func(string) string { return "smoke-signals" }); err == nil {
		t.Error("an unknown protocol is taken")
	}
}

// Spans arrive at a collector that the environment names.
func TestCollector(t *testing.T) {
	got := make(chan *collector.ExportTraceServiceRequest, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request collector.ExportTraceServiceRequest
		if err = errors.Join(err, proto.Unmarshal(body, &request)); err != nil || r.URL.Path != "/v1/traces" {
			t.Error(r.URL.Path, err)
		}
		got <- &request
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_SERVICE_NAME", "orders-outbox")
	p, err := New(t.Context(), "1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	table := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{Published: outbox.PublishedNone}}
	p.Stream("orders").Outcome(outbox.Outcome{Rows: []*outbox.Row{row(table, "1", parent)}, Class: outbox.Delivered}, time.Now())
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := p.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	spans := (<-got).GetResourceSpans()
	service := ""
	for _, a := range spans[0].GetResource().GetAttributes() {
		if a.GetKey() == "service.name" {
			service = a.GetValue().GetStringValue()
		}
	}
	if n := len(spans[0].GetScopeSpans()[0].GetSpans()); n != 3 || service != "orders-outbox" {
		t.Errorf("%d spans of service %q", n, service)
	}
}

// Headers of a collector are secrets: they do not leave the machine unencrypted, and follow no redirect.
func TestHeadersAreNotShown(t *testing.T) {
	for name, c := range map[string]struct {
		env    map[string]string
		refuse bool
	}{
		"plain":                     {map[string]string{"ENDPOINT": "http://collector:4318", "HEADERS": "key=x"}, true},
		"plain, of traces":          {map[string]string{"TRACES_ENDPOINT": "HTTP://collector:4318", "TRACES_HEADERS": "key=x", "ENDPOINT": "https://collector"}, true},
		"encrypted":                 {map[string]string{"ENDPOINT": "https://collector:4318", "HEADERS": "key=x"}, false},
		"here":                      {map[string]string{"ENDPOINT": "http://localhost:4318", "HEADERS": "key=x"}, false},
		"without headers":           {map[string]string{"ENDPOINT": "http://collector:4318"}, false},
		"allowed":                   {map[string]string{"ENDPOINT": "http://collector:4318", "HEADERS": "key=x", "INSECURE": "True"}, false},
		"allowed for traces":        {map[string]string{"ENDPOINT": "http://collector:4318", "HEADERS": "key=x", "TRACES_INSECURE": "true"}, false},
		"what cannot be understood": {map[string]string{"ENDPOINT": "http://%zz", "HEADERS": "key=x"}, true},
	} {
		err := shown(func(name string) string { return c.env[strings.TrimPrefix(name, "OTEL_EXPORTER_OTLP_")] })
		if (err != nil) != c.refuse || err != nil && strings.Contains(err.Error(), "key=x") {
			t.Errorf("%s: %v", name, err)
		}
	}

	var strayed atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { strayed.Add(1) }))
	t.Cleanup(other.Close)
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	t.Cleanup(server.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "key=x")
	p, err := New(t.Context(), "1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	p.Stream("orders").Decoded(3, time.Unix(100, 0), time.Unix(101, 0))
	if err := p.sdk.ForceFlush(t.Context()); err == nil || !strings.Contains(err.Error(), "redirects to "+other.URL) {
		t.Error(err)
	}
	if n := strayed.Load(); n > 0 {
		t.Errorf("%d requests followed the redirect", n)
	}
	_ = p.Shutdown(t.Context())
}
