package integration

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	span "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// collects is an OpenTelemetry collector that keeps what it is sent.
type collects struct {
	mu    sync.Mutex
	spans []*span.Span
}

func (c *collects) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var request collector.ExportTraceServiceRequest
	body, err := io.ReadAll(r.Body)
	if err = errors.Join(err, proto.Unmarshal(body, &request)); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range request.GetResourceSpans() {
		for _, scope := range of.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
}

func (c *collects) named(name string) *span.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.GetName() == name {
			return s
		}
	}
	return nil
}

// A row that carries a trace's context is a span of that trace; the metrics show
// the slot, the topic and the marks; and a topic that refuses row after row does
// not flood the log.
func TestWhatOperatorsSee(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	w.serve()
	w.kafka.ConfigureTopic(t, w.topic, map[string]string{"max.message.bytes": "2000"})
	c := &collects{}
	server := httptest.NewServer(c)
	defer server.Close()
	w.stream["limits"] = fields{"rows_per_second": 100_000}
	w.table["status"] = fields{"processing": "BUSY", "recover_after": "1s", "max_attempts": 1000}
	w.db.Exec(t, `ALTER TABLE outbox DROP CONSTRAINT outbox_status_check`)
	p := w.run("OTEL_EXPORTER_OTLP_ENDPOINT="+server.URL, "OTEL_BSP_SCHEDULE_DELAY=100").streaming()
	dashboard := dashboardFills(t, p, false)

	const trace = "0af7651916cd43dd8448eb211c80319c"
	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload, headers) VALUES ('`+w.topic+`', 'k', 'x', '{"traceparent": "00-`+trace+`-b7ad6b7169203331-01"}')`)
	harness.Eventually(t, 20*time.Second, func() error {
		send := c.named("send " + w.topic)
		if send == nil || c.named("outbox batch") == nil || c.named("mark") == nil {
			return errors.New("the spans did not arrive")
		}
		if got := fmt.Sprintf("%x %x", send.GetTraceId(), send.GetParentSpanId()); got != trace+" b7ad6b7169203331" {
			return fmt.Errorf("the row's span is in trace and span %s", got)
		}
		return nil
	})

	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload) SELECT '`+w.topic+`', 'large' || n, convert_to(string_agg(gen_random_uuid()::text, ''), 'UTF8')
		FROM generate_series(1, 12) n, generate_series(1, 100) GROUP BY n`)
	harness.Eventually(t, 30*time.Second, func() error {
		for _, want := range []struct {
			name   string
			labels []string
			least  float64
		}{
			{"outbox_cdc_topic_rows_total", []string{`outcome="published"`, w.topic}, 1},
			{"outbox_cdc_topic_rows_total", []string{`outcome="refused"`, w.topic}, 24},
			{"outbox_cdc_marks_total", []string{`outcome="sent"`}, 1},
			{"outbox_cdc_marks_total", []string{`outcome="retry"`}, 12},
			{"outbox_cdc_slot_state", []string{`state="reserved"`}, 1},
			{"outbox_cdc_retained_wal_bytes", nil, 1},
			{"outbox_cdc_kafka_fenced", nil, 1},
			{"outbox_cdc_parked_total", []string{`cause="row_error"`}, 12},
			{"outbox_cdc_last_progress_timestamp_seconds", nil, float64(time.Now().Add(-time.Hour).Unix())},
			{"outbox_cdc_config_info", []string{`hash="`}, 1},
		} {
			if got := p.metric(want.name, want.labels...); got < want.least {
				return fmt.Errorf("%s %v is %v", want.name, want.labels, got)
			}
		}
		return nil
	})
	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload, status) VALUES ('`+w.topic+`', 'left', 'x', 'BUSY')`)
	dashboard()
	p.stop()
	refused := 0
	for _, line := range p.Said("Kafka refused the row") {
		if !strings.Contains(line, `"repeated"`) {
			refused++
		}
	}
	if refused > 20 || p.logged("Kafka refused the row", `"repeated"`) == 0 {
		t.Errorf("%d lines of refused rows, %d with a count", refused, p.logged("Kafka refused the row", `"repeated"`))
	}
}
