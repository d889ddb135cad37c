package pipeline

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/internal/metrics"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/shedlock"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// locking returns a stream of two tables with one lock each, in a database with the table of locks.
func locking(t *testing.T) (Config, *harness.DB) {
	t.Helper()
	db := harness.Postgres(t)
	db.Exec(t, `CREATE TABLE shedlock (name varchar(64) PRIMARY KEY, lock_until timestamp NOT NULL, locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL)`)
	cfg := Config{Name: "s", Pool: db.Pool(t), Log: zerolog.Nop()}
	for _, name := range []string{"first", "second", "second"} {
		table := &outbox.Table{Schema: "public", Name: fmt.Sprint(name, len(cfg.Tables))}
		table.Mapping.ShedLock = outbox.ShedLock{Schema: "public", Table: "shedlock", Name: name}
		cfg.Tables = append(cfg.Tables, table)
	}
	cfg.Tables = append(cfg.Tables, &outbox.Table{Schema: "public", Name: "free"})
	cfg.Metrics = metrics.New("v", "c").Stream("s", cfg.Tables, 0)
	return cfg, db
}

// heldLocks counts the locks that are held now.
func heldLocks(t *testing.T, cfg *Config) (n int) {
	t.Helper()
	err := cfg.Pool.QueryRow(t.Context(), `SELECT count(*) FROM shedlock WHERE lock_until > timezone('utc', clock_timestamp())`).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestLocksAreOfTheTablesEachOnce(t *testing.T) {
	t.Parallel()
	cfg, _ := locking(t)
	if n := len(newLocks(&cfg)); n != 2 {
		t.Errorf("%d locks of two names", n)
	}
	cfg.Shadow = true
	if n := len(newLocks(&cfg)); n != 0 {
		t.Errorf("%d locks in shadow, which publishes nothing", n)
	}
}

// While somebody else has one lock, the other is not kept. Otherwise its relay would pause and nobody would
// publish.
func TestNoLockIsHeldWhileAnotherIsWaitedFor(t *testing.T) {
	t.Parallel()
	cfg, db := locking(t)
	locks := newLocks(&cfg)
	db.Exec(t, `INSERT INTO shedlock VALUES ('second', timezone('utc', now()) + interval '1 hour', timezone('utc', now()), 'pod-1')`)
	acquired := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() { acquired <- locks.acquire(ctx) }()
	harness.Eventually(t, 20*time.Second, func() error {
		// The second lock is waited for. The first one was taken and given back.
		taken := harness.One[int](t, db, `SELECT count(*) FROM shedlock WHERE name = 'first'`)
		if held := heldLocks(t, &cfg); taken != 1 || held != 1 || !locks[0].Until().IsZero() {
			return fmt.Errorf("the first lock was taken %d times, and %d are held", taken, held)
		}
		return nil
	})
	db.Exec(t, `UPDATE shedlock SET lock_until = timezone('utc', now()) WHERE name = 'second'`)
	if err := <-acquired; err != nil {
		t.Fatal(err)
	}
	if n := heldLocks(t, &cfg); n != 2 {
		t.Errorf("%d of two locks are held", n)
	}
	if left := time.Until(locks.until()); left <= 0 || left > shedlock.MostAhead {
		t.Errorf("the locks last %v", left)
	}
}

// If a term ended without giving its locks back, the next term does not wait for them.
func TestLocksOfATermBeforeAreTakenOn(t *testing.T) {
	t.Parallel()
	cfg, _ := locking(t)
	locks := newLocks(&cfg)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 {
		if err := locks.acquire(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// Keeping locks ends without an error when it is told to end, and with an error when a lock is lost.
func TestLocksAreKept(t *testing.T) {
	t.Parallel()
	cfg, db := locking(t)
	locks := newLocks(&cfg)
	if err := locks.acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	keeping, stop := context.WithCancel(t.Context())
	stop()
	if err := locks.keep(keeping, t.Context()); err != nil {
		t.Errorf("keeping was ended: %v", err)
	}
	db.Exec(t, `UPDATE shedlock SET locked_by = 'thief' WHERE name = 'first'`)
	if err := locks.keep(t.Context(), t.Context()); !errors.Is(err, shedlock.ErrLost) {
		t.Errorf("a lost lock: %v", err)
	}
	if err := locks.release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := heldLocks(t, &cfg); n != 1 {
		t.Errorf("%d locks are held: the thief's, and no other, should be", n)
	}
}

// A stop does not wait for a database that does not answer: the locks expire by themselves.
func TestGivingLocksBackHasItsTime(t *testing.T) {
	t.Parallel()
	cfg, db := locking(t)
	through, proxy := db.Proxied(t)
	cfg.Pool = through.Pool(t)
	locks := newLocks(&cfg)
	if err := locks.acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	proxy.Silence(harness.Requests, harness.Replies)
	kept := make(chan struct{})
	close(kept)
	d := &driver{questions: &questions{telling: &telling{log: zerolog.Nop()}}, locks: locks, stopKeeping: func() {}, kept: kept}
	given := make(chan struct{})
	go func() {
		defer close(given)
		d.giveLocksBack(t.Context())
	}()
	select {
	case <-given:
	case <-time.After(10 * giveBackWithin):
		t.Error("it waits")
	}
	proxy.Speak()
	<-given
	if n := heldLocks(t, &cfg); n == 0 {
		t.Error("nothing was held")
	}
}
