package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/pipeline"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/statusupdater"
)

// This file translates the configuration into the configurations of the parts. The parts do not know package
// config.

// processName returns our application_name: program, stream and host, cut to the 63 bytes that PostgreSQL
// keeps.
func processName(stream string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	name := fmt.Sprintf("outbox-cdc/%s@%s", stream, host)
	return name[:min(len(name), 63)]
}

// marker returns access as the role that reads and marks rows.
func marker(s *config.Stream, application string) postgres.Access {
	return postgres.Access{DSN: s.Postgres.DSN.Reveal(), Password: s.Postgres.Password.Reader(), Application: application, Longest: longestMessage(s)}
}

// longestMessage returns the longest message in bytes that a statement may bring. It has room for every row:
// each long value of a row may have as many bytes as a whole row.
func longestMessage(s *config.Stream) int { return 8 * maxFrame(s.OutboxTables()) }

// streamer returns access as the role that streams.
func streamer(s *config.Stream, application string) postgres.Access {
	return postgres.Access{DSN: s.Postgres.ReplicationSecret().Reveal(), Password: s.Postgres.ReplicationLogin().Reader(), Application: application, Longest: longestMessage(s)}
}

func replicationConfig(s *config.Stream) replication.Config {
	return replication.Config{
		DSN:           s.Postgres.ReplicationSecret().Reveal(),
		Password:      s.Postgres.ReplicationLogin().Reader(),
		Name:          processName(s.Name),
		Slot:          s.Slot,
		Publication:   s.Publication,
		Tables:        s.OutboxTables(),
		Failover:      s.FailoverSlot,
		SenderTimeout: s.Postgres.WALSenderTimeout,
		MaxFrame:      maxFrame(s.OutboxTables()),
	}
}

// maxFrame returns the longest WAL message in bytes that is kept whole. It has room for every row that may be
// published: the WAL sender may print each byte as two, and adds some bytes per column.
func maxFrame(tables []*outbox.Table) int {
	longest := 0
	for _, t := range tables {
		longest = max(longest, t.Mapping.MaxRowBytes)
	}
	return 2*longest + 64<<10
}

func coreConfig(s *config.Stream) checkpoint.Config {
	page := min(s.Sweep.PageRows, max(1, s.Memory.Rows/3)) // otherwise a page would never fit
	return checkpoint.Config{
		Tables:          s.OutboxTables(),
		MaxRows:         s.Memory.Rows,
		MaxBytes:        int(s.Memory.Bytes),
		PageRows:        page,
		SmallRound:      (page + 1) / 2, // a hand-back is worthwhile once a round is less than a full page
		MaxKeys:         s.MaxParkedKeys,
		MaxTopics:       s.MaxParkedTopics,
		MaxRetryingKeys: 10 * s.MaxParkedKeys, // so many waiting keys are not the fault of single rows
		BackoffMin:      s.Backoff.Min,
		BackoffMax:      s.Backoff.Max,
		WALBudget:       uint64(s.WALBudget),
		WatchEvery:      s.WatchInterval,
	}
}

// sinkConfigs returns the configurations of a stream's sinks: one for each cluster that its rows may go to.
func sinkConfigs(cfg *config.Config, s *config.Stream, log zerolog.Logger) map[string]sink.Config {
	sinks := map[string]sink.Config{}
	for name, c := range cfg.Kafka.Clusters {
		if s.Uses(name) {
			out := sinkConfig(c, s, log.With().Str("cluster", name).Logger())
			out.Journals = journalsOn(cfg, c)
			sinks[name] = out
		}
	}
	return sinks
}

// journalsOn returns the journals of all streams on the cluster's brokers. Two configured clusters may have
// the same brokers.
func journalsOn(cfg *config.Config, c *config.Cluster) (topics []string) {
	for _, s := range cfg.Streams {
		for name, other := range cfg.Kafka.Clusters {
			same := slices.ContainsFunc(other.Brokers, func(b string) bool { return slices.Contains(c.Brokers, b) })
			if s.ExactlyOnce() && s.Uses(name) && same {
				topics = append(topics, s.JournalOn(other))
			}
		}
	}
	slices.Sort(topics)
	return slices.Compact(topics)
}

// onceConfig returns nil for a stream with at-least-once delivery.
func onceConfig(cfg *config.Config, s *config.Stream) *pipeline.Once {
	if !s.ExactlyOnce() {
		return nil
	}
	once := &pipeline.Once{Journals: map[string]string{}, MaxRows: s.TransactionRows(), Timeout: s.Transaction.Timeout}
	for name, c := range cfg.Kafka.Clusters {
		if s.Uses(name) {
			once.Journals[name] = s.JournalOn(c)
		}
	}
	return once
}

func sinkConfig(c *config.Cluster, s *config.Stream, log zerolog.Logger) sink.Config {
	out := sink.Config{
		Cluster:        c.Name,
		Brokers:        c.Brokers,
		ClientID:       c.ClientID,
		RequireFencing: c.Fencing == config.FencingRequired,
		Compression:    c.Compression,
		BatchBytes:     int(c.MaxRequestBytes),
		RequestBytes:   max(8<<20, int(c.MaxRequestBytes)), // room for batches of several partitions, or for one of the largest size
		AllowPlaintext: c.AllowPlaintext,
		DialTimeout:    c.DialTimeout,
		RequestTimeout: c.RequestTimeout,
		KnownCluster:   new(sink.KnownCluster),
		Log:            log,
	}
	for _, t := range s.OutboxTables() { // the topics that are known without any row
		if m := &t.Mapping; m.Cluster.Leads(c.Name) {
			out.Topics = append(out.Topics, m.Topic.Known()...)
		}
	}
	if c.Fencing != config.FencingOff {
		out.TransactionalID = c.TransactionalIDPrefix + "-" + s.Name + "-" + c.Name
	}
	if t := c.TLS; t != nil {
		out.TLS = &sink.TLS{
			CAFile: string(t.CAFile), CertFile: string(t.CertFile), KeyFile: string(t.KeyFile),
			ServerName: t.ServerName, Insecure: t.InsecureSkipVerify,
		}
	}
	if l := c.SASL; l != nil {
		out.SASL = &sink.SASL{
			Mechanism: l.Mechanism, Username: l.Username, PasswordNow: l.Password.Reader(), Region: l.Region,
			OAuth: sink.OAuth{
				TokenNow: l.Token.Reader(), TokenURL: string(l.TokenURL), ClientID: l.ClientID, SecretNow: l.ClientSecret.Reader(), AssertionNow: l.ClientAssertion.Reader(),
				Scopes: l.Scopes, Extensions: l.Extensions,
			},
		}
	}
	return out
}

// poolConnections returns the size of a stream's pool. It counts the connections that mark, and a few that
// sweep, look and ask; those that keep claims open; one that deletes rows past their retention, for as long
// as that takes; and one that extends the application's locks and never waits for others.
func poolConnections(s *config.Stream) int {
	n, claims, retention, locks := s.Mark.Connections+4, 0, 0, 0
	for _, t := range s.OutboxTables() {
		if t.Mapping.Claim != outbox.ClaimNone {
			claims = statusupdater.DefaultClaims
		}
		if t.Retains() {
			retention = 1
		}
		if t.Mapping.ShedLock.Name != "" || t.Mapping.RetentionLock.Name != "" {
			locks = 1
		}
	}
	return n + claims + retention + locks
}
