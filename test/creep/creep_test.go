package creep

import "testing"

var kept [][]byte

func TestWhatARowAllocates(t *testing.T) {
	if raceDetector {
		t.Skip("it allocates by itself")
	}
	got := measure(100, func() {
		kept = kept[:0]
		for range 50 {
			kept = append(kept, make([]byte, 64))
		}
	})
	if got.Allocations < 0.5 || got.Allocations > 0.51 || got.Bytes < 32 || got.Bytes > 33 {
		t.Errorf("%+v", got)
	}
}

func TestWhatIsMore(t *testing.T) {
	t.Parallel()
	was := Cost{Allocations: 1, Bytes: 100}
	for _, c := range []struct {
		got  Cost
		more bool
	}{
		{Cost{1, 100}, false},
		{Cost{0, 0}, false},
		{Cost{1.04, 104}, false},
		{Cost{1.1, 100}, true},
		{Cost{1, 110}, true},
	} {
		if why := more(was, c.got); (why != "") != c.more {
			t.Errorf("%+v: %q", c.got, why)
		}
	}
	if more(Cost{}, Cost{0.1, 0}) == "" || more(Cost{}, Cost{0.001, 0.5}) != "" {
		t.Error("from nothing")
	}
}
