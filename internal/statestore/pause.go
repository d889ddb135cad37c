package statestore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// Paused is what operators have paused: the parks that the leader has to keep.
func (s *Store) Paused(ctx context.Context) ([]outbox.Park, error) {
	paused, err := postgres.Collect(ctx, s.db, func(row pgx.CollectableRow) (outbox.Park, error) {
		var table, by string
		var since time.Time
		err := row.Scan(&table, &by, &since)
		p := outbox.Park{Scope: outbox.StreamScope(), Cause: outbox.CausePaused, Reason: "paused by " + by, Since: since}
		if table != "" {
			p.Scope = outbox.Scope{Kind: outbox.ScopeTable, Table: table}
		}
		return p, err
	}, sql.LeaderPaused, s.cfg.Stream)
	return paused, failure("read what is paused of stream "+s.cfg.Stream, err)
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
