package statestore

import (
	"context"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// TallyState is how a tally is, for people.
type TallyState struct {
	Cluster string
	// Open: rows that were published may not be marked.
	Open bool
	// Head: every unit up to this one is noted.
	Head int64
	// Left are rows that were published and are to be marked later, counted up to a bound.
	Left int64
}

// TallyStates are those of the stream's tallies, by cluster, at most so many of the rows left
// counted. A stream that never delivered exactly once has none.
func (s *Store) TallyStates(ctx context.Context, most int64) ([]TallyState, error) {
	rows, err := s.db.Query(ctx, sql.TallyState, s.cfg.Stream, most)
	var found []TallyState
	if err == nil {
		found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[TallyState])
	}
	if postgres.HasCode(err, pgerrcode.UndefinedTable) {
		return nil, nil
	}
	return found, tallyFailure("look at the tallies of stream "+s.cfg.Stream, err)
}
