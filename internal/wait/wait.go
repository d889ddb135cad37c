// Package wait waits for time to pass, for a context to end, or for goroutines that end together.
package wait

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
)

// Sleep returns after d, or as soon as the context ends, with its error.
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

// errOver is recorded where main has ended without an error.
var errOver = errors.New("over")

// While runs the others for as long as main runs, and returns why that ended: main's error, or the
// first of another, which ends main too. What ended it is recorded before the contexts end. Where a
// member ends them itself, another's context.Canceled may come first and pass for the reason.
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
