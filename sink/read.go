package sink

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// mostInflated is the maximum size in bytes of a decompressed record batch that a Reader takes. A small
// batch of any producer may decompress to gigabytes.
const mostInflated = 256 << 20

func init() { sarama.MaxDecompressedBatchSize = mostInflated }

// Reader reads the committed records of one cluster's topics, for code that looks at them. Each of its
// connections is made and logged in as a Sink's are, with the secrets and certificates of that moment.
type Reader struct {
	client   sarama.Client
	consumer sarama.Consumer
	running  sync.WaitGroup
}

// Record is a record that a Reader has read.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
	At        time.Time
	Key       []byte // nil: null
	Value     []byte // nil: null
	Headers   []outbox.Header
}

// Reader connects to the cluster. Close ends the connections.
func (c Config) Reader(ctx context.Context) (*Reader, error) {
	client, err := c.client(ctx, func(conf *sarama.Config) {
		conf.Consumer.IsolationLevel = sarama.ReadCommitted
		conf.Consumer.Return.Errors = true
	})
	if err != nil {
		return nil, err
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		_ = client.Close() // nothing was read
		return nil, fmt.Errorf("kafka cluster %s: preparing to read topics: %w", c.Cluster, err)
	}
	return &Reader{client: client, consumer: consumer}, nil
}

// Follow begins to read a topic from a time on, and goes on until ctx ends. It returns the number of
// partitions, which is 0 if the topic does not exist (yet). Goroutines of the Reader send the topic's
// records, and an error of reading if errs has room.
func (r *Reader) Follow(ctx context.Context, topic string, since time.Time, records chan<- Record, errs chan<- error) (partitions int, err error) {
	if err := r.client.RefreshMetadata(topic); err != nil {
		if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
			return 0, nil
		}
		return 0, fmt.Errorf("looking for topic %s: %w", topic, err)
	}
	all, err := r.client.Partitions(topic)
	if err != nil {
		return 0, fmt.Errorf("topic %s: %w", topic, err)
	}
	for _, p := range all {
		offset, err := r.start(topic, p, since)
		if err != nil {
			return 0, fmt.Errorf("topic %s: looking for the first record of the window: %w", topic, err)
		}
		partition, err := r.consumer.ConsumePartition(topic, p, offset)
		if err != nil {
			return 0, fmt.Errorf("reading topic %s: %w", topic, err)
		}
		r.running.Go(func() { follow(ctx, partition, records, errs) })
	}
	return len(all), nil
}

// start returns the offset of the first record from a time on; without such a record, of the next one to
// come.
func (r *Reader) start(topic string, partition int32, since time.Time) (int64, error) {
	end, err := r.client.GetOffset(topic, partition, sarama.OffsetNewest)
	if err != nil {
		return 0, err
	}
	offset, err := r.client.GetOffset(topic, partition, since.UnixMilli())
	if offset < 0 {
		offset = end
	}
	return offset, err
}

func follow(ctx context.Context, partition sarama.PartitionConsumer, records chan<- Record, errs chan<- error) {
	defer func() { _ = partition.Close() }()
	for {
		select {
		case <-ctx.Done():
			return
		case m, ok := <-partition.Messages():
			if !ok {
				return
			}
			select {
			case records <- readRecord(m):
			case <-ctx.Done():
				return
			}
		case err, ok := <-partition.Errors():
			if !ok {
				return
			}
			select {
			case errs <- err:
			default: // one error is enough to end by
			}
		}
	}
}

func readRecord(m *sarama.ConsumerMessage) Record {
	r := Record{Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, At: m.Timestamp, Key: m.Key, Value: m.Value}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, outbox.Header{Name: string(h.Key), Value: h.Value})
	}
	return r
}

// Close ends the connections. The contexts of all calls of Follow must have ended.
func (r *Reader) Close() {
	r.running.Wait()
	_ = r.consumer.Close() // it was only read
	_ = r.client.Close()
}
