package compare

import (
	"context"
	"fmt"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// topics reads topics of one or several Kafka clusters, beginning at a point in time. Reading a topic begins
// when it is first requested.
type topics struct {
	ctx     context.Context //nolint:containedctx // of the whole comparison
	readers map[string]*sink.Reader
	since   time.Time

	known   map[topicName]int // number of partitions
	records chan Record
	errors  chan error
}

func newTopics(ctx context.Context, readers map[string]*sink.Reader, since time.Time) *topics {
	return &topics{
		ctx: ctx, readers: readers, since: since,
		known: map[topicName]int{}, records: make(chan Record, 1024), errors: make(chan error, 1),
	}
}

type topicName struct{ cluster, topic string }

// follow begins to read a topic. It is no error if the topic does not exist (yet).
func (t *topics) follow(name topicName) error {
	if name.topic == "" || t.known[name] > 0 {
		return nil
	}
	reader := t.readers[name.cluster]
	if reader == nil {
		return fmt.Errorf("kafka cluster %s is not configured", name.cluster)
	}
	partitions, err := reader.Follow(t.ctx, name.topic, t.since, t.records, t.errors)
	if err != nil {
		return fmt.Errorf("kafka cluster %s: %w", name.cluster, err)
	}
	t.known[name] = partitions
	return nil
}
