package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Cluster is a Kafka cluster: real brokers or kfake.
type Cluster struct {
	// Addrs are the addresses for the program under test. If the cluster has proxies, they are the proxies'.
	Addrs []string
	// Direct are the addresses of the brokers themselves.
	Direct []string
	// Real says that the brokers are Apache Kafka's.
	Real bool
	// Nodes are the real brokers, Fake is the fake cluster.
	zooKeeper *Node // of versions that need one
	Nodes     []*Node
	Fake      *kfake.Cluster
	// Proxies are the proxies in front of the brokers, in the same order.
	Proxies []*Proxy

	dir string
	// around maps the address of a proxy to that of the broker behind it, for the harness's own clients.
	around map[string]string
}

// Kfake starts a fake cluster of one broker for one test. Only kfake can inject error codes
// (Cluster.Fake.ControlKey). It proves nothing about durability.
func Kfake(t testing.TB, opts ...kfake.Opt) *Cluster {
	t.Helper()
	fake, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatalf("harness: starting kfake: %v", err)
	}
	t.Cleanup(fake.Close)
	addrs := fake.ListenAddrs()
	return &Cluster{Addrs: addrs, Direct: addrs, Fake: fake}
}

// KfakeProxied is Kfake with a proxy in front of its only broker. kfake advertises the address at which it
// seems to listen, which is the proxy's.
func KfakeProxied(t testing.TB, opts ...kfake.Opt) *Cluster {
	t.Helper()
	hidden := &relocated{}
	c := Kfake(t, append([]kfake.Opt{kfake.ListenFn(hidden.listen)}, opts...)...)
	p := proxyOn(t, hidden.shown, hidden.real)
	c.Addrs, c.Direct, c.Proxies = []string{p.Addr()}, []string{p.Addr()}, []*Proxy{p}
	c.around = map[string]string{hidden.shown: hidden.real}
	return c
}

// proxy puts a proxy before each broker.
func (c *Cluster) proxy(t testing.TB) {
	t.Helper()
	c.Addrs = nil
	for _, n := range c.Nodes {
		listen := fmt.Sprintf("127.0.0.1:%d", n.advertise[proxiedListener])
		p := proxyOn(t, listen, n.Addr(proxiedListener))
		c.Proxies = append(c.Proxies, p)
		c.Addrs = append(c.Addrs, p.Addr())
	}
}

// AddrsOf returns the addresses of the brokers' listener with this name (see KafkaOptions.Listeners).
func (c *Cluster) AddrsOf(listener string) (addrs []string) {
	for _, n := range c.Nodes {
		addrs = append(addrs, n.Addr(listener))
	}
	return addrs
}

// Cut closes all connections through the proxies and refuses new ones until
// Restore.
func (c *Cluster) Cut() {
	for _, p := range c.Proxies {
		p.Refuse()
	}
}

// Restore ends Cut.
func (c *Cluster) Restore(t testing.TB) {
	t.Helper()
	for _, p := range c.Proxies {
		p.Allow()
	}
}

var topicNumber atomic.Int64

// Topic makes a topic with a name that only this test uses.
func (c *Cluster) Topic(t testing.TB, partitions int32) string {
	t.Helper()
	name := fmt.Sprintf("t%d.%s", topicNumber.Add(1), identifier(t.Name()))
	c.CreateTopic(t, name, partitions, nil)
	return name
}

// CreateTopic makes a topic, replicated to every broker, and waits until every
// partition has a leader.
func (c *Cluster) CreateTopic(t testing.TB, name string, partitions int32, config map[string]string) {
	t.Helper()
	detail := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: int16(max(1, len(c.Nodes))), ConfigEntries: map[string]*string{}}
	for k, v := range config {
		detail.ConfigEntries[k] = &v
	}
	c.Admin(t, func(a sarama.ClusterAdmin) error { return a.CreateTopic(name, detail, false) })
	Eventually(t, 20*time.Second+time.Duration(partitions)*50*time.Millisecond, func() error {
		ends, err := c.ends(t.Context(), name)
		if err == nil && len(ends) != int(partitions) {
			err = fmt.Errorf("topic %s has %d partitions", name, len(ends))
		}
		return err
	})
}

// DeleteTopic deletes a topic and waits until it is gone.
func (c *Cluster) DeleteTopic(t testing.TB, name string) {
	t.Helper()
	c.Admin(t, func(a sarama.ClusterAdmin) error { return a.DeleteTopic(name) })
	Eventually(t, 20*time.Second, func() error {
		if _, err := c.ends(t.Context(), name); err == nil {
			return fmt.Errorf("topic %s is still there", name)
		}
		return nil
	})
}

// ConfigureTopic alters single settings of a topic.
func (c *Cluster) ConfigureTopic(t testing.TB, name string, config map[string]string) {
	t.Helper()
	entries := map[string]sarama.IncrementalAlterConfigsEntry{}
	for k, v := range config {
		entries[k] = sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &v}
	}
	c.Admin(t, func(a sarama.ClusterAdmin) error {
		return a.IncrementalAlterConfig(sarama.TopicResource, name, entries, false)
	})
}

// AddPartitions raises a topic's partition count.
func (c *Cluster) AddPartitions(t testing.TB, name string, count int32) {
	t.Helper()
	c.Admin(t, func(a sarama.ClusterAdmin) error { return a.CreatePartitions(name, count, nil, false) })
}

// Topics returns the names of the topics, without Kafka's own (__…).
func (c *Cluster) Topics(t testing.TB) (names []string) {
	t.Helper()
	c.Admin(t, func(a sarama.ClusterAdmin) error {
		topics, err := a.ListTopics()
		for name := range topics {
			if !strings.HasPrefix(name, "__") {
				names = append(names, name)
			}
		}
		return err
	})
	return names
}

// Admin runs a function with an admin client.
func (c *Cluster) Admin(t testing.TB, use func(sarama.ClusterAdmin) error) {
	t.Helper()
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	cfg.Admin.Timeout = 20 * time.Second
	cfg.Net.Proxy.Enable, cfg.Net.Proxy.Dialer = true, goAround{c}
	admin, err := sarama.NewClusterAdmin(c.Direct, cfg)
	if err != nil {
		t.Fatalf("harness: admin client: %v", err)
	}
	defer admin.Close()
	if err := use(admin); err != nil {
		t.Fatalf("harness: admin request: %v", err)
	}
}

// client returns a client for consumers. It is of another library than the one under test.
func (c *Cluster) client(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.Direct...), kgo.Dialer(goAround{c}.DialContext), kgo.RetryTimeout(10 * time.Second)}, opts...)...)
}

// goAround dials what is behind a proxy.
type goAround struct{ c *Cluster }

// Dial is sarama's way to dial.
func (g goAround) Dial(network, addr string) (net.Conn, error) {
	return g.DialContext(context.Background(), network, addr)
}

// DialContext is franz-go's way to dial.
func (g goAround) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	if behind, ok := g.c.around[addr]; ok {
		addr = behind
	}
	var d net.Dialer
	return d.DialContext(ctx, network, addr)
}

// serves says whether a broker answers, knows itself and is unfenced.
func serves(ctx context.Context, addr string, id int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RequestRetries(0))
	if err != nil {
		return err
	}
	defer client.Close()
	resp, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, client)
	if err != nil {
		return err
	}
	for _, b := range resp.Brokers {
		if int(b.NodeID) == id {
			return nil
		}
	}
	return errors.New("the broker is not in its own metadata yet")
}

// End returns the sum of a topic's end offsets: the number of records that were appended to it, including
// the control records of transactions.
func (c *Cluster) End(ctx context.Context, topic string) (sum int64, err error) {
	ends, err := c.ends(ctx, topic)
	for _, end := range ends {
		sum += end
	}
	return sum, err
}

// Client returns a franz-go client, which knows how to reach the brokers around the proxies.
func (c *Cluster) Client(opts ...kgo.Opt) (*kgo.Client, error) { return c.client(opts...) }

// ends returns a topic's end offsets by partition.
func (c *Cluster) ends(ctx context.Context, topic string) (map[int32]int64, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	count, err := partitionCount(ctx, client, topic)
	if err != nil {
		return nil, err
	}
	req := kmsg.NewPtrListOffsetsRequest()
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	for p := range count {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp = int32(p), -1
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics, req.ReplicaID = append(req.Topics, rt), -1
	ends := map[int32]int64{}
	for _, shard := range client.RequestSharded(ctx, req) {
		if shard.Err != nil {
			return nil, shard.Err
		}
		for _, t := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode != 0 {
					return nil, fmt.Errorf("end offset of %s/%d: error code %d", topic, p.Partition, p.ErrorCode)
				}
				ends[p.Partition] = p.Offset
			}
		}
	}
	return ends, nil
}

func partitionCount(ctx context.Context, client *kgo.Client, topic string) (int, error) {
	partitions, err := partitionsOf(ctx, client, topic)
	for _, p := range partitions {
		if p.ErrorCode != 0 {
			return 0, fmt.Errorf("metadata of %s/%d: error code %d", topic, p.Partition, p.ErrorCode)
		}
	}
	return len(partitions), err
}

// partitionsOf returns what metadata says of a topic, by partition; each may have an
// error of its own.
func partitionsOf(ctx context.Context, client *kgo.Client, topic string) ([]kmsg.MetadataResponseTopicPartition, error) {
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || resp.Topics[0].ErrorCode != 0 {
		return nil, fmt.Errorf("metadata of %s: %s", topic, codes(resp.Topics))
	}
	partitions := resp.Topics[0].Partitions
	slices.SortFunc(partitions, func(a, b kmsg.MetadataResponseTopicPartition) int { return int(a.Partition - b.Partition) })
	return partitions, nil
}

func codes(topics []kmsg.MetadataResponseTopic) string {
	var s []string
	for _, t := range topics {
		s = append(s, fmt.Sprintf("error code %d", t.ErrorCode))
	}
	return strings.Join(s, ", ")
}
