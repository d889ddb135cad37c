package metrics

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/outbox-cdc/outbox-cdc/outbox"
)

// everything makes a stream and tells it one of each.
func everything() (*Registry, *Stream) {
	r := New("1.2.3", "abc")
	a, b := &outbox.Table{Schema: "public", Name: "a"}, &outbox.Table{Schema: "public", Name: "b"}
	s := r.Stream("orders", []*outbox.Table{a, b}, 8<<30)
	now := time.UnixMicro(5_000_000)
	rows := []*outbox.Row{{Table: a, CreatedAt: 2_000_000}, {Table: a, CreatedAt: 2_000_000}, {Table: b}}
	s.Leading(7)
	s.Connected()
	s.Mode("stream")
	s.Heard(time.Now())
	s.Decoded(rows)
	s.Swept(outbox.CauseSlot, rows[:1])
	s.Missed(outbox.CauseMissed, 2)
	s.Outcome(outbox.Outcome{Rows: rows, Class: outbox.Delivered}, now)
	s.Outcome(outbox.Outcome{Rows: rows[:1], Class: outbox.Refused, Err: errors.New("x")}, now)
	s.Outcome(outbox.Outcome{Rows: rows[:2], Class: outbox.Withdrawn, Scope: outbox.TopicScope("main", "t"), Err: errors.New("x")}, now)
	s.Outcome(outbox.Outcome{Rows: rows[:2], Class: outbox.Withdrawn, Scope: outbox.StreamScope()}, now)
	s.PublishLatency(3*time.Millisecond, 3)
	s.MarkLatency(time.Hour, 2)
	s.Marked([]outbox.Marked{{Row: rows[0], State: outbox.MarkedSent}, {Row: rows[0], State: outbox.MarkedFailed}, {Row: rows[2], State: outbox.MarkedRefused}, {Row: rows[2], State: outbox.MarkedSettled}})
	s.Memory(3, 2, 1000)
	s.Lag(100, time.Second)
	s.Retained(200)
	s.Pending(a, 5, time.Minute)
	s.Parks([]outbox.Park{{Scope: outbox.StreamScope(), Cause: outbox.CauseSlot}})
	s.Cluster(outbox.ClusterState{Cluster: "main", Usable: true})
	return r, s
}

func value(t *testing.T, r *Registry, line string) bool {
	t.Helper()
	families, err := r.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ := strings.Cut(line, "{")
	for _, f := range families {
		if f.GetName() == name {
			text := printed(f)
			return strings.Contains(text, line+"\n")
		}
	}
	return false
}

// printed is a family, one line per metric.
func printed(f *dto.MetricFamily) string {
	var out strings.Builder
	for _, m := range f.GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, l.GetName()+"="+l.GetValue())
		}
		n := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		fmt.Fprintf(&out, "%s{%s} %g\n", f.GetName(), strings.Join(labels, ","), n)
	}
	return out.String()
}

func TestWhatIsTold(t *testing.T) {
	r, s := everything()
	for _, want := range []string{
		"outbox_cdc_rows_decoded_total{stream=orders,table=public.a} 2",
		"outbox_cdc_rows_decoded_total{stream=orders,table=public.b} 1",
		"outbox_cdc_rows_published_total{stream=orders,table=public.a} 2",
		"outbox_cdc_rows_swept_total{cause=slot,stream=orders,table=public.a} 1",
		"outbox_cdc_rows_failed_total{class=row,stream=orders,table=public.a} 1",
		"outbox_cdc_rows_failed_total{class=topic,stream=orders,table=public.a} 2",
		"outbox_cdc_rows_failed_total{class=budget,stream=orders,table=public.a} 1",
		"outbox_cdc_rows_failed_total{class=write_back,stream=orders,table=public.b} 1",
		"outbox_cdc_rows_marked_total{stream=orders,table=public.a} 1",
		"outbox_cdc_created_to_published_seconds{stream=orders} 2",
		"outbox_cdc_publish_latency_seconds{stream=orders} 3",
		"outbox_cdc_parks{cause=slot,scope=stream,stream=orders} 1",
		"outbox_cdc_mode{mode=stream,stream=orders} 1",
		"outbox_cdc_mode{mode=sweep,stream=orders} 0",
		"outbox_cdc_leader_epoch{stream=orders} 7",
		"outbox_cdc_build_info{commit=abc,go_version=" + runtime.Version() + ",version=1.2.3} 1",
	} {
		if !value(t, r, want) {
			t.Errorf("not there: %s", want)
		}
	}
	if st := s.Status(); !st.Leader || st.Mode != "stream" || st.Heard.IsZero() {
		t.Errorf("status %+v", st)
	}
	s.Standby()
	if st := s.Status(); st.Leader || st.Mode != "standby" || !st.Heard.IsZero() {
		t.Errorf("status %+v", st)
	}
	if value(t, r, "outbox_cdc_parks{cause=slot,scope=stream,stream=orders} 1") || !value(t, r, "outbox_cdc_leader{stream=orders} 0") {
		t.Error("a standby shows what a leader has")
	}
}

func TestHistogram(t *testing.T) {
	h := newHistogram("x_seconds", "x", nil)
	h.observe(-1, 1)
	h.observe(0.0005, 2)
	h.observe(0.003, 3)
	h.observe(1e9, 4)
	h.observe(1, 0)
	for i, want := range map[int]uint64{0: 3, 3: 3, len(latencyBounds): 4} {
		if got := h.counts[i].Load(); got != want {
			t.Errorf("bucket %d: %d, want %d", i, got, want)
		}
	}
}

func TestMetricsFollowTheConventions(t *testing.T) {
	r, _ := everything()
	families, err := r.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}

var documented = regexp.MustCompile("(?m)^\\| `(outbox_cdc_[a-z_]+)` \\| ([^|]*) \\| ([^|]*) \\|$")

// docs/metrics.md lists every metric, its type and labels, and no other.
func TestDocumentation(t *testing.T) {
	text, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, m := range documented.FindAllStringSubmatch(string(text), -1) {
		found[m[1]] = m[2]
	}
	r, _ := everything()
	families, err := r.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), namespace) {
			continue
		}
		if want := shape(f); found[f.GetName()] != want {
			t.Errorf("docs/metrics.md should say: | `%s` | %s | %s |", f.GetName(), want, f.GetHelp())
		}
		delete(found, f.GetName())
	}
	for name := range found {
		t.Errorf("docs/metrics.md lists %s, which is not there", name)
	}
}

func shape(f *dto.MetricFamily) string {
	var labels []string
	for _, l := range f.GetMetric()[0].GetLabel() {
		if l.GetName() != "stream" {
			labels = append(labels, "`"+l.GetName()+"`")
		}
	}
	sort.Strings(labels)
	return strings.Join(append([]string{strings.ToLower(f.GetType().String())}, labels...), " ")
}

func BenchmarkOutcome(b *testing.B) {
	r := New("", "")
	t := &outbox.Table{Schema: "public", Name: "a"}
	s := r.Stream("s", []*outbox.Table{t}, 0)
	rows := make([]*outbox.Row, 1000)
	for i := range rows {
		rows[i] = &outbox.Row{Table: t, CreatedAt: int64(i + 1)}
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Outcome(outbox.Outcome{Rows: rows, Class: outbox.Delivered}, time.UnixMicro(5000))
	}
}
