package pipeline

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A server that is silent at the same place again and again gets more time. A server that was gone, and after
// which rows went on, does not.
func TestPatienceWithASilentServer(t *testing.T) {
	t.Parallel()
	const usual = 4 * time.Second
	gone := fmt.Errorf("stream: %w", replication.ErrSilent)
	var s silence
	for _, want := range []time.Duration{usual, 2 * usual, 4 * usual, 8 * usual} {
		s.note(gone, 100)
		if got := s.timeout(usual); got != want {
			t.Errorf("after %d silent ends: %v, want %v", s.times, got, want)
		}
	}
	s.note(errors.New("cut off"), 90) // what is confirmed begins below after each lead
	if got := s.timeout(usual); got != 8*usual {
		t.Errorf("after another end: %v", got)
	}
	for range 100 {
		s.note(gone, 100)
	}
	if got := s.timeout(usual); got != longestSilence || s.timeout(time.Hour) != time.Hour {
		t.Errorf("bound: %v", got)
	}
	s.note(gone, 101)
	if got := s.timeout(usual); got != usual {
		t.Errorf("after rows went on: %v", got)
	}
	s.note(gone, 101)
	s.note(gone, 101)
	s.note(fmt.Errorf("restored: %w", errMoved), 0)
	s.note(gone, 50)
	if got := s.timeout(usual); got != usual {
		t.Errorf("after a restored backup: %v", got)
	}
}
