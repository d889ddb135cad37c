// Package slots reads every replication slot of a server. It judges whose a slot is, what it costs, and what
// dropping it would do. It drops nothing itself: package replication has the statement, and the command asks
// first.
package slots

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// Slot is one replication slot. Sizes are in bytes.
type Slot struct {
	// Name of the slot.
	Name string `json:"name"`
	// Type is `logical` or `physical`.
	Type string `json:"type"`
	// Plugin is the output plugin of a logical slot.
	Plugin string `json:"plugin,omitempty"`
	// Database of a logical slot.
	Database string `json:"database,omitempty"`
	// Whose is `stream` (of this configuration), `orphan` (outbox-cdc's by its name `outbox_cdc_…` or
	// by schema `outbox_cdc`, but of no configured stream) or `other`.
	Whose string `json:"whose"`
	// Stream is the stream that it belongs, or belonged, to.
	Stream string `json:"stream,omitempty"`
	// Temporary is whether it ends with its session.
	Temporary bool `json:"temporary,omitempty"`
	// Active is whether somebody reads from it.
	Active bool `json:"active"`
	// Client is the session that reads from it.
	Client *Client `json:"client,omitempty"`
	// Retained is the WAL that it holds back.
	Retained uint64 `json:"retained_wal_bytes"`
	// Safe is how much WAL may still be written before the server may drop it. Missing: the server sets no
	// limit, or the slot is lost.
	Safe *int64 `json:"safe_wal_bytes,omitempty"`
	// WALStatus is `reserved`, `extended`, `unreserved` or `lost`.
	WALStatus string `json:"wal_status,omitempty"`
	// Invalidation is why the server has invalidated it (PostgreSQL 16 and later).
	Invalidation string `json:"invalidation_reason,omitempty"`
	// InactiveSince is when the last reader left (PostgreSQL 17 and later).
	InactiveSince string `json:"inactive_since,omitempty"`
	// Failover is whether standbys keep the slot (PostgreSQL 17 and later).
	Failover *bool `json:"failover,omitempty"`
	// Synced is whether it was copied from a primary (PostgreSQL 17 and later).
	Synced *bool `json:"synced,omitempty"`
	// Frees is the WAL that the server could remove if the slot were dropped: no other slot holds it
	// back.
	Frees uint64 `json:"dropping_frees_bytes"`
	// Dropping says what dropping it would do.
	Dropping string `json:"dropping"`
	// Refusal is why `slots drop` refuses it.
	Refusal string `json:"drop_refused,omitempty"`

	restart outbox.LSN
}

// Client is the session that reads from a slot.
type Client struct {
	// PID of the server process.
	PID int `json:"pid"`
	// Application is its `application_name`.
	Application string `json:"application"`
	// User is the database user.
	User string `json:"user"`
	// Address of the client. Missing: a Unix socket.
	Address string `json:"address,omitempty"`
}

func (c *Client) String() string {
	text := fmt.Sprintf("%s, role %s, pid %d", c.Application, c.User, c.PID)
	if c.Address != "" {
		text += ", from " + c.Address
	}
	return text
}

// The values of Slot.Whose.
const (
	OfStream = "stream"
	Orphan   = "orphan"
	Other    = "other"
)

// Stream is a stream as the configuration or a database knows it.
type Stream struct {
	Name, Slot, Database string
	// Configured: the stream is in the configuration.
	Configured bool
	// Stateless: its tables keep no state (published: none).
	Stateless bool
	// Led names the present leader; empty: there is none.
	Led string
	// Intruder says that the lock's holder is not a leader, and how to end its session.
	Intruder string
}

// List reads every slot of the server. The slots are not judged yet.
func List(ctx context.Context, q postgres.DB) ([]Slot, error) {
	list, err := postgres.Collect(ctx, q, scan, sql.SlotsList)
	if err != nil {
		return nil, fmt.Errorf("read the replication slots: %w", err)
	}
	return list, nil
}

func scan(row pgx.CollectableRow) (Slot, error) {
	var s Slot
	var c Client
	var restart, insert string
	err := row.Scan(&s.Name, &s.Type, &s.Plugin, &s.Database, &s.Temporary, &s.Active, &c.PID,
		&c.Application, &c.User, &c.Address, &restart, &s.WALStatus, &s.Safe, &s.Invalidation,
		&s.InactiveSince, &s.Failover, &s.Synced, &insert)
	if err != nil {
		return s, err
	}
	if c.PID != 0 {
		s.Client = &c
	}
	if s.restart, err = outbox.ParseLSN(restart); err != nil {
		return s, err
	}
	at, err := outbox.ParseLSN(insert)
	if err == nil && s.restart != 0 && s.restart < at {
		s.Retained = uint64(at - s.restart)
	}
	return s, err
}

// Remembered reads the streams that a database knows. There are none if schema outbox_cdc does not exist, or
// if the role may not read it.
func Remembered(ctx context.Context, q postgres.DB, database string) ([]Stream, error) {
	list, err := postgres.Collect(ctx, q, func(row pgx.CollectableRow) (Stream, error) {
		s := Stream{Database: database}
		return s, row.Scan(&s.Name, &s.Slot)
	}, sql.SlotsLeaders)
	switch {
	case err == nil:
		return list, nil
	case postgres.HasCode(err, pgerrcode.UndefinedTable, pgerrcode.InvalidSchemaName, pgerrcode.InsufficientPrivilege):
		return nil, nil
	}
	return nil, fmt.Errorf("read the streams that database %s knows: %w", database, err)
}

// Judge sets, for each slot, whose it is and what dropping it would do. It is a pure function.
func Judge(list []Slot, known []Stream) {
	for i := range list {
		s := &list[i]
		stream := owner(s, known)
		s.Frees = frees(list, i)
		s.Dropping = dropping(s, stream)
		s.Refusal = refusal(s, stream)
	}
}

// prefix begins the slots' names, unless the configuration has other ones.
const prefix = "outbox_cdc_"

func owner(s *Slot, known []Stream) *Stream {
	var found *Stream
	for i := range known {
		k := &known[i]
		if k.Slot == s.Name && s.Type == "logical" && k.Database == s.Database && (found == nil || k.Configured) {
			found = k
		}
	}
	switch {
	case found != nil && found.Configured:
		s.Whose, s.Stream = OfStream, found.Name
	case found != nil:
		s.Whose, s.Stream = Orphan, found.Name
	case s.Type == "logical" && s.Plugin == "pgoutput" && strings.HasPrefix(s.Name, prefix):
		s.Whose = Orphan
	default:
		s.Whose = Other
	}
	return found
}

// frees returns how many bytes of WAL only this slot holds back.
func frees(list []Slot, at int) uint64 {
	s := &list[at]
	if s.restart == 0 {
		return 0
	}
	freed := s.Retained
	for i := range list {
		o := &list[i]
		switch {
		case i == at || o.restart == 0:
		case o.restart <= s.restart:
			return 0
		default:
			freed = min(freed, uint64(o.restart-s.restart))
		}
	}
	return freed
}

func dropping(s *Slot, stream *Stream) string {
	switch {
	case s.Synced != nil && *s.Synced:
		return "this server is a standby that keeps it up to date from its primary: drop it there"
	case s.Whose == OfStream && stream.Stateless:
		return "LOSES every row of stream " + stream.Name + " that was not published yet: its tables keep no state"
	case s.Whose == OfStream:
		return "run re-creates it; until then rows of stream " + stream.Name + " are read from the table, and none is lost"
	case s.Whose == Orphan && s.Active:
		return "a process uses it that has another configuration than this one"
	case s.Whose == Orphan:
		return "no stream of this configuration uses it; a stream that comes back makes a new one and sweeps its tables"
	case s.Type == "physical":
		return "a standby or a backup tool that comes back for it has to be rebuilt"
	}
	return "its program loses its place: ask its operator"
}

func refusal(s *Slot, stream *Stream) string {
	switch {
	case s.Active && s.Client != nil:
		return "it is in use by " + s.Client.String() + ": stop that program first"
	case s.Active:
		return "it is in use: stop the program that uses it first"
	case s.Synced != nil && *s.Synced:
		return "a standby keeps it up to date from its primary: drop it there"
	case stream != nil && stream.Intruder != "":
		return stream.Intruder
	case stream != nil && stream.Led != "":
		return "stream " + stream.Name + " is led by " + stream.Led + ": stop that process first"
	}
	return ""
}
