package status

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

func TestPredict(t *testing.T) {
	for name, c := range map[string]struct {
		retained, budget uint64
		safe             int64
		growth           float64
		want             *Loss
	}{
		"nothing grows":            {100, 1000, -1, 0, nil},
		"it shrinks":               {100, 1000, 10, -5, nil},
		"no limit at all":          {100, 0, -1, 5, nil},
		"the budget":               {100, 1000, -1, 9, &Loss{100, LossByBudget}},
		"the budget is passed":     {2000, 1000, -1, 9, &Loss{0, LossByBudget}},
		"the server is first":      {100, 1000, 90, 9, &Loss{10, LossByServer}},
		"the budget is first":      {910, 1000, 900, 9, &Loss{10, LossByBudget}},
		"the server only":          {910, 0, 900, 9, &Loss{100, LossByServer}},
		"the server is at its end": {910, 1000, 0, 9, &Loss{0, LossByServer}},
		"no number":                {1, 10, 1, math.NaN(), nil},
	} {
		got := Predict(c.retained, c.budget, c.safe, c.growth)
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestLossInWords(t *testing.T) {
	for _, c := range []struct {
		loss *Loss
		want string
	}{
		{nil, "not in sight"},
		{&Loss{30, LossByServer}, "lost in about 30 s: the server keeps no more for it (max_slot_wal_keep_size)"},
		{&Loss{3 * 3600, LossByBudget}, "at the WAL budget in about 3.0 h: then it moves on and the table is swept"},
		{&Loss{1e300, LossByBudget}, "at the WAL budget in about 1157 days: then it moves on and the table is swept"},
	} {
		if got := c.loss.Text(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func TestGrowthNeedsTwoSamples(t *testing.T) {
	var g Growth
	at := time.Unix(1000, 0)
	if _, known := g.Sample(at, 100); known {
		t.Error("a rate from one sample")
	}
	if _, known := g.Sample(at.Add(time.Millisecond), 1e9); known {
		t.Error("a rate over a millisecond")
	}
	if rate, known := g.Sample(at.Add(2*time.Second), 300); !known || rate != 100 {
		t.Error(rate, known)
	}
	if rate, _ := g.Sample(at.Add(4*time.Second), 100); rate != -100 {
		t.Error(rate)
	}
}

func TestSummarize(t *testing.T) {
	since := time.Unix(1000, 0)
	key := func(k string) outbox.Scope {
		return outbox.Scope{Kind: outbox.ScopeKey, Table: "public.outbox", Topic: "t", Key: k}
	}
	parks := []outbox.Park{
		{Scope: key("a"), Cause: outbox.CauseRowError, Reason: "too large", Since: since.Add(time.Hour)},
		{Scope: key("b"), Cause: outbox.CauseMissed, Reason: "missed", Since: since},
		{Scope: key("c"), Cause: outbox.CauseRowError, Reason: "too large", Since: since},
		{Scope: outbox.TopicScope("main", "gone"), Cause: outbox.CauseTopic, Reason: "no such topic", Since: since},
	}
	p := Summarize(parks)
	if p.Total != 4 || p.Scopes["key"] != 3 || p.Scopes["topic"] != 1 || len(p.Top) != 3 {
		t.Fatalf("%+v", p)
	}
	if p.Top[0].Kind != "topic" || p.Top[1].Count != 2 || !p.Top[1].Since.Equal(since) || p.Top[2].Cause != "missed" {
		t.Errorf("%+v", p.Top)
	}
	parks = nil
	for i := range 5000 {
		topic := fmt.Sprintf("none-%d", i)
		parks = append(parks, outbox.Park{Scope: outbox.TopicScope("main", topic), Cause: outbox.CauseTopic, Reason: "topic " + topic + " does not exist", Since: since})
	}
	if p := Summarize(parks); len(p.Top) != 1 || p.Top[0].Count != 5000 || p.Top[0].Reason != "topic … does not exist" || p.Top[0].Example != "topic none-0 on cluster main" {
		t.Errorf("%+v", p.Top)
	}
	if StreamPark(parks) != nil || StreamPark([]outbox.Park{{Scope: outbox.StreamScope(), Reason: "x"}}).Reason != "x" {
		t.Error("the stream's park")
	}
}

func TestSizes(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 8 << 30: "8 GiB", 200 << 20: "200 MiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
