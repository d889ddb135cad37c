package pipeline

import "time"

// serverClock knows what time it is for the server of a connection, by which rows of the WAL are told that waited for long.
// It goes on by our monotonic clock from what the server said, and by no message back: one that comes late, out of full
// buffers, says what time it was. So a clock that the server sets back makes rows look older than they are until the
// connection ends, and they are looked at needlessly; no row ever looks younger.
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
