package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// untilSignal returns a context that ends at the first SIGINT or SIGTERM. The
// second one exits the process at once.
func untilSignal(log io.Writer) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		select {
		case s := <-signals:
			fmt.Fprintf(log, "outbox-cdc: %s: stopping; once more stops at once\n", s)
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
