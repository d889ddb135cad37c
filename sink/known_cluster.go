package sink

import (
	"fmt"
	"sync"

	"github.com/IBM/sarama"
)

// KnownCluster holds the connections of a Sink, and of the Sinks after it, to the first one's cluster. If another
// cluster came to stand behind an address, the rows it took would be SENT but not where they belong. The zero
// value has seen no cluster.
type KnownCluster struct {
	mu sync.Mutex
	// id is the cluster's, as the broker at from told it first; empty: none has. It never changes: who
	// replaces a cluster restarts the process.
	id, from string
	// topic is one to ask brokers about: asked about none, they would tell of all.
	topic string
}

// idBytes is how much of a cluster's id is looked at. Kafka's have 22 bytes.
const idBytes = 64

// heard takes what a broker says of its cluster when it is asked about topics. Some do not name it.
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

// judge asks a broker that was just connected to for its cluster, which takes a topic to ask about. While none is known
// no row leaves, and the answer that brings the first goes through heard.
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

// otherCluster says that a broker belongs to another cluster than the first one.
type otherCluster struct{ id, want, from string }

func (e *otherCluster) Error() string {
	return fmt.Sprintf("it belongs to cluster %q, but %s belongs to %q: correct brokers, or the brokers' advertised.listeners; if the cluster was replaced, restart outbox-cdc", e.id, e.from, e.want)
}
