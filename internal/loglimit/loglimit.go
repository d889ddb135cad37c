// Package loglimit keeps repeated warnings and errors from flooding the log: of
// each message about the same thing a few lines per interval are written, the
// others are counted, and the count is told. The first line of a message is
// never held back. It is a hook of the process's logger; cmd makes it, callers that
// log may say what a line is about.
package loglimit

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// Limit counts lines by level, message and what they are about.
type Limit struct {
	most  int
	every time.Duration
	now   func() time.Time

	mu    sync.Mutex
	lines map[line]*count // at most maxLines
}

type line struct {
	level          zerolog.Level
	message, about string
}

type count struct {
	began   time.Time // of the interval
	message string    // of the last line
	n       int
	hidden  int // not written, and not told yet
}

// maxLines bounds what is remembered. Lines beyond it are counted by their message
// alone, whatever they are about.
const maxLines = 1000

// New allows most lines of each kind per interval.
func New(most int, every time.Duration) *Limit {
	return &Limit{most: most, every: every, now: time.Now, lines: map[line]*count{}}
}

type (
	aboutKey struct{}
	causeKey struct{}
)

// About says, given to a line with Event.Ctx, what the line is about: lines with
// the same message about something else are counted apart.
func About(what string) context.Context {
	return context.WithValue(context.Background(), aboutKey{}, what)
}

// Because says, given to a line with Event.Ctx, which cause it shares with the stream's lines of other messages: one of
// them is written per interval, the others are counted. Without a cause it shares none.
func Because(stream, cause string) context.Context {
	if cause == "" {
		return context.Background()
	}
	return context.WithValue(context.Background(), causeKey{}, "stream "+stream+": "+cause)
}

// Run is part of zerolog.Hook: it discards a line that is one too many, and says on
// the next that is written how many were not.
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

// Report tells, until ctx ends and then once more, how many lines were held
// back where no further line came to say so.
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

// tell forgets the lines whose interval is over, or all, and logs those with a count.
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
	l.mu.Unlock() // the logger takes it again
	for which, c := range counts {
		event := log.WithLevel(which.level).Ctx(About(which.about)).Int("repeated", c.hidden)
		if which.about != "" {
			event = event.Str("about", which.about)
		}
		event.Msg(c.message)
	}
}
