package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// parksOf reads what the database remembers as parked; nothing where schema
// outbox_cdc is not there yet.
func parksOf(ctx context.Context, conn *pgx.Conn, stream string) ([]outbox.Park, error) {
	err := replication.TrustSchema(ctx, postgres.On(conn))
	var list []outbox.Park
	if err == nil {
		list, err = statestore.New(statestore.Config{DB: conn, Stream: stream}).Load(ctx)
	}
	if errors.Is(err, statestore.ErrNoSchema) || errors.Is(err, replication.ErrNoSchema) {
		return nil, nil
	}
	return list, err
}
