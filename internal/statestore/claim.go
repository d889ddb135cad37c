package statestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// ErrClaimed says that another stream publishes rows of the same table.
var ErrClaimed = errors.New("the table is another stream's")

// Claim says what a stream's leader publishes. Two streams with the same rows would publish each row twice.
type Claim struct {
	Slot string `json:"slot"`
	// Lock is the key of the leadership lock. Other streams see by it whether the leader is alive.
	Lock   int64          `json:"lock"`
	Tables []ClaimedTable `json:"tables"`
	// Delivery says how the stream publishes. IDs are its transactional ids by Kafka cluster. A next start
	// with other values has to know them. The caller of Claim sets both.
	Delivery string            `json:"delivery,omitempty"`
	IDs      map[string]string `json:"ids,omitempty"`
	state    bool
}

// ClaimedTable is a table, or a share of one. Different parts of the same split have no row in common.
type ClaimedTable struct {
	Name string `json:"name"`
	Part int    `json:"part"`
	Of   int    `json:"of"`
	By   string `json:"by"`
}

// NewClaim returns the claim of a stream that publishes the rows of tables.
func NewClaim(slot string, lock int64, tables []*outbox.Table) Claim {
	c := Claim{Slot: slot, Lock: lock, Tables: []ClaimedTable{}, state: true}
	for _, t := range tables {
		one := ClaimedTable{Name: t.String(), Part: t.Share.Part, Of: t.Share.Of}
		if one.Of > 0 {
			one.By = t.ShareColumn()
		}
		c.Tables = append(c.Tables, one)
		c.state = c.state && t.Stateful()
	}
	return c
}

// Rival is another stream that publishes rows of one of our tables, or did so last.
type Rival struct {
	Stream, Slot, Holder, Table string
	// Leads says that the rival's leader is alive.
	Leads bool
}

// noEpoch is no leadership's epoch.
const noEpoch = -1

// Rivals finds streams that stand against a claim. It changes nothing.
func (s *Store) Rivals(ctx context.Context, c Claim) ([]Rival, error) {
	found, err := s.claim(ctx, c, noEpoch)
	return found, s.tolerate(err)
}

// Claim takes the tables for the epoch of the last Lead, and returns who had them before. An ErrClaimed names
// who has them; then nothing was taken.
func (s *Store) Claim(ctx context.Context, c Claim) ([]Rival, error) {
	found, err := s.claim(ctx, c, s.epoch.Load())
	if err = s.tolerate(err); err != nil {
		return nil, failure("claim the tables of stream "+s.cfg.Stream, err)
	}
	return found, Refusal(s.cfg.Stream, c, found)
}

func (s *Store) claim(ctx context.Context, c Claim, epoch int64) ([]Rival, error) {
	text, _ := json.Marshal(c) // texts and numbers can be marshalled
	ctx, cancel := context.WithTimeout(ctx, s.cfg.SyncWait)
	defer cancel()
	db := s.db
	if epoch != noEpoch {
		db = db.After(sql.LeaderSerial)
	}
	return postgres.Collect(ctx, db, pgx.RowToStructByPos[Rival], sql.LeaderClaim, s.cfg.Stream, epoch, string(text), c.state)
}

// Unclean is a leadership that ended before all rows that it published were marked. It is one of this stream,
// or of another stream that had one of its tables.
type Unclean struct {
	Stream, Table, Delivery string
	IDs                     map[string]string
}

// Unclean finds such leaderships. Call it before Claim, which replaces them. An earlier version of the schema
// has none.
func (s *Store) Unclean(ctx context.Context, c Claim) ([]Unclean, error) {
	text, _ := json.Marshal(c) // texts and numbers can be marshalled
	found, err := postgres.Collect(ctx, s.db, pgx.RowToStructByPos[Unclean], sql.LeaderUnclean, string(text))
	if err = s.tolerate(err); err != nil {
		return nil, failure("look for how the tables of stream "+s.cfg.Stream+" were delivered before", err)
	}
	return found, nil
}

// Clean notes that this leadership publishes no more, that all rows it published are marked, and what the
// next leadership inherits, by Kafka cluster.
func (s *Store) Clean(ctx context.Context, fences map[string]*outbox.Fences) error {
	text, _ := json.Marshal(fences) // texts and numbers can be marshalled
	_, err := s.db.Exec(ctx, sql.LeaderClean, s.cfg.Stream, s.epoch.Load(), string(text))
	return failure("note the clean stop of stream "+s.cfg.Stream, s.tolerate(err))
}

// RivalsOver is Rivals over a connection of the role that runs init. Without the schema, or with an earlier
// version of it, the result is empty.
func RivalsOver(ctx context.Context, pg *pgconn.PgConn, stream string, c Claim) ([]Rival, error) {
	text, _ := json.Marshal(c) // texts and numbers can be marshalled
	statement, err := sql.Bind(sql.LeaderClaim, stream, int64(noEpoch), string(text), c.state)
	if err != nil {
		return nil, err
	}
	results, err := postgres.Exec(ctx, pg, statement)
	if postgres.HasCode(err, pgerrcode.UndefinedTable, pgerrcode.UndefinedColumn) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for other streams of the same tables: %w", err)
	}
	var found []Rival
	for _, r := range results[len(results)-1].Rows {
		found = append(found, Rival{string(r[0]), string(r[1]), string(r[2]), string(r[3]), string(r[4]) == "t"})
	}
	return found, nil
}

// Refusal returns why a stream must not publish a claim's rows; nil: it may.
func Refusal(stream string, c Claim, rivals []Rival) error {
	for _, r := range rivals {
		e := &postgres.Error{Permanent: true, What: "publish table " + r.Table}
		switch {
		case r.Leads && r.Stream == stream:
			e.Err = fmt.Errorf("%w: a process that has slot %s for this stream leads it (%s)", ErrClaimed, r.Slot, r.Holder)
			e.Hint = "stop it, or give both the same slot"
		case r.Leads:
			e.Err = fmt.Errorf("%w: stream %s leads on it from slot %s (%s), and every row would be published twice", ErrClaimed, r.Stream, r.Slot, r.Holder)
			e.Hint = "take the table out of one of them, or give each a share; if it is the stream's name before, stop its last process, or keep its slot: slot: " + r.Slot
		case !c.state && r.Stream != stream:
			e.Err = fmt.Errorf("%w: stream %s read it last, from slot %s, and the table keeps no state: rows that only that slot has would be lost, or published twice", ErrClaimed, r.Stream, r.Slot)
			e.Hint = "keep its slot: slot: " + r.Slot + "; or, to begin with this stream's own: DELETE FROM outbox_cdc.leader WHERE stream = '" + r.Stream + "';"
		default:
			continue
		}
		return e
	}
	return nil
}
