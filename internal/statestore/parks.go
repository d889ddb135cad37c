package statestore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// maxReason is the length in bytes that a park's reason is cut to.
const maxReason = 2000

// Write writes a change in one transaction, guarded by the epoch of the last Lead. A scope that is both put
// and deleted is put. Its results:
//
//	ParksCommitted, nil: the change is committed
//	ParksUnknown, err:   the connection broke meanwhile: write the whole change again
//	0, err:              nothing was written. After an ErrFenced the leadership is lost;
//	                     otherwise write the change again, unless the Error is permanent
//
// Times are stored in microseconds.
func (s *Store) Write(ctx context.Context, change outbox.ParkChange) (outbox.ParkResult, error) {
	what := fmt.Sprintf("write %d parks and remove %d of stream %s", len(change.Put), len(change.Delete), s.cfg.Stream)
	columns, err := s.encode(change)
	if err != nil {
		return 0, &postgres.Error{Permanent: true, What: what, Err: err}
	}
	var guarded int64
	var unknown bool
	err = s.durably(ctx, func(ctx context.Context, synchronousCommit *string) error {
		args := append([]any{s.cfg.Stream, s.epoch.Load(), synchronousCommit}, columns...)
		err := s.db.QueryRow(ctx, sql.ParkWrite, args...).Scan(&guarded)
		unknown = unknown || maybeCommitted(err)
		return err
	})
	switch {
	case err == nil && guarded == 1:
		return outbox.ParksCommitted, nil
	case err == nil:
		return 0, &postgres.Error{What: what, Err: ErrFenced}
	case unknown:
		return outbox.ParksUnknown, failure(what, err)
	}
	return 0, failure(what, err)
}

// maybeCommitted reports whether a failed statement may have taken effect. It has not if the error was raised
// before the commit, or before anything was sent.
func maybeCommitted(err error) bool {
	if err == nil || pgconn.SafeToRetry(err) {
		return false
	}
	code := postgres.Code(err)
	if code == "" {
		return true
	}
	// A session may be ended while its commit is done but waits for a standby. A crash or a system error can
	// come at that point too.
	switch code[:min(2, len(code))] {
	case "57", "08", "XX", "58": // the SQLSTATE classes of operators, connections, internal errors and the system
		return true
	}
	return false
}

// encode returns the parameters of sql.ParkWrite from $4 on.
func (s *Store) encode(change outbox.ParkChange) ([]any, error) {
	put := &columns{at: make(map[[32]byte]int, len(change.Put))}
	for i := range change.Put {
		if err := put.add(&change.Put[i], s.printable); err != nil {
			return nil, err
		}
	}
	gone := make([][]byte, 0, len(change.Delete))
	for _, scope := range change.Delete {
		digest := Digest(scope)
		if _, stays := put.at[digest]; !stays {
			gone = append(gone, digest[:])
		}
	}
	return []any{
		gone, put.scope, put.kind, put.cluster, put.table, put.topic, put.key, put.id,
		put.cause, put.reason, put.since, put.next, put.rowID,
	}, nil
}

// columns are parks as parallel arrays, for unnest.
type columns struct {
	at                              map[[32]byte]int // index by scope; the last park of a scope counts
	scope, key                      [][]byte
	kind, cluster, table, topic, id []string
	cause, reason, rowID            []string
	since                           []time.Time
	next                            []*time.Time
}

func (c *columns) add(p *outbox.Park, printable func(string) string) error {
	for _, text := range []string{p.Scope.Cluster, p.Scope.Table, p.Scope.Topic} {
		if err := storable(text); err != nil {
			return fmt.Errorf("park %v: %w", p.Scope, err)
		}
	}
	id, err := arrayLiteral(p.Scope.ID)
	if err != nil {
		return fmt.Errorf("park %v: %w", p.Scope, err)
	}
	rowID, err := arrayLiteral(p.RowID)
	if err != nil {
		return fmt.Errorf("park %v of row %q: %w", p.Scope, p.RowID, err)
	}
	digest := Digest(p.Scope)
	i, again := c.at[digest]
	if !again {
		i = len(c.scope)
		c.at[digest] = i
		c.scope, c.key = append(c.scope, nil), append(c.key, nil)
		for _, column := range []*[]string{&c.kind, &c.cluster, &c.table, &c.topic, &c.id, &c.cause, &c.reason, &c.rowID} {
			*column = append(*column, "")
		}
		c.since, c.next = append(c.since, time.Time{}), append(c.next, nil)
	}
	s := &p.Scope
	c.scope[i], c.key[i], c.kind[i] = digest[:], []byte(s.Key), kindText(s)
	c.cluster[i], c.table[i], c.topic[i], c.id[i] = s.Cluster, s.Table, s.Topic, id
	c.cause[i], c.reason[i], c.rowID[i] = printable(string(p.Cause)), printable(p.Reason), rowID
	c.since[i], c.next[i] = p.Since, nil
	if !p.Next.IsZero() {
		c.next[i] = &p.Next
	}
	return nil
}

// kindText returns the kind as the column "kind" stores it. The column's CHECK is older than some kinds: all
// unknown topics of a table are stored as a topic of that table.
func kindText(s *outbox.Scope) string {
	if s.Kind == outbox.ScopeTopics {
		return outbox.ScopeTopic.String()
	}
	return s.Kind.String()
}

// Digest returns the SHA-256 of a scope: of its kind's name, cluster, table, topic, key and id, each preceded
// by its length in eight bytes. It is the column "scope" of outbox_cdc.park, because a key may be longer than
// an index entry can be.
func Digest(s outbox.Scope) [32]byte {
	var buf []byte
	for _, part := range []string{kindText(&s), s.Cluster, s.Table, s.Topic, s.Key, s.ID} {
		buf = binary.BigEndian.AppendUint64(buf, uint64(len(part)))
		buf = append(buf, part...)
	}
	return sha256.Sum256(buf)
}

// storable returns an error for a text that a text column cannot hold. A scope with such a text cannot come
// from PostgreSQL.
func storable(text string) error {
	if strings.ContainsRune(text, 0) || strings.ToValidUTF8(text, "") != text {
		return fmt.Errorf("%q is not text", text)
	}
	return nil
}

// printable cuts a reason and makes it storable.
func (s *Store) printable(text string) string {
	if len(text) > maxReason {
		text = text[:maxReason]
	}
	return s.set.Load().Writable(strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "?"))
}

// arrayLiteral returns an ID's columns as a text[] literal. An empty ID is the empty array.
func arrayLiteral(id string) (string, error) {
	var columns tablesql.Array
	if id == "" {
		return columns.Literal(), nil
	}
	for _, part := range outbox.SplitID(id) {
		if err := storable(part); err != nil {
			return "", err
		}
		columns.Add(part)
	}
	return columns.Literal(), nil
}

// Load reads the stream's parks, oldest first. Call it after Lead: from then on nobody else can change them.
func (s *Store) Load(ctx context.Context) ([]outbox.Park, error) {
	parks, err := postgres.Collect(ctx, s.db, scanPark, sql.ParkLoad, s.cfg.Stream)
	return parks, failure("read the parks of stream "+s.cfg.Stream, err)
}

func scanPark(row pgx.CollectableRow) (outbox.Park, error) {
	var p outbox.Park
	var kind, cause string
	var id, rowID []string
	var key []byte
	var next *time.Time
	err := row.Scan(&kind, &p.Scope.Cluster, &p.Scope.Table, &p.Scope.Topic, &key, &id, &cause, &p.Reason, &p.Since, &next, &rowID)
	if err != nil {
		return p, err
	}
	if p.Scope.Kind, err = outbox.ParseScopeKind(kind); err != nil {
		return p, err
	}
	if p.Scope.Kind == outbox.ScopeTopic && p.Scope.Table != "" {
		p.Scope.Kind = outbox.ScopeTopics
	}
	p.Scope.Key, p.Scope.ID, p.RowID = string(key), outbox.JoinID(id...), outbox.JoinID(rowID...)
	p.Cause = outbox.Cause(cause)
	if next != nil {
		p.Next = *next
	}
	return p, nil
}
