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

// ErrFenced says that another process took the transactional id over: this one
// leads no more and must not publish anything.
var ErrFenced = errors.New("another producer took over our transactional id")

// errRecreated says that a topic's name now stands for another topic.
var errRecreated = errors.New("topic was made again")

// Config describes one Kafka cluster and how to produce to it. Cluster and
// Brokers are required; zero values elsewhere mean the default.
type Config struct {
	// Cluster is the name by which rows and scopes call this cluster.
	Cluster string
	// Brokers are host:port addresses to begin with.
	Brokers []string
	// ClientID is what brokers log of us. Default: outbox-cdc.
	ClientID string
	// TransactionalID fences older producers of the same name (KIP-98): it must
	// be the same in every process that may lead the stream, and used by
	// nothing else. Records are produced without transactions. Empty: no fencing.
	TransactionalID string
	// RequireFencing publishes nothing while the brokers refuse the transactional
	// id. Otherwise the sink goes on without fencing and says so.
	RequireFencing bool
	// Before is what the last leader's sink has left; nil: it did not stop cleanly.
	Before *outbox.Fences
	// Topics that are known beforehand are fenced together at the start. Those
	// that rows bring later are fenced then.
	Topics []string

	TLS  *TLS
	SASL *SASL
	// AllowPlaintext logs in to brokers on other machines without TLS.
	AllowPlaintext bool
	// KnownCluster keeps this Sink to the cluster of the Sinks before it; nil: there were none.
	KnownCluster *KnownCluster

	// Compression is none, gzip, snappy, lz4 or zstd. Default: none.
	Compression string
	// BatchRows is the most rows of one batch. Default: 10,000.
	BatchRows int
	// BatchBytes is the most bytes of one batch before compression; the topic's
	// max.message.bytes lowers it. Default: 1,000,000.
	BatchBytes int
	// RequestBytes is the most bytes of one produce request, which carries
	// batches of several partitions. Default: 4 MiB; at most 100 MiB, a
	// broker's own limit (socket.request.max.bytes).
	RequestBytes int

	// DialTimeout bounds the making of a connection. Default: 2s.
	DialTimeout time.Duration
	// RequestTimeout is how long a broker may take to acknowledge a produce request, its
	// replicas included. Default: 10s; with Until at most 3s.
	RequestTimeout time.Duration
	// Until, if set, is asked until when rows may be published, by the monotonic
	// clock: no produce request leaves later than RequestTimeout before it.
	// Batches wait until it moves on. The zero time: nothing may be published
	// now. It must return at once and may be called by any goroutine.
	Until func() time.Time
	// MetadataRefresh is how often topics are looked at when nothing is wrong.
	// Default: 1m.
	MetadataRefresh time.Duration
	// TopicGrace is how long a topic may be unknown to brokers before it counts
	// as missing. Default: 3s.
	TopicGrace time.Duration
	// OutageAfter is how long tries may fail before the cluster counts as
	// unusable. Default: 1s.
	OutageAfter time.Duration
	// HeldFor is how long a row may wait here before it is Stale: the stream is asked what it is now, and has to
	// answer. 0: rows go out as they came, however long they wait.
	HeldFor time.Duration
	// KeepAlive is how often the transactional id is refreshed; brokers forget
	// it after transactional.id.expiration.ms (7 days). Default: 12h.
	KeepAlive time.Duration

	// Transactions, if set, publishes each row exactly once.
	Transactions *Transactions
	// Journals are topics that take no row: those in which streams name what they published.
	Journals []string

	// room is what long answers of the cluster share; nil: each has its own bound only.
	room *semaphore.Weighted

	// Observer, if set, hears of every acknowledged batch and every retry.
	Observer Observer
	// Log takes what people should know. The zero Logger is silent.
	Log zerolog.Logger
}

// Observer hears what the sink does, on the sink's own goroutine: it must
// return at once.
type Observer interface {
	// Produced: rows of one batch were acknowledged; bytes are before
	// compression, took is from sending the last try to its answer.
	Produced(topic string, rows, bytes int, took time.Duration)
	// Retried: a batch is sent again for this reason.
	Retried(topic string, err error)
	// Transacted: a transaction of so many rows is committed, took after it got them; or it
	// was aborted, by one of exactlyonce.Causes().
	Transacted(aborted string, rows int, took time.Duration)
	// Unended: the end of a transaction is missing in these partitions, as the topic and the number.
	Unended(partitions map[string][]int32)
}

// Sink produces to one cluster. Make it with New, run it once with Run.
type Sink struct {
	cfg      Config
	conf     *sarama.Config
	inbox    *mailbox.Mailbox[outbox.Command]
	outcomes *mailbox.Mailbox[outbox.Outcome]
	states   *mailbox.Mailbox[outbox.ClusterState]
	fencing  atomic.Int32
	leaving  chan chan<- *outbox.Fences
}

// New checks the configuration and returns a Sink that does nothing until Run.
// Outcomes and states are put into the mailboxes given.
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

// Do gives commands, to be carried out in order. It never blocks.
func (s *Sink) Do(cmds ...outbox.Command) { s.inbox.Put(cmds...) }

// Leave ends the sink's work, and returns what the next sink with its transactional id inherits; nil: nothing.
// Call it when every row has its outcome.
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

// What may become of fencing.
const (
	FencingUnknown Fencing = iota // the cluster was not usable yet
	FencingOn
	FencingRefused // our user may not use the transactional id, or the brokers have no transactions
	FencingOff     // no transactional id is configured
)

func (f Fencing) String() string { return [...]string{"unknown", "on", "refused", "off"}[f] }

// Fencing says whether older producers are fenced.
func (s *Sink) Fencing() Fencing { return Fencing(s.fencing.Load()) }

// boundedTimeout bounds RequestTimeout if there is an Until: the lock that it
// follows is held only some seconds ahead.
const boundedTimeout = 3 * time.Second

// late says that no produce request may leave at this time.
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

// sarama is the configuration of our connections.
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
