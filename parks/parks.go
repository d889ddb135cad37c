// Package parks keeps, in schema outbox_cdc of the stream's own database, what
// a stream must not forget: which scopes are parked, who leads, and which slot
// it went on from. Every write is guarded by the leader epoch.
//
// It decides nothing: package checkpoint says what is parked, and package
// replication who may lead. It never touches a user's table.
package parks

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/outbox"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// ErrFenced says that another process has raised the epoch: leadership is lost
// and nothing was written. Stop at once.
var ErrFenced = errors.New("another process leads the stream now")

// ErrNoSchema says that schema outbox_cdc, a table or a column of it is missing.
var ErrNoSchema = errors.New("schema outbox_cdc is missing or of another version")

// Error says what could not be done, and what mends it.
type Error struct {
	// Permanent says that somebody has to act; any other error is passing.
	Permanent bool
	What      string
	Mend      string
	Err       error
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%s: %v", e.What, e.Err)
	if e.Mend != "" {
		text += " (" + e.Mend + ")"
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// DB is what a Store needs of a *pgxpool.Pool.
type DB interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// syncWait is how long a commit may wait for a synchronous standby. A longer
// one is repeated with synchronous_commit=local: durable on this server, though
// a failover may lose it, which costs order, not rows.
const syncWait = 5 * time.Second

// Store is one stream's part of schema outbox_cdc. It may be used by several
// goroutines.
type Store struct {
	db     DB
	stream string
	// holder names this process in outbox_cdc.leader; no other one has it.
	holder string
	// epoch is the one of this process's last leadership; 0: none yet.
	epoch    atomic.Int64
	syncWait time.Duration
}

// New returns the Store of a stream. It does not talk to the database.
func New(db DB, stream string) *Store {
	return &Store{db: db, stream: stream, holder: processName(), syncWait: syncWait}
}

// processName is host/pid/nonce: unique, and it tells people where to look.
func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text()[:8])
}

// Schema is the SQL that makes schema outbox_cdc; it may be repeated.
func Schema() string { return sql.Schema }

// Init makes schema outbox_cdc where it is missing. It needs CREATE on the
// database.
func Init(ctx context.Context, db DB) error {
	if _, err := db.Exec(ctx, sql.Schema, pgx.QueryExecModeSimpleProtocol); err != nil {
		return failure("make schema outbox_cdc", err)
	}
	return nil
}

// Lead is what taking the lead found and made.
type Lead struct {
	Epoch int64
	// Others says that another process has led since this one did last (or
	// ever, at the first time).
	Others bool
	// PreviousHolder and PreviousSince are those of the epoch before; empty
	// when there was none.
	PreviousHolder string
	PreviousSince  time.Time
	// Identity is the slot that the stream went on from; zero: none yet.
	Identity outbox.Identity
}

// Lead raises the epoch. Call it only while holding the leadership lock, after
// every reconnect as well. From then on no earlier leader can write. An error
// leaves the outcome open; call again.
func (s *Store) Lead(ctx context.Context) (Lead, error) {
	var l Lead
	err := s.durably(ctx, func(ctx context.Context, synchronousCommit *string) (err error) {
		l, err = s.raise(ctx, synchronousCommit)
		return err
	})
	if err != nil {
		return Lead{}, failure("take the lead of stream "+s.stream, err)
	}
	// A repeated raise finds this process's own name.
	l.Others = l.PreviousHolder != "" && l.PreviousHolder != s.holder
	s.epoch.Store(l.Epoch)
	return l, nil
}

func (s *Store) raise(ctx context.Context, synchronousCommit *string) (Lead, error) {
	var l Lead
	var before, timeline int64
	var since *time.Time
	var point, stopped string
	row := s.db.QueryRow(ctx, sql.LeaderRaise, s.stream, s.holder, synchronousCommit)
	err := row.Scan(&l.Epoch, &before, &l.PreviousHolder, &since,
		&l.Identity.Slot, &l.Identity.SystemID, &timeline, &point, &stopped, &l.Identity.Publication)
	if err != nil {
		return l, err
	}
	if since != nil && before > 0 {
		l.PreviousSince = *since
	}
	l.Identity.Timeline = uint32(timeline) // #nosec G115 -- written from one
	return l, parseLSNs([]string{point, stopped}, &l.Identity.SlotPoint, &l.Identity.Stopped)
}

func parseLSNs(texts []string, to ...*outbox.LSN) error {
	for i, text := range texts {
		l, err := outbox.ParseLSN(text)
		if err != nil {
			return err
		}
		*to[i] = l
	}
	return nil
}

// Epoch is the epoch of this process's last leadership; 0: none.
func (s *Store) Epoch() int64 { return s.epoch.Load() }

// Current reads the stream's epoch; 0: nobody ever led. Another one than Epoch
// means that leadership is lost.
func (s *Store) Current(ctx context.Context) (int64, error) {
	var epoch int64
	err := s.db.QueryRow(ctx, `SELECT coalesce(max(epoch), 0) FROM outbox_cdc.leader WHERE stream = $1`, s.stream).Scan(&epoch)
	if err != nil {
		return 0, failure("read the epoch of stream "+s.stream, err)
	}
	return epoch, nil
}

// Remember writes down the slot that the stream goes on from, when it was
// found sound and before it is streamed. An Error of ErrFenced means that
// nothing was written.
func (s *Store) Remember(ctx context.Context, id outbox.Identity) error {
	return s.guarded(ctx, "remember the slot of stream "+s.stream, sql.LeaderRemember,
		id.Slot, id.SystemID, int64(id.Timeline), id.SlotPoint.String(), id.Stopped.String(), id.Publication)
}

// Stopped writes down the last position that a clean stop confirmed: a slot
// found beyond it was moved on, or re-created, by somebody else.
func (s *Store) Stopped(ctx context.Context, confirmed outbox.LSN) error {
	return s.guarded(ctx, "note the clean stop of stream "+s.stream, sql.LeaderStopped, confirmed.String())
}

func (s *Store) guarded(ctx context.Context, what, statement string, args ...any) error {
	tag, err := s.db.Exec(ctx, statement, append([]any{s.stream, s.epoch.Load()}, args...)...)
	if err != nil {
		return failure(what, err)
	}
	if tag.RowsAffected() == 0 {
		return &Error{What: what, Err: ErrFenced}
	}
	return nil
}

// durably runs a statement with the session's synchronous_commit, and once
// more with a local one when it took longer than syncWait. The first try may
// have been carried out, so the statement has to bear a repetition.
func (s *Store) durably(ctx context.Context, statement func(ctx context.Context, synchronousCommit *string) error) error {
	first, cancel := context.WithTimeout(ctx, s.syncWait)
	defer cancel()
	err := statement(first, nil)
	if err == nil || ctx.Err() != nil || first.Err() == nil {
		return err
	}
	local := "local"
	second, cancel := context.WithTimeout(ctx, s.syncWait)
	defer cancel()
	return statement(second, &local)
}

// failure judges an error of the database.
func failure(what string, err error) *Error {
	e := &Error{What: what, Err: err}
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return e
	}
	switch server.Code {
	case "3F000", "42P01", "42703", "42P10", "42804", "42883":
		e.Permanent, e.Mend = true, "run outbox-cdc init"
		e.Err = fmt.Errorf("%w: %w", ErrNoSchema, err)
	case "42501":
		e.Permanent, e.Mend = true, "run outbox-cdc init, which grants SELECT, INSERT, UPDATE and DELETE on outbox_cdc.leader and outbox_cdc.park, and USAGE on the schema"
	case "25006":
		e.Mend = "the server is read-only: point the dsn to the primary"
	}
	return e
}
