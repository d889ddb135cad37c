package metrics

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/test/stable"
)

// everything makes a stream and tells it one of each.
func everything() (*Registry, *Stream) {
	r := New("1.2.3", "abc")
	a, b := &outbox.Table{Schema: "public", Name: "a"}, &outbox.Table{Schema: "public", Name: "b"}
	r.Configuration("beef")
	s := r.Stream("orders", []*outbox.Table{a, b}, 8<<30)
	now := time.UnixMicro(5_000_000)
	rows := []*outbox.Row{
		{Table: a, Cluster: "main", Topic: "t", CreatedAt: 2_000_000},
		{Table: a, Cluster: "main", Topic: "t", CreatedAt: 2_000_000},
		{Table: b, Cluster: "main", Topic: "u"},
	}
	s.ExactlyOnce([]string{"main"}, []string{"stuck", "unanswered"})
	s.Findings(func() status.Stream {
		return status.Stream{Findings: []status.Finding{{Level: status.Bad}, {Level: status.Warn}, {Level: status.Warn}}}
	})
	s.Transacted("main", "", time.Second)
	s.Transacted("main", "", time.Second)
	s.Transacted("main", "stuck", 0)
	s.Tally("main", true, 7, 3)
	s.Unended("main", map[string][]int32{"old": {0}})
	s.Unended("main", map[string][]int32{"t": {3}})
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
	s.Produced("main", "t", 3, 500, 3*time.Millisecond)
	s.Retried("main", "timeout")
	s.Throttled("main", 1500*time.Millisecond)
	s.MarkLatency(time.Hour, 2)
	s.Marked([]outbox.Marked{{Row: rows[0], State: outbox.MarkedSent}, {Row: rows[0], State: outbox.MarkedFailed}, {Row: rows[2], State: outbox.MarkedRefused}, {Row: rows[2], State: outbox.MarkedRefused}, {Row: rows[2], State: outbox.MarkedSettled}})
	s.Memory(3, 2, 1000)
	s.Pace(500, "configured")
	s.Lag(100, time.Second)
	s.Limits(100, 1<<20)
	safe := int64(900)
	s.Slot(&status.Slot{WALStatus: "reserved", Retained: 200})
	s.Slot(&status.Slot{WALStatus: "extended", Retained: 300, Safe: &safe, Loss: &status.Loss{Seconds: 900}})
	s.Confirmed(77, now)
	s.Confirmed(77, now.Add(time.Hour))
	s.PublicationChanged()
	s.Left(a, 3)
	s.Changed(a)
	s.MarkStats(3, 5, 2)
	s.MarkStats(4, 6, 2)
	s.MarkStats(1, 1, 0)
	s.Pending(a, Backlog{Rows: 5, Ready: 4, Oldest: time.Minute, Took: time.Millisecond})
	s.Failed(a, 2, 0)
	s.NeverReady(a, 1)
	s.Uncounted(a)
	s.Recovered(a, 1)
	s.Parked(&outbox.Park{Scope: outbox.StreamScope(), Cause: outbox.CauseSlot})
	s.HandedBack(&outbox.Park{Scope: outbox.StreamScope()})
	s.Fenced("main", true)
	s.ShedLock("outbox-poller", true)
	s.Shadowed(rows)
	s.Parks([]outbox.Park{{Scope: outbox.StreamScope(), Cause: outbox.CauseSlot}, {Scope: outbox.TableScope(a), Cause: outbox.CausePaused}})
	for _, usable := range []bool{false, true, false, true} {
		s.Cluster(outbox.ClusterState{Cluster: "main", Usable: usable})
	}
	return r, s
}

func value(t *testing.T, r *Registry, line string) bool {
	t.Helper()
	families, err := r.prometheus.Gather()
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
		"outbox_cdc_rows_left_total{stream=orders,table=public.a} 3",
		"outbox_cdc_rows_changed_total{stream=orders,table=public.a} 1",
		"outbox_cdc_rows_swept_total{cause=slot,stream=orders,table=public.a} 1",
		"outbox_cdc_rows_failed_total{class=row,stream=orders,table=public.a} 1",
		"outbox_cdc_rows_failed_total{class=topic,stream=orders,table=public.a} 2",
		"outbox_cdc_rows_failed_total{class=budget,stream=orders,table=public.a} 1",
		"outbox_cdc_rows_failed_total{class=write_back,stream=orders,table=public.b} 2",
		"outbox_cdc_rows_marked_total{stream=orders,table=public.a} 1",
		"outbox_cdc_created_to_published_seconds{stream=orders} 2",
		"outbox_cdc_publish_latency_seconds{stream=orders} 3",
		"outbox_cdc_parks{cause=slot,scope=stream,stream=orders} 1",
		"outbox_cdc_table_paused{stream=orders,table=public.a} 1",
		"outbox_cdc_mode{mode=stream,stream=orders} 1",
		"outbox_cdc_mode{mode=sweep,stream=orders} 0",
		"outbox_cdc_leader_epoch{stream=orders} 7",
		"outbox_cdc_topic_rows_total{cluster=main,outcome=published,stream=orders,topic=t} 2",
		"outbox_cdc_topic_rows_total{cluster=main,outcome=refused,stream=orders,topic=t} 1",
		"outbox_cdc_topic_rows_total{cluster=main,outcome=withdrawn,stream=orders,topic=t} 4",
		"outbox_cdc_topic_bytes_total{cluster=main,stream=orders,topic=t} 500",
		"outbox_cdc_kafka_batches_total{cluster=main,stream=orders} 1",
		"outbox_cdc_kafka_retries_total{class=timeout,cluster=main,stream=orders} 1",
		"outbox_cdc_kafka_throttled_seconds_total{cluster=main,stream=orders} 1.5",
		"outbox_cdc_kafka_outages_total{cluster=main,stream=orders} 1",
		"outbox_cdc_slot_state{state=extended,stream=orders} 1",
		"outbox_cdc_slot_state{state=lost,stream=orders} 0",
		"outbox_cdc_slot_safe_wal_bytes{stream=orders} 900",
		"outbox_cdc_slot_lost_in_seconds{stream=orders} 900",
		"outbox_cdc_retained_wal_bytes{stream=orders} 300",
		"outbox_cdc_last_progress_timestamp_seconds{stream=orders} 5",
		"outbox_cdc_marks_total{outcome=settled,stream=orders,table=public.b} 1",
		"outbox_cdc_mark_retries_total{stream=orders} 7",
		"outbox_cdc_mark_locked_rows_total{stream=orders} 2",
		"outbox_cdc_mark_waiting_rows{stream=orders} 1",
		"outbox_cdc_failed_rows{stream=orders,table=public.a} 2",
		"outbox_cdc_findings{level=warn,stream=orders} 2",
		"outbox_cdc_findings{level=note,stream=orders} 0",
		"outbox_cdc_parked_total{cause=slot,scope=stream,stream=orders} 1",
		"outbox_cdc_transactions_committed_total{cluster=main,stream=orders} 2",
		"outbox_cdc_transactions_aborted_total{cause=stuck,cluster=main,stream=orders} 1",
		"outbox_cdc_transactions_aborted_total{cause=unanswered,cluster=main,stream=orders} 0",
		"outbox_cdc_transaction_latency_seconds{stream=orders} 2",
		"outbox_cdc_tally_waiting_units{cluster=main,stream=orders} 7",
		"outbox_cdc_config_info{hash=beef} 1",
		"outbox_cdc_build_info{commit=abc,go_version=" + runtime.Version() + ",version=1.2.3} 1",
	} {
		if !value(t, r, want) {
			t.Errorf("not there: %s", want)
		}
	}
	// With its monotonic reading (m=), so that a clock that is set is no silence.
	if st := s.Status(); !st.Leader || st.Mode != "stream" || !strings.Contains(st.Heard.String(), " m=") {
		t.Errorf("status %+v", st)
	}
	s.LeadLost()
	if st := s.Status(); st.Leader || st.Mode != "" || !value(t, r, "outbox_cdc_leader{stream=orders} 0") {
		t.Errorf("without its connection %+v", st)
	}
	s.Standby()
	if st := s.Status(); st.Leader || st.Mode != "standby" || !st.Heard.IsZero() {
		t.Errorf("status %+v", st)
	}
	if value(t, r, "outbox_cdc_parks{cause=slot,scope=stream,stream=orders} 1") || !value(t, r, "outbox_cdc_leader{stream=orders} 0") {
		t.Error("a standby shows what a leader has")
	}
}

// What is told of rows and transactions is read back from the counters.
func TestCountsAreReadBack(t *testing.T) {
	_, s := everything()
	if got, want := s.Rows(), (Rows{Published: 3, Sent: 1, Refused: 1, Failed: 1, Left: 3}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if committed, aborted := s.Transactions("main"); committed != 2 || aborted != 1 {
		t.Errorf("%d transactions committed, %d aborted", committed, aborted)
	}
}

// The pause of a table is that table's, and the pause of a stream all its tables'.
func TestWhichTablesAreToldToBePaused(t *testing.T) {
	r, s := everything()
	const other = "outbox_cdc_table_paused{stream=orders,table=public.b} 1"
	if value(t, r, other) {
		t.Error("the pause of one table is another's")
	}
	s.Parks([]outbox.Park{{Scope: outbox.StreamScope(), Cause: outbox.CausePaused}})
	if !value(t, r, other) {
		t.Error("the pause of the stream is not its table's")
	}
	s.Parks([]outbox.Park{{Scope: outbox.StreamScope(), Cause: outbox.CauseResumed}})
	if value(t, r, other) {
		t.Error("it is told when it is resumed")
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
	families, err := r.prometheus.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}

var update = flag.Bool("update", false, "write the table of docs/metrics.md")

const (
	page       = "../../docs/metrics.md"
	tableBegin = "<!-- metrics: made by make generated -->\n"
	tableEnd   = "<!-- metrics end -->\n"
)

// docs/metrics.md lists every metric, its type and labels, and no other.
func TestDocumentation(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), tableBegin)
	made, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		t.Fatal("the markers are gone")
	}
	want := documentation(t)
	if *update {
		if err := os.WriteFile(page, []byte(before+tableBegin+want+tableEnd+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if made != want {
		t.Error("docs/metrics.md is not what the code says; make generated")
	}
}

// A dashboard that works with one 1.x works with the next.
func TestMetricsAreStable(t *testing.T) {
	var now []string
	for _, f := range families(t) {
		now = append(now, f.GetName()+": "+shape(f))
	}
	stable.Compare(t, "metrics", now, *update)
}

// families are those of ours, each with a value.
func families(t *testing.T) []*dto.MetricFamily {
	t.Helper()
	r, _ := everything()
	all, err := r.prometheus.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool { return !strings.HasPrefix(f.GetName(), namespace) })
}

func documentation(t *testing.T) string {
	t.Helper()
	out := "| name | type, labels | meaning |\n|---|---|---|\n"
	for _, f := range families(t) {
		out += fmt.Sprintf("| `%s` | %s | %s |\n", f.GetName(), shape(f), f.GetHelp())
	}
	return out
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

// The native buckets are those of the library for the same observations.
func TestNativeHistogramIsTheLibrarys(t *testing.T) {
	seconds := []float64{0, 1e-9, 0.00002, 0.0005, 0.001, 0.0011, 0.25, 0.5, 0.7, 1, 1.1, 2, 3, 1800, 3600}
	ours := newHistogram("x_seconds", "x", nil)
	theirs := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "x_seconds", NativeHistogramBucketFactor: 1.19, NativeHistogramZeroThreshold: math.Ldexp(1, nativeLowest), Buckets: latencyBounds[:],
	})
	for _, s := range seconds {
		ours.observe(s, 1)
		theirs.Observe(s)
	}
	var a, b dto.Metric
	if err := errors.Join(ours.Write(&a), theirs.Write(&b)); err != nil {
		t.Fatal(err)
	}
	got, want := a.GetHistogram(), b.GetHistogram()
	if got.GetSchema() != want.GetSchema() || got.GetZeroCount() != want.GetZeroCount() || got.GetSampleCount() != want.GetSampleCount() {
		t.Errorf("%v, want %v", got, want)
	}
	if g, w := natives(got), natives(want); !maps.Equal(g, w) {
		t.Errorf("buckets %v, want %v", g, w)
	}
	for i := range want.GetBucket() {
		if got.GetBucket()[i].GetCumulativeCount() != want.GetBucket()[i].GetCumulativeCount() {
			t.Errorf("classic bucket %d: %v, want %v", i, got.GetBucket()[i], want.GetBucket()[i])
		}
	}
}

// natives are the counts of the buckets that hold something, by index.
func natives(h *dto.Histogram) map[int32]int64 {
	counts := map[int32]int64{}
	index, delta, count := int32(0), 0, int64(0)
	for _, span := range h.GetPositiveSpan() {
		index += span.GetOffset()
		for range span.GetLength() {
			count += h.GetPositiveDelta()[delta]
			if count != 0 {
				counts[index] = count
			}
			delta++
			index++
		}
	}
	return counts
}

// What only a leader knows ends with the leadership.
func TestSlotIsToldByALeader(t *testing.T) {
	r := New("", "")
	s := r.Stream("orders", nil, 1000)
	s.Slot(&status.Slot{WALStatus: "reserved", Retained: 100})
	if !value(t, r, "outbox_cdc_slot_lost_in_seconds{stream=orders} +Inf") {
		t.Error("an end without a forecast")
	}
	s.Slot(&status.Slot{WALStatus: "reserved", Retained: 400, Loss: &status.Loss{Seconds: 600}})
	if !value(t, r, "outbox_cdc_slot_lost_in_seconds{stream=orders} 600") {
		t.Error("another end than the forecast's")
	}
	s.Standby()
	s.LockForeign()
	if !value(t, r, "outbox_cdc_leadership_lock_foreign{stream=orders} 1") {
		t.Error("a foreign holder of the lock is not told")
	}
	for end, does := range map[string]func(){"another leader": s.Standby, "the lead": func() { s.Leading(8) }, "an error": s.Stopped} {
		s.LockForeign()
		if does(); !value(t, r, "outbox_cdc_leadership_lock_foreign{stream=orders} 0") {
			t.Errorf("%s does not end it", end)
		}
	}
	s.Standby()
	if !value(t, r, "outbox_cdc_slot_lost_in_seconds{stream=orders} +Inf") || !value(t, r, "outbox_cdc_slot_state{state=reserved,stream=orders} 0") {
		t.Error("a standby tells of the slot")
	}
}
