// Package loglimit keeps repeated warnings and errors from flooding the log. For each message about the same
// subject, a few lines are written per interval. Further lines are counted, and the count is logged. The
// first line of a message is always written. The package is a hook of the process's logger, which cmd makes.
// Callers may say what a line is about.
package loglimit

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// Limit counts lines by level, message and subject.
type Limit struct {
	most  int
	every time.Duration
	now   func() time.Time

	mu    sync.Mutex
	lines map[line]*count // at most maxLines entries
}

type line struct {
	level          zerolog.Level
	message, about string
}

type count struct {
	began   time.Time // beginning of the interval
	message string    // message of the last line
	n       int
	hidden  int // lines not written and not reported yet
}

// maxLines is how many kinds of lines are remembered. Further lines are counted by their message alone,
// whatever their subject.
const maxLines = 1000

// New returns a Limit that allows most lines of each kind per interval.
func New(most int, every time.Duration) *Limit {
	return &Limit{most: most, every: every, now: time.Now, lines: map[line]*count{}}
}

type (
	aboutKey struct{}
	causeKey struct{}
)

// About returns a context for Event.Ctx that says what a line is about. Lines with the same message about
// another subject are counted separately.
func About(what string) context.Context {
	return context.WithValue(context.Background(), aboutKey{}, what)
}

// Because returns a context for Event.Ctx that says which cause a line shares with lines of other messages of
// the same stream. One of these lines is written per interval; the others are counted. With an empty cause
// the line shares none.
func Because(stream, cause string) context.Context {
	if cause == "" {
		return context.Background()
	}
	return context.WithValue(context.Background(), causeKey{}, "stream "+stream+": "+cause)
}

// Run implements zerolog.Hook. It discards a line beyond the limit. The next line that is written says how
// many were discarded.
func (l *Limit) Run(e *zerolog.Event, level zerolog.Level, message string) {
	if level != zerolog.WarnLevel && level != zerolog.ErrorLevel {
		return
	}
	about, _ := e.GetCtx().Value(aboutKey{}).(string)
	which, most := line{level, message, about}, l.most
	if cause, shared := e.GetCtx().Value(causeKey{}).(string); shared {
		which, most = line{level, "", cause}, 1
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines[which] == nil && len(l.lines) >= maxLines {
		which.about = ""
	}
	c, now := l.lines[which], l.now()
	switch {
	case c == nil:
		l.lines[which] = &count{began: now, message: message, n: 1}
	case now.Sub(c.began) >= l.every:
		if c.hidden > 0 {
			e.Int("repeated", c.hidden)
		}
		*c = count{began: now, message: message, n: 1}
	case c.n < most:
		c.n++
	default:
		c.hidden++
		c.message = message
		e.Discard()
	}
}

// Report logs, until ctx ends and then once more, how many lines were discarded if no later line has said so.
func (l *Limit) Report(ctx context.Context, log zerolog.Logger) error {
	ticker := time.NewTicker(l.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			l.tell(log, true)
			return nil
		case <-ticker.C:
			l.tell(log, false)
		}
	}
}

// tell drops the lines whose interval is over (or all), and logs those with a count.
func (l *Limit) tell(log zerolog.Logger, all bool) {
	counts := map[line]count{}
	l.mu.Lock()
	for which, c := range l.lines {
		if !all && l.now().Sub(c.began) < l.every {
			continue
		}
		if c.hidden > 0 {
			counts[which] = *c
		}
		delete(l.lines, which)
	}
	l.mu.Unlock() // the logger calls Run, which locks again
	for which, c := range counts {
		event := log.WithLevel(which.level).Ctx(About(which.about)).Int("repeated", c.hidden)
		if which.about != "" {
			event = event.Str("about", which.about)
		}
		event.Msg(c.message)
	}
}
