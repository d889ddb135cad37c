package pipeline

import (
	"testing"
	"time"
)

func TestBackOffGivesWay(t *testing.T) {
	t.Parallel()
	calm := load{behind: true, taken: 16_000}
	for _, c := range []struct {
		name   string
		before backOff
		load   load
		want   backOff
	}{
		{"nothing limits a calm catch-up", backOff{}, calm, backOff{}},
		{"trouble halves what was taken", backOff{}, load{behind: true, taken: 16_000, trouble: paceLocks}, backOff{8_000, 1_000, paceLocks}},
		{"and again", backOff{8_000, 1_000, paceLocks}, load{behind: true, taken: 8_000, trouble: paceStandby}, backOff{4_000, 1_000, paceStandby}},
		{"down to the floor", backOff{1_500, 1_000, paceLocks}, load{behind: true, taken: 1_500, trouble: paceLocks}, backOff{1_000, 1_000, paceLocks}},
		{"which is a tenth of a small limit", backOff{}, load{behind: true, taken: 500, trouble: paceLocks, fixed: 600}, backOff{250, 31.25, paceLocks}},
		{"and no less", backOff{70, 10, paceLocks}, load{behind: true, taken: 70, trouble: paceLocks, fixed: 600}, backOff{60, 10, paceLocks}},
		{"trouble that is not ours is none", backOff{}, load{behind: true, taken: 400, trouble: paceLocks}, backOff{}},
		{"a limit that does not bind is none", backOff{20_000, 1_000, paceLocks}, load{behind: true, taken: 6_000, trouble: paceLocks}, backOff{3_000, 375, paceLocks}},
		{"without trouble it rises", backOff{4_000, 1_000, paceLocks}, load{behind: true, taken: 4_000}, backOff{5_000, 1_000, paceRecovering}},
		{"while nothing is taken, too", backOff{1_000, 500, paceLocks}, load{behind: true}, backOff{1_500, 500, paceRecovering}},
		{"until it does not bind", backOff{16_000, 1_000, paceRecovering}, load{behind: true, taken: 4_000}, backOff{}},
		{"or the configured one is reached", backOff{9_500, 1_000, paceRecovering}, load{behind: true, taken: 9_500, fixed: 10_000}, backOff{}},
		{"at the tip it is lifted, whatever others bear", backOff{1_000, 500, paceLocks}, load{taken: 1_000, trouble: paceLocks}, backOff{}},
	} {
		if got := c.before.next(c.load); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// However long trouble lasts, rows go on. After it, the limit ends within about a minute.
func TestBackOffNeverStopsAndRecovers(t *testing.T) {
	t.Parallel()
	b, taken := backOff{}, 50_000.0
	for range 100 {
		if b = b.next(load{behind: true, taken: taken, trouble: paceLocks}); b.rows < backOffFloor || b.rows > taken {
			t.Fatalf("%+v after %v rows/s", b, taken)
		}
		taken = b.rows
	}
	for n := 0; b != (backOff{}); n++ {
		if n == 100 {
			t.Fatalf("still %+v", b)
		}
		b = b.next(load{behind: true, taken: taken})
		taken = min(50_000, b.rows)
	}
}

func TestTrouble(t *testing.T) {
	t.Parallel()
	at := func(pid int, lag uint64) standbyServer { return standbyServer{PID: pid, Name: "replica", Lag: lag} }
	far := standbyTrouble
	for _, c := range []struct {
		name        string
		before, now pressure
		want        string
	}{
		{"nothing", pressure{}, pressure{}, ""},
		{"somebody waits", pressure{}, pressure{Waiting: 1}, paceLocks},
		{"a standby near", pressure{Standbys: []standbyServer{at(1, 1)}}, pressure{Standbys: []standbyServer{at(1, far)}}, ""},
		{"one that falls back", pressure{Standbys: []standbyServer{at(1, far)}}, pressure{Standbys: []standbyServer{at(1, far+1)}}, paceStandby},
		{"one that catches up", pressure{Standbys: []standbyServer{at(1, 2*far)}}, pressure{Standbys: []standbyServer{at(1, 2*far-1)}}, ""},
		{"one that has come just now", pressure{Standbys: []standbyServer{at(1, 0)}}, pressure{Standbys: []standbyServer{at(1, 0), at(2, 9*far)}}, ""},
	} {
		if got, _ := c.now.trouble(&c.before); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestRowsArePaidFor(t *testing.T) {
	t.Parallel()
	start := time.Unix(100, 0)
	l := limit{Limits: Limits{RowsPerSecond: 500}}
	if until := l.charge(start, 1000); !until.Equal(start.Add(2 * time.Second)) {
		t.Errorf("1000 rows at 500 a second: until %v", until)
	}
	if until := l.charge(start.Add(time.Second), 1100); !until.Equal(start.Add(2200 * time.Millisecond)) {
		t.Errorf("100 more: until %v", until)
	}
	if late := start.Add(time.Minute); !l.charge(late, 1100).Equal(late) {
		t.Error("what was not taken may not be taken later at once")
	}
	if rows, reason := l.inForce(); rows != 500 || reason != paceConfigured || l.share() != 125 {
		t.Errorf("%v %q, %d at once", rows, reason, l.share())
	}
	l.backOff = backOff{rows: 200, reason: paceLocks}
	if rows, reason := l.inForce(); rows != 200 || reason != paceLocks {
		t.Errorf("%v %q: the lower one is in force", rows, reason)
	}
	free := limit{}
	if !free.charge(start, 1_000_000).IsZero() || free.share() != 0 {
		t.Error("no limit limits nothing")
	}
}
