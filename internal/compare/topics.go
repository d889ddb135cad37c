package compare

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// maxBatchBytes is the largest record batch that is compared, decompressed: a
// small one of any producer's may be gigabytes.
const maxBatchBytes = 256 << 20

func init() { sarama.MaxDecompressedBatchSize = maxBatchBytes }

// topics reads topics of one or several Kafka clusters from a time on. A topic
// is read from when it is first asked for.
type topics struct {
	ctx       context.Context //nolint:containedctx // of the whole comparison
	clients   map[string]sarama.Client
	consumers map[string]sarama.Consumer
	since     time.Time

	known   map[topicName]int32 // partitions
	records chan Record
	errors  chan error
	running sync.WaitGroup
}

func newTopics(ctx context.Context, clients map[string]sarama.Client, since time.Time) (*topics, error) {
	t := &topics{
		ctx: ctx, clients: clients, since: since, consumers: map[string]sarama.Consumer{},
		known: map[topicName]int32{}, records: make(chan Record, 1024), errors: make(chan error, 1),
	}
	for name, client := range clients {
		consumer, err := sarama.NewConsumerFromClient(client)
		if err != nil {
			return nil, fmt.Errorf("kafka cluster %s: preparing to read topics: %w", name, err)
		}
		t.consumers[name] = consumer
	}
	return t, nil
}

type topicName struct{ cluster, topic string }

// follow begins to read a topic. One that does not exist (yet) is no error.
func (t *topics) follow(name topicName) error {
	if name.topic == "" || t.known[name] > 0 {
		return nil
	}
	cluster, topic := name.cluster, name.topic
	client := t.clients[cluster]
	if client == nil {
		return fmt.Errorf("kafka cluster %s is not configured", cluster)
	}
	if err := client.RefreshMetadata(topic); err != nil {
		if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
			return nil
		}
		return fmt.Errorf("kafka cluster %s: looking for topic %s: %w", cluster, topic, err)
	}
	partitions, err := client.Partitions(topic)
	if err != nil {
		return fmt.Errorf("kafka cluster %s: topic %s: %w", cluster, topic, err)
	}
	for _, p := range partitions {
		offset, err := t.start(client, topic, p)
		if err != nil {
			return fmt.Errorf("kafka cluster %s: topic %s: looking for the first record of the window: %w", cluster, topic, err)
		}
		consumer, err := t.consumers[cluster].ConsumePartition(topic, p, offset)
		if err != nil {
			return fmt.Errorf("kafka cluster %s: reading topic %s: %w", cluster, topic, err)
		}
		t.running.Go(func() { t.read(consumer) })
	}
	t.known[name] = int32(len(partitions))
	return nil
}

// start is the offset of the first record of the window, or of the next one.
func (t *topics) start(client sarama.Client, topic string, partition int32) (int64, error) {
	end, err := client.GetOffset(topic, partition, sarama.OffsetNewest)
	if err != nil {
		return 0, err
	}
	offset, err := client.GetOffset(topic, partition, t.since.UnixMilli())
	if offset < 0 {
		offset = end
	}
	return offset, err
}

func (t *topics) read(consumer sarama.PartitionConsumer) {
	defer func() { _ = consumer.Close() }()
	for {
		select {
		case <-t.ctx.Done():
			return
		case m, ok := <-consumer.Messages():
			if !ok {
				return
			}
			r := Record{Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, At: m.Timestamp, Key: m.Key, Value: m.Value}
			for _, h := range m.Headers {
				r.Headers = append(r.Headers, outbox.Header{Name: string(h.Key), Value: h.Value})
			}
			select {
			case t.records <- r:
			case <-t.ctx.Done():
				return
			}
		case err, ok := <-consumer.Errors():
			if !ok {
				return
			}
			select {
			case t.errors <- err:
			default: // one is enough to end by
			}
		}
	}
}

func (t *topics) close() {
	t.running.Wait()
	for _, c := range t.consumers {
		_ = c.Close()
	}
}
