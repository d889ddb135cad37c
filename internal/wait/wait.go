// Package wait waits for time to pass, for a context to end, or for goroutines that end together.
package wait

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
)

// Sleep returns nil after d. If ctx ends first, it returns the error of ctx at once.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// errOver: main has ended without an error.
var errOver = errors.New("over")

// While runs the others for as long as main runs. It returns why they ended: the error of main, or the first
// error of another function, which also ends main. The reason is recorded before the contexts are cancelled.
// A function that cancels the contexts itself spoils this: a context.Canceled of another function may then be
// recorded as the reason.
func While(ctx context.Context, main func(context.Context) error, others ...func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, other := range others {
		group.Go(func() error { return other(ctx) })
	}
	group.Go(func() error {
		if err := main(ctx); err != nil {
			return err
		}
		return errOver
	})
	if err := group.Wait(); !errors.Is(err, errOver) {
		return err
	}
	return nil
}
