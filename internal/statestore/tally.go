package statestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// This file is the tally of a stream that delivers exactly once: what the database knows
// of the journals of its clusters. Units are noted where their rows are marked, in package
// statusupdater; here the tally is opened, read, moved on and closed.

// ErrUnsettled says that a tally cannot be closed: units or rows of it are not settled.
var ErrUnsettled = errors.New("published rows of the stream are not marked yet")

// ErrShared says that a journal has two tallies: of two streams, or of two names of one Kafka.
var ErrShared = errors.New("the journal is in use")

// OpenTally makes the tally of a cluster, or opens a closed one again, and reads it. A tally of
// another journal is only read: the caller compares Tally.Journal. While the journal has another open
// tally, none is opened: the Error is of ErrShared. Until it is recovered, an open tally keeps the
// tables that it was opened with; then it has those of the claim. A deposed leader opens nothing: its
// Error is of ErrFenced.
func (s *Store) OpenTally(ctx context.Context, cluster, journal string, c Claim, recovered bool) (exactlyonce.Tally, error) {
	what := "open " + s.tallyOf(cluster)
	tables, _ := json.Marshal(c.Tables) // texts and numbers
	var current int64
	var stream, other string
	waited, cancel := context.WithTimeout(ctx, s.cfg.SyncWait) // a stream's row is locked while its commit waits for a standby
	defer cancel()
	err := s.db.After(sql.LeaderSerial).QueryRow(waited, sql.TallyOpen, s.cfg.Stream, s.epoch.Load(), cluster, journal, string(tables), recovered).Scan(&current, &stream, &other)
	switch {
	case err != nil:
		return exactlyonce.Tally{}, tallyFailure(what, err)
	case current == 0:
		return exactlyonce.Tally{}, &postgres.Error{What: what, Err: ErrFenced}
	case stream != "":
		return exactlyonce.Tally{}, &postgres.Error{
			Permanent: true, What: what,
			Err:  fmt.Errorf("%w by stream %s on Kafka cluster %s", ErrShared, stream, other),
			Hint: "if both names lead to one Kafka, configure it once; otherwise give each stream a journal of its own (journal.topic)",
		}
	}
	tally, there, err := s.ReadTally(ctx, cluster)
	if err == nil && !there {
		err = &postgres.Error{What: what, Err: errors.New("it was removed a moment after it was made")}
	}
	return tally, err
}

func (s *Store) tallyOf(cluster string) string {
	return fmt.Sprintf("the tally of stream %s on Kafka cluster %s", s.cfg.Stream, cluster)
}

// HasTallies says whether the tables are there: init makes them where they are needed. A stream that delivers at
// least once asks first: a query of missing tables would put an error into the server's log.
func (s *Store) HasTallies(ctx context.Context) (there bool, err error) {
	err = s.db.QueryRow(ctx, "SELECT to_regclass('outbox_cdc.tally') IS NOT NULL").Scan(&there)
	return there, tallyFailure("look for the tables of exactly-once delivery", err)
}

// ReadTally reads what the database knows of a cluster's journal; false: there is no
// tally. Left is read last, so it has the left rows of every Marked unit.
func (s *Store) ReadTally(ctx context.Context, cluster string) (t exactlyonce.Tally, there bool, err error) {
	what := "read " + s.tallyOf(cluster)
	var unit int64
	var lsn string
	var units, places []int64
	err = s.db.QueryRow(ctx, sql.TallyRead, s.cfg.Stream, cluster).Scan(&t.Journal, &t.Closed, &unit, &t.Head.Offset, &lsn, &units, &places)
	switch {
	case errors.Is(err, pgx.ErrNoRows), postgres.HasCode(err, pgerrcode.UndefinedTable): // init makes the tables where they are needed
		return exactlyonce.Tally{}, false, nil
	case err != nil:
		return t, false, tallyFailure(what, err)
	}
	t.Head.Number = uint64(unit) // #nosec G115 -- written from one
	t.Marked = make(map[uint64]int64, len(units))
	for i, number := range units {
		t.Marked[uint64(number)] = places[i] // #nosec G115 -- written from one
	}
	if t.LSN, err = outbox.ParseLSN(lsn); err == nil {
		t.Left, err = s.left(ctx, cluster)
	}
	if err != nil {
		return t, false, tallyFailure(what, err)
	}
	return t, true, nil
}

func (s *Store) left(ctx context.Context, cluster string) ([]exactlyonce.Left, error) {
	return postgres.Collect(ctx, s.db, func(row pgx.CollectableRow) (l exactlyonce.Left, err error) {
		var unit int64
		var id []string
		var hash []byte
		if err = row.Scan(&unit, &l.Table, &id, &hash); err != nil {
			return l, err
		}
		if len(hash) != len(l.Name.Hash) {
			return l, fmt.Errorf("a row of outbox_cdc.tally_left has a hash of %d bytes, not of %d: somebody changed it", len(hash), len(l.Name.Hash))
		}
		l.Unit, l.Name = uint64(unit), exactlyonce.Name{ID: outbox.JoinID(id...), Hash: exactlyonce.Hash(hash)} // #nosec G115 -- written from one
		return l, nil
	}, sql.TallyLeft, s.cfg.Stream, cluster)
}

// AdvanceTally moves the head over units that are noted without a gap. Any process may.
func (s *Store) AdvanceTally(ctx context.Context, cluster string) error {
	_, err := s.db.Exec(ctx, sql.TallyAdvance, s.cfg.Stream, cluster)
	return tallyFailure("move on "+s.tallyOf(cluster), err)
}

// Server says where positions count: for a slot of a database cluster, by system identifier and name (another
// slot may bring earlier rows again), and on the server where a session holds Guard, the key of
// replication.Conn.Guard.
type Server struct {
	Slot  string
	Guard int64
}

// SettleTally notes that rows of tables without state are settled up to lsn, and that no unit up
// to upTo names later ones. On any other server nothing is written: an Error of ErrFenced.
func (s *Store) SettleTally(ctx context.Context, cluster string, upTo exactlyonce.Placed, lsn outbox.LSN, of Server) error {
	what := "note a position in " + s.tallyOf(cluster)
	number := int64(upTo.Number) // #nosec G115 -- counted from 1
	tag, err := s.db.Exec(ctx, sql.TallyPosition, s.cfg.Stream, cluster, number, upTo.Offset, lsn.String(), of.Slot, of.Guard)
	if err == nil && tag.RowsAffected() == 0 {
		return &postgres.Error{What: what, Err: ErrFenced}
	}
	return tallyFailure(what, err)
}

// Position is up to where a tally says that rows of tables without state are settled, and the number
// of its head.
type Position struct {
	Cluster string
	Head    uint64
	LSN     outbox.LSN
}

// Positions are those of the clusters' tallies that count on the server, whose WAL ends at insert. It
// raises them to settled first. An Error of ErrFenced: a tally is missing, or not on that server.
func (s *Store) Positions(ctx context.Context, clusters []string, settled, insert outbox.LSN, of Server) ([]Position, error) {
	what := "read positions in the tallies of stream " + s.cfg.Stream
	found, err := postgres.Collect(ctx, s.db, func(row pgx.CollectableRow) (p Position, err error) {
		var unit int64
		var lsn string
		if err = row.Scan(&p.Cluster, &unit, &lsn); err == nil {
			p.LSN, err = outbox.ParseLSN(lsn)
		}
		p.Head = uint64(unit) // #nosec G115 -- written from one
		return p, err
	}, sql.TallyPositions, s.cfg.Stream, clusters, of.Slot, insert.String(), settled.String(), of.Guard)
	if err == nil && len(found) < len(clusters) {
		return nil, &postgres.Error{What: what, Err: ErrFenced}
	}
	return found, tallyFailure(what, err)
}

// CloseTally closes a cluster's tally, for a stream that delivers at least once. An Error of
// ErrUnsettled: something of the journal is still to be settled. Without a tally there is
// nothing to close.
func (s *Store) CloseTally(ctx context.Context, cluster string) error {
	what := "close " + s.tallyOf(cluster)
	if err := s.AdvanceTally(ctx, cluster); err != nil {
		return err
	}
	var current int64
	var closed bool
	err := s.db.QueryRow(ctx, sql.TallyClose, s.cfg.Stream, s.epoch.Load(), cluster).Scan(&current, &closed)
	switch {
	case err != nil:
		return tallyFailure(what, err)
	case current == 0:
		return &postgres.Error{What: what, Err: ErrFenced}
	case !closed:
		return &postgres.Error{What: what, Err: ErrUnsettled}
	}
	return nil
}

// ForgetTally removes what is known of a cluster's journal: rows that were published and are not
// marked are published again. Where there is no tally, nothing is removed.
func (s *Store) ForgetTally(ctx context.Context, cluster string) error {
	_, err := s.db.Exec(ctx, sql.TallyForget, s.cfg.Stream, cluster)
	return tallyFailure("forget "+s.tallyOf(cluster), err)
}

// Orphan is an open tally over one of the stream's tables that the stream does not
// recover.
type Orphan struct{ Stream, Cluster, Table string }

// Orphans looks for tallies that nobody recovers: of clusters that were taken out of the
// configuration, and of streams that had the tables before and do not lead with them any more. What they published and did
// not mark would be published again.
func (s *Store) Orphans(ctx context.Context, clusters []string, c Claim) ([]Orphan, error) {
	tables, _ := json.Marshal(c.Tables) // texts and numbers
	found, err := postgres.Collect(ctx, s.db, pgx.RowToStructByPos[Orphan], sql.TallyOrphans, s.cfg.Stream, clusters, string(tables), c.Lock)
	if postgres.HasCode(err, pgerrcode.UndefinedTable) {
		return nil, nil
	}
	return found, tallyFailure("look for tallies that stream "+s.cfg.Stream+" does not recover", err)
}

// TallyState is how a tally is, for people.
type TallyState struct {
	Cluster string
	// Open: rows that were published may not be marked.
	Open bool
	// Head: every unit up to this one is noted.
	Head int64
	// Left are rows that were published and are to be marked later, counted up to a bound.
	Left int64
	// Journal is the id of the topic that names what was published.
	Journal string
}

// TallyStates are the states of the stream's tallies, by cluster. It counts at most so many
// left rows. A stream that never delivered exactly once has none.
func (s *Store) TallyStates(ctx context.Context, most int64) ([]TallyState, error) {
	found, err := postgres.Collect(ctx, s.db, pgx.RowToStructByPos[TallyState], sql.TallyState, s.cfg.Stream, most)
	if postgres.HasCode(err, pgerrcode.UndefinedTable) {
		return nil, nil
	}
	return found, tallyFailure("look at the tallies of stream "+s.cfg.Stream, err)
}

// tallyFailure is failure for statements on the tables that only exactly-once delivery needs.
func tallyFailure(what string, err error) error {
	if err == nil {
		return nil
	}
	e := judge(what, err)
	switch {
	case postgres.HasCode(err, pgerrcode.UndefinedColumn):
		e.Permanent, e.Hint = true, "run outbox-cdc init, which adds the columns that came with a later version"
	case postgres.HasCode(err, pgerrcode.InsufficientPrivilege):
		e.Hint = "run outbox-cdc init, which grants SELECT, INSERT, UPDATE and DELETE on outbox_cdc.tally, outbox_cdc.tally_unit and outbox_cdc.tally_left"
	}
	return e
}
