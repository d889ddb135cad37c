package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// This file is about clusters of several brokers: who leads, who is in sync.

// AwaitInSync waits until every partition of a topic has a leader and so many
// replicas in sync.
func (c *Cluster) AwaitInSync(t testing.TB, topic string, replicas int, within time.Duration) {
	t.Helper()
	Eventually(t, within, func() error {
		partitions, err := c.partitions(t.Context(), topic)
		for _, p := range partitions {
			if p.Leader < 0 || len(p.ISR) != replicas {
				err = errors.Join(err, fmt.Errorf("%s/%d: leader %d, %v in sync, wanted %d", topic, p.Partition, p.Leader, p.ISR, replicas))
			}
		}
		return err
	})
}

// Leaders returns the node ids of a topic's leaders, by partition.
func (c *Cluster) Leaders(t testing.TB, topic string) []int32 {
	t.Helper()
	partitions, err := c.partitions(t.Context(), topic)
	if err != nil {
		t.Fatalf("harness: leaders of %s: %v", topic, err)
	}
	leaders := make([]int32, len(partitions))
	for i, p := range partitions {
		leaders[i] = p.Leader
	}
	return leaders
}

// MoveLeaders gives each partition of a topic another leader: the next replica
// becomes the preferred one, and preferred ones are elected. All must be in sync.
func (c *Cluster) MoveLeaders(t testing.TB, topic string) {
	t.Helper()
	before, err := c.partitions(t.Context(), topic)
	if err != nil {
		t.Fatalf("harness: partitions of %s: %v", topic, err)
	}
	assignment, all := make([][]int32, len(before)), make([]int32, len(before))
	for i, p := range before {
		next := slices.Index(p.Replicas, p.Leader) + 1
		assignment[i] = append(slices.Clone(p.Replicas[next:]), p.Replicas[:next]...)
		all[i] = p.Partition
	}
	c.Admin(t, func(a sarama.ClusterAdmin) error { return a.AlterPartitionReassignments(topic, assignment) })
	c.Admin(t, func(a sarama.ClusterAdmin) error {
		_, err := a.ElectLeaders(sarama.PreferredElection, map[string][]int32{topic: all})
		return err
	})
	Eventually(t, 20*time.Second, func() error {
		now, err := c.partitions(t.Context(), topic)
		for i, p := range now {
			if p.Leader != assignment[i][0] {
				err = errors.Join(err, fmt.Errorf("%s/%d is led by %d, wanted %d", topic, p.Partition, p.Leader, assignment[i][0]))
			}
		}
		return err
	})
}

// Start starts stopped or killed brokers all at once, and waits until they serve.
func (c *Cluster) Start(t testing.TB, nodes ...*Node) {
	t.Helper()
	var errs []error
	for _, n := range nodes {
		errs = append(errs, n.start())
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("harness: %v", err)
	}
	for _, n := range nodes {
		if err := n.awaitReady(); err != nil {
			t.Fatalf("harness: %v", err)
		}
	}
}

// Down returns the brokers that do not run.
func (c *Cluster) Down() (nodes []*Node) {
	for _, n := range c.Nodes {
		if n.PID() == 0 {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// partitions returns what metadata says of a topic, by partition.
func (c *Cluster) partitions(ctx context.Context, topic string) ([]kmsg.MetadataResponseTopicPartition, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return partitionsOf(ctx, client, topic)
}

// Coordinates fails unless a node is the coordinator of a transactional id.
func (c *Cluster) Coordinates(id string, n *Node) error {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V2_8_0_0
	cfg.Net.Proxy.Enable, cfg.Net.Proxy.Dialer = true, goAround{c}
	client, err := sarama.NewClient(c.Direct, cfg)
	if err != nil {
		return err
	}
	defer client.Close()
	b, err := client.TransactionCoordinator(id)
	if err == nil && int(b.ID()) != n.ID() {
		err = fmt.Errorf("node %d coordinates transactional id %s", b.ID(), id)
	}
	return err
}
