package pipeline

import (
	"sync/atomic"
	"time"
)

// watchdog knows when a stream's driver last went round its loop. A driver at work
// goes round at least once a second, so one that does not is stuck.
type watchdog struct {
	since time.Time // monotonic: a clock that is set must not look like a halt
	last  atomic.Int64
}

func (t *watchdog) alive(now time.Time) { t.last.Store(max(1, int64(now.Sub(t.since)))) }
func (t *watchdog) idle()               { t.last.Store(0) }

// Halted is how long ago the driver last went round its loop. It is 0 while no
// driver is at work: another process leads, or the next try to connect waits.
func (s *Stream) Halted(now time.Time) time.Duration {
	last := s.watchdog.last.Load()
	if last == 0 {
		return 0
	}
	return max(0, now.Sub(s.watchdog.since)-time.Duration(last))
}
