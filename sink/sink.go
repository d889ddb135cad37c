package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/rs/zerolog"
	"golang.org/x/sync/semaphore"

	"github.com/outbox-cdc/outbox-cdc/internal/mailbox"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// ErrFenced says that another process has taken over the transactional id. This process does not lead any
// more and must not publish anything.
var ErrFenced = errors.New("another producer took over our transactional id")

// errRecreated says that a topic was deleted and another one made with its name.
var errRecreated = errors.New("topic was made again")

// Config describes one Kafka cluster and how to produce to it. Cluster and
// Brokers are required; zero values elsewhere mean the default.
type Config struct {
	// Cluster is the name of the cluster in rows and scopes.
	Cluster string
	// Brokers are the addresses (host:port) that are tried first.
	Brokers []string
	// ClientID is the client's name in the brokers' logs. Default: outbox-cdc.
	ClientID string
	// TransactionalID serves to fence older producers with the same id (KIP-98). It must be the same in
	// every process that may lead the stream, and nothing else may use it. Without Transactions, records
	// are still produced outside of transactions. Empty: no fencing.
	TransactionalID string
	// RequireFencing says that nothing is published while the brokers refuse the transactional id.
	// Otherwise the sink then goes on without fencing, and logs that.
	RequireFencing bool
	// Before is what the last leader's sink left when it stopped cleanly; nil: it did not.
	Before *outbox.Fences
	// Topics are topics known beforehand. They are fenced together at the start; other topics are fenced
	// when the first row for them comes.
	Topics []string

	TLS  *TLS
	SASL *SASL
	// AllowPlaintext allows logins without TLS to brokers on other machines.
	AllowPlaintext bool
	// KnownCluster makes this Sink connect to the same cluster as the Sinks before it; nil: there were
	// none.
	KnownCluster *KnownCluster

	// Compression is none, gzip, snappy, lz4 or zstd. Default: none.
	Compression string
	// BatchRows is the maximum number of rows of one batch. Default: 10,000.
	BatchRows int
	// BatchBytes is the maximum size of one batch in bytes, before compression. A topic's max.message.bytes
	// lowers it. Default: 1,000,000.
	BatchBytes int
	// RequestBytes is the maximum size in bytes of one produce request, which carries batches of several
	// partitions. Default: 4 MiB; at most 100 MiB, a broker's own limit (socket.request.max.bytes).
	RequestBytes int

	// DialTimeout is how long the making of a connection may take. Default: 2s.
	DialTimeout time.Duration
	// RequestTimeout is how long a broker may take to acknowledge a produce request, including replication.
	// Default: 10s; with Until at most 3s.
	RequestTimeout time.Duration
	// Until, if set, returns the time until which rows may be published, by the monotonic clock. No produce
	// request is sent later than RequestTimeout before that time. Batches wait until the time moves on. The
	// zero time means that nothing may be published now. Until must return at once, and any goroutine may
	// call it.
	Until func() time.Time
	// MetadataRefresh is how often each topic's metadata is asked for when nothing is wrong. Default: 1m.
	MetadataRefresh time.Duration
	// TopicGrace is how long a topic may be unknown to brokers before it counts
	// as missing. Default: 3s.
	TopicGrace time.Duration
	// OutageAfter is how long all tries may fail before the cluster counts as unusable. Default: 1s.
	OutageAfter time.Duration
	// HeldFor is how long a row may wait here before it is Stale. Then the stream is asked for its present
	// state, and has to answer. 0: rows are sent as they came, however long they have waited.
	HeldFor time.Duration
	// KeepAlive is how often the transactional id is refreshed. Brokers forget it after
	// transactional.id.expiration.ms (7 days). Default: 12h.
	KeepAlive time.Duration

	// Transactions, if set, makes the sink publish each row exactly once.
	Transactions *Transactions
	// Journals are topics that take no rows, because streams write the names of published rows there.
	Journals []string

	// room is shared by the long answers of the cluster; nil: each answer has only its own bound.
	room *semaphore.Weighted

	// Observer, if set, is told of every acknowledged batch and every retry.
	Observer Observer
	// Log is for messages to people. The zero Logger is silent.
	Log zerolog.Logger
}

// Observer is told what the sink does. Its methods run on the sink's own goroutine, so they must return at
// once.
type Observer interface {
	// Produced says that the rows of one batch were acknowledged. bytes is the size before compression,
	// took the time from sending the last try to its answer.
	Produced(topic string, rows, bytes int, took time.Duration)
	// Retried says that a batch is sent again, because of err.
	Retried(topic string, err error)
	// Throttled says that a broker asks us to wait for this long before the next request: a quota of ours is used up
	// (KIP-13, KIP-219).
	Throttled(d time.Duration)
	// Transacted says that a transaction with this number of rows has ended, took after it got them. It was
	// committed if aborted is empty; otherwise aborted is one of exactlyonce.Causes().
	Transacted(aborted string, rows int, took time.Duration)
	// Unended names the partitions, by topic, that lack the end of a transaction.
	Unended(partitions map[string][]int32)
}

// Sink produces to one cluster. New makes one; Run runs it, once.
type Sink struct {
	cfg      Config
	conf     *sarama.Config
	inbox    *mailbox.Mailbox[outbox.Command]
	outcomes *mailbox.Mailbox[outbox.Outcome]
	states   *mailbox.Mailbox[outbox.ClusterState]
	fencing  atomic.Int32
	leaving  chan chan<- *outbox.Fences
}

// New checks the configuration and returns a Sink that does nothing until Run. It puts outcomes and states
// into the given mailboxes.
func New(cfg Config, outcomes *mailbox.Mailbox[outbox.Outcome], states *mailbox.Mailbox[outbox.ClusterState]) (*Sink, error) {
	cfg.defaults()
	cfg.KnownCluster = cmp.Or(cfg.KnownCluster, &KnownCluster{})
	cfg.room = semaphore.NewWeighted(answersAtOnce)
	conf, err := cfg.sarama()
	if err != nil {
		return nil, err
	}
	return &Sink{
		cfg: cfg, conf: conf, inbox: mailbox.New[outbox.Command](), outcomes: outcomes, states: states, leaving: make(chan chan<- *outbox.Fences),
	}, nil
}

// Do queues commands. They are carried out in order. Do never blocks.
func (s *Sink) Do(cmds ...outbox.Command) { s.inbox.Put(cmds...) }

// Leave ends the sink's work and returns what the next sink with the same transactional id inherits; nil:
// nothing. Call it when every row has its outcome.
func (s *Sink) Leave(ctx context.Context) *outbox.Fences {
	fences := make(chan *outbox.Fences, 1)
	select {
	case s.leaving <- fences:
	case <-ctx.Done():
		return nil
	}
	select {
	case f := <-fences:
		return f
	case <-ctx.Done():
		return nil
	}
}

// Fencing says whether older producers are fenced.
type Fencing int32

// The states of fencing.
const (
	FencingUnknown Fencing = iota // the cluster has not been usable yet
	FencingOn
	FencingRefused // our user may not use the transactional id, or the brokers have no transactions
	FencingOff     // no transactional id is configured
)

func (f Fencing) String() string { return [...]string{"unknown", "on", "refused", "off"}[f] }

// Fencing returns whether older producers are fenced.
func (s *Sink) Fencing() Fencing { return Fencing(s.fencing.Load()) }

// boundedTimeout is the maximum RequestTimeout if there is an Until. The lock behind Until is held only
// some seconds ahead.
const boundedTimeout = 3 * time.Second

// late reports whether it is too late at this time to send a produce request.
func (c *Config) late(now time.Time) bool {
	return c.Until != nil && !now.Before(c.Until().Add(-c.RequestTimeout))
}

func (c *Config) defaults() {
	c.ClientID = cmp.Or(c.ClientID, "outbox-cdc")
	c.Compression = cmp.Or(c.Compression, "none")
	c.BatchRows = cmp.Or(c.BatchRows, 10_000)
	c.BatchBytes = cmp.Or(c.BatchBytes, 1_000_000)
	c.RequestBytes = cmp.Or(c.RequestBytes, 4<<20)
	c.DialTimeout = cmp.Or(c.DialTimeout, 2*time.Second)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 10*time.Second)
	if c.Until != nil {
		c.RequestTimeout = min(c.RequestTimeout, boundedTimeout)
	}
	c.MetadataRefresh = cmp.Or(c.MetadataRefresh, time.Minute)
	c.TopicGrace = cmp.Or(c.TopicGrace, 3*time.Second)
	c.OutageAfter = cmp.Or(c.OutageAfter, time.Second)
	c.KeepAlive = cmp.Or(c.KeepAlive, 12*time.Hour)
}

func (c *Config) validate() error {
	tx := c.Transactions
	switch {
	case c.Cluster == "":
		return errors.New("sink: Cluster is empty: name the Kafka cluster")
	case len(c.Brokers) == 0:
		return fmt.Errorf("kafka cluster %s: no brokers: give at least one host:port", c.Cluster)
	case c.BatchRows < 0 || c.BatchBytes < 0 || c.RequestBytes < 0:
		return fmt.Errorf("kafka cluster %s: batch and request limits must not be negative", c.Cluster)
	case c.RequestBytes > int(sarama.MaxRequestSize):
		return fmt.Errorf("kafka cluster %s: requests of %d bytes: brokers take at most %d", c.Cluster, c.RequestBytes, sarama.MaxRequestSize)
	case tx == nil:
	case tx.Journal == "" || tx.Recover == nil || tx.MaxRows < 1 || tx.Timeout <= 0:
		return fmt.Errorf("kafka cluster %s: every field of Transactions is required", c.Cluster)
	case c.TransactionalID == "":
		return fmt.Errorf("kafka cluster %s: transactions need a transactional id", c.Cluster)
	case c.Until != nil:
		return fmt.Errorf("kafka cluster %s: the rows of a lock that another relay shares cannot be published exactly once", c.Cluster)
	}
	return nil
}

// sarama returns the configuration of our connections.
func (c Config) sarama() (*sarama.Config, error) {
	c.defaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	conf := sarama.NewConfig()
	conf.Version = sarama.MaxVersion // brokers' own versions are negotiated
	conf.ClientID = c.ClientID
	conf.MetricRegistry = silent{}
	conf.Net.DialTimeout = c.DialTimeout
	conf.Net.ReadTimeout = c.RequestTimeout + 2*time.Second
	conf.Net.WriteTimeout = c.RequestTimeout
	conf.Net.MaxOpenRequests = openRequests + 1
	conf.Metadata.AllowAutoTopicCreation = false
	if err := conf.Producer.Compression.UnmarshalText([]byte(c.Compression)); err != nil {
		return nil, fmt.Errorf("kafka cluster %s: compression %q: use none, gzip, snappy, lz4 or zstd", c.Cluster, c.Compression)
	}
	if c.TLS != nil {
		var err error
		conf.Net.TLS.Enable = true
		if conf.Net.TLS.Config, err = c.TLS.now(); err != nil {
			return nil, fmt.Errorf("kafka cluster %s: tls: %w", c.Cluster, err)
		}
	}
	if err := c.SASL.apply(conf, c.AllowPlaintext); err != nil {
		return nil, fmt.Errorf("kafka cluster %s: sasl: %w", c.Cluster, err)
	}
	if err := conf.Validate(); err != nil {
		return nil, fmt.Errorf("kafka cluster %s: %w", c.Cluster, err)
	}
	return conf, nil
}

func (c *Config) machine() machineConfig {
	return machineConfig{
		limits:     limits{rows: c.BatchRows, bytes: min(c.BatchBytes, c.RequestBytes)},
		topicGrace: c.TopicGrace, outageAfter: c.OutageAfter, heldFor: c.HeldFor,
		refresh: c.MetadataRefresh, keepAlive: c.KeepAlive,
		random: rand.IntN, transactions: c.Transactions, journals: c.Journals, before: c.Before,
	}
}
