package bench

import (
	"slices"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	// The name may hold spaces and parentheses.
	s, err := parseStat("42 (a (b) c) S 7 42 42 0 -1 4194304 1 2 3 4 150 50 1000 200 20 0 3 0 99")
	if err != nil || s != (stat{parent: 7, own: 2, children: 12}) {
		t.Errorf("%+v, %v", s, err)
	}
	for _, text := range []string{"", "42 (x", "42 (x) S 1 2", "42 (x) S y 42 42 0 -1 4194304 1 2 3 4 150 50 1000 200 20"} {
		if _, err := parseStat(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

func TestStatementsOfADatabase(t *testing.T) {
	t.Parallel()
	log := "2026-01-02 03:04:05.678 UTC [12] postgres@t1_b LOG:  duration: 0.250 ms  bind stmtcache_1: SELECT 1\n" +
		"2026-01-02 03:04:05.679 UTC [12] postgres@t1_b LOG:  duration: 1.500 ms  execute stmtcache_1: SELECT\n\t\tFROM outbox0\n" +
		"2026-01-02 03:04:05.680 UTC [13] postgres@other LOG:  duration: 9 ms  statement: SELECT 2\n" +
		"2026-01-02 03:04:05.680 UTC [13] postgres@t1_b ERROR:  duration of nothing\n"
	want := []logged{{0.25, "bind", "SELECT 1"}, {1.5, "execute", "SELECT \tFROM outbox0"}}
	if got := statements(log, "t1_b"); !slices.Equal(got, want) {
		t.Errorf("%+v, wanted %+v", got, want)
	}
}

func TestWhatIsChosen(t *testing.T) {
	t.Parallel()
	names := func(only string) (n []string) {
		some, err := chosen(only)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range some {
			n = append(n, a.name)
		}
		return n
	}
	if got := names(""); len(got) != 13 || got[0] != "B1" || got[12] != "B13" {
		t.Errorf("without ONLY: %v", got)
	}
	if got := names("b2, B1"); !slices.Equal(got, []string{"B2", "B1"}) {
		t.Errorf("two bars: %v", got)
	}
	if got := names("cost-hot,scale"); got[0] != "cost-hot" || len(got) != 8 {
		t.Errorf("one and all of a kind: %v", got)
	}
	if _, err := chosen("B99"); err == nil {
		t.Error("B99 is measured")
	}
}

func TestASummaryIsItsMedianRound(t *testing.T) {
	t.Parallel()
	round := func(value, reference, cpu, peak float64) sample {
		return sample{value: value, reference: &reference, cpu: CPU{OutboxCDC: &cpu}, peak: &peak}
	}
	r := summary("B2", line{unit: "rows/s", missed: ratioAtLeast(1.25)}, []sample{round(300, 100, 3, 50), round(100, 100, 1, 70), round(200, 100, 2, 60)})
	if *r.Value != 200 || *r.Ratio != 2 || *r.CPU.OutboxCDC != 2 || *r.PeakRSS != 70 || !*r.OK {
		t.Errorf("%+v", r)
	}
	if r := summary("B2", line{missed: ratioAtLeast(1.25)}, nil); r.Value != nil || r.OK != nil {
		t.Errorf("nothing was measured: %+v", r)
	}
}

func TestWhenToLookAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		took  time.Duration
		share float64
		want  time.Duration
	}{
		{time.Second, 0, 100 * time.Millisecond},
		{time.Second, 0.1, 500 * time.Millisecond},
		{time.Second, 0.9, 55 * time.Millisecond},
		{time.Second, 1, 20 * time.Millisecond},
	} {
		if got := nextLook(c.took, c.share); (got - c.want).Abs() > time.Millisecond {
			t.Errorf("%v for %v: %v, wanted %v", c.took, c.share, got, c.want)
		}
	}
}

func TestBarsSayByHowMuchTheyWereMissed(t *testing.T) {
	t.Parallel()
	of := func(value, reference, ratio float64, unit string) Result {
		return Result{Value: &value, Reference: &reference, Ratio: &ratio, Unit: unit}
	}
	for want, got := range map[string]string{
		"":        ratioAtLeast(0.65)(of(0, 0, 0.65, "rows/s")),
		"10 %":    ratioAtLeast(0.65)(of(0, 0, 0.585, "rows/s")),
		"25 %":    atLeast(50_000)(of(37_500, 0, 0, "rows/s")),
		"6 MiB":   atMost(64)(of(70, 0, 0, "MiB")),
		"0.25 ms": aboveReference(0.5)(of(1.5, 0.75, 2, "ms")),
	} {
		if got != want {
			t.Errorf("missed by %q, wanted %q", got, want)
		}
	}
	if aboveReference(1)(Result{Value: new(1.0)}) == "" {
		t.Error("without a reference nothing is reached")
	}
}
