package statestore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// Watched is what Watch tells.
type Watched struct {
	Told bool // Paused and Held are known
	// Paused is what operators have paused: the parks that the leader has to keep.
	Paused []outbox.Park
	// Held says whether what a stream must not forget is still kept, and by us: nil, or an
	// Error of ErrNoSchema or ErrFenced.
	Held error
}

// Watch looks who leads and what is paused, and asks further questions after that.
func (s *Store) Watch(ctx context.Context, further ...postgres.Question) (w Watched, err error) {
	ask := postgres.Question{SQL: sql.LeaderWatch, Args: []any{s.cfg.Stream}, Read: func(found pgx.Rows, err error) error {
		var epoch int64
		var key *string
		var by string
		var since *time.Time
		if err == nil {
			_, err = pgx.ForEachRow(found, []any{&epoch, &key, &by, &since}, func() error {
				if key == nil {
					return nil
				}
				p := outbox.Park{Scope: outbox.StreamScope(), Cause: outbox.CausePaused, Reason: "paused by " + by}
				if *key != "" {
					p.Scope = outbox.Scope{Kind: outbox.ScopeTable, Table: *key}
				}
				if since != nil {
					p.Since = *since
				}
				w.Paused = append(w.Paused, p)
				return nil
			})
		}
		if w.Told = err == nil; w.Told {
			w.Held = s.held(epoch)
		}
		return failure("look who leads stream "+s.cfg.Stream+" and what is paused", err)
	}}
	err = s.db.Ask(ctx, append([]postgres.Question{ask}, further...)...)
	return w, err
}

// Paused is what Watch tells of pauses.
func (s *Store) Paused(ctx context.Context) ([]outbox.Park, error) {
	w, err := s.Watch(ctx)
	return w.Paused, err
}

// Pause pauses the stream, or the table where one is named. A leader, if there is one,
// notices within seconds.
func (s *Store) Pause(ctx context.Context, table, by string) error {
	err := s.readCharset(ctx)
	if err == nil {
		_, err = s.db.Exec(ctx, sql.LeaderPause, s.cfg.Stream, table, s.printable(by))
	}
	return failure("pause stream "+s.cfg.Stream, err)
}

// Resume ends the pause of the table, or, where none is named, every pause of the stream.
func (s *Store) Resume(ctx context.Context, table string) error {
	var one *string
	if table != "" {
		one = &table
	}
	_, err := s.db.Exec(ctx, sql.LeaderResume, s.cfg.Stream, one)
	return failure("resume stream "+s.cfg.Stream, err)
}
