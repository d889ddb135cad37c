// Package outbox defines the vocabulary of all other packages: rows, positions, scopes, parks, outcomes, and
// the mapping of a table's columns to a Kafka record. It has data types and pure functions on them. It does
// no I/O, reads no clock and starts no goroutine. It imports the standard library only.
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

// String formats the position as PostgreSQL does, for example 16/B374D848.
func (l LSN) String() string { return fmt.Sprintf("%X/%X", uint32(l>>32), uint32(l)) }

// ParseLSN parses the format of String.
func ParseLSN(s string) (LSN, error) {
	var hi, lo uint32
	if _, err := fmt.Sscanf(s, "%X/%X", &hi, &lo); err != nil {
		return 0, fmt.Errorf("%q is not a WAL position like 16/B374D848: %w", s, err)
	}
	return LSN(hi)<<32 | LSN(lo), nil
}

// Row is one outbox row on its way to Kafka.
//
// The code that reads the row (decoder or sweeper) writes the fields above the first line once. After that
// they are read-only, so any goroutine may read them. Byte slices and strings may point into memory shared
// with other rows of the same batch. That memory is not reused while a row points to it.
type Row struct {
	Table *Table
	// ID is the text of the identity columns, joined by NUL, which PostgreSQL text cannot contain. It is
	// unique within the table.
	ID      string
	Cluster string // name of a configured Kafka cluster
	Topic   string
	Key     []byte   // nil: a record without a key
	Value   []byte   // nil: a tombstone
	Headers []Header // the event id is first, if it is mapped
	// SideHeaders is the number of headers, at the end of Headers, that come from the mapping's HeadersTable.
	SideHeaders int32
	// Partition is the record's partition; -1: the partitioner chooses it.
	Partition int32
	// Pending says that the row was read as PENDING. A row inserted in any other state is ignored.
	Pending bool
	// Aged, for a row read by the sweeper, says that its last writer is older than the Horizon of the
	// SweepPart.
	Aged bool
	// CreatedOffset is by how many minutes a local CreatedAt is ahead of UTC.
	CreatedOffset int16
	// Timestamp is the record's timestamp in milliseconds since 1970; 0: the time of producing.
	Timestamp int64
	// CreatedAt is the row's creation time in microseconds since 1970. It is 0 if unknown: there is no such
	// column, or it is NULL, infinite, or before 1970. With the ID it tells the row from a later one with the
	// same ID. So a local time is kept as the column has it, and a change of time zone rules cannot change
	// it. See Made.
	CreatedAt int64
	// AvailableAt is the time, in microseconds since 1970, before which the row must not be published. 0: no
	// such time. Never: not known yet.
	AvailableAt int64
	// Err says why the row cannot become a record (the topic is NULL, headers are no object, and so on). Such
	// a row is never published and is charged as a bad row.
	Err error
	// Commit is the position of the transaction's commit record. CommitTime is the time in that record, in
	// microseconds since 1970. XID is the transaction's id. All are 0 for a row read by the sweeper.
	Commit     LSN
	CommitTime int64
	XID        uint32

	// ---- below: owned by package checkpoint ----

	// Handle is the row's index in the core's table of rows. Late: the row waits for a lookup, and is read
	// again if another transaction has changed it.
	Handle uint32
	Late   bool

	// ---- below: owned by package sink ----

	// Stale: the sink has asked what the row is now. Since is when the sink got the row, in tenths of a
	// second of the sink's own clock.
	Stale bool
	Since uint32
}

// Never is the AvailableAt of a row that is not ours as it was read: its writer sends it, or has still to set
// the time until which the writer will.
const Never int64 = math.MaxInt64

// Made returns when a row with a CreatedAt was created, in microseconds since 1970 (UTC).
func (r *Row) Made() int64 { return r.CreatedAt - int64(r.CreatedOffset)*60_000_000 }

// Size is the memory in bytes that a row is counted with.
func (r *Row) Size() int {
	n := rowOverhead + len(r.ID) + len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += HeaderOverhead + len(r.Headers[i].Name) + len(r.Headers[i].Value)
	}
	return n
}

const (
	// rowOverhead covers the Row itself, its ledger entry, its places in a batch and among the marks, and its
	// share of memory that other rows keep.
	rowOverhead = 512
	// HeaderOverhead is the memory in bytes of a header in addition to its own bytes.
	HeaderOverhead = 48
)

// Header is one header of a record. A nil Value is Kafka's null.
type Header struct {
	Name  string
	Value []byte
}

// Table is one outbox table of a stream: its name, its mapping, and what else the configuration says about
// it. Each configured table has one Table value for the life of the process. Rows and scopes refer to it by
// pointer or by name.
type Table struct {
	Schema, Name string
	Mapping      Mapping
	// Share is the part of the table's rows that belongs to this stream; zero: all rows.
	Share Share
}

// String returns the qualified name "schema.name" as configured.
func (t *Table) String() string { return t.Schema + "." + t.Name }

// Stateful reports whether the table keeps a state, by which a sweep can select rows.
func (t *Table) Stateful() bool { return t.Mapping.Published != PublishedNone }

// LooksAgain reports whether rows that have waited long are looked up again before they are sent. Claimed
// rows are not: nobody else can change them.
func (t *Table) LooksAgain() bool { return t.Stateful() && t.Mapping.Claim == ClaimNone }

// Retains reports whether retention ever deletes rows of the table.
func (t *Table) Retains() bool {
	m := &t.Mapping
	return m.Published == PublishedStatus && m.Retention > 0 || t.Stateful() && m.RetentionUnsent > 0
}

// JoinID returns a Row's ID, made of the text of its identity columns.
func JoinID(columns ...string) string { return strings.Join(columns, "\x00") }

// SplitID returns the text of each identity column in an ID of JoinID.
func SplitID(id string) []string { return strings.Split(id, "\x00") }

// ScopeKind is the kind of a Scope. A wider kind has a smaller value.
type ScopeKind uint8

// The scopes at which work can be parked, widest first.
const (
	ScopeStream ScopeKind = iota + 1
	ScopeCluster
	ScopeTable
	ScopeTopics // a table's rows for topics that may not exist
	ScopeTopic
	ScopeKey
	ScopeRow // a row with a NULL key, or a row that only has to be marked
)

var scopeNames = [...]string{"", "stream", "cluster", "table", "topics", "topic", "key", "row"}

func (k ScopeKind) String() string { return scopeNames[k] }

// ParseScopeKind parses the result of String.
func ParseScopeKind(s string) (ScopeKind, error) {
	if k := slices.Index(scopeNames[:], s); k > 0 {
		return ScopeKind(k), nil
	}
	return 0, fmt.Errorf("%q is not a scope (stream, cluster, table, topics, topic, key or row)", s)
}

// Scope identifies a set of rows of one stream. It is comparable. A kind uses these fields, and the others
// are empty:
//
// stream: none; cluster: Cluster; table, topics: Table; topic: Cluster, Topic; key: Table, Topic, Key; row:
// Table, ID.
type Scope struct {
	Kind    ScopeKind
	Cluster string
	Table   string // schema.name
	Topic   string
	Key     string // the bytes of the record's key
	ID      string
}

// KeyScope returns the narrowest scope that a row waits in: its key, or the row itself where the key is NULL.
func KeyScope(r *Row) Scope {
	if r.Key == nil {
		return RowScope(r)
	}
	return Scope{Kind: ScopeKey, Table: r.Table.String(), Topic: r.Topic, Key: string(r.Key)}
}

// RowScope returns the scope of this row alone, whatever its key.
func RowScope(r *Row) Scope { return Scope{Kind: ScopeRow, Table: r.Table.String(), ID: r.ID} }

// TopicScope returns the scope of all rows for one topic of one cluster.
func TopicScope(cluster, topic string) Scope {
	return Scope{Kind: ScopeTopic, Cluster: cluster, Topic: topic}
}

// ClusterScope returns the scope of all rows for one Kafka cluster.
func ClusterScope(cluster string) Scope { return Scope{Kind: ScopeCluster, Cluster: cluster} }

// TableScope returns the scope of all rows of one table.
func TableScope(t *Table) Scope { return Scope{Kind: ScopeTable, Table: t.String()} }

// TopicsScope returns the scope of a table's rows whose topics may not exist. The code that parks this scope
// knows which topics exist.
func TopicsScope(t *Table) Scope { return Scope{Kind: ScopeTopics, Table: t.String()} }

// StreamScope returns the scope of all rows of the stream.
func StreamScope() Scope { return Scope{Kind: ScopeStream} }

// Contains reports whether the row belongs to the scope. For ScopeTopics it reports whether the row may
// belong to it.
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

// Shown returns the beginning of a text from a row, for logs and lists. The whole text can be as long as a
// row may be.
func Shown(text string) string { return Cut(text, 300) } // longer than a topic's name can be

// Cut returns at most the given number of characters of a text. A longer text is cut and ends with an
// Ellipsis.
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

// Park says durably that the rows of a scope are left to the sweeper.
type Park struct {
	Scope  Scope
	Cause  Cause
	Reason string    // for people
	Since  time.Time // when the scope was parked
	Next   time.Time // when the next try is due; zero: now
	// RowID is the id of the FAILED row that keeps the key parked (CauseBlocked). For a park that is Unmarked
	// it is the row's CreatedAt, which tells the row from a later one with the same id; empty: unknown.
	RowID string
}

// Unmarked reports whether the park is for a published row that the database refuses to mark SENT. Such a row
// only has to be marked.
func (p *Park) Unmarked() bool { return p.Scope.Kind == ScopeRow && p.Cause == CauseWriteBack }

// Cause is why a scope is parked. Metrics count parks by it.
type Cause string

// The causes of parks.
const (
	CauseRowError    Cause = "row_error"   // a row of the key was refused
	CauseBlocked     Cause = "blocked"     // a FAILED row blocks its key (on_failed: block)
	CauseTopic       Cause = "topic"       // the topic is missing or not authorised
	CauseMapping     Cause = "mapping"     // the table's columns do not fit its mapping
	CauseWriteBack   Cause = "write_back"  // the database refuses our UPDATEs or our sweep; for a row, see Park.Unmarked
	CauseKeys        Cause = "keys"        // too many of the table's keys are parked
	CauseCluster     Cause = "cluster"     // the Kafka cluster is unusable, and other rows wait behind its rows
	CauseSlot        Cause = "slot"        // the slot is new, lost or unsound
	CauseWALBudget   Cause = "wal_budget"  // the slot retains more WAL than allowed
	CauseUnreadable  Cause = "unreadable"  // the WAL cannot be read
	CausePublication Cause = "publication" // the publication changed, or lacks the table
	CauseScheduled   Cause = "scheduled"   // a scheduled row is now due
	CauseShadow      Cause = "shadow"      // shadow mode: the application's own relay publishes
	CauseMissed      Cause = "missed"      // the stream missed a PENDING row
	CausePaused      Cause = "paused"      // an operator paused the scope
	CauseResumed     Cause = "resumed"     // rows that came during a pause still have to be published
)

// Snapshot is a PostgreSQL snapshot, as pg_current_snapshot() shows it.
// https://www.postgresql.org/docs/current/functions-info.html#FUNCTIONS-PG-SNAPSHOT
type Snapshot struct {
	Xmin, Xmax uint64
	InProgress []uint64 // ascending, Xmin ≤ x < Xmax
}

// Widen returns the 64-bit form of a 32-bit transaction id that was seen near the snapshot: the id within 2³¹
// of Xmax.
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

// Ended reports whether the transaction had ended when the snapshot was taken. It had either committed, and
// is visible, or rolled back.
func (s *Snapshot) Ended(wide uint64) bool {
	return wide < s.Xmin || wide < s.Xmax && !slices.Contains(s.InProgress, wide)
}

// ParseSnapshot parses the text of pg_current_snapshot(), "xmin:xmax:x1,x2,…".
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

// Identity is what a stream remembers, in outbox_cdc.leader, of the slot that it streamed from. The zero
// value: the stream has never streamed.
type Identity struct {
	Slot     string
	SystemID string // of the database cluster, from initdb
	Timeline uint32 // raised by every promotion
	// SlotPoint is the slot's confirmed position when the stream first used it, or a later position that the
	// stream confirmed.
	SlotPoint LSN
	// Stopped is the position that a clean stop confirmed last; 0 while streaming. Only this stream advances
	// the slot.
	Stopped LSN
	// Publication changes when the publication is re-created or altered.
	Publication string
	// Relations are the tables' OIDs by name. 0: the table did not exist. nil: unknown. In the database they
	// also include tables that are gone, and the attribute numbers of columns, under the names of
	// statestore.Was and statestore.NumberOf.
	Relations map[string]uint32
}

// Fences is what a stopped leader leaves to the next one, for one Kafka cluster. It lists the partitions
// whose brokers refuse every earlier leader, and for which the stopped leader has no outstanding request.
// Package sink makes and checks it.
type Fences struct {
	PID    int64                  `json:"pid"`
	Epoch  int16                  `json:"epoch"`
	Topics map[string]FencedTopic `json:"topics"`
}

// FencedTopic lists the partitions, in ascending order, of the topic with this id.
type FencedTopic struct {
	ID         string  `json:"id"`
	Partitions []int32 `json:"partitions"`
}
