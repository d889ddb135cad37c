package status

import (
	"fmt"
	"math"
	"os"
	"strings"
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
		slot := &Slot{Retained: c.retained, Budget: c.budget}
		if c.safe < 0 && (predict(&Slot{Retained: c.retained, Budget: c.budget, Unbounded: true}, c.growth) != nil ||
			predict(&Slot{Retained: c.retained, Budget: c.budget, HeldBy: "process 7"}, c.growth) != nil ||
			predict(&Slot{Retained: c.retained, Budget: c.budget, StalledBy: "no such slot"}, c.growth) != nil) {
			t.Errorf("%s: the budget ends a slot that it does not bound", name)
		}
		if c.safe >= 0 {
			slot.Safe = &c.safe
		}
		got := predict(slot, c.growth)
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// Where the documentation names the modes, it names each: those of a process in the design, all in the fields of status.
func TestTheDocsNameEveryMode(t *testing.T) {
	section := func(page, begins, ends string) string {
		text, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		_, part, found := strings.Cut(string(text), begins)
		part, _, ended := strings.Cut(part, ends)
		if !found || !ended {
			t.Fatalf("docs/%s has no part from %q to %q", page, begins, ends)
		}
		return part
	}
	design, fields := section("internals/design.md", "\n## Modes\n", "\n## "), section("commands.md", "\n`streams[].mode` |", "\n")
	for _, m := range outbox.Modes {
		if words[string(m)] == "" || !strings.Contains(design, strings.ToUpper(string(m))) {
			t.Errorf("mode %s has no words, or is not in the design", m)
		}
	}
	for mode := range words {
		if !strings.Contains(fields, "`"+mode+"`") {
			t.Errorf("mode %s is not among those of streams[].mode", mode)
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
		{&Loss{0, LossByBudget}, "above the WAL budget: it moves on and the table is swept"},
		{&Loss{1e300, LossByBudget}, "at the WAL budget in about 1157 days: then it moves on and the table is swept"},
	} {
		if got := c.loss.Text(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// The WAL is told against what ends the slot first.
func TestWALText(t *testing.T) {
	few, many := int64(8<<20), int64(16<<30)
	for want, slot := range map[string]*Slot{
		"8 MiB of 8 GiB (wal_budget); the server has no limit (max_slot_wal_keep_size)": {Retained: 8 << 20, Budget: 8 << 30, At: time.Unix(1, 0)},
		"0 B of 8 GiB (wal_budget)":                                                         {Budget: 8 << 30},
		"8 MiB of 8 GiB (wal_budget)":                                                       {Retained: 8 << 20, Budget: 8 << 30, Lost: "its WAL exceeded max_slot_wal_keep_size (96MB)"},
		"8 MiB of 8 GiB (wal_budget); the server allows 16 GiB more":                        {Retained: 8 << 20, Budget: 8 << 30, Safe: &many, At: time.Unix(1, 0)},
		"8 MiB of 16 MiB (max_slot_wal_keep_size, the server's limit); wal_budget is 8 GiB": {Retained: 8 << 20, Budget: 8 << 30, Safe: &few, At: time.Unix(1, 0)},
		"0 B: the server gave it up, its WAL exceeded max_slot_wal_keep_size (96MB)":        {WALStatus: "lost", Budget: 8 << 30, Lost: "its WAL exceeded max_slot_wal_keep_size (96MB)"},
	} {
		if got := slot.WALText(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// What page, status and metric say is measured over minutes: a slot moves on in steps.
func TestForecast(t *testing.T) {
	var f Forecast
	at := time.Unix(1000, 0)
	tell := func(after time.Duration, retained uint64) *Slot {
		s := &Slot{Exists: true, Retained: retained, Budget: 1000}
		f.Tell(at.Add(after), s)
		return s
	}
	if s := tell(0, 100); s.Growth != nil || s.Loss != nil {
		t.Error("a forecast from one sample")
	}
	if s := tell(59*time.Second, 400); s.Growth != nil || s.Loss != nil || s.EndText() != "not known yet: the process that leads, or outbox-cdc status --watch, measures for a minute" {
		t.Errorf("a forecast over less than a minute: %s", s.EndText())
	}
	for i, retained := range []uint64{400, 100, 400, 100} {
		s := tell(time.Duration(i+1)*time.Minute, retained)
		if retained == 100 && (*s.Growth != 0 || s.Loss != nil) {
			t.Errorf("steps are taken for a trend: %+v", s)
		}
	}
	if s := tell(5*time.Minute, 400); *s.Growth != 1 || s.GrowthOver != 300 || *s.Loss != (Loss{600, LossByBudget}) {
		t.Errorf("a byte a second for 5 minutes, and 600 left: %+v", s)
	}
	if s := tell(10*time.Minute, 400); *s.Growth != 0 || s.GrowthOver != 300 {
		t.Errorf("samples from before the window count: %+v", s)
	}
	for _, gone := range []*Slot{{}, {Exists: true, WALStatus: "lost"}} {
		tell(10*time.Minute+time.Second, 900)
		if f.Tell(at.Add(11*time.Minute), gone); gone.Growth != nil || gone.Loss != nil {
			t.Errorf("a slot that holds nothing back grows: %+v", gone)
		}
		if s := tell(12*time.Minute, 50); s.Growth != nil {
			t.Errorf("samples of the slot before count: %+v", s)
		}
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

// What is told of a tally: what nobody can know without a leader is not told.
func TestTallyText(t *testing.T) {
	waiting := uint64(3)
	one := Tally{Cluster: "main", Open: true, Waiting: &waiting, Left: 2, Transactions: &Transactions{
		Committed: 7, Aborted: 1, LastAbort: &Abort{At: time.Unix(0, 0).UTC(), Cause: "stuck", Text: AbortText("stuck")},
	}}
	for _, c := range []struct {
		tally Tally
		led   bool
		want  string
	}{
		{one, true, "open, as always while the stream runs; 3 units of published rows are not noted as marked yet; 2 published rows are left to be marked; since the start 7 transactions committed, 1 aborted, the last at 1970-01-01T00:00:00Z: Kafka acknowledged nothing for 5 s"},
		{Tally{Open: true, Left: 2}, true, "open, as always while the stream runs; 2 published rows are left to be marked"},
		{Tally{Open: true}, false, "open: the stream was not stopped cleanly, so some of the pending rows may be published; a start with delivery: exactly_once finds out which, and any other is refused"},
		{Tally{}, true, "closed: all that was published is marked"},
	} {
		if got := c.tally.Text(c.led); got != c.want {
			t.Errorf("%+v, led %v: %s, want %s", c.tally, c.led, got, c.want)
		}
	}
}
