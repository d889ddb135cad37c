package pipeline

import (
	"testing"
	"time"
)

// The time is the server's, and advances by our clock between the server's messages. It never goes back by
// more than our clock may be fast.
func TestServerClock(t *testing.T) {
	t.Parallel()
	start := time.Now()
	after := func(d time.Duration) time.Time { return start.Add(d) }
	const said = int64(1_000_000_000_000_000)
	is := func(c serverClock, at time.Duration, want time.Duration, why string) {
		t.Helper()
		if got := time.Duration(c.now(after(at))-said) * time.Microsecond; got > want || got < want-at/faster-time.Microsecond {
			t.Errorf("%s: after %v it is %v, not %v", why, at, got, want)
		}
	}
	var c serverClock
	c.heard(said, start)
	is(c, 0, 0, "as it was said")
	is(c, time.Hour, time.Hour, "while nothing comes")
	late := c
	late.heard(said+1, after(time.Minute))
	is(late, time.Minute, time.Minute, "what came late")
	back := c
	back.heard(said-time.Hour.Microseconds(), after(time.Minute))
	is(back, time.Minute, time.Minute, "set back")
	forth := c
	forth.heard(said+time.Hour.Microseconds(), after(time.Minute))
	is(forth, time.Minute, time.Hour, "set forward")
	slower := c // by less than faster allows
	for i := range 24 * 60 {
		d := time.Duration(i) * time.Minute
		slower.heard(said+(d-d/2000).Microseconds(), after(d))
	}
	is(slower, 24*time.Hour, 24*time.Hour-24*time.Hour/2000, "slower than ours")
}
