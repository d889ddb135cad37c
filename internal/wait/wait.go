// Package wait waits for time to pass, or for a context to end.
package wait

import (
	"context"
	"time"
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
