package pipeline

import (
	"testing"
	"time"
)

func TestHalted(t *testing.T) {
	start := time.Now()
	s := &Stream{watchdog: watchdog{since: start}}
	if got := s.Halted(start.Add(time.Hour)); got != 0 {
		t.Errorf("before a driver is at work: halted for %s, want 0", got)
	}
	s.watchdog.alive(start)
	if got := s.Halted(start.Add(time.Minute)).Round(time.Second); got != time.Minute {
		t.Errorf("a minute after its turn: halted for %s, want 1m", got)
	}
	s.watchdog.alive(start.Add(time.Minute))
	if got := s.Halted(start.Add(time.Minute)); got != 0 {
		t.Errorf("at its turn: halted for %s, want 0", got)
	}
	s.watchdog.idle()
	if got := s.Halted(start.Add(time.Hour)); got != 0 {
		t.Errorf("after the driver ended: halted for %s, want 0", got)
	}
}
