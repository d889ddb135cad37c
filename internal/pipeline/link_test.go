package pipeline

import (
	"testing"
)

// A stop ends the WAL reader whether or not a connection streams. Between two connections there is none to
// wake.
func TestAStopBetweenTwoConnections(t *testing.T) {
	t.Parallel()
	l := newLink()
	left := make(chan bool, 1)
	go func() {
		defer close(l.finished)
		<-l.finishing
		left <- l.clean
	}()
	if err := l.finish(t.Context(), true, nil); err != nil || !<-left {
		t.Errorf("%v, or the WAL reader was not told that the stop is clean", err)
	}
	if err := l.tell(t.Context(), connEvent{lost: true}); err != nil {
		t.Errorf("nobody takes events any more, and they are waited for: %v", err)
	}
}
