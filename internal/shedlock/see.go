package shedlock

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
)

// Sight is what a look at a lock shows.
type Sight struct {
	// Held by somebody, whom Holding names.
	Held    bool
	Holding Holding
	// Suspicion is what is wrong with the lock's row, or empty.
	Suspicion string
	// Zoned: the table's times are with time zone, which works with the
	// application only if its sessions run in UTC.
	Zoned bool
}

// See looks at a lock and takes nothing. An error for which Refused is true
// says that it could not be taken as it is, and what fixes that.
func See(ctx context.Context, pool *pgxpool.Pool, lock outbox.ShedLock) (Sight, error) {
	l := New(Config{Pool: pool, Lock: lock})
	t, err := l.look(ctx)
	if err != nil {
		return Sight{}, err
	}
	s := Sight{Zoned: t.zoned, Holding: Holding{Lock: lock}}
	var r row
	err = postgres.OnOthers(pool).QueryRow(ctx, t.Holder, lock.Name).Scan(&r.by, &r.remaining, &r.age)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return s, nil // never taken yet
	case err != nil:
		return s, t.withHint(err, l.Name())
	}
	s.Suspicion = r.suspicion()
	if s.Held = r.remaining == nil || *r.remaining > 0; s.Held {
		s.Holding = r.holding(lock, time.Now())
	}
	return s, nil
}
