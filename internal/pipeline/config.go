package pipeline

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/metrics"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/secret"
	"github.com/outbox-cdc/outbox-cdc/internal/tracing"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Config configures one stream.
type Config struct {
	Name string
	// Tables are the stream's tables, with their mappings.
	Tables []*outbox.Table
	// Pool connects as the role that reads and marks rows.
	Pool *pgxpool.Pool
	// Password is the password of the Pool's role; nil: the pool's connection string has it.
	Password secret.Reader
	// TimelineGuard admits the Pool's connections (AfterConnect). nil: every connection is admitted.
	TimelineGuard *TimelineGuard
	// Replication configures the replication connection, the slot and the publication.
	Replication replication.Config
	// Sinks are the sinks' configurations by Kafka cluster. No other stream may use their TransactionalID.
	Sinks map[string]sink.Config
	// Core bounds memory, pages and waits.
	Core checkpoint.Config
	// Once, if set, selects exactly-once delivery.
	Once *Once
	// Shadow: rows are only read, mapped and counted. Nothing is published, swept, marked or deleted, and no
	// sink is made.
	Shadow bool
	// Limits bounds the rate at which rows are taken.
	Limits Limits
	// MarkConnections and MarkRows: see statusupdater.Config.
	MarkConnections, MarkRows int
	// HeartbeatInterval is how often a heartbeat is written, so that the slot of an idle database advances.
	HeartbeatInterval time.Duration
	// KeepSlot: the slot is kept even when other sessions make it retain more WAL than the budget.
	KeepSlot bool
	// DrainTimeout bounds a clean stop.
	DrainTimeout time.Duration
	// Silence is how long the replication connection of a leader may be silent before that counts as a fault;
	// 0: without limit.
	Silence time.Duration
	// Unproven returns why the stream has not yet been seen able to work since the process started; "" once
	// it has. nil: this is not checked.
	Unproven func() string

	Metrics *metrics.Stream
	// Traces makes spans; nil: no spans.
	Traces *tracing.Stream
	Log    zerolog.Logger
}

// stateless reports whether the stream's tables keep no state. Either all of them do or none.
func (c *Config) stateless() bool {
	return slices.ContainsFunc(c.Tables, func(t *outbox.Table) bool { return !t.Stateful() })
}

// Limits bounds the rate at which rows are taken from the WAL and from the tables.
type Limits struct {
	// RowsPerSecond is the highest rate; 0: no limit.
	RowsPerSecond int
	// BackOff slows a catch-up down while standbys fall behind or sessions wait for our locks.
	BackOff bool
}

// Once configures exactly-once delivery. docs/exactly-once.md has the rules.
type Once struct {
	// Journals are the journals' topics by Kafka cluster. A journal names the published rows.
	Journals map[string]string
	// MaxRows bounds one Kafka transaction. Brokers abort a transaction that stays open for longer than
	// Timeout.
	MaxRows int
	Timeout time.Duration
}
