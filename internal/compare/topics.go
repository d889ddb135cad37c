package compare

import (
	"context"
	"fmt"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// topics reads topics of one or several Kafka clusters from a time on. A topic
// is read from when it is first asked for.
type topics struct {
	ctx     context.Context //nolint:containedctx // of the whole comparison
	readers map[string]*sink.Reader
	since   time.Time

	known   map[topicName]int // partitions
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

// follow begins to read a topic. One that does not exist (yet) is no error.
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
