package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/internal/wait"
)

func (w *world) startKafka(ctx context.Context, o Options) error {
	w.target.Brokers = o.Brokers
	if len(o.Brokers) == 0 {
		if err := w.startFake(); err != nil {
			return fmt.Errorf("starting the in-process Kafka: %w", err)
		}
	}
	admin, err := w.kafkaClient()
	if err != nil {
		return fmt.Errorf("--brokers: %w", err)
	}
	w.admin = admin
	w.later(func(context.Context) error { admin.Close(); return nil })
	// Find out what the broker is, and whether it is there at all.
	asking, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(asking, admin)
	if err != nil {
		return fmt.Errorf("no broker answers at %s (does it listen there without TLS and login?): %w", strings.Join(w.target.Brokers, ", "), err)
	}
	if w.kafkaVersion == "" {
		w.kafkaVersion = "Kafka " + kversion.FromApiVersionsResponse(resp).VersionGuess()
	}
	return w.createTopic(ctx)
}

func (w *world) startFake() error {
	port, err := localpg.FreePort()
	if err != nil {
		return err
	}
	listen := func(network, address string) (net.Listener, error) {
		g, err := newGate(network, address)
		w.gate = g
		return g, err
	}
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(port), kfake.ListenFn(listen))
	if err != nil {
		return err
	}
	w.later(func(context.Context) error { fake.Close(); return nil })
	w.target.Brokers, w.target.Fencing, w.kafkaVersion = fake.ListenAddrs(), "off", "kfake (in-process)"
	return nil
}

// kafkaClient makes a client of another library than the stream uses.
func (w *world) kafkaClient(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(w.target.Brokers...), kgo.ClientID("outbox-cdc-demo"),
		kgo.RetryTimeout(15 * time.Second), kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
	}, opts...)...)
}

func (w *world) createTopic(ctx context.Context) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = w.target.Topic, int32(w.partitions), -1
	if w.gate != nil {
		rt.ReplicationFactor = 1
	}
	req.Topics, req.TimeoutMillis = append(req.Topics, rt), 15_000
	resp, err := req.RequestWith(ctx, w.admin)
	if err == nil && len(resp.Topics) > 0 {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("creating topic %s: %w", rt.Topic, err)
	}
	if w.gate == nil {
		w.later(w.deleteTopics)
	}
	// Wait until every partition answers a question for its end.
	waiting, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	for {
		if _, err = w.ends(waiting); err == nil {
			return nil
		}
		if wait.Sleep(waiting, 50*time.Millisecond) != nil {
			return fmt.Errorf("waiting for topic %s: %w", rt.Topic, err)
		}
	}
}

// deleteTopics deletes the topic, and the journal if there is one.
func (w *world) deleteTopics(ctx context.Context) error {
	req := kmsg.NewPtrDeleteTopicsRequest()
	for _, name := range []string{w.target.Topic, w.target.Journal} {
		if name != "" {
			rt := kmsg.NewDeleteTopicsRequestTopic()
			rt.Topic = kmsg.StringPtr(name)
			req.TopicNames, req.Topics = append(req.TopicNames, name), append(req.Topics, rt)
		}
	}
	req.TimeoutMillis = 15_000
	resp, err := req.RequestWith(ctx, w.admin)
	if err != nil {
		return fmt.Errorf("deleting topic %s: %w", w.target.Topic, err)
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if deleted := kerr.ErrorForCode(t.ErrorCode); deleted != nil && !errors.Is(deleted, kerr.UnknownTopicOrPartition) && t.Topic != nil {
			err = errors.Join(err, fmt.Errorf("deleting topic %s: %w", *t.Topic, deleted))
		}
	}
	return err
}

// ends returns the topic's end offsets by partition.
func (w *world) ends(ctx context.Context) ([]int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = w.target.Topic
	for p := range w.partitions {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp = int32(p), -1
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics, req.ReplicaID = append(req.Topics, rt), -1
	ends := make([]int64, w.partitions)
	for _, shard := range w.admin.RequestSharded(ctx, req) {
		if shard.Err != nil {
			return nil, shard.Err
		}
		resp, ok := shard.Resp.(*kmsg.ListOffsetsResponse)
		if !ok {
			return nil, errors.New("the broker answered something else")
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return nil, err
				}
				ends[p.Partition] = p.Offset
			}
		}
	}
	return ends, nil
}
