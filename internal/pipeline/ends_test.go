package pipeline

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/metrics"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
)

// A term returns the error that ended it, although all other parts only see a cancelled context. That error
// decides what comes next.
func TestATermEndsForItsReason(t *testing.T) {
	t.Parallel()
	lost := errors.New("lost")
	for name, c := range map[string]struct {
		fatal, part, want error
	}{
		"the driver": {fatal: errNewTerm, want: errNewTerm},
		"a part":     {part: lost, want: lost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, err := pgxpool.New(t.Context(), "host=/nowhere") // it is never used
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			cfg := Config{Name: "s", Pool: pool, Log: zerolog.Nop(), Core: checkpoint.Config{}, Metrics: metrics.New("v", "c").Stream("s", nil, 0)}
			d, err := New(cfg).newDriver(t.Context(), nil, statestore.Leadership{})
			if err != nil {
				t.Fatal(err)
			}
			var cause error
			watching := func(ctx context.Context) error {
				if c.fatal != nil {
					d.end(c.fatal)
				}
				<-ctx.Done()
				cause = context.Cause(ctx)
				return ctx.Err()
			}
			failing := func(ctx context.Context) error {
				if c.part == nil {
					<-ctx.Done()
				}
				return c.part
			}
			if err := d.run(t.Context(), watching, failing); !errors.Is(err, c.want) || !errors.Is(cause, c.want) {
				t.Errorf("ended for %v, its parts for %v, wanted %v", err, cause, c.want)
			}
		})
	}
}
