// Package statestore keeps, in schema outbox_cdc of the stream's own database, what
// a stream must not forget: which scopes are parked, who leads, and which slot
// it went on from. Every write is guarded by the leader epoch.
//
// It decides nothing: package checkpoint says what is parked, and package
// replication who may lead. It never touches a user's table.
package statestore

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/charset"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// ErrFenced says that another process has raised the epoch: leadership is lost
// and nothing was written. Stop at once.
var ErrFenced = errors.New("another process leads the stream now")

// ErrNoSchema says that schema outbox_cdc, a table or a column of it is missing.
var ErrNoSchema = errors.New("schema outbox_cdc is missing or of another version")

// Config describes a Store. DB and Stream are required.
type Config struct {
	DB     postgres.Batcher
	Stream string
	// SyncWait is how long a commit may wait for a synchronous standby. A
	// longer one is repeated with synchronous_commit=local: durable on this
	// server, though a failover may lose it, which costs order, not rows.
	// Default 5 s.
	SyncWait time.Duration
}

// Store is one stream's part of schema outbox_cdc. It may be used by several
// goroutines.
type Store struct {
	cfg Config
	db  postgres.DB
	// nonce tells this Store's leaderships from all others'.
	nonce string
	// epoch is the one of the last leadership; 0: none yet.
	epoch atomic.Int64
	// outdated: the schema is of an earlier version. It works, but less is remembered.
	outdated atomic.Bool
	// set is the database's encoding, as read when the lead was taken.
	set atomic.Pointer[charset.Set]
}

// New returns a Store. It does not talk to the database.
func New(cfg Config) *Store {
	if cfg.SyncWait == 0 {
		cfg.SyncWait = 5 * time.Second
	}
	return &Store{cfg: cfg, db: postgres.On(cfg.DB), nonce: rand.Text()[:10]}
}

// Identity is what the stream remembers of the slot it went on from.
type Identity = outbox.Identity

// Leadership is what Lead found and made.
type Leadership struct {
	Epoch int64
	// Interrupted says that another process has led since this Store last did, or ever if
	// it never did: what is in memory about parks is void.
	Interrupted bool
	// PreviousHolder and PreviousSince are those of the epoch before; empty
	// when there was none.
	PreviousHolder string
	PreviousSince  time.Time
	// Server is where the database answers, PreviousServer where it answered the leader
	// before; empty: not known.
	Server, PreviousServer string
	// Known is the slot that the stream went on from; zero: none yet.
	Known Identity
	// Fences are what the leader before has left, by Kafka cluster, if it stopped cleanly. The claim removes them.
	Fences map[string]*outbox.Fences
}

// Lead raises the epoch; holder is for people who look into
// outbox_cdc.leader. Call it only while holding the leadership lock, after
// every reconnect as well. From then on no earlier leader can write. An error
// leaves the outcome open; call again.
func (s *Store) Lead(ctx context.Context, holder string) (Leadership, error) {
	var l Leadership
	if err := s.readCharset(ctx); err != nil {
		return l, failure("take the lead of stream "+s.cfg.Stream, err)
	}
	holder = s.printable(holder) + " #" + s.nonce
	err := s.durably(ctx, func(ctx context.Context, synchronousCommit *string) (err error) {
		l, err = s.raise(ctx, holder, synchronousCommit)
		return err
	})
	if err != nil {
		return Leadership{}, failure("take the lead of stream "+s.cfg.Stream, err)
	}
	// A raise that was repeated, after an unknown outcome too, finds our nonce.
	l.Interrupted = l.PreviousHolder != "" && !strings.HasSuffix(l.PreviousHolder, "#"+s.nonce)
	s.epoch.Store(l.Epoch)
	return l, nil
}

// readCharset finds out what the database's text is in.
func (s *Store) readCharset(ctx context.Context) error {
	var encoding string
	if err := s.db.QueryRow(ctx, "SELECT getdatabaseencoding()").Scan(&encoding); err != nil {
		return err
	}
	set, err := charset.Of(encoding)
	s.set.Store(set)
	return err
}

// Renamed is the present name of a table that is gone, if the stream remembers its relation; else empty.
func Renamed(ctx context.Context, db postgres.DB, stream, table string) string {
	var schema, name string
	err := db.QueryRow(ctx, sql.CheckRenamed, stream, table).Scan(&schema, &name)
	now := schema + "." + name
	if err != nil || now == table { // there is no such schema, or row; or what is gone is its archive
		return ""
	}
	return now
}

// RenamedColumns are the columns of a table that are gone, if the stream remembers them: their present names by those that
// it knows, empty for one that was dropped.
func RenamedColumns(ctx context.Context, db postgres.DB, stream, table string) map[string]string {
	renamed := map[string]string{}
	_, err := postgres.Collect(ctx, db, func(row pgx.CollectableRow) (struct{}, error) {
		var was, now string
		err := row.Scan(&was, &now)
		renamed[was] = now
		return struct{}{}, err
	}, sql.CheckRenamedColumns, stream, table)
	if err != nil { // there is no such schema
		return nil
	}
	return renamed
}

// NumberOf is the key in Identity.Relations for the number of a table's column.
func NumberOf(table, column string) string { return "column of " + table + "\n" + column }

// Was is the key in Identity.Relations for the relation that a table was before it was
// gone.
func Was(table string) string { return "was " + table }

// Called says what to do about a renamed table.
func Called(now string) string {
	return "it is called " + now + " now; write table: " + now + " in the configuration, or rename it back"
}

func (s *Store) raise(ctx context.Context, holder string, synchronousCommit *string) (Leadership, error) {
	var l Leadership
	var before, timeline int64
	var since *time.Time
	var point, stopped, relations, fences string
	row := s.db.QueryRow(ctx, sql.LeaderRaise, s.cfg.Stream, holder, synchronousCommit)
	err := row.Scan(&l.Epoch, &before, &l.PreviousHolder, &since,
		&l.Known.Slot, &l.Known.SystemID, &timeline, &point, &stopped, &l.Known.Publication, &relations, &l.PreviousServer, &l.Server, &fences)
	if err != nil {
		return l, err
	}
	if err := json.Unmarshal([]byte(relations), &l.Known.Relations); err != nil {
		return l, fmt.Errorf("read column relations of outbox_cdc.leader: %w", err)
	}
	if json.Unmarshal([]byte(fences), &l.Fences) != nil { // of another version: all is fenced once more
		l.Fences = nil
	}
	if since != nil && before > 0 {
		l.PreviousSince = *since
	}
	l.Known.Timeline = uint32(timeline) // #nosec G115 -- written from one
	if l.Known.SlotPoint, err = outbox.ParseLSN(point); err == nil {
		l.Known.Stopped, err = outbox.ParseLSN(stopped)
	}
	return l, err
}

// Leads is nil while this process leads; otherwise it says why not.
func (s *Store) Leads(ctx context.Context) error {
	w, err := s.Watch(ctx)
	return cmp.Or(err, w.Lost)
}

// lost compares the epoch of the last leadership, 0 for none, with ours.
func (s *Store) lost(epoch int64) error {
	what := "look whether this process still leads stream " + s.cfg.Stream
	switch epoch {
	case 0:
		return &postgres.Error{What: what, Err: fmt.Errorf("%w: the stream's row in outbox_cdc.leader is gone", ErrNoSchema)}
	case s.epoch.Load():
		return nil
	}
	return &postgres.Error{What: what, Err: ErrFenced}
}

// Watched is what Watch tells.
type Watched struct {
	Told bool // Paused and Lost are known
	// Paused is what operators have paused: the parks that the leader has to keep.
	Paused []outbox.Park
	// Lost is why this process leads no longer: an Error of ErrFenced, or of ErrNoSchema where the stream's row is
	// gone. nil: it leads.
	Lost error
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
			w.Lost = s.lost(epoch)
		}
		return failure("look who leads stream "+s.cfg.Stream+" and what is paused", err)
	}}
	err = s.db.Ask(ctx, append([]postgres.Question{ask}, further...)...)
	return w, err
}

// Identify writes down the slot that the stream goes on from: when it was
// found sound, before it is streamed; and with Stopped set after the last
// position of a clean stop was confirmed. An Error of ErrFenced means that
// nothing was written.
func (s *Store) Identify(ctx context.Context, id Identity) error {
	what := "remember the slot of stream " + s.cfg.Stream
	tag, err := s.db.Exec(ctx, sql.LeaderIdentify, s.cfg.Stream, s.epoch.Load(),
		id.Slot, id.SystemID, int64(id.Timeline), id.SlotPoint.String(), id.Stopped.String(), id.Publication)
	if err != nil {
		return failure(what, err)
	}
	if tag.RowsAffected() == 0 {
		return &postgres.Error{What: what, Err: ErrFenced}
	}
	relations, _ := json.Marshal(id.Relations) // texts and numbers
	_, err = s.db.Exec(ctx, sql.LeaderRelations, s.cfg.Stream, s.epoch.Load(), string(relations))
	return failure(what, s.tolerate(err))
}

// tolerate passes over a column that only a later init made.
func (s *Store) tolerate(err error) error {
	if postgres.HasCode(err, pgerrcode.UndefinedColumn) {
		s.outdated.Store(true)
		return nil
	}
	return err
}

// Outdated says that the schema is of an earlier version: less is remembered.
func (s *Store) Outdated() bool { return s.outdated.Load() }

// durably runs a statement with the session's synchronous_commit, and once
// more with a local one when it took longer than SyncWait. The first try may
// have been carried out, so the statement has to bear a repetition.
func (s *Store) durably(ctx context.Context, statement func(ctx context.Context, synchronousCommit *string) error) error {
	first, cancel := context.WithTimeout(ctx, s.cfg.SyncWait)
	defer cancel()
	err := statement(first, nil)
	if err == nil || ctx.Err() != nil || first.Err() == nil {
		return err
	}
	local := "local"
	second, cancel := context.WithTimeout(ctx, s.cfg.SyncWait)
	defer cancel()
	return statement(second, &local)
}

// failure is judge, and nil without an error.
func failure(what string, err error) error {
	if err == nil {
		return nil
	}
	return judge(what, err)
}

// judge judges an error of the database.
func judge(what string, err error) *postgres.Error {
	e := &postgres.Error{What: what, Err: err}
	switch postgres.Code(err) {
	case pgerrcode.InvalidSchemaName, pgerrcode.UndefinedTable, pgerrcode.UndefinedColumn, pgerrcode.InvalidColumnReference, pgerrcode.DatatypeMismatch, pgerrcode.UndefinedFunction:
		e.Permanent, e.Hint = true, "run outbox-cdc init"
		e.Err = fmt.Errorf("%w: %w", ErrNoSchema, err)
	case pgerrcode.InsufficientPrivilege:
		e.Permanent, e.Hint = true, "run outbox-cdc init, which grants SELECT, INSERT, UPDATE and DELETE on outbox_cdc.leader and outbox_cdc.park, and USAGE on the schema"
	case pgerrcode.ReadOnlySQLTransaction:
		e.Hint = "the server is read-only: point the dsn to the primary; behind a pooler, it may be the role: ALTER ROLE … RESET default_transaction_read_only"
	}
	return e
}
