package sink

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// countedSecret counts how often it was refused.
type countedSecret int

func (c *countedSecret) Read(context.Context) (string, error) { return "hunter2", nil }
func (c *countedSecret) Refused()                             { *c++ }

// A refusal counts each time; a closed connection, which in an outage each is, once a minute.
func TestWhatCountsAsARefusal(t *testing.T) {
	t.Parallel()
	var refused countedSecret
	n := &network{password: &refused, closed: &closings{}}
	for i, step := range []struct {
		err   error
		later time.Duration
		want  countedSecret
	}{
		{err: io.EOF, want: 1},
		{err: fmt.Errorf("read: %w", io.EOF), want: 1},
		{err: io.ErrUnexpectedEOF, want: 1},
		{err: sarama.ErrSASLAuthenticationFailed, want: 2},
		{err: sarama.ErrSASLAuthenticationFailed, want: 3},
		{err: io.EOF, later: closedEvery, want: 4},
		{err: io.EOF, want: 4},
	} {
		n.closed.last = n.closed.last.Add(-step.later)
		n.noteRefusal(step.err)
		if refused != step.want {
			t.Errorf("step %d, %v: refused %d times, want %d", i, step.err, refused, step.want)
		}
	}
}
