package metrics

import (
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// replaced tells a stream with a table of each layout the same situation: two
// rows delivered after 2 s, one refused, one withdrawn for its topic, one FAILED.
func replaced() (*Registry, *Stream) {
	r := New("", "")
	var tables []*outbox.Table
	for _, layout := range []string{compatIM2BE, compatAdvert, compatJEAP, ""} {
		tables = append(tables, &outbox.Table{Schema: "public", Name: "of_" + layout, Mapping: outbox.Mapping{MetricsCompat: layout}})
	}
	s := r.Stream("orders", tables, 0)
	now := time.Now()
	for _, t := range tables {
		rows := []*outbox.Row{{Table: t, Cluster: "main", Topic: "events"}, {Table: t, Cluster: "main", Topic: "events"}}
		s.Decoded(rows)
		s.Swept(outbox.CauseSlot, rows[:1])
		s.Outcome(outbox.Outcome{Rows: rows, Class: outbox.Delivered, Sent: now.Add(-2 * time.Second)}, now)
		s.Outcome(outbox.Outcome{Rows: rows[:1], Class: outbox.Refused, Err: errors.New("x")}, now)
		s.Outcome(outbox.Outcome{Rows: rows[:1], Class: outbox.Withdrawn, Scope: outbox.TopicScope("main", "events"), Err: errors.New("x")}, now)
		s.Outcome(outbox.Outcome{Rows: rows[:1], Class: outbox.Withdrawn, Scope: outbox.StreamScope()}, now)
		s.Marked([]outbox.Marked{{Row: rows[0], State: outbox.MarkedSent}, {Row: rows[0], State: outbox.MarkedSent}, {Row: rows[1], State: outbox.MarkedFailed}})
		s.Pending(t, Backlog{Rows: 7, Ready: 4, Oldest: 90 * time.Second, Took: 250 * time.Millisecond})
		s.Failed(t, 5, 2)
		s.Recovered(t, 3)
	}
	return r, s
}

func scraped(t *testing.T, r *Registry) string {
	t.Helper()
	answer := httptest.NewRecorder()
	r.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What a scrape of the replaced relays looked like: name, type, labels, value.
func TestReplacedRelaysNames(t *testing.T) {
	r, s := replaced()
	text := scraped(t, r)
	const sender = `class="` + jeapSender + `",delivery_type="scheduled",exception="none",method="sendAsScheduled"`
	for _, want := range []string{
		"# TYPE im2be_outbox_pending_total gauge\nim2be_outbox_pending_total 7\n",
		"# TYPE im2be_outbox_backlog_age_seconds gauge\nim2be_outbox_backlog_age_seconds 90\n",
		"# TYPE im2be_outbox_publish_latency_seconds summary\nim2be_outbox_publish_latency_seconds_sum{topic=\"events\"} 4\n" +
			"im2be_outbox_publish_latency_seconds_count{topic=\"events\"} 2\n",
		"# TYPE im2be_outbox_publish_latency_seconds_max gauge\nim2be_outbox_publish_latency_seconds_max{topic=\"events\"} 2\n",
		"# TYPE im2be_outbox_publish_failure_total counter\nim2be_outbox_publish_failure_total{topic=\"events\"} 2\n",
		"# TYPE outbox_poll_count_total counter\noutbox_poll_count_total 3\n",
		"# TYPE outbox_published_total counter\noutbox_published_total 2\n",
		"# TYPE outbox_records_failed_total counter\noutbox_records_failed_total 1\n",
		"# TYPE outbox_stuck_recovered_total counter\noutbox_stuck_recovered_total 3\n",
		"# TYPE outbox_poll_duration_seconds summary\noutbox_poll_duration_seconds_sum 0.25\noutbox_poll_duration_seconds_count 1\n",
		"# TYPE outbox_messages_ready_to_be_sent_count gauge\noutbox_messages_ready_to_be_sent_count 4\n",
		"# TYPE outbox_messages_failed_count gauge\noutbox_messages_failed_count{resend_status=\"resend_disabled\"} 5\n" +
			"outbox_messages_failed_count{resend_status=\"resend_enabled\"} 2\n",
		"# TYPE outbox_messages_transmit_seconds summary\noutbox_messages_transmit_seconds_sum{" + sender + "} 4\n" +
			"outbox_messages_transmit_seconds_count{" + sender + "} 2\n",
		"# TYPE outbox_messages_ready_to_be_sent_query_seconds summary\noutbox_messages_ready_to_be_sent_query_seconds_sum 0.25\n" +
			"outbox_messages_ready_to_be_sent_query_seconds_count 1\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("not there: %s", want)
		}
	}
	if strings.Contains(text, `orders",table="public.of_im2be",topic`) {
		t.Error("a relay's metric has our labels")
	}
	s.Standby()
	if text := scraped(t, r); !strings.Contains(text, "\nim2be_outbox_pending_total 0\n") || !strings.Contains(text, "\nim2be_outbox_backlog_age_seconds 0\n") {
		t.Error("a standby shows what the leader's tables hold")
	}
}

var documentedRelay = regexp.MustCompile("(?m)^\\| (?:im2be|advert-market|jeap) \\| `([a-z0-9_]+)` \\| ([^|]*) \\|")

// docs/metrics.md lists the names of every layout with type and labels.
func TestReplacedRelaysAreDocumented(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, m := range documentedRelay.FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, m[1]+" "+m[2])
	}
	r, _ := replaced()
	families, err := r.prometheus.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var there []string
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "im2be_") || strings.HasPrefix(f.GetName(), "outbox_") && !strings.HasPrefix(f.GetName(), namespace) {
			there = append(there, f.GetName()+" "+shape(f))
		}
	}
	sort.Strings(documented)
	if !slices.Equal(documented, there) {
		t.Errorf("documented:\n%s\nthere:\n%s", strings.Join(documented, "\n"), strings.Join(there, "\n"))
	}
}

// A timer's maximum forgets.
func TestTimerForgetsItsMaximum(t *testing.T) {
	timer := newTimed("x_seconds", "x")
	start := time.Unix(600, 0)
	timer.add(9, 1, start)
	timer.add(1, 1, start.Add(time.Minute))
	c := timer.cells[[4]string{}]
	if got := max(c.most[0], c.most[1], c.most[2]); got != 9 {
		t.Errorf("after a minute: %v", got)
	}
	c.turn(start.Add(3 * time.Minute))
	if got := max(c.most[0], c.most[1], c.most[2]); got != 1 {
		t.Errorf("after three minutes: %v", got)
	}
	c.turn(start.Add(time.Hour))
	if got := max(c.most[0], c.most[1], c.most[2]); got != 0 || c.count != 2 {
		t.Errorf("after an hour: %v, %d", got, c.count)
	}
}

// Topics come from rows: their number is bounded.
func TestTopicsAreBounded(t *testing.T) {
	r := New("", "")
	table := &outbox.Table{Schema: "public", Name: "a", Mapping: outbox.Mapping{MetricsCompat: compatIM2BE}}
	s := r.Stream("orders", []*outbox.Table{table}, 0)
	for i := range 3 * maxTopics {
		row := &outbox.Row{Table: table, Cluster: "main", Topic: strings.Repeat("t", i+1)}
		s.Outcome(outbox.Outcome{Rows: []*outbox.Row{row}, Class: outbox.Delivered}, time.Now())
	}
	for name, most := range map[string]int{"outbox_cdc_topic_rows_total": 3 * (maxTopics + 1), "im2be_outbox_publish_latency_seconds": maxTopics + 1} {
		if n := len(family(t, r, name).GetMetric()); n > most || n < maxTopics {
			t.Errorf("%s: %d series", name, n)
		}
	}
}

func family(t *testing.T, r *Registry, name string) *dto.MetricFamily {
	t.Helper()
	families, err := r.prometheus.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f
		}
	}
	t.Fatalf("no %s", name)
	return nil
}
