package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/rs/zerolog"
)

// logKey is the context key of the log that reports signals. Only run sets one.
type logKey struct{}

func logSignals(ctx context.Context, log zerolog.Logger) {
	if told, ok := ctx.Value(logKey{}).(*atomic.Pointer[zerolog.Logger]); ok {
		told.Store(&log)
	}
}

// tellHangups answers SIGHUP, which makes many services reload their configuration, with a log line: this
// program reads its configuration only when it starts. By default the signal would end the process with rows
// in flight. On a terminal, where it means a hang-up, it still does.
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

// untilSignal returns a context that ends at the first SIGINT or SIGTERM. The second signal ends the process
// at once.
func untilSignal(said io.Writer) (context.Context, context.CancelFunc) {
	told := &atomic.Pointer[zerolog.Logger]{}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), logKey{}, told))
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		select {
		case s := <-signals:
			text := s.String() + ": stopping; once more stops at once"
			if log := told.Load(); log != nil {
				log.Info().Msg(text)
			} else {
				fmt.Fprintln(said, "outbox-cdc: "+text)
			}
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
