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

// Facts are the results of all probes for one stream. A nil group was not seen; Missing has the reason.
type Facts struct {
	Stream *Stream

	// Table is the session of the role that reads and marks rows, Streaming that of the role that streams.
	Table, Streaming Session

	Server   *Server
	State    *replication.State
	Retained *replication.Retained
	Blockers []replication.Blocker // nil: the server was not asked
	Leader   *replication.Holder   // an empty PID: nobody leads
	// Paused lists what operators have paused.
	Paused []outbox.Park
	// Claimed is the error that another stream has the tables, or nil.
	Claimed error
	// Tallies are the stream's own. Orphans are open tallies over its tables that the stream does not
	// recover.
	Tallies []statestore.TallyState
	Orphans []statestore.Orphan
	// Unclean are leaderships over the stream's tables after which exactly-once delivery may be refused.
	Unclean []statestore.Unclean
	Tables  []TableFacts   // in the order of Stream.Tables
	Kafka   []ClusterFacts // by name

	// Missing has the reason why a group was not seen, by the probe's name.
	Missing map[string]string
}

// Session is one of the stream's two ways to the database.
type Session struct {
	User string
	// Err is why there is no session. Permanent: waiting does not help.
	Err       error
	Hint      string
	Permanent bool

	Role *Role
	// Pooled: the PID of the server process is not the one reported at login, so a pooler is in between.
	// Wandering: the PID changed between two statements, as behind a pooler in transaction mode.
	Pooled, Wandering bool
	// Prepares, for the table session: it keeps prepared statements.
	Prepares bool
	// Holds and SenderTimeout are for the streaming session. Holds: it keeps a session lock. SenderTimeout is
	// the wal_sender_timeout in force.
	Holds         bool
	SenderTimeout string
}

// Server is the result of check_server.sql.
type Server struct {
	Settings      map[string]Setting `json:"settings"`
	Encoding      string             `json:"encoding"`  // of the database
	Superuser     bool               `json:"superuser"` // the role that asked is a superuser
	Slots         int                `json:"slots"`
	IdleSlots     []string           `json:"idle_slots"`
	PhysicalSlots []string           `json:"physical_slots"`
	// IdlePhysicalSlots are physical slots that no standby reads from now.
	IdlePhysicalSlots []string `json:"idle_physical_slots"`
	Senders           int      `json:"senders"`
	Standbys          int      `json:"standbys"`
	Connections       int      `json:"connections"`
	Holder            string   `json:"holder"`

	Signs platform.Signs `json:"-"` // signs of a managed service
	// Ahead is how far the server's clock is ahead of ours. Doubt is the possible error of Ahead (half of the
	// round trip).
	Ahead, Doubt time.Duration `json:"-"`
}

// platform returns the managed service that runs the server, or nil.
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

// number returns a setting as a number. ok is false if the server does not have the setting.
func (s *Server) number(name string) (n int64, ok bool) {
	n, err := strconv.ParseInt(s.Settings[name].Value, 10, 64)
	return n, err == nil
}

// duration returns a setting as a duration; 0: the server does not have it, or it is off.
func (s *Server) duration(name string) time.Duration {
	n, _ := s.number(name)
	unit := map[string]time.Duration{"ms": time.Millisecond, "s": time.Second, "min": time.Minute}[s.Settings[name].Unit]
	return time.Duration(max(n, 0)) * unit
}

// Role is the result of check_role.sql.
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
	Schema          *bool    `json:"schema"` // USAGE on outbox_cdc; nil: the schema does not exist
	Lacking         []string `json:"lacking"`
	Ours            []string `json:"ours"`
	Tables          []string `json:"tables"` // outbox tables that the role may use in any way
	Tally           []string `json:"tally"`  // tables of exactly-once delivery that exist
	TallyLacking    []string `json:"tally_lacking"`
}

// TableFacts are the facts about one table.
type TableFacts struct {
	Table      Table
	Inspection *Inspection
	// Gone says that the table does not exist. Refused says that the table, or its table of headers, cannot
	// be read.
	Gone    string
	Renamed string // new name of a table that is gone; empty: it was dropped, or the name is unknown
	Refused string
	// Lockers keep everybody from reading the table, so the table was not read.
	Lockers   []replication.Blocker
	asked     bool                // Lockers was asked for
	described *tablesql.Described // nil: not described together with the other tables
	Catalogue *Catalogue
	Details   *Details
	Backlog   *tablesql.Backlog
	// Topics are topics of the table's rows, by cluster, from a sample of rows.
	Topics map[string][]string
	// States are values of the status column, from a sample of rows.
	States []string
	// Chosen counts the rows that the mapping's conditions leave to others; nil: the mapping has no
	// conditions.
	Chosen *tablesql.Chosen
	// Newest is the age in seconds of the newest time in each column that the mapping reads as a local time
	// or as a number.
	Newest map[string]int64
	// Tied: in a sample, rows of one key have equal order columns, and no other column shows which row was
	// inserted first.
	Tied bool
	// Locks are the application's locks that are held next to its own relay.
	Locks   []LockFacts
	Missing map[string]string
}

// Catalogue is the result of check_table.sql.
type Catalogue struct {
	RowSecurity  bool     `json:"row_security"`
	RowsHidden   bool     `json:"rows_hidden"`
	Policies     []string `json:"policies"`
	Key          []string `json:"key"` // columns of the primary key
	Columns      []Column `json:"columns"`
	StatusLabels []string `json:"status_labels"`
	StatusRules  []string `json:"status_constraints"`
	ArchiveRules []string `json:"archive_constraints"` // constraints on the archive's status
}

// Details are the result of check_table_details.sql.
type Details struct {
	Owner         string    `json:"owner"`
	Owned         bool      `json:"owned"` // by the role, or by a role that it is a member of
	Triggers      []Trigger `json:"triggers"`
	Completing    []Trigger `json:"completing"` // triggers that update rows after their INSERT
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
	// RowFilters are the row filters of every publication that has the table.
	RowFilters []RowFilter `json:"row_filters"`
	Privileges []string    `json:"privileges"`
	Updatable  []string    `json:"updatable"`
}

// Trigger is a trigger that fires on our UPDATE, or after an INSERT.
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

// ClusterFacts are the facts about one Kafka cluster, for one stream.
type ClusterFacts struct {
	Name            string
	TransactionalID string
	Bootstrap       string // a bootstrap address
	Principal       string // our principal, if known
	BatchBytes      int
	Brokers         []BrokerFacts
	Controller      int32
	Topics          []TopicFacts // by name
	// Unknown: rows name their topics, and there was no row to read a topic from.
	Unknown bool
	// ProduceVersion is the newest version of the Produce request that all brokers support; -1: unknown.
	ProduceVersion int
	// Idempotent is the answer to a request for a producer id without a transactional id. Transactional is
	// the answer to a request for the coordinator of the transactional id.
	Idempotent, Transactional *sink.Code
	// NoTransactions is why the protocol of some broker does not allow former leaders to be fenced; empty: it
	// does. RequireFencing: in that case nothing is published.
	NoTransactions string
	RequireFencing bool
	// Journal is the topic of exactly-once delivery; nil: it was not asked for.
	Journal *TopicFacts
	// Settings are a broker's settings; nil: we may not read them. Verifies: every broker refuses records
	// outside of an open transaction (Kafka 3.6).
	Settings KafkaSettings
	Verifies bool
	// Err is why no broker answered.
	Err string
}

// BrokerFacts are the result of talking to one broker.
type BrokerFacts struct {
	Address string
	ID      int32 // -1: a bootstrap address
	// Advertised: the cluster's metadata lists the broker.
	Advertised bool
	Err        error
	// Permanent: waiting does not help.
	Permanent bool
	Took      time.Duration
}

// TopicFacts are what metadata and settings say about one topic.
type TopicFacts struct {
	sink.Topic
	// Settings are the topic's settings; nil: we may not read them.
	Settings KafkaSettings
}

// The operations on a topic, as bit numbers of KIP-430.
const (
	mayRead            = 3
	mayWrite           = 4
	mayDescribeConfigs = 10
)

// may reports whether we may carry out an operation on the topic.
func (t *TopicFacts) may(operation uint) bool { return t.Operations&(1<<operation) != 0 }

// KafkaSettings are the settings of a topic or a broker, by name.
type KafkaSettings map[string]string

// number returns a setting as a number; -1: unknown.
func (s KafkaSettings) number(name string) int64 {
	n, err := strconv.ParseInt(s[name], 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// LockFacts are the facts about one lock of the application.
type LockFacts struct {
	Lock outbox.ShedLock
	// While says what the lock is held for.
	While string
	Sight shedlock.Sight
	Err   error
	// Refused: the lock cannot be taken as it is.
	Refused bool
}
