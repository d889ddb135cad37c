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

// Config is one stream.
type Config struct {
	Name string
	// Tables of the stream, with their mappings.
	Tables []*outbox.Table
	// Pool is the database with the role that reads and marks rows.
	Pool *pgxpool.Pool
	// Password is that role's, where the pool's connection string does not have it.
	Password secret.Reader
	// TimelineGuard admits the Pool's connections (AfterConnect). nil: any.
	TimelineGuard *TimelineGuard
	// Replication is the replication connection, its slot and publication.
	Replication replication.Config
	// Sinks by Kafka cluster. The TransactionalID must be the stream's alone.
	Sinks map[string]sink.Config
	// Core bounds memory, pages and waits.
	Core checkpoint.Config
	// Once, if set, delivers each row exactly once.
	Once *Once
	// Shadow: rows are read, mapped and counted, and nothing is published, swept,
	// marked or deleted. No sink is made.
	Shadow bool
	// Limits bound how fast rows are taken.
	Limits Limits
	// MarkConnections and MarkRows: see statusupdater.Config.
	MarkConnections, MarkRows int
	// HeartbeatInterval is how often WAL is written so that the slot of an idle
	// database moves on.
	HeartbeatInterval time.Duration
	// KeepSlot: the slot is kept even if others make it retain more than the WAL budget.
	KeepSlot bool
	// DrainTimeout bounds a clean stop.
	DrainTimeout time.Duration
	// Silence is how long the replication connection of a leader may be quiet before that is a fault; 0: for ever.
	Silence time.Duration
	// Unproven says why the stream has not been seen able to work since the process started; empty: it has. nil: nobody looks.
	Unproven func() string

	Metrics *metrics.Stream
	// Traces makes spans; nil: none.
	Traces *tracing.Stream
	Log    zerolog.Logger
}

// stateless says whether the stream's tables keep no state: all of them or none.
func (c *Config) stateless() bool {
	return slices.ContainsFunc(c.Tables, func(t *outbox.Table) bool { return !t.Stateful() })
}

// Limits bound how fast rows are taken from the WAL and from the table.
type Limits struct {
	// RowsPerSecond at most; 0: no limit.
	RowsPerSecond int
	// BackOff slows a catch-up down while standbys fall behind or sessions wait
	// for our locks.
	BackOff bool
}

// Once makes a stream deliver each row exactly once; docs/exactly-once.md has the rules.
type Once struct {
	// Journals are the topics that name what was published, by Kafka cluster.
	Journals map[string]string
	// MaxRows bounds one transaction. Brokers abort one that stays open for longer than Timeout.
	MaxRows int
	Timeout time.Duration
}
