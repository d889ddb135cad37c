package metrics

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

// maxTopics bounds the values of the label topic, because topics come from rows.
const maxTopics = 200

const otherTopics = "other"

type topicName struct{ cluster, topic string }

type topicCounters struct {
	published, refused, withdrawn, bytes prometheus.Counter
	ages                                 Latencies
}

// topic returns a topic's counters. The caller holds topicsMu.
func (s *Stream) topic(name topicName) *topicCounters {
	if c := s.topics[name]; c != nil {
		return c
	}
	name = s.bounded(name)
	if c := s.topics[name]; c != nil {
		return c
	}
	rows := func(outcome string) prometheus.Counter {
		return s.topicRows.WithLabelValues(name.cluster, name.topic, outcome)
	}
	c := &topicCounters{
		published: rows("published"), refused: rows("refused"), withdrawn: rows("withdrawn"),
		bytes: s.topicBytes.WithLabelValues(name.cluster, name.topic),
	}
	s.topics[name] = c
	return c
}

// bounded returns the topic itself, or "other" if there are too many already.
func (s *Stream) bounded(name topicName) topicName {
	if s.topics[name] == nil && len(s.topics) >= maxTopics {
		name.topic = otherTopics
	}
	return name
}

// topicOutcome counts rows of one topic, and how old they were when they were delivered. The caller holds
// topicsMu.
func (s *Stream) topicOutcome(class outbox.Class, rows []*outbox.Row, ages *observations, now time.Time) {
	name := topicName{rows[0].Cluster, rows[0].Topic}
	if class != outbox.Delivered && s.topics[name] == nil && len(s.topics) >= maxTopics/2 {
		name.topic = otherTopics // a topic that accepted no record may not exist: such names use at most half of the labels
	}
	c, n := s.topic(name), float64(len(rows))
	switch class {
	case outbox.Delivered:
		c.published.Add(n)
		micros := now.UnixMicro()
		for _, r := range rows {
			if r.CreatedAt != 0 {
				c.ages[ages.add(float64(micros-r.Made())/1e6)]++
			}
		}
	case outbox.Refused:
		c.refused.Add(n)
	case outbox.Withdrawn:
		c.withdrawn.Add(n)
	}
}

// AgesOf returns the ages of a topic that Topics returned.
func (s *Stream) AgesOf(of *status.Topic) *Latencies {
	s.topicsMu.Lock()
	defer s.topicsMu.Unlock()
	ages := s.topics[topicName{of.Cluster, of.Topic}].ages
	return &ages
}

// countOf reads a counter's value.
func countOf(c prometheus.Counter) uint64 {
	var m dto.Metric
	if err := c.Write(&m); err != nil { // it cannot fail
		return 0
	}
	return uint64(m.GetCounter().GetValue())
}

// Topics returns the counts of rows by cluster and topic since the process began. Topics beyond the first 200
// count as "other".
func (s *Stream) Topics() []status.Topic {
	s.topicsMu.Lock()
	defer s.topicsMu.Unlock()
	list := []status.Topic{}
	for name, c := range s.topics {
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

// Shadowed counts, by topic, pending rows that a stream in shadow mode would have published, and rows that
// cannot become a record.
func (s *Stream) Shadowed(rows []*outbox.Row) {
	s.topicsMu.Lock()
	defer s.topicsMu.Unlock()
	for _, r := range rows {
		if !r.Pending {
			continue
		}
		outcome := "record"
		if r.Err != nil {
			outcome = "error"
		}
		name := topicName{r.Cluster, r.Topic}
		s.topic(name) // from here on the topic is known
		s.shadowRows.WithLabelValues(r.Table.String(), s.bounded(name).topic, outcome).Inc()
	}
}
