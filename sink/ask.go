package sink

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"time"

	"github.com/IBM/sarama"
)

// Broker is a connection to one broker, for code that looks at a cluster or makes its topics.
type Broker struct {
	broker *sarama.Broker
	net    *network
	// timeout is how long brokers may take to make or delete a topic.
	timeout time.Duration
}

// Dial connects and logs in to one broker as a Sink does, and makes sure that the broker answers. Its error
// says in words what is wrong. The connection ends with ctx, or when the caller closes it.
func (c Config) Dial(ctx context.Context, address string) (*Broker, error) {
	conf, err := c.sarama()
	if err != nil {
		return nil, err
	}
	n := newNetwork(ctx, conf, c, conf.Net.ReadTimeout)
	b, err := n.open(address)
	if err != nil {
		return nil, err
	}
	if _, err := b.ApiVersions(&sarama.ApiVersionsRequest{}); err != nil {
		_ = b.Close() // it is given up anyway
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
			return nil, fmt.Errorf("broker %s: %s: %w", address, n.hintOther("it took the connection, and does not answer"), err)
		}
		return nil, n.explain(address, err)
	}
	return &Broker{broker: b, net: n, timeout: cmp.Or(c.RequestTimeout, 10*time.Second)}, nil
}

// DialController connects to the controller, which makes topics, and returns the number of brokers. topic
// limits the answer: brokers that are asked without a topic return all topics.
func (c Config) DialController(ctx context.Context, topic string) (controller *Broker, brokers int, err error) {
	for _, address := range c.Brokers {
		var b *Broker
		if b, err = c.Dial(ctx, address); err != nil {
			continue
		}
		res, asked := b.broker.GetMetadata(sarama.NewMetadataRequest(sarama.MaxVersion, []string{topic}))
		b.Close()
		if asked != nil {
			err = b.explain(asked)
			continue
		}
		for _, known := range res.Brokers {
			if known.ID() == res.ControllerID {
				controller, err = c.Dial(ctx, known.Addr())
				return controller, len(res.Brokers), err
			}
		}
		err = errors.New("the cluster has no controller at the moment")
	}
	return nil, 0, err
}

// Close closes the connection.
func (b *Broker) Close() { _ = b.broker.Close() } // it was only asked

// Address returns the address that was dialed.
func (b *Broker) Address() string { return b.broker.Addr() }

func (b *Broker) explain(err error) error { return b.net.explain(b.Address(), err) }

// Permanent reports whether an error will not pass by itself: the broker or our own settings refuse the
// connection, or one side does not accept the other's certificate. A network error may pass.
func Permanent(err error) bool {
	return errors.Is(err, sarama.ErrSASLAuthenticationFailed) || errors.Is(err, sarama.ErrUnsupportedSASLMechanism) ||
		errors.Is(err, sarama.ErrIllegalSASLState) || is[*tls.CertificateVerificationError](err) || is[tls.RecordHeaderError](err) || is[tls.AlertError](err)
}

// Code is the error code of a broker's answer; zero: no error.
// https://kafka.apache.org/protocol#protocol_error_codes
type Code int16

// Codes that callers distinguish.
const (
	NoError                  Code = 0
	UnknownTopic             Code = 3
	LeaderNotAvailable       Code = 5
	RequestTimedOut          Code = 7
	CoordinatorLoading       Code = 14
	CoordinatorNotAvailable  Code = 15
	NotCoordinator           Code = 16
	InvalidTopic             Code = 17
	TopicForbidden           Code = 29
	ClusterForbidden         Code = 31
	TopicExists              Code = 36
	InvalidReplicationFactor Code = 38
	NotController            Code = 41
	TransactionalIDForbidden Code = 53
)

func (c Code) Error() string { return sarama.KError(c).Error() }

// Versions returns the newest version of each request that the broker knows, by the request's key.
func (b *Broker) Versions() (map[int16]int16, error) { return versions(b.broker) }

// CanFence returns nil if the broker's protocol allows fencing former leaders, otherwise an error that
// wraps ErrNoTransactions. Only a try shows whether the broker does it, and whether our user may.
func (b *Broker) CanFence() error { return canFence(b.broker) }

// Metadata is a broker's description of its cluster and of topics.
type Metadata struct {
	Controller int32
	Brokers    []Member
	Topics     []Topic
}

// Member is a broker of a cluster.
type Member struct {
	ID      int32
	Address string
}

// Topic is a broker's description of one topic.
type Topic struct {
	Name, ID   string
	Err        Code
	Partitions int
	Leaderless int
	Replicas   int // of the partition with the fewest; -1: the topic has no partitions
	InSync     int // likewise
	// Operations are the operations that our user may do, as bits (KIP-430). They are valid if
	// OperationsKnown.
	Operations      int32
	OperationsKnown bool
}

// Metadata asks for the topics, at least one, and for what our user may do with them.
func (b *Broker) Metadata(topics []string) (*Metadata, error) {
	req := sarama.NewMetadataRequest(sarama.MaxVersion, topics)
	req.IncludeTopicAuthorizedOperations = true
	res, err := b.broker.GetMetadata(req)
	if err != nil {
		return nil, b.explain(fmt.Errorf("ask for metadata: %w", err))
	}
	m := &Metadata{Controller: res.ControllerID}
	for _, known := range res.Brokers {
		m.Brokers = append(m.Brokers, Member{ID: known.ID(), Address: known.Addr()})
	}
	for _, t := range res.Topics {
		m.Topics = append(m.Topics, topicOf(t))
	}
	return m, nil
}

func topicOf(t *sarama.TopicMetadata) Topic {
	f := Topic{Name: t.Name, ID: t.Uuid.String(), Err: Code(t.Err), Partitions: len(t.Partitions), Replicas: -1, InSync: -1}
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

// least returns the lesser of n and the least so far; -1 stands for none so far.
func least(sofar, n int) int {
	if sofar < 0 {
		return n
	}
	return min(sofar, n)
}

// TopicSettings returns the named settings of each topic. It leaves out topics whose settings may not be
// read.
func (b *Broker) TopicSettings(topics, settings []string) map[string]map[string]string {
	var resources []*sarama.ConfigResource
	for _, topic := range topics {
		resources = append(resources, &sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: settings})
	}
	return b.settings(resources...)
}

// BrokerSettings returns the named settings of a broker; nil: they may not be read.
func (b *Broker) BrokerSettings(broker int32, settings []string) map[string]string {
	name := strconv.Itoa(int(broker))
	return b.settings(&sarama.ConfigResource{Type: sarama.BrokerResource, Name: name, ConfigNames: settings})[name]
}

func (b *Broker) settings(resources ...*sarama.ConfigResource) map[string]map[string]string {
	if len(resources) == 0 {
		return nil
	}
	res, err := b.broker.DescribeConfigs(&sarama.DescribeConfigsRequest{Version: 2, Resources: resources})
	if err != nil {
		return nil // unknown, as without the permission
	}
	all := map[string]map[string]string{}
	for _, r := range res.Resources {
		if r.ErrorCode != 0 {
			continue
		}
		all[r.Name] = map[string]string{}
		for _, entry := range r.Configs {
			all[r.Name][entry.Name] = entry.Value
		}
	}
	return all
}

// NewProducerID asks for a producer id without a transactional id, which fences nobody. err says that no
// answer came.
func (b *Broker) NewProducerID() (answer Code, err error) {
	res, err := b.broker.InitProducerID(&sarama.InitProducerIDRequest{Version: 1, TransactionTimeout: time.Minute})
	if err != nil {
		return 0, b.explain(err)
	}
	return Code(res.Err), nil
}

// FindCoordinator asks who coordinates a transactional id. This changes nothing. err says that no answer
// came.
func (b *Broker) FindCoordinator(transactionalID string) (answer Code, err error) {
	req := &sarama.FindCoordinatorRequest{Version: 1, CoordinatorKey: transactionalID, CoordinatorType: sarama.CoordinatorTransaction}
	res, err := b.broker.FindCoordinator(req)
	if err != nil {
		return 0, b.explain(err)
	}
	return Code(res.Err), nil
}

// CreateTopic makes a topic with one partition. text is the broker's message about its answer. err says
// that no answer came. Only the controller makes topics.
func (b *Broker) CreateTopic(name string, replicas int, settings map[string]string) (answer Code, text string, err error) {
	entries := map[string]*string{}
	for setting, value := range settings {
		entries[setting] = &value
	}
	details := map[string]*sarama.TopicDetail{name: {NumPartitions: 1, ReplicationFactor: int16(replicas), ConfigEntries: entries}} // #nosec G115 -- 1 to 3
	res, err := b.broker.CreateTopics(sarama.NewCreateTopicsRequest(sarama.MaxVersion, details, b.timeout, false))
	if err != nil {
		return 0, "", b.explain(err)
	}
	told := res.TopicErrors[name]
	if told == nil {
		return 0, "", b.silentOn(name)
	}
	if told.ErrMsg != nil {
		text = *told.ErrMsg
	}
	return Code(told.Err), text, nil
}

// DeleteTopic deletes a topic. err says that no answer came. Only the controller deletes topics.
func (b *Broker) DeleteTopic(name string) (answer Code, err error) {
	res, err := b.broker.DeleteTopics(sarama.NewDeleteTopicsRequest(sarama.MaxVersion, []string{name}, b.timeout))
	if err != nil {
		return 0, b.explain(err)
	}
	code, answered := res.TopicErrorCodes[name]
	if !answered {
		return 0, b.silentOn(name)
	}
	return Code(code), nil
}

func (b *Broker) silentOn(topic string) error {
	return fmt.Errorf("broker %s did not say what became of topic %s", b.Address(), topic)
}
