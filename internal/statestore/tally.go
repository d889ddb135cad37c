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

// This file is the tally of a stream with exactly-once delivery: what the database knows of the journals of
// the stream's clusters. Package statusupdater notes units where it marks their rows. Here the tally is
// opened, read, advanced and closed.

// ErrUnsettled says that a tally cannot be closed, because units or rows of it are not settled.
var ErrUnsettled = errors.New("published rows of the stream are not marked yet")

// ErrShared says that two tallies have the same journal, of two streams or of two names for one Kafka cluster.
var ErrShared = errors.New("the journal is in use")

// OpenTally makes the tally of a cluster, or opens a closed one again, and reads it. A tally of another
// journal is only read: the caller compares Tally.Journal. While another open tally has the journal, none is
// opened, and the error is ErrShared. An open tally keeps the tables that it was opened with until it is
// recovered; then it gets those of the claim. A deposed leader opens nothing: the error is ErrFenced.
func (s *Store) OpenTally(ctx context.Context, cluster, journal string, c Claim, recovered bool) (exactlyonce.Tally, error) {
	what := "open " + s.tallyOf(cluster)
	tables, _ := json.Marshal(c.Tables) // texts and numbers
	var current int64
	var stream, other string
	waited, cancel := context.WithTimeout(ctx, s.cfg.SyncWait) // while a stream's commit waits for a standby, its row is locked
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

// HasTallies reports whether the tables of tallies exist. init makes them only where they are needed. A
// stream with at-least-once delivery asks first, because querying missing tables would put an error into the
// server's log.
func (s *Store) HasTallies(ctx context.Context) (there bool, err error) {
	err = s.db.QueryRow(ctx, "SELECT to_regclass('outbox_cdc.tally') IS NOT NULL").Scan(&there)
	return there, tallyFailure("look for the tables of exactly-once delivery", err)
}

// ReadTally reads what the database knows of a cluster's journal; false: there is no tally. Left is read
// last, so it contains the rows left of every Marked unit.
func (s *Store) ReadTally(ctx context.Context, cluster string) (t exactlyonce.Tally, there bool, err error) {
	what := "read " + s.tallyOf(cluster)
	var unit int64
	var lsn string
	var units, places []int64
	err = s.db.QueryRow(ctx, sql.TallyRead, s.cfg.Stream, cluster).Scan(&t.Journal, &t.Closed, &unit, &t.Head.Offset, &lsn, &units, &places)
	switch {
	case errors.Is(err, pgx.ErrNoRows), postgres.HasCode(err, pgerrcode.UndefinedTable): // init makes these tables only where they are needed
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

// AdvanceTally moves the head over the units that are noted without a gap. Any process may call it.
func (s *Store) AdvanceTally(ctx context.Context, cluster string) error {
	_, err := s.db.Exec(ctx, sql.TallyAdvance, s.cfg.Stream, cluster)
	return tallyFailure("move on "+s.tallyOf(cluster), err)
}

// Server says where positions are valid. A position belongs to a slot of a database cluster (system
// identifier and name), because another slot may bring earlier rows again. And it belongs to the server where
// a session holds Guard, the key of replication.Conn.Guard.
type Server struct {
	Slot  string
	Guard int64
}

// SettleTally notes that rows of tables without state are settled up to lsn, and that no unit up to upTo
// names a later row. On any other server nothing is written, and the error is ErrFenced.
func (s *Store) SettleTally(ctx context.Context, cluster string, upTo exactlyonce.Placed, lsn outbox.LSN, of Server) error {
	what := "note a position in " + s.tallyOf(cluster)
	number := int64(upTo.Number) // #nosec G115 -- counted from 1
	tag, err := s.db.Exec(ctx, sql.TallyPosition, s.cfg.Stream, cluster, number, upTo.Offset, lsn.String(), of.Slot, of.Guard)
	if err == nil && tag.RowsAffected() == 0 {
		return &postgres.Error{What: what, Err: ErrFenced}
	}
	return tallyFailure(what, err)
}

// Position is the position up to which rows of tables without state are settled according to a tally, and the
// number of the tally's head.
type Position struct {
	Cluster string
	Head    uint64
	LSN     outbox.LSN
}

// Positions returns the positions in the clusters' tallies that are valid on the server. insert is the end of
// that server's WAL. Positions first raises the stored ones to settled. An ErrFenced means that a tally is
// missing, or that this is another server.
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

// CloseTally closes a cluster's tally for a stream with at-least-once delivery. An ErrUnsettled means that
// something of the journal is still to be settled. Without a tally it does nothing.
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

// ForgetTally removes what is known of a cluster's journal. Rows that were published and are not marked are
// then published again. Without a tally it does nothing.
func (s *Store) ForgetTally(ctx context.Context, cluster string) error {
	_, err := s.db.Exec(ctx, sql.TallyForget, s.cfg.Stream, cluster)
	return tallyFailure("forget "+s.tallyOf(cluster), err)
}

// Orphan is an open tally over one of the stream's tables that the stream does not recover.
type Orphan struct{ Stream, Cluster, Table string }

// Orphans finds tallies that nobody recovers. They belong to clusters that were taken out of the
// configuration, or to streams that had the tables before and no longer lead with them. Rows that these
// published and did not mark would be published again.
func (s *Store) Orphans(ctx context.Context, clusters []string, c Claim) ([]Orphan, error) {
	tables, _ := json.Marshal(c.Tables) // texts and numbers
	found, err := postgres.Collect(ctx, s.db, pgx.RowToStructByPos[Orphan], sql.TallyOrphans, s.cfg.Stream, clusters, string(tables), c.Lock)
	if postgres.HasCode(err, pgerrcode.UndefinedTable) {
		return nil, nil
	}
	return found, tallyFailure("look for tallies that stream "+s.cfg.Stream+" does not recover", err)
}

// TallyState is the state of a tally, for people.
type TallyState struct {
	Cluster string
	// Open: published rows may be unmarked.
	Open bool
	// Head: every unit up to this number is noted.
	Head int64
	// Left is how many published rows are still to be marked, counted up to a bound.
	Left int64
	// Journal is the id of the journal's topic.
	Journal string
}

// TallyStates returns the states of the stream's tallies, by cluster. It counts rows left up to most. A
// stream that never had exactly-once delivery has none.
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
