package statestore

import (
	"context"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// Paused returns the pauses that Watch finds.
func (s *Store) Paused(ctx context.Context) ([]outbox.Park, error) {
	w, err := s.Watch(ctx)
	return w.Paused, err
}

// Pause pauses the table, or the whole stream if table is empty. A leader notices within seconds.
func (s *Store) Pause(ctx context.Context, table, by string) error {
	err := s.readCharset(ctx)
	if err == nil {
		_, err = s.db.Exec(ctx, sql.LeaderPause, s.cfg.Stream, table, s.printable(by))
	}
	return failure("pause stream "+s.cfg.Stream, err)
}

// Resume ends the pause of the table, or every pause of the stream if table is empty.
func (s *Store) Resume(ctx context.Context, table string) error {
	var one *string
	if table != "" {
		one = &table
	}
	_, err := s.db.Exec(ctx, sql.LeaderResume, s.cfg.Stream, one)
	return failure("resume stream "+s.cfg.Stream, err)
}
