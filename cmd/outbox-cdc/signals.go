package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/rs/zerolog"
)

// notice is where it is told that a signal came: run has a log.
type notice struct {
	mu  sync.Mutex
	say func(text string)
}

type noticeKey struct{}

func (n *notice) tell(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.say(text)
}

// logSignals has signals told by the log.
func logSignals(ctx context.Context, log zerolog.Logger) {
	if n, ok := ctx.Value(noticeKey{}).(*notice); ok {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.say = func(text string) { log.Info().Msg(text) }
	}
}

// tellHangups says at SIGHUP, which asks many services to read their
// configuration, that this one reads it when it starts. The signal would end it
// with rows in flight. On a terminal, whose end it tells, it still does.
func tellHangups(ctx context.Context, log zerolog.Logger) {
	if isTerminal(os.Stderr) {
		return
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		defer signal.Stop(hangups)
		for {
			select {
			case <-hangups:
				log.Warn().Msg("SIGHUP: the configuration is read at the start only, nothing has changed; restart to read it again")
			case <-ctx.Done():
				return
			}
		}
	}()
}

// untilSignal returns a context that ends at the first SIGINT or SIGTERM. The
// second one exits the process at once.
func untilSignal(log io.Writer) (context.Context, context.CancelFunc) {
	said := &notice{say: func(text string) { fmt.Fprintln(log, "outbox-cdc: "+text) }}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), noticeKey{}, said))
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		select {
		case s := <-signals:
			said.tell(s.String() + ": stopping; once more stops at once")
			cancel()
		case <-ctx.Done():
			return
		}
		if s, ok := (<-signals).(syscall.Signal); ok {
			os.Exit(128 + int(s))
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel()
	}
}
