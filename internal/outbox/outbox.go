// Package outbox is the vocabulary that every other package speaks: rows,
// positions, scopes, parks, outcomes and the mapping of a table's columns to a
// Kafka record. It holds data and pure functions on it and never does I/O,
// reads a clock or starts a goroutine. It imports the standard library only.
package outbox

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// LSN is a position in PostgreSQL's write-ahead log, in bytes.
// https://www.postgresql.org/docs/current/datatype-pg-lsn.html
type LSN uint64

// String prints the position as PostgreSQL does, for example 16/B374D848.
func (l LSN) String() string { return fmt.Sprintf("%X/%X", uint32(l>>32), uint32(l)) }

// ParseLSN reads what String and PostgreSQL print.
func ParseLSN(s string) (LSN, error) {
	var hi, lo uint32
	if _, err := fmt.Sscanf(s, "%X/%X", &hi, &lo); err != nil {
		return 0, fmt.Errorf("%q is not a WAL position like 16/B374D848: %w", s, err)
	}
	return LSN(hi)<<32 | LSN(lo), nil
}

// Row is one outbox row on its way to Kafka.
//
// Everything above the line is written once by the code that read the row (decoder
// or sweeper) and is read-only from then on, so any goroutine may read it. The
// byte slices and strings point into memory shared with other rows of the same
// batch and are never reused while a row points there.
type Row struct {
	Table *Table
	// ID is the text of the identity columns, joined by NUL (which PostgreSQL
	// text cannot hold). Unique within the table.
	ID      string
	Cluster string // name of the Kafka cluster, resolved to a configured one
	Topic   string
	Key     []byte   // nil: a record without a key
	Value   []byte   // nil: a tombstone
	Headers []Header // the event id first, if it is mapped
	// SideHeaders is how many of the Headers, the last ones, come from the
	// mapping's HeadersTable.
	SideHeaders int32
	// Partition is the record's explicit partition, or -1 for the partitioner.
	Partition int32
	// Pending says that the row was read in its initial state. A row inserted
	// in another state is none of our business.
	Pending bool
	// Aged says of a row read by the sweeper that it was last written before the
	// Horizon of its SweepPart.
	Aged bool
	// CreatedOffset is how many minutes a local CreatedAt is ahead of UTC.
	CreatedOffset int16
	// Timestamp of the record in milliseconds since 1970, or 0 for the time of producing.
	Timestamp int64
	// CreatedAt is the row's own creation time in microseconds since 1970, or 0 if
	// it is not known: no column, NULL, infinite, or before 1970. With the ID it tells
	// the row from a later one with the same ID. So a local time is kept as the column
	// has it: nobody's rules of zones may change it. See Made.
	CreatedAt int64
	// AvailableAt is the time, in microseconds since 1970, before which the row
	// must not be published; 0: none. The constant Never: not known yet.
	AvailableAt int64
	// Err says why the row cannot become a record (topic NULL, headers not an
	// object, …). Such a row is never published; it fails as a row of its own.
	Err error
	// Commit, CommitTime and XID are the position of the transaction's commit record, the
	// time in it, in microseconds since 1970, and its id; all 0 for a row read by the
	// sweeper.
	Commit     LSN
	CommitTime int64
	XID        uint32

	// ---- below: owned by package checkpoint ----

	// Handle is the row's index in the core's table of rows. Late: the row waits for a look, which reads what it is now if
	// another transaction has changed it.
	Handle uint32
	Late   bool

	// ---- below: owned by package sink ----

	// Stale: the sink has asked what the row is now. Since is when it got the row, in tenths of a second of its own.
	Stale bool
	Since uint32
}

// Never is the AvailableAt of a row that is not ours as it was read: its
// writer sends it, or has yet to say until when it will.
const Never int64 = math.MaxInt64

// Made is when a row that has a CreatedAt was created, in microseconds since 1970.
func (r *Row) Made() int64 { return r.CreatedAt - int64(r.CreatedOffset)*60_000_000 }

// Size is the memory a row holds, in bytes, as it counts against the bounds.
func (r *Row) Size() int {
	n := rowOverhead + len(r.ID) + len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += HeaderOverhead + len(r.Headers[i].Name) + len(r.Headers[i].Value)
	}
	return n
}

const (
	// The Row itself, its ledger entry, its place in a batch and among the marks,
	// and its share of pieces that other rows keep.
	rowOverhead = 512
	// HeaderOverhead is what a header takes next to its bytes.
	HeaderOverhead = 48
)

// Header is one record header. A nil Value is Kafka's null.
type Header struct {
	Name  string
	Value []byte
}

// Table is one outbox table of a stream: its name, its mapping, and what the
// configuration says about it. One Table value exists per configured table for
// the life of the process; rows and scopes refer to it by pointer or by name.
type Table struct {
	Schema, Name string
	Mapping      Mapping
	// Share is the part of the table's rows that the stream takes; zero: all.
	Share Share
}

// String is the qualified name as configured, schema.name.
func (t *Table) String() string { return t.Schema + "." + t.Name }

// Stateful says whether the table keeps a state that a sweep can select by.
func (t *Table) Stateful() bool { return t.Mapping.Published != PublishedNone }

// LooksAgain says whether rows of the table that wait for long are looked at before they go out. Nobody can change
// those that are claimed.
func (t *Table) LooksAgain() bool { return t.Stateful() && t.Mapping.Claim == ClaimNone }

// Retains says whether rows of the table are ever deleted.
func (t *Table) Retains() bool {
	m := &t.Mapping
	return m.Published == PublishedStatus && m.Retention > 0 || t.Stateful() && m.RetentionUnsent > 0
}

// JoinID makes a Row's ID of the text of its identity columns.
func JoinID(columns ...string) string { return strings.Join(columns, "\x00") }

// SplitID is the reverse of JoinID.
func SplitID(id string) []string { return strings.Split(id, "\x00") }

// ScopeKind orders scopes from the widest to the narrowest.
type ScopeKind uint8

// The scopes at which work can be parked, widest first.
const (
	ScopeStream ScopeKind = iota + 1
	ScopeCluster
	ScopeTable
	ScopeTopics // a table's rows for topics that are not known to exist
	ScopeTopic
	ScopeKey
	ScopeRow // a row with a NULL key stands for itself, and so does one that is only to be marked
)

var scopeNames = [...]string{"", "stream", "cluster", "table", "topics", "topic", "key", "row"}

func (k ScopeKind) String() string { return scopeNames[k] }

// ParseScopeKind reads what String prints.
func ParseScopeKind(s string) (ScopeKind, error) {
	if k := slices.Index(scopeNames[:], s); k > 0 {
		return ScopeKind(k), nil
	}
	return 0, fmt.Errorf("%q is not a scope (stream, cluster, table, topics, topic, key or row)", s)
}

// Scope names a set of rows of one stream. It is comparable; fields that a
// kind does not use are empty:
//
//	stream: none; cluster: Cluster; table, topics: Table; topic: Cluster, Topic;
//	key: Table, Topic, Key; row: Table, ID.
type Scope struct {
	Kind    ScopeKind
	Cluster string
	Table   string // schema.name
	Topic   string
	Key     string // the record key's bytes
	ID      string
}

// KeyScope is the narrowest scope of a row: its key, or the row itself where
// the key is NULL.
func KeyScope(r *Row) Scope {
	if r.Key == nil {
		return RowScope(r)
	}
	return Scope{Kind: ScopeKey, Table: r.Table.String(), Topic: r.Topic, Key: string(r.Key)}
}

// RowScope is the scope of the row alone, whatever its key.
func RowScope(r *Row) Scope { return Scope{Kind: ScopeRow, Table: r.Table.String(), ID: r.ID} }

// TopicScope is the scope of all rows that go to one topic of one cluster.
func TopicScope(cluster, topic string) Scope {
	return Scope{Kind: ScopeTopic, Cluster: cluster, Topic: topic}
}

// ClusterScope is the scope of all rows that go to one Kafka cluster.
func ClusterScope(cluster string) Scope { return Scope{Kind: ScopeCluster, Cluster: cluster} }

// TableScope is the scope of all rows of one table.
func TableScope(t *Table) Scope { return Scope{Kind: ScopeTable, Table: t.String()} }

// TopicsScope is the scope of a table's rows whose topics are not known to exist.
// Which topics are is known to the code that parks it.
func TopicsScope(t *Table) Scope { return Scope{Kind: ScopeTopics, Table: t.String()} }

// StreamScope is the scope of all rows of the stream.
func StreamScope() Scope { return Scope{Kind: ScopeStream} }

// Contains says whether the row belongs to the scope; of topics, whether it may.
func (s Scope) Contains(r *Row) bool {
	switch s.Kind {
	case ScopeStream:
		return true
	case ScopeCluster:
		return s.Cluster == r.Cluster
	case ScopeTable, ScopeTopics:
		return s.Table == r.Table.String()
	case ScopeTopic:
		return s.Topic == r.Topic && s.Cluster == r.Cluster
	case ScopeKey:
		return r.Key != nil && s.Topic == r.Topic && s.Key == string(r.Key) && s.Table == r.Table.String()
	case ScopeRow:
		return s.ID == r.ID && s.Table == r.Table.String()
	}
	return false
}

func (s Scope) String() string {
	switch s.Kind {
	case ScopeCluster:
		return "cluster " + s.Cluster
	case ScopeTable:
		return "table " + s.Table
	case ScopeTopics:
		return "unknown topics of table " + s.Table
	case ScopeTopic:
		return "topic " + Shown(s.Topic) + " on cluster " + s.Cluster
	case ScopeKey:
		return fmt.Sprintf("key %q of topic %s in table %s", Shown(s.Key), Shown(s.Topic), s.Table)
	case ScopeRow:
		return fmt.Sprintf("row %q of table %s", Shown(strings.Join(SplitID(s.ID), ", ")), s.Table)
	}
	return s.Kind.String()
}

// Shown is the beginning of a text that a row brings, for logs and lists of people: it can be
// as long as a row may be.
func Shown(text string) string { return Cut(text, 300) } // more than a topic's name can have

// Cut is at most so many characters of a text; what is longer ends in an Ellipsis.
func Cut(text string, most int) string {
	n := 0
	for i := range text {
		if n++; n > most {
			return text[:i] + Ellipsis
		}
	}
	return text
}

// Ellipsis ends a text that was cut.
const Ellipsis = "…"

// Park is the durable statement that rows of a scope are left to the sweeper.
type Park struct {
	Scope  Scope
	Cause  Cause
	Reason string    // for people
	Since  time.Time // when it was parked
	Next   time.Time // next try; zero: now
	// RowID is the id of the FAILED row that keeps the key parked (CauseBlocked). Of a park that is
	// Unmarked it is the row's CreatedAt, which tells the row from a later one with its id; empty: unknown.
	RowID string
}

// Unmarked says that the park is for a published row that the database
// refuses to mark SENT. It is only to be marked.
func (p *Park) Unmarked() bool { return p.Scope.Kind == ScopeRow && p.Cause == CauseWriteBack }

// Cause is why a scope was parked, as counted in metrics.
type Cause string

// The causes of parks.
const (
	CauseRowError    Cause = "row_error"   // a row of the key was refused by itself
	CauseBlocked     Cause = "blocked"     // a FAILED row keeps its key, on_failed: block
	CauseTopic       Cause = "topic"       // topic missing or not authorised
	CauseMapping     Cause = "mapping"     // the table's columns do not fit its mapping
	CauseWriteBack   Cause = "write_back"  // the database refuses our UPDATEs or our sweep; of a row: see Park.Unmarked
	CauseKeys        Cause = "keys"        // too many of the table's keys are parked
	CauseCluster     Cause = "cluster"     // the Kafka cluster is unusable and others wait behind it
	CauseSlot        Cause = "slot"        // slot new, lost or unsound
	CauseWALBudget   Cause = "wal_budget"  // the slot retains more WAL than allowed
	CauseUnreadable  Cause = "unreadable"  // WAL that cannot be read
	CausePublication Cause = "publication" // the publication changed or lacks the table
	CauseScheduled   Cause = "scheduled"   // a row whose time has come
	CauseShadow      Cause = "shadow"      // the stream only watches next to the application's own relay
	CauseMissed      Cause = "missed"      // a PENDING row that the stream does not carry
	CausePaused      Cause = "paused"      // an operator wants nothing of it published
	CauseResumed     Cause = "resumed"     // what came while it was paused is left to publish
)

// Snapshot is a PostgreSQL snapshot, as pg_current_snapshot() shows it.
// https://www.postgresql.org/docs/current/functions-info.html#FUNCTIONS-PG-SNAPSHOT
type Snapshot struct {
	Xmin, Xmax uint64
	InProgress []uint64 // ascending, Xmin ≤ x < Xmax
}

// Widen gives the 64-bit id of a 32-bit transaction id as seen near the
// snapshot: the one within 2³¹ of Xmax.
func (s *Snapshot) Widen(xid uint32) uint64 {
	wide := s.Xmax&^0xFFFFFFFF | uint64(xid)
	switch {
	case wide > s.Xmax && wide-s.Xmax > 1<<31 && wide >= 1<<32:
		return wide - 1<<32
	case wide < s.Xmax && s.Xmax-wide > 1<<31:
		return wide + 1<<32
	}
	return wide
}

// Ended says whether the transaction is visible in the snapshot or had ended
// without a trace (rolled back) when it was taken.
func (s *Snapshot) Ended(wide uint64) bool {
	return wide < s.Xmin || wide < s.Xmax && !slices.Contains(s.InProgress, wide)
}

// ParseSnapshot reads pg_current_snapshot()::text, xmin:xmax:x1,x2,….
func ParseSnapshot(text string) (Snapshot, error) {
	xmin, rest, _ := strings.Cut(text, ":")
	xmax, list, ok := strings.Cut(rest, ":")
	number := func(text string) uint64 {
		n, err := strconv.ParseUint(text, 10, 64)
		ok = ok && err == nil
		return n
	}
	s := Snapshot{Xmin: number(xmin), Xmax: number(xmax)}
	if list != "" {
		for x := range strings.SplitSeq(list, ",") {
			s.InProgress = append(s.InProgress, number(x))
		}
	}
	if !ok {
		return Snapshot{}, fmt.Errorf("%q is not a snapshot like 10:20:10,14", text)
	}
	return s, nil
}

// Identity is what a stream remembers, in outbox_cdc.leader, of the slot that
// it went on from. The zero value: nothing was ever streamed.
type Identity struct {
	Slot     string
	SystemID string // of the database cluster, from initdb
	Timeline uint32 // raised by every promotion
	// SlotPoint is the slot's confirmed position when the stream took it on, or a later one that the stream confirmed.
	SlotPoint LSN
	// Stopped is the position confirmed last by a clean stop, or 0 while
	// streaming. Nobody else moves the slot on.
	Stopped LSN
	// Publication changes when the publication is re-created or altered.
	Publication string
	// Relations are the tables' OIDs by name; 0: the table did not exist; nil: not known. In the database
	// they include tables that are gone, and the numbers of columns, under the names that statestore.Was and
	// statestore.NumberOf give them.
	Relations map[string]uint32
}

// Fences is what a stop leaves to a stream's next leader, for one Kafka cluster: the partitions where brokers refuse every
// earlier leader, and no request of the one that stopped is outstanding. Package sink makes and judges it.
type Fences struct {
	PID    int64                  `json:"pid"`
	Epoch  int16                  `json:"epoch"`
	Topics map[string]FencedTopic `json:"topics"`
}

// FencedTopic are the partitions, ascending, of the topic that has this id.
type FencedTopic struct {
	ID         string  `json:"id"`
	Partitions []int32 `json:"partitions"`
}
