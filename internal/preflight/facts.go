package preflight

import (
	"strconv"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/platform"
	"github.com/outbox-cdc/outbox-cdc/internal/shedlock"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Facts are all that the probes learnt of one stream. A nil group was not
// seen; Missing says why.
type Facts struct {
	Stream *Stream

	// Sessions of the role that reads and marks, and of the one that streams.
	Table, Streaming Session

	Server   *Server
	State    *replication.State
	Retained *replication.Retained
	Blockers []replication.Blocker // nil: not asked for
	Leader   *replication.Holder   // PID is empty: nobody
	// Paused is what operators have paused.
	Paused []outbox.Park
	// Claimed is why another stream has the tables, or nil.
	Claimed error
	// Tallies are the stream's, and Orphans open ones of its tables that it does not recover.
	Tallies []statestore.TallyState
	Orphans []statestore.Orphan
	// Unclean are leaderships over its tables after which a stream that delivers exactly once may be refused.
	Unclean []statestore.Unclean
	Tables  []TableFacts   // in the order of Stream.Tables
	Kafka   []ClusterFacts // by name

	// Missing says why a group was not seen, by the probe's name.
	Missing map[string]string
}

// Session is one of the stream's two ways to the database.
type Session struct {
	User string
	// Err is why there is none. Permanent: waiting does not help.
	Err       error
	Hint      string
	Permanent bool

	Role *Role
	// Pooled: the server's process is not the one that the login told of, so
	// something stands in between. Wandering: the process changed between two
	// statements, as behind a pooler that passes transactions.
	Pooled, Wandering bool
	// Prepares says of the table session that it keeps prepared statements.
	Prepares bool
	// Of the streaming session: Holds says that it keeps a session lock, and
	// SenderTimeout is the wal_sender_timeout that is in force.
	Holds         bool
	SenderTimeout string
}

// Server is what check_server.sql tells.
type Server struct {
	Settings      map[string]Setting `json:"settings"`
	Encoding      string             `json:"encoding"`  // of the database
	Superuser     bool               `json:"superuser"` // of the role that asked
	Slots         int                `json:"slots"`
	IdleSlots     []string           `json:"idle_slots"`
	PhysicalSlots []string           `json:"physical_slots"`
	// IdlePhysicalSlots are those that no standby uses now.
	IdlePhysicalSlots []string `json:"idle_physical_slots"`
	Senders           int      `json:"senders"`
	Standbys          int      `json:"standbys"`
	Connections       int      `json:"connections"`
	Holder            string   `json:"holder"`

	Signs platform.Signs `json:"-"` // of who runs the server
	// Ahead is how far the server's clock is ahead of ours, and Doubt, by how
	// much that may be wrong (half of the round trip).
	Ahead, Doubt time.Duration `json:"-"`
}

// platform is nil where nothing tells that somebody else runs the server.
func (s *Server) platform() *platform.Platform {
	if s == nil {
		return nil
	}
	return platform.Of(s.Signs)
}

// Setting is a row of pg_settings.
type Setting struct {
	Value string `json:"value"`
	Unit  string `json:"unit"`
}

// number of a setting, ok false: the server does not have it.
func (s *Server) number(name string) (n int64, ok bool) {
	n, err := strconv.ParseInt(s.Settings[name].Value, 10, 64)
	return n, err == nil
}

// duration of a setting; 0: none, or switched off.
func (s *Server) duration(name string) time.Duration {
	n, _ := s.number(name)
	unit := map[string]time.Duration{"ms": time.Millisecond, "s": time.Second, "min": time.Minute}[s.Settings[name].Unit]
	return time.Duration(max(n, 0)) * unit
}

// Role is what check_role.sql tells.
type Role struct {
	User            string   `json:"user"`
	Superuser       bool     `json:"superuser"`
	Replication     bool     `json:"replication"`
	BypassRLS       bool     `json:"bypassrls"`
	CreateRole      bool     `json:"createrole"`
	CreateDB        bool     `json:"createdb"`
	ConnectionLimit int      `json:"connection_limit"`
	ReadsAll        bool     `json:"reads_all"`
	WritesAll       bool     `json:"writes_all"`
	Schema          *bool    `json:"schema"` // USAGE on outbox_cdc; nil: no such schema
	Lacking         []string `json:"lacking"`
	Ours            []string `json:"ours"`
	Tables          []string `json:"tables"` // outbox tables that it may use in some way
	Tally           []string `json:"tally"`  // tables of exactly-once delivery that are there
	TallyLacking    []string `json:"tally_lacking"`
}

// TableFacts are what is known of one table.
type TableFacts struct {
	Table      Table
	Inspection *Inspection
	// Gone says that there is no such table, Refused that it, or its table of
	// headers, cannot be read as it is.
	Gone    string
	Renamed string // what a table that is gone is called now; empty: it is dropped, or nobody knows
	Refused string
	// Lockers keep everybody from reading the table, so it was not looked at.
	Lockers   []replication.Blocker
	asked     bool                // for Lockers
	described *tablesql.Described // nil: not with the other tables
	Catalogue *Catalogue
	Details   *Details
	Backlog   *tablesql.Backlog
	// Topics that rows of the table are for, by cluster, from a sample.
	Topics map[string][]string
	// States found in the status column, from a sample.
	States []string
	// Chosen says how many rows the mapping's conditions leave to others; nil: it has none.
	Chosen *tablesql.Chosen
	// Newest is the age in seconds of the newest time in each column that the mapping takes for a local time, or a number.
	Newest map[string]int64
	// Tied: in a sample, rows of one key have equal order columns, and no other column tells which came first.
	Tied bool
	// Locks of the application that are held next to its own relay.
	Locks   []LockFacts
	Missing map[string]string
}

// Catalogue is what check_table.sql tells.
type Catalogue struct {
	RowSecurity  bool     `json:"row_security"`
	RowsHidden   bool     `json:"rows_hidden"`
	Policies     []string `json:"policies"`
	Key          []string `json:"key"` // columns of the primary key
	Columns      []Column `json:"columns"`
	StatusLabels []string `json:"status_labels"`
	StatusRules  []string `json:"status_constraints"`
	ArchiveRules []string `json:"archive_constraints"` // on the archive's status
}

// Details are what check_table_details.sql tells.
type Details struct {
	Owner         string    `json:"owner"`
	Owned         bool      `json:"owned"` // by the role, or by one that it is a member of
	Triggers      []Trigger `json:"triggers"`
	Completing    []Trigger `json:"completing"` // update rows after their INSERT
	Defaults      []string  `json:"default_partitions"`
	Options       []string  `json:"options"`
	Rows          int64     `json:"rows"`
	Bytes         int64     `json:"bytes"`
	Updates       int64     `json:"updates"`
	HOTUpdates    int64     `json:"hot_updates"`
	Dead          int64     `json:"dead"`
	StatusIndexes []Index   `json:"status_indexes"`
	BrokenIndexes []string  `json:"broken_indexes"`
	Identity      string    `json:"identity"`
	HasKey        bool      `json:"has_key"`
	UpdatePubs    []string  `json:"update_publications"`
	// RowFilters are those of every publication of the table.
	RowFilters []RowFilter `json:"row_filters"`
	Privileges []string    `json:"privileges"`
	Updatable  []string    `json:"updatable"`
}

// Trigger fires on our UPDATE, or after an INSERT.
type Trigger struct {
	Name     string `json:"name"`
	Function string `json:"function"`
	Path     bool   `json:"path"` // the function sets its own search_path
}

// Index is one index of a table.
type Index struct {
	Name    string `json:"name"`
	Partial bool   `json:"partial"`
}

// Column is one column of a table.
type Column struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	NotNull bool   `json:"not_null"`
}

// ClusterFacts are what is known of one Kafka cluster, for one stream.
type ClusterFacts struct {
	Name            string
	TransactionalID string
	Bootstrap       string // an address to begin with
	Principal       string // the name that we log in with, where it is known
	BatchBytes      int
	Brokers         []BrokerFacts
	Controller      int32
	Topics          []TopicFacts // by name
	// Unknown: rows name their topics and no row is there to tell one.
	Unknown bool
	// ProduceVersion is the newest Produce request that all brokers know; -1: unknown.
	ProduceVersion int
	// Idempotent is the answer to a producer id without a name, Transactional
	// the answer to the question for the transactional id's coordinator.
	Idempotent, Transactional *sink.Code
	// NoTransactions is why some broker's protocol does not allow to fence former
	// leaders; empty: it does. RequireFencing: nothing is published then.
	NoTransactions string
	RequireFencing bool
	// Journal is the topic of exactly-once delivery; nil: it was not asked for.
	Journal *TopicFacts
	// Settings of a broker; nil: we may not read them. Verifies: every broker refuses records
	// outside of a transaction that is open (Kafka 3.6).
	Settings KafkaSettings
	Verifies bool
	// Err is why no broker told anything.
	Err string
}

// BrokerFacts are what came of talking to one broker.
type BrokerFacts struct {
	Address string
	ID      int32 // -1: a bootstrap address
	// Advertised: the cluster tells of it.
	Advertised bool
	Err        error
	// Permanent: waiting does not help.
	Permanent bool
	Took      time.Duration
}

// TopicFacts are what metadata and settings tell of one topic.
type TopicFacts struct {
	sink.Topic
	// Settings of the topic; nil: we may not read them.
	Settings KafkaSettings
}

// What may be done with a topic, as the bits of KIP-430 number it.
const (
	mayRead            = 3
	mayWrite           = 4
	mayDescribeConfigs = 10
)

// may says whether we may do an operation of the topic.
func (t *TopicFacts) may(operation uint) bool { return t.Operations&(1<<operation) != 0 }

// KafkaSettings are those of a topic or a broker, by their names.
type KafkaSettings map[string]string

// number of a setting; -1: unknown.
func (s KafkaSettings) number(name string) int64 {
	n, err := strconv.ParseInt(s[name], 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// LockFacts are what is known of one lock of the application.
type LockFacts struct {
	Lock outbox.ShedLock
	// While says what it is held for.
	While string
	Sight shedlock.Sight
	Err   error
	// Refused: it could not be taken as it is.
	Refused bool
}
