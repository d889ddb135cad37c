package bench

import (
	"strings"
	"testing"
)

func TestWhatOthersUse(t *testing.T) {
	t.Parallel()
	busy, steal, err := parseMachine("cpu  1000 100 900 50000 300 10 20 250 0 0\ncpu0 1 2 3\n")
	if err != nil || busy != 20 || steal != 2.5 {
		t.Errorf("%v busy, %v stolen, %v", busy, steal, err)
	}
	for _, text := range []string{"", "cpu 1 2 3", "cpu a b c d e f g h", "intr 1 2 3 4 5 6 7 8"} {
		if _, _, err := parseMachine(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
	all := map[int]stat{
		1: {}, 2: {}, 7: {parent: 2, own: 1}, // the kernel's
		10: {parent: 1, own: 1, children: 2}, 11: {parent: 10, own: 4}, 12: {parent: 11, own: 8}, // ours
		20: {parent: 1, own: 100}, 21: {parent: 20, own: 100}, 22: {parent: 99, own: 100}, // others'
	}
	if got := ofTrees(all, []int{10, 12, 0}); got != 16 {
		t.Errorf("%v seconds are ours", got)
	}
}

func TestARoundBesideOthersDoesNotCount(t *testing.T) {
	t.Parallel()
	quiet := Conditions{Before: Calibration{CPU: 10}, After: Calibration{CPU: 12}, Steal: new(0.02), Others: new(0.05)}
	if why := quiet.noise(10); why != "" {
		t.Errorf("a quiet round does not count: %s", why)
	}
	for name, noisy := range map[string]Conditions{
		"hypervisor":  {Steal: new(0.3)},
		"others":      {Others: new(0.3)},
		"calibration": {After: Calibration{CPU: 13}},
	} {
		if why := noisy.noise(10); !strings.Contains(why, name) {
			t.Errorf("%s: %q", name, why)
		}
	}
	if why := (Conditions{}).noise(0); why != "" {
		t.Errorf("where there is no /proc: %s", why)
	}
}

func TestCalibration(t *testing.T) {
	t.Parallel()
	b := &bench{t: t}
	if c := b.calibrate(); c.CPU <= 0 || c.Memory <= 0 || c.Loopback <= 0 || c.Fsync < 0 {
		t.Errorf("%+v", c)
	}
}
