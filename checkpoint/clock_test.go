package checkpoint

import (
	"testing"
	"time"
)

// Times of the simulation differ by the monotonic clock, and are compared with
// others, which have none, by the wall clock.
func TestClockTime(t *testing.T) {
	before := clockTime(epochStart, 0)
	after := clockTime(epochStart.Add(time.Second-time.Hour), time.Second) // set back by an hour
	if d := after.Sub(before); d != time.Second {
		t.Errorf("the monotonic clock shows %v", d)
	}
	if !after.After(before) {
		t.Error("the wall clock decides between times that have both")
	}
	if wall := after.Round(0); !wall.Equal(epochStart.Add(time.Second-time.Hour)) || after.After(epochStart) {
		t.Errorf("the wall clock shows %v", wall)
	}
	if got := after.UnixMicro(); got != epochStart.Add(time.Second-time.Hour).UnixMicro() {
		t.Errorf("in microseconds: %d", got)
	}
}
