package preflight

import (
	"context"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/journal"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Journal is the result of examining a stream's journal on one cluster.
type Journal struct {
	Cluster string
	Topic   journal.Topic
	Missing bool
	// Unusable: no broker answered.
	Unusable bool
	// Bootstrap is a broker's address. Replicas is how many replicas the topic would get.
	Bootstrap string
	Replicas  int
	Findings  []Finding
}

// Journals examines the journals of a stream with exactly-once delivery, and nothing else.
func Journals(ctx context.Context, s *Stream, o Options) []Journal {
	g := gathering{o: o.withDefaults(), facts: &Facts{Stream: s, Missing: map[string]string{}}}
	g.kafka(ctx, g.clusters())
	var all []Journal
	for i := range g.facts.Kafka {
		c := &g.facts.Kafka[i]
		one := *g.facts
		one.Kafka = g.facts.Kafka[i : i+1]
		look := Journal{
			Cluster: c.Name, Topic: s.Once.Journals[c.Name], Bootstrap: c.Bootstrap, Replicas: journal.Replicas(c.advertised()),
			Missing: c.Journal != nil && c.Journal.Err == sink.UnknownTopic, Unusable: c.Err != "",
		}
		name := "journal"
		if look.Unusable {
			name, look.Replicas = "brokers", journal.Replicas(3)
		}
		i := slices.IndexFunc(checks(), func(c check) bool { return c.name == name })
		look.Findings = one.judgedBy(&checks()[i])
		all = append(all, look)
	}
	return all
}
