package metrics

import "github.com/outbox-cdc/outbox-cdc/internal/outbox"

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
		s.families.shadowRows.WithLabelValues(s.name, r.Table.String(), s.topics.bounded(name).topic, outcome).Inc()
	}
}
