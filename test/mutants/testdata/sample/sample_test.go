package sample

import "testing"

func TestSample(t *testing.T) {
	var seen int
	if Clamp(3, 2, &seen) != 2 || Clamp(1, 2, &seen) != 1 {
		t.Error("clamp")
	}
	if Both(true, false) || !Both(true, true) {
		t.Error("both")
	}
	if Loop(4) != 6 {
		t.Error("loop")
	}
}
