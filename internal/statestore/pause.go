package statestore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// Paused is what operators have paused: the parks that the leader has to keep.
func (s *Store) Paused(ctx context.Context) ([]outbox.Park, error) {
	what := "read what is paused of stream " + s.cfg.Stream
	rows, err := s.db.Query(ctx, sql.LeaderPaused, s.cfg.Stream)
	if err != nil {
		return nil, failure(what, err)
	}
	paused, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (outbox.Park, error) {
		var table, by string
		var since time.Time
		err := row.Scan(&table, &by, &since)
		p := outbox.Park{Scope: outbox.StreamScope(), Cause: outbox.CausePaused, Reason: "paused by " + by, Since: since}
		if table != "" {
			p.Scope = outbox.Scope{Kind: outbox.ScopeTable, Table: table}
		}
		return p, err
	})
	if err != nil {
		return nil, failure(what, err)
	}
	return paused, nil
}

// Pause pauses the stream, or the table where one is named. A leader, if there is one,
// notices within seconds.
func (s *Store) Pause(ctx context.Context, table, by string) error {
	if err := s.readCharset(ctx); err != nil {
		return failure("pause stream "+s.cfg.Stream, err)
	}
	if _, err := s.db.Exec(ctx, sql.LeaderPause, s.cfg.Stream, table, s.printable(by)); err != nil {
		return failure("pause stream "+s.cfg.Stream, err)
	}
	return nil
}

// Resume ends the pause of the table, or, where none is named, every pause of the stream.
func (s *Store) Resume(ctx context.Context, table string) error {
	var one *string
	if table != "" {
		one = &table
	}
	if _, err := s.db.Exec(ctx, sql.LeaderResume, s.cfg.Stream, one); err != nil {
		return failure("resume stream "+s.cfg.Stream, err)
	}
	return nil
}
