package metrics

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

// maxTopics bounds the label: topics come from rows.
const maxTopics = 200

const otherTopics = "other"

// topics are one stream's counters by Kafka cluster and topic.
type topics struct {
	kafka *kafkaMetrics

	mu    sync.Mutex
	known map[topicName]*topicCounters
}

type topicName struct{ cluster, topic string }

type topicCounters struct {
	published, refused, withdrawn, bytes prometheus.Counter
	ages                                 Latencies
}

// of gives a topic's counters; the caller holds mu.
func (t *topics) of(name topicName) *topicCounters {
	if c := t.known[name]; c != nil {
		return c
	}
	name = t.bounded(name)
	if c := t.known[name]; c != nil {
		return c
	}
	rows := func(outcome string) prometheus.Counter {
		return t.kafka.topicRows.WithLabelValues(name.cluster, name.topic, outcome)
	}
	c := &topicCounters{
		published: rows("published"), refused: rows("refused"), withdrawn: rows("withdrawn"),
		bytes: t.kafka.topicBytes.WithLabelValues(name.cluster, name.topic),
	}
	t.known[name] = c
	return c
}

// bounded is the topic itself, or other when there are too many already.
func (t *topics) bounded(name topicName) topicName {
	if t.known[name] == nil && len(t.known) >= maxTopics {
		name.topic = otherTopics
	}
	return name
}

// outcome counts once per run of rows of one topic, and gives how old delivered rows were.
func (t *topics) outcome(o *outbox.Outcome, now time.Time) (ages tally) {
	micros := now.UnixMicro()
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := 0; i < len(o.Rows); {
		name, first := topicName{o.Rows[i].Cluster, o.Rows[i].Topic}, i
		for i < len(o.Rows) && o.Rows[i].Topic == name.topic && o.Rows[i].Cluster == name.cluster {
			i++
		}
		if o.Class != outbox.Delivered && t.known[name] == nil && len(t.known) >= maxTopics/2 {
			name.topic = otherTopics // one that took no record may not exist: such names leave half of the labels to others
		}
		c, n := t.of(name), float64(i-first)
		switch o.Class {
		case outbox.Delivered:
			c.published.Add(n)
			for _, r := range o.Rows[first:i] {
				if r.CreatedAt != 0 {
					c.ages[ages.add(float64(micros-r.CreatedAt)/1e6)]++
				}
			}
		case outbox.Refused:
			c.refused.Add(n)
		case outbox.Withdrawn:
			c.withdrawn.Add(n)
		}
	}
	return ages
}

// AgesOf are the ages of a topic of Topics.
func (s *Stream) AgesOf(of *status.Topic) *Latencies {
	s.topics.mu.Lock()
	defer s.topics.mu.Unlock()
	ages := s.topics.known[topicName{of.Cluster, of.Topic}].ages
	return &ages
}

// countOf reads a counter back.
func countOf(c prometheus.Counter) uint64 {
	var m dto.Metric
	if err := c.Write(&m); err != nil { // it has no way to fail
		return 0
	}
	return uint64(m.GetCounter().GetValue())
}

// Topics is what became of rows by cluster and topic, since the process began; topics
// beyond the first 200 count as other.
func (s *Stream) Topics() []status.Topic {
	s.topics.mu.Lock()
	defer s.topics.mu.Unlock()
	list := []status.Topic{}
	for name, c := range s.topics.known {
		list = append(list, status.Topic{
			Cluster: name.cluster, Topic: name.topic,
			Published: countOf(c.published), Refused: countOf(c.refused), Bytes: countOf(c.bytes),
		})
	}
	slices.SortFunc(list, func(a, b status.Topic) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Topic, b.Topic))
	})
	return list
}

// Shadowed counts pending rows that a stream in shadow would have published, by
// topic, and those that cannot become a record.
func (s *Stream) Shadowed(rows []*outbox.Row) {
	s.topics.mu.Lock()
	defer s.topics.mu.Unlock()
	for _, r := range rows {
		if !r.Pending {
			continue
		}
		outcome := "record"
		if r.Err != nil {
			outcome = "error"
		}
		name := topicName{r.Cluster, r.Topic}
		s.topics.of(name) // from here on it is among those known
		s.shadowRows.WithLabelValues(r.Table.String(), s.topics.bounded(name).topic, outcome).Inc()
	}
}
