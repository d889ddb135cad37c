package preflight

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/cenkalti/backoff/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// clusters are those that the stream's rows may go to, with the topics that are known so far.
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

// kafka asks every cluster.
func (g *gathering) kafka(ctx context.Context, clusters []clusterProbe) {
	found := make([]ClusterFacts, len(clusters))
	var all sync.WaitGroup
	for i := range clusters {
		all.Go(func() { found[i] = clusters[i].ask(ctx) })
	}
	all.Wait()
	g.facts.Kafka = found
}

// topics are those that are known to get rows. unknown: some table's rows name theirs, and
// there is none to tell.
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

// topicsOn are the topics of a cluster that rows of a table are known to go to: those that the
// mapping names, or where rows name theirs, those of the sample.
func topicsOn(cluster string, m *outbox.Mapping, sampled map[string][]string) []string {
	switch known := m.Topic.Known(); {
	case !m.Cluster.Leads(cluster):
		return nil
	case known != nil:
		return known
	}
	return sampled[cluster]
}

// clusterProbe asks one cluster. It never uses the stream's transactional id
// to produce: InitProducerID with it would fence a running leader.
type clusterProbe struct {
	cfg     sink.Config
	o       Options
	topics  []string
	journal string // empty: rows are delivered at least once
	facts   ClusterFacts
}

func (c *clusterProbe) ask(ctx context.Context) ClusterFacts {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	f := &c.facts
	f.TransactionalID, f.BatchBytes, f.ProduceVersion = c.cfg.TransactionalID, cmp.Or(c.cfg.BatchBytes, 1_000_000), -1
	f.Verifies = true // unless one does not
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
		c.refused(ctx, &f.Brokers[i], c.cfg.Explain(f.Brokers[i].Address, err))
	}
	f.Err = "no broker can be used"
	return *f
}

// refused notes why a broker cannot be used.
func (c *clusterProbe) refused(ctx context.Context, b *BrokerFacts, err error) {
	b.Permanent, b.Err = permanent(err), err
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		b.Err = fmt.Errorf("no answer within %v (%w)", c.o.Timeout, err)
	}
}

// dial connects to brokers side by side and notes what came of it. A broker
// that cannot be used has no connection.
func (c *clusterProbe) dial(ctx context.Context, brokers []BrokerFacts) []*sarama.Broker {
	conns := make([]*sarama.Broker, len(brokers))
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

// permanent: the broker, or our own settings, refuse, or one side does not accept the other's
// certificate; a network may come back.
func permanent(err error) bool {
	var verify *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	return errors.Is(err, sarama.ErrSASLAuthenticationFailed) || errors.Is(err, sarama.ErrUnsupportedSASLMechanism) ||
		errors.Is(err, sarama.ErrIllegalSASLState) || errors.As(err, &verify) || errors.As(err, &record) || errors.As(err, &alert)
}

// version notes the newest Produce request that every broker knows, and whether they
// can fence.
// https://kafka.apache.org/protocol#The_Messages_ApiVersions
func (c *clusterProbe) version(conn *sarama.Broker) {
	if conn == nil {
		return
	}
	res, err := conn.ApiVersions(&sarama.ApiVersionsRequest{})
	if err != nil {
		return
	}
	verifies := false
	for _, key := range res.ApiKeys {
		known := int(key.MaxVersion)
		verifies = verifies || key.ApiKey == addPartitions && known >= addPartitionsOf36
		if key.ApiKey == 0 && (c.facts.ProduceVersion < 0 || known < c.facts.ProduceVersion) {
			c.facts.ProduceVersion = known
		}
	}
	c.facts.Verifies = c.facts.Verifies && verifies
	if err := sink.CanFence(conn); errors.Is(err, sink.ErrNoTransactions) {
		c.facts.NoTransactions = err.Error()
	}
}

// Brokers of Kafka 3.6 and later look whether the transaction of a record is open, and ask
// each other by this version of AddPartitionsToTxn.
// https://cwiki.apache.org/confluence/display/KAFKA/KIP-890%3A+Transactions+Server-Side+Defense
const (
	addPartitions     = 24
	addPartitionsOf36 = 4
)

func closeAll(conns []*sarama.Broker) {
	for _, conn := range conns {
		if conn != nil {
			_ = conn.Close() // it was only asked
		}
	}
}

// metadata asks which brokers and topics there are, connects to every broker,
// and notes what we may do with each topic (KIP-430).
func (c *clusterProbe) metadata(ctx context.Context, conn *sarama.Broker) error {
	topics := c.topics
	if c.journal != "" && !slices.Contains(topics, c.journal) {
		topics = append(slices.Clone(topics), c.journal)
	}
	if len(topics) == 0 {
		topics = []string{"outbox-cdc-check"} // no topic at all would mean every one; this one is not made either
	}
	req := sarama.NewMetadataRequest(sarama.MaxVersion, topics)
	req.IncludeTopicAuthorizedOperations = true
	res, err := conn.GetMetadata(req)
	if err != nil {
		return fmt.Errorf("ask for metadata: %w", err)
	}
	c.facts.Controller = res.ControllerID
	for _, t := range res.Topics {
		if t.Name == c.journal {
			f := topicFacts(t)
			c.facts.Journal = &f
		}
		if slices.Contains(c.topics, t.Name) {
			c.facts.Topics = append(c.facts.Topics, topicFacts(t))
		}
	}
	slices.SortFunc(c.facts.Topics, func(a, b TopicFacts) int { return strings.Compare(a.Name, b.Name) })
	var others []BrokerFacts
	for _, b := range res.Brokers {
		known := slices.IndexFunc(c.facts.Brokers, func(f BrokerFacts) bool { return f.Address == b.Addr() })
		if known >= 0 {
			c.facts.Brokers[known].Advertised = true
			continue
		}
		others = append(others, BrokerFacts{Address: b.Addr(), ID: b.ID(), Advertised: true})
	}
	closeAll(c.dial(ctx, others))
	return nil
}

func topicFacts(t *sarama.TopicMetadata) TopicFacts {
	f := TopicFacts{Name: t.Name, ID: t.Uuid.String(), Err: t.Err, Partitions: len(t.Partitions), Replicas: -1, InSync: -1}
	f.Operations, f.OperationsKnown = t.TopicAuthorizedOperations, t.TopicAuthorizedOperations != math.MinInt32
	for _, p := range t.Partitions {
		if p.Leader < 0 {
			f.Leaderless++
		}
		f.Replicas = least(f.Replicas, len(p.Replicas))
		f.InSync = least(f.InSync, len(p.Isr))
	}
	return f
}

// least of what was seen so far, -1 being nothing, and another.
func least(sofar, n int) int {
	if sofar < 0 {
		return n
	}
	return min(sofar, n)
}

// wanted are the settings of a topic that matter.
var wanted = []string{"max.message.bytes", "min.insync.replicas", "cleanup.policy", "retention.ms", "retention.bytes", "compression.type", "message.timestamp.type", "message.timestamp.before.max.ms", "message.timestamp.after.max.ms", "unclean.leader.election.enable"}

// settings reads the topics' settings, which needs DESCRIBE_CONFIGS on them.
func (c *clusterProbe) settings(conn *sarama.Broker) {
	var topics []*TopicFacts
	for i := range c.facts.Topics {
		topics = append(topics, &c.facts.Topics[i])
	}
	if c.facts.Journal != nil {
		topics = append(topics, c.facts.Journal)
	}
	var resources []*sarama.ConfigResource
	for _, t := range topics {
		if t.Err == sarama.ErrNoError {
			resources = append(resources, &sarama.ConfigResource{Type: sarama.TopicResource, Name: t.Name, ConfigNames: wanted})
		}
	}
	settings := describe(conn, resources...)
	for _, t := range topics {
		t.Settings = settings[t.Name]
	}
}

// brokerSettings reads what brokers are set to for transactions, which needs DESCRIBE_CONFIGS
// on the cluster.
func (c *clusterProbe) brokerSettings(conn *sarama.Broker) {
	if c.journal == "" {
		return
	}
	broker := strconv.Itoa(int(c.facts.Controller))
	c.facts.Settings = describe(conn, &sarama.ConfigResource{
		Type: sarama.BrokerResource, Name: broker,
		ConfigNames: []string{"transaction.max.timeout.ms", "transaction.state.log.replication.factor", "transaction.state.log.min.isr"},
	})[broker]
}

// describe gives the settings of resources by their names. What may not be read is left out.
func describe(conn *sarama.Broker, resources ...*sarama.ConfigResource) map[string]KafkaSettings {
	if len(resources) == 0 {
		return nil
	}
	res, err := conn.DescribeConfigs(&sarama.DescribeConfigsRequest{Version: 2, Resources: resources})
	if err != nil {
		return nil // as without the permission: unknown
	}
	all := map[string]KafkaSettings{}
	for _, r := range res.Resources {
		if r.ErrorCode != 0 {
			continue
		}
		all[r.Name] = KafkaSettings{}
		for _, entry := range r.Configs {
			all[r.Name][entry.Name] = entry.Value
		}
	}
	return all
}

// permissions asks for a producer id without a name, which disturbs nobody,
// and who coordinates the transactional id, which only looks: it needs
// DESCRIBE, and so is refused where WRITE, which includes it, is not granted. A
// broker that has just started says for a moment that it is still loading.
func (c *clusterProbe) permissions(ctx context.Context, conn *sarama.Broker) {
	ask := func() (sarama.KError, error) {
		res, err := conn.InitProducerID(&sarama.InitProducerIDRequest{Version: 1, TransactionTimeout: time.Minute})
		switch {
		case err != nil:
			return 0, backoff.Permanent(err)
		case res.Err == sarama.ErrOffsetsLoadInProgress, res.Err == sarama.ErrConsumerCoordinatorNotAvailable:
			return res.Err, res.Err
		}
		return res.Err, nil
	}
	if answer, err := backoff.Retry(ctx, ask, backoff.WithMaxElapsedTime(c.o.Timeout/2)); err == nil || answer != 0 {
		c.facts.Idempotent = &answer
	}
	if c.facts.TransactionalID == "" {
		return
	}
	req := &sarama.FindCoordinatorRequest{Version: 1, CoordinatorKey: c.facts.TransactionalID, CoordinatorType: sarama.CoordinatorTransaction}
	if res, err := conn.FindCoordinator(req); err == nil {
		c.facts.Transactional = &res.Err
	}
}
