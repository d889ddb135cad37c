package sink

import (
	"fmt"
	"sync"

	"github.com/IBM/sarama"
)

// KnownCluster makes sure that a Sink, and the Sinks after it, connect to one Kafka cluster only: the first
// one that they met. If another cluster appeared behind an address, rows sent there would be SENT and still
// be missing where they belong. The zero value has not met a cluster yet.
type KnownCluster struct {
	mu sync.Mutex
	// id is the cluster's id, and from the broker that named it first. Empty: no broker has named one yet.
	// The id never changes; after a cluster is replaced, the process has to be restarted.
	id, from string
	// topic is a topic to ask brokers about. A request without a topic would return all of them.
	topic string
}

// idBytes is how many bytes of a cluster's id are compared. Kafka's ids have 22 bytes.
const idBytes = 64

// heard checks the cluster id in a broker's answer about topics. Some brokers do not name their cluster.
func (s *KnownCluster) heard(addr string, res *sarama.MetadataResponse, topics []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(topics) > 0 {
		s.topic = topics[0]
	}
	if res.ClusterID == nil || *res.ClusterID == "" {
		return nil
	}
	id := *res.ClusterID
	id = id[:min(len(id), idBytes)]
	if s.id == "" {
		s.id, s.from = id, addr
	}
	if id != s.id {
		return &otherCluster{id: id, want: s.id, from: s.from}
	}
	return nil
}

// judge asks a newly connected broker for its cluster. The request needs a topic to ask about. While none
// is known, no row is sent, and the answer that brings the first topic goes through heard.
func (s *KnownCluster) judge(b *sarama.Broker, version sarama.KafkaVersion) error {
	s.mu.Lock()
	topic := s.topic
	s.mu.Unlock()
	if topic == "" {
		return nil
	}
	topics := []string{topic}
	res, err := b.GetMetadata(sarama.NewMetadataRequest(version, topics))
	if err != nil {
		return err
	}
	return s.heard(b.Addr(), res, topics)
}

// otherCluster says that a broker belongs to another cluster than the first one met.
type otherCluster struct{ id, want, from string }

func (e *otherCluster) Error() string {
	return fmt.Sprintf("it belongs to cluster %q, but %s belongs to %q: correct brokers, or the brokers' advertised.listeners; if the cluster was replaced, restart outbox-cdc", e.id, e.from, e.want)
}
