package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/outbox-cdc/outbox-cdc/internal/failpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// store is the stream's parks. Its lock keeps two goroutines apart: one that writes parks, and one that takes
// the lead again. Otherwise a write under the former epoch would fail as if another process led.
type store struct {
	mu sync.Mutex
	db postgres.DB
	*statestore.Store
}

func (s *store) lead(ctx context.Context, holder string) (statestore.Leadership, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := replication.TrustSchema(ctx, s.db)
	if errors.Is(err, replication.ErrNoSchema) {
		err = &postgres.Error{
			Permanent: true, What: "take the lead", Hint: "run outbox-cdc init",
			Err: fmt.Errorf("%w: %w", statestore.ErrNoSchema, replication.ErrNoSchema),
		}
	}
	if err != nil {
		return statestore.Leadership{}, err
	}
	return s.Store.Lead(ctx, holder)
}

func (s *store) write(ctx context.Context, change outbox.ParkChange) (result outbox.ParkResult, err error) {
	if err := failpoint.Here(failpoint.BeforeParkWrite); err != nil {
		return result, err
	}
	s.mu.Lock()
	result, err = s.Store.Write(ctx, change)
	s.mu.Unlock()
	if err == nil {
		err = failpoint.Here(failpoint.AfterParkWrite)
	}
	return result, err
}
