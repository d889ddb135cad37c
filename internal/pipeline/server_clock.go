package pipeline

import "time"

// serverClock estimates the server's time, to tell which rows waited in the WAL for long. From the time that the server
// sent, it goes on by our monotonic clock. No message sets it back: one that comes late, out of full buffers, has an old
// time. So if the server's clock is set back, rows look older until the connection ends, and are looked at needlessly.
// No row ever looks younger.
type serverClock struct {
	time int64     // the server's, in microseconds since 1970,
	at   time.Time // when this was ours
}

// faster bounds by how much our clock may be faster than the server's: one part in so many.
const faster = 1024

func (c *serverClock) now(at time.Time) int64 {
	since := at.Sub(c.at)
	return c.time + (since - since/faster).Microseconds()
}

// heard takes when the server sent what came last.
func (c *serverClock) heard(sent int64, now time.Time) {
	if !c.at.IsZero() {
		sent = max(sent, c.now(now))
	}
	*c = serverClock{sent, now}
}
