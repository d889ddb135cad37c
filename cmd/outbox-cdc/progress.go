package main

import (
	"fmt"
	"io"
	"time"

	"github.com/rs/zerolog"
)

// progress shows the progress of a long command. On a terminal it is a line that is overwritten twice a
// second; otherwise it is a log line every ten seconds.
type progress struct {
	terminal io.Writer // nil: the log is used
	log      zerolog.Logger
	what     string // the activity and its object

	began, told time.Time
}

const (
	progressShown  = 500 * time.Millisecond
	progressLogged = 10 * time.Second
)

func newProgress(to io.Writer, log zerolog.Logger, what string) *progress {
	p := &progress{log: log, what: what, began: time.Now()}
	p.told = p.began
	if isTerminal(to) {
		p.terminal = raw(to)
	}
	return p
}

// tell reports that done of of rows are done; of 0: the total is unknown.
func (p *progress) tell(done, of int, now time.Time) {
	every := progressLogged
	if p.terminal != nil {
		every = progressShown
	}
	if now.Sub(p.told) < every {
		return
	}
	p.told = now
	words := progressWords(done, of, now.Sub(p.began))
	if p.terminal == nil {
		p.log.Info().Int("done", done).Int("of", of).Str("what", p.what).Msg("in progress: " + words)
		return
	}
	fmt.Fprintf(p.terminal, "\r\x1b[K%s: %s", printable(p.what), words) // carriage return, then erase the rest of the line
}

// end moves to a new line for later output.
func (p *progress) end() {
	if p.terminal != nil && p.told != p.began {
		fmt.Fprint(p.terminal, "\r\x1b[K")
	}
}

func progressWords(done, of int, took time.Duration) string {
	rate := float64(done) / max(took.Seconds(), 0.001)
	if of == 0 {
		return fmt.Sprintf("%d rows, %.0f/s", done, rate)
	}
	words := fmt.Sprintf("%d of %d rows, %.0f/s", done, of, rate)
	if left := of - done; left > 0 && rate > 0 {
		words += fmt.Sprintf(", %s left", (time.Duration(float64(left)/rate) * time.Second).Round(time.Second))
	}
	return words
}
