package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/metrics"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

func TestErrorsAlikeAreCountedTogether(t *testing.T) {
	var b statusTracker
	at := time.Unix(1000, 0)
	table := &outbox.Table{Schema: "public", Name: "outbox"}
	o := outbox.Outcome{Class: outbox.Refused, Err: errors.New("too large"), Rows: []*outbox.Row{{Table: table, Topic: "t", ID: "1"}, {Table: table, Topic: "t", ID: "2"}, {Table: table, Topic: "u", ID: "3"}}}
	b.outcome(&o, at)
	r := &b.recent
	if len(r.errors) != 2 || r.errors[0].Count != 2 || r.errors[0].Example != "public.outbox 1" || r.errors[1].About != "topic u" {
		t.Errorf("%+v", r.errors)
	}
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	var r recent
	table := &outbox.Table{}
	m := metrics.New("", "").Stream("orders", []*outbox.Table{table}, 0)
	at := time.Unix(1000, 0)
	row := outbox.Row{Table: table, Cluster: "main", Topic: "t"}
	for i := range 1000 {
		row.CreatedAt = at.UnixMicro()
		at = at.Add(sampleEvery)
		r.recordEvent(at, "mode", fmt.Sprint(i))
		r.recordError(at, "t", strings.Repeat("é", i), "")
		m.Outcome(outbox.Outcome{Class: outbox.Delivered, Rows: []*outbox.Row{&row}}, at)
		r.sample(at, &status.Slot{Lag: 5}, m)
	}
	if len(r.events) != keptEvents || r.events[keptEvents-1].Text != "999" || len(r.errors) != keptErrors || len(r.history) != keptHistory {
		t.Error(len(r.events), len(r.errors), len(r.history))
	}
	for _, g := range r.errors {
		if len(g.Text) > keptText+3 || !strings.HasPrefix(g.Text, "é") {
			t.Errorf("%d bytes", len(g.Text))
		}
	}
	if p := r.history[keptHistory-1]; p.PerSecond != 0.1 || p.Lag != 5 || !p.At.Equal(at) || p.P50 < 10 || p.P50 > 12 || p.P99 != p.P50 {
		t.Errorf("%+v", p)
	}
	if got := r.topics["main t"].history; len(got) != keptHistory || got[keptHistory-1].PerSecond != 0.1 || got[keptHistory-1].P50 < 10 || got[keptHistory-1].P50 > 12 || got[keptHistory-1].P99 != got[keptHistory-1].P50 {
		t.Errorf("%d samples of the topic, the last %v", len(got), got[len(got)-1])
	}
}

// Rates are of the time since they were taken last, of each count.
func TestRates(t *testing.T) {
	var r recent
	table := &outbox.Table{}
	m := metrics.New("", "").Stream("orders", []*outbox.Table{table}, 0)
	row := &outbox.Row{Table: table, Cluster: "main", Topic: "t"}
	at := time.Unix(1000, 0)
	for i, x := range []struct {
		published, sent int
		want            status.Rates
	}{{1, 1, status.Rates{}}, {8, 4, status.Rates{Published: 4, Sent: 2}}, {2, 6, status.Rates{Published: 1, Sent: 3}}} {
		m.Outcome(outbox.Outcome{Class: outbox.Delivered, Rows: slices.Repeat([]*outbox.Row{row}, x.published)}, at)
		m.Marked(slices.Repeat([]outbox.Marked{{Row: row, State: outbox.MarkedSent}}, x.sent))
		if r.sample(at, nil, m); r.rates != x.want {
			t.Errorf("%d: %+v, want %+v", i, r.rates, x.want)
		}
		at = at.Add(ratesEvery)
	}
}

// Failed rows are counted again once after more became so.
func TestACountThatChanges(t *testing.T) {
	n := uint64(3)
	changed := changing(func() uint64 { return n })
	for _, want := range []bool{false, true, false} {
		if changed() != want {
			t.Errorf("%d: changed %v", n, !want)
		}
		n = 4
	}
}

func TestActivity(t *testing.T) {
	s := New(Config{Name: "orders", Metrics: metrics.New("", "").Stream("orders", nil, 0), Replication: replication.Config{Slot: "s"}})
	if a := s.Activity(); a.Parks == nil || a.Errors == nil || a.Events == nil || a.History == nil || a.Topics == nil || a.Positions != nil {
		t.Errorf("lists are not empty but missing: %+v", a)
	}
	b, now := &s.tracker, time.Now()
	b.leads("outbox-cdc/orders@here", 3)
	b.cluster(outbox.ClusterState{Cluster: "main", Usable: true})
	b.cluster(outbox.ClusterState{Cluster: "main", Err: errors.New("nobody answers")})
	b.cluster(outbox.ClusterState{Cluster: "main", Err: errors.New("nobody answers")})
	b.retained("s", 1000, false, replication.Retained{Insert: 500, Confirmed: 400, Restart: 300, Status: "reserved", Safe: -1}, "", 0, now)
	b.parked([]outbox.Park{
		{Scope: outbox.Scope{Kind: outbox.ScopeKey, Table: "t", Topic: "x", Key: "k"}, Reason: "later"}, {Scope: outbox.StreamScope(), Reason: "first"},
	})
	b.sample(2, s.cfg.Metrics)
	a := s.Activity()
	if len(a.Events) != 3 || !strings.Contains(a.Events[0].Text, "cannot be used: nobody answers") || !strings.Contains(a.Events[2].Text, "epoch 3") {
		t.Errorf("%+v", a.Events)
	}
	if len(a.Errors) != 1 || a.Errors[0].Count != 2 || len(a.Parks) != 2 || a.Parks[0].Reason != "first" || a.Positions.Confirmed != "0/190" {
		t.Errorf("%+v", a)
	}
	b.reset()
	if a := s.Activity(); len(a.Parks) != 0 || a.Positions != nil || !strings.Contains(a.Events[0].Text, "no longer") {
		t.Errorf("%+v", a)
	}
}
