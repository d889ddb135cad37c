package wait

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestSleepEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	if err := Sleep(ctx, time.Nanosecond); err != nil {
		t.Error(err)
	}
	cancel()
	for _, d := range []time.Duration{-1, 0, time.Hour} {
		if err := Sleep(ctx, d); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", d, err)
		}
	}
}

// When others see their contexts end, why is on record already: their own errors cannot pass for it.
func TestTheReasonComesBeforeTheEnd(t *testing.T) {
	failed, lost := errors.New("failed"), errors.New("lost")
	end := func(err error) func(context.Context) error {
		return func(context.Context) error { return err }
	}
	for name, c := range map[string]struct{ main, other, want, cause error }{
		"main fails":    {main: failed, want: failed, cause: failed},
		"main ends":     {cause: errOver},
		"another fails": {main: context.Canceled, other: lost, want: lost, cause: lost},
	} {
		t.Run(name, func(t *testing.T) {
			var cause error
			watching := func(ctx context.Context) error {
				<-ctx.Done()
				cause = context.Cause(ctx)
				return ctx.Err()
			}
			main, other := end(c.main), watching
			if c.other != nil {
				main, other = watching, end(c.other)
			}
			if err := While(t.Context(), main, other); !errors.Is(err, c.want) || !errors.Is(cause, c.cause) {
				t.Errorf("%v, wanted %v; the others ended for %v, wanted %v", err, c.want, cause, c.cause)
			}
		})
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := While(stopped, func(ctx context.Context) error { return ctx.Err() }); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped from outside: %v", err)
	}
}
