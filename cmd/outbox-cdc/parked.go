package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
)

// parksOf reads what the database remembers as parked; nothing where schema
// outbox_cdc is not there yet.
func parksOf(ctx context.Context, conn *pgx.Conn, stream string) ([]outbox.Park, error) {
	list, err := statestore.New(statestore.Config{DB: conn, Stream: stream}).Load(ctx)
	if errors.Is(err, statestore.ErrNoSchema) {
		return nil, nil
	}
	return list, err
}
