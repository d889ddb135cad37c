package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// clusters returns a probe for each cluster that the stream's rows may go to, with the topics known so far.
func (g *gathering) clusters() []clusterProbe {
	var clusters []clusterProbe
	for _, name := range slices.Sorted(maps.Keys(g.facts.Stream.Kafka)) {
		c := clusterProbe{cfg: g.facts.Stream.Kafka[name], o: g.o}
		c.facts.Name = name
		c.topics, c.facts.Unknown = g.facts.topics(name)
		if once := g.facts.Stream.Once; once != nil {
			c.journal = once.Journals[name].Name
		}
		clusters = append(clusters, c)
	}
	return clusters
}

// kafka probes every cluster.
func (g *gathering) kafka(ctx context.Context, clusters []clusterProbe) {
	found := make([]ClusterFacts, len(clusters))
	var all sync.WaitGroup
	for i := range clusters {
		all.Go(func() { found[i] = clusters[i].ask(ctx) })
	}
	all.Wait()
	g.facts.Kafka = found
}

// topics returns the topics that are known to get rows. unknown: rows of some table name their topics, and no
// row was there to read one from.
func (f *Facts) topics(cluster string) (topics []string, unknown bool) {
	for i := range f.Stream.Tables {
		m := &f.Stream.Tables[i].Mapping
		var sampled map[string][]string
		if i < len(f.Tables) {
			sampled = f.Tables[i].Topics
		}
		known := topicsOn(cluster, m, sampled)
		topics = append(topics, known...)
		unknown = unknown || m.Cluster.Leads(cluster) && len(known) == 0
	}
	slices.Sort(topics)
	return slices.Compact(topics), unknown
}

// topicsOn returns the topics of a cluster that rows of a table are known to go to: those that the mapping
// names, or else those of the sample.
func topicsOn(cluster string, m *outbox.Mapping, sampled map[string][]string) []string {
	switch known := m.Topic.Known(); {
	case !m.Cluster.Leads(cluster):
		return nil
	case known != nil:
		return known
	}
	return sampled[cluster]
}

// clusterProbe probes one cluster. It never produces with the stream's transactional id: InitProducerID with
// that id would fence a running leader.
type clusterProbe struct {
	cfg     sink.Config
	o       Options
	topics  []string
	journal string // empty: at-least-once delivery
	facts   ClusterFacts
}

func (c *clusterProbe) ask(ctx context.Context) ClusterFacts {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	f := &c.facts
	f.TransactionalID, f.BatchBytes, f.ProduceVersion = c.cfg.TransactionalID, cmp.Or(c.cfg.BatchBytes, 1_000_000), -1
	f.Verifies = true // until a broker says otherwise
	f.Bootstrap, f.RequireFencing = c.cfg.Brokers[0], c.cfg.RequireFencing
	if c.cfg.SASL != nil {
		f.Principal = c.cfg.SASL.Username
	}
	brokers := make([]BrokerFacts, len(c.cfg.Brokers))
	for i, address := range c.cfg.Brokers {
		brokers[i] = BrokerFacts{Address: address, ID: -1}
	}
	conns := c.dial(ctx, brokers)
	defer closeAll(conns)
	for i, conn := range conns {
		if conn == nil {
			continue
		}
		err := c.metadata(ctx, conn)
		if err == nil {
			c.settings(conn)
			c.brokerSettings(conn)
			c.permissions(ctx, conn)
			return *f
		}
		c.refused(ctx, &f.Brokers[i], err)
	}
	f.Err = "no broker can be used"
	return *f
}

// refused records why a broker cannot be used.
func (c *clusterProbe) refused(ctx context.Context, b *BrokerFacts, err error) {
	b.Permanent, b.Err = sink.Permanent(err), err
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		b.Err = fmt.Errorf("no answer within %v (%w)", c.o.Timeout, err)
	}
}

// dial connects to brokers at the same time and records the results. A broker that cannot be used gets no
// connection.
func (c *clusterProbe) dial(ctx context.Context, brokers []BrokerFacts) []*sink.Broker {
	conns := make([]*sink.Broker, len(brokers))
	var all sync.WaitGroup
	for i := range brokers {
		all.Go(func() {
			b := &brokers[i]
			began := time.Now()
			conn, err := c.cfg.Dial(ctx, b.Address)
			conns[i], b.Took = conn, time.Since(began)
			if err != nil {
				c.refused(ctx, b, err)
			}
		})
	}
	all.Wait()
	c.facts.Brokers = append(c.facts.Brokers, brokers...)
	for _, conn := range conns {
		c.version(conn)
	}
	return conns
}

// version records the newest version of the Produce request that every broker supports, and whether the
// brokers can fence. https://kafka.apache.org/protocol#The_Messages_ApiVersions
func (c *clusterProbe) version(conn *sink.Broker) {
	if conn == nil {
		return
	}
	known, err := conn.Versions()
	if err != nil {
		return
	}
	if newest, ok := known[produce]; ok && (c.facts.ProduceVersion < 0 || int(newest) < c.facts.ProduceVersion) {
		c.facts.ProduceVersion = int(newest)
	}
	c.facts.Verifies = c.facts.Verifies && known[addPartitions] >= addPartitionsOf36
	if err := conn.CanFence(); errors.Is(err, sink.ErrNoTransactions) {
		c.facts.NoTransactions = err.Error()
	}
}

// Brokers of Kafka 3.6 and later check that the transaction of a record is open. They ask one another with
// this version of AddPartitionsToTxn.
// https://cwiki.apache.org/confluence/display/KAFKA/KIP-890%3A+Transactions+Server-Side+Defense
const (
	produce           = 0
	addPartitions     = 24
	addPartitionsOf36 = 4
)

func closeAll(conns []*sink.Broker) {
	for _, conn := range conns {
		if conn != nil {
			conn.Close()
		}
	}
}

// metadata asks which brokers and topics exist, connects to every broker, and records what we may do with
// each topic (KIP-430).
func (c *clusterProbe) metadata(ctx context.Context, conn *sink.Broker) error {
	topics := c.topics
	if c.journal != "" && !slices.Contains(topics, c.journal) {
		topics = append(slices.Clone(topics), c.journal)
	}
	if len(topics) == 0 {
		topics = []string{"outbox-cdc-check"} // an empty list would mean every topic; this request does not create the topic either
	}
	told, err := conn.Metadata(topics)
	if err != nil {
		return err
	}
	c.facts.Controller = told.Controller
	for _, t := range told.Topics {
		if t.Name == c.journal {
			c.facts.Journal = &TopicFacts{Topic: t}
		}
		if slices.Contains(c.topics, t.Name) {
			c.facts.Topics = append(c.facts.Topics, TopicFacts{Topic: t})
		}
	}
	slices.SortFunc(c.facts.Topics, func(a, b TopicFacts) int { return strings.Compare(a.Name, b.Name) })
	var others []BrokerFacts
	for _, b := range told.Brokers {
		known := slices.IndexFunc(c.facts.Brokers, func(f BrokerFacts) bool { return f.Address == b.Address })
		if known >= 0 {
			c.facts.Brokers[known].Advertised = true
			continue
		}
		others = append(others, BrokerFacts{Address: b.Address, ID: b.ID, Advertised: true})
	}
	closeAll(c.dial(ctx, others))
	return nil
}

// wanted are the names of the topic settings that matter.
var wanted = []string{"max.message.bytes", "min.insync.replicas", "cleanup.policy", "retention.ms", "retention.bytes", "compression.type", "message.timestamp.type", "message.timestamp.before.max.ms", "message.timestamp.after.max.ms", "unclean.leader.election.enable"}

// settings reads the topics' settings, which needs DESCRIBE_CONFIGS on the topics.
func (c *clusterProbe) settings(conn *sink.Broker) {
	var topics []*TopicFacts
	for i := range c.facts.Topics {
		topics = append(topics, &c.facts.Topics[i])
	}
	if c.facts.Journal != nil {
		topics = append(topics, c.facts.Journal)
	}
	var there []string
	for _, t := range topics {
		if t.Err == sink.NoError {
			there = append(there, t.Name)
		}
	}
	settings := conn.TopicSettings(there, wanted)
	for _, t := range topics {
		t.Settings = settings[t.Name]
	}
}

// brokerSettings reads the brokers' settings for transactions, which needs DESCRIBE_CONFIGS on the cluster.
func (c *clusterProbe) brokerSettings(conn *sink.Broker) {
	if c.journal == "" {
		return
	}
	c.facts.Settings = conn.BrokerSettings(c.facts.Controller,
		[]string{"transaction.max.timeout.ms", "transaction.state.log.replication.factor", "transaction.state.log.min.isr"})
}

// permissions makes two requests that disturb nobody. One is for a producer id without a transactional id.
// The other asks who coordinates the transactional id. It needs DESCRIBE, so it is refused where WRITE, which
// includes DESCRIBE, is not granted. A broker that has just started answers for a moment that it is still
// loading.
func (c *clusterProbe) permissions(ctx context.Context, conn *sink.Broker) {
	ask := func() (sink.Code, error) {
		answer, err := conn.NewProducerID()
		switch {
		case err != nil:
			return 0, backoff.Permanent(err)
		case answer == sink.CoordinatorLoading, answer == sink.CoordinatorNotAvailable:
			return answer, answer
		}
		return answer, nil
	}
	if answer, err := backoff.Retry(ctx, ask, backoff.WithMaxElapsedTime(c.o.Timeout/2)); err == nil || answer != 0 {
		c.facts.Idempotent = &answer
	}
	if c.facts.TransactionalID == "" {
		return
	}
	if answer, err := conn.FindCoordinator(c.facts.TransactionalID); err == nil {
		c.facts.Transactional = &answer
	}
}
