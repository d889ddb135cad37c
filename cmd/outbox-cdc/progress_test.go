package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

func TestProgressWords(t *testing.T) {
	for want, c := range map[string]struct {
		done, of int
		took     time.Duration
	}{
		"500 of 100000 rows, 500/s, 3m19s left": {500, 100_000, time.Second},
		"100000 of 100000 rows, 500/s":          {100_000, 100_000, 200 * time.Second},
		"0 of 10 rows, 0/s":                     {0, 10, time.Second},
		"42 rows, 21/s":                         {42, 0, 2 * time.Second},
		"1 rows, 1000/s":                        {1, 0, 0},
	} {
		if got := progressWords(c.done, c.of, c.took); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// On a terminal one line is overwritten, and a name cannot write control sequences to it. In the log there is
// a line at intervals.
func TestProgressIsToldNowAndThen(t *testing.T) {
	var log, screen bytes.Buffer
	p := newProgress(&bytes.Buffer{}, zerolog.New(&log), "requeue rows of public.outbox")
	for second := range 25 {
		p.tell(second*100, 10_000, p.began.Add(time.Duration(second)*time.Second))
	}
	p.end()
	if lines := strings.Count(log.String(), "\n"); lines != 2 || !strings.Contains(log.String(), "in progress: 1000 of 10000 rows, 100/s, 1m30s left") {
		t.Errorf("%d lines:\n%s", lines, log.String())
	}
	p = newProgress(&bytes.Buffer{}, zerolog.New(&log), "requeue rows of a\x1b[2Jb")
	p.terminal = &screen
	for tenth := range 11 {
		p.tell(tenth, 100, p.began.Add(time.Duration(tenth)*100*time.Millisecond))
	}
	p.end()
	const line = "\r\x1b[Krequeue rows of a\\u001b[2Jb: "
	if want := line + "5 of 100 rows, 10/s, 9s left" + line + "10 of 100 rows, 10/s, 9s left\r\x1b[K"; screen.String() != want {
		t.Errorf("%q, want %q", screen.String(), want)
	}
}
