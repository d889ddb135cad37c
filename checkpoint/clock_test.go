package checkpoint

import (
	"testing"
	"time"
)

// Two times of the simulation are compared by the monotonic clock. A time of the simulation and another
// time, which has no monotonic clock, are compared by the wall clock.
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

// The wall clock was an hour behind and is set right, while the monotonic clock stands still. A wait for a
// time of the database is measured from the new time. A wait that our own clock set before goes on as it was
// (seeds 1809, 68864 and 90349).
func TestNextTickAfterTheClockWasSet(t *testing.T) {
	c := New(Config{WatchEvery: 3 * time.Second})
	c.Tick(clockTime(epochStart.Add(-time.Hour), 0))
	c.Connect(Connected{Streaming: true})
	c.watch.expectAt(epochStart.Add(time.Second / 2)) // as read
	if wait := c.NextTick().Sub(c.now); wait != 3*time.Second {
		t.Errorf("before: waits %v", wait)
	}
	c.Tick(clockTime(epochStart, 0))
	if wait := c.NextTick().Sub(c.now); wait != time.Second/2 {
		t.Errorf("after: waits %v", wait)
	}
}
