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
	// Held: somebody holds the lock; Holding says who.
	Held    bool
	Holding Holding
	// Suspicion is what is wrong with the lock's row; empty: nothing.
	Suspicion string
	// Zoned: the table's times are with time zone. This works together with the application only if the
	// application's sessions run in UTC.
	Zoned bool
}

// See reads the state of a lock and does not take it. An error for which Refused is true says that the lock
// cannot be taken as it is, and what fixes that.
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
		return s, nil // the lock was never taken yet
	case err != nil:
		return s, t.withHint(err, l.Name())
	}
	s.Suspicion = r.suspicion()
	if s.Held = r.remaining == nil || *r.remaining > 0; s.Held {
		s.Holding = r.holding(lock, time.Now())
	}
	return s, nil
}
