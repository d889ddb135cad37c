package config

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// ExactlyOnce is the value of Stream.Delivery for exactly-once delivery.
const ExactlyOnce = "exactly_once"

// ExactlyOnce reports whether rows are published in Kafka transactions.
func (s *Stream) ExactlyOnce() bool { return s.Delivery == ExactlyOnce }

// JournalOn returns the topic of the stream's journal on a Kafka cluster. The default begins with two
// underscores, so no row may name it, unless topic.allow permits it.
func (s *Stream) JournalOn(c *Cluster) string {
	return cmp.Or(s.Journal.Topic, "__"+c.TransactionalIDPrefix+"-"+s.Name+"-journal")
}

// TransactionRows returns the largest number of rows in one transaction.
func (s *Stream) TransactionRows() int {
	return cmp.Or(s.Transaction.MaxRows, max(1, s.Memory.Rows/3))
}

// Uses reports whether rows of the stream can go to the Kafka cluster.
func (s *Stream) Uses(cluster string) bool {
	for _, t := range s.resolved("") {
		if t.Mapping.Cluster.Leads(cluster) {
			return true
		}
	}
	return false
}

// checkDelivery reports what rules out exactly-once delivery.
func checkDelivery(b *binder, cfg *Config, s *Stream, at string, seen *duplicates) {
	if !s.ExactlyOnce() {
		return
	}
	if s.Transaction.MaxRows > s.Memory.Rows && !b.hasProblem(at+".memory") {
		b.complain(at+".transaction.max_rows", fmt.Sprintf("%d, which is more than memory.rows (%d)", s.Transaction.MaxRows, s.Memory.Rows), "write at most a third of memory.rows, or leave it out")
	}
	for path, t := range s.resolved(at) {
		checkExactlyOnce(b, &t.Mapping, path)
	}
	for _, name := range clusterNames(&cfg.Kafka) {
		if c := cfg.Kafka.Clusters[name]; c != nil && s.Uses(name) {
			checkTransactions(b, s, c, at)
			checkJournal(b, s, c, at, seen)
		}
	}
}

// checkExactlyOnce reports options by which another relay may publish rows of the table. The journal would
// not know of these.
func checkExactlyOnce(b *binder, m *outbox.Mapping, at string) {
	const relayGone = "the other relay is gone"
	for _, c := range []struct {
		key    string
		given  bool
		remove string // under which condition the option is to be removed
	}{
		{"claim", m.Claim != outbox.ClaimNone, relayGone},
		{"head_start", m.HeadStart > 0, relayGone},
		{"shedlock", m.ShedLock.Name != "", relayGone},
		{"writer", m.Writer.Column != "", "writers send nothing by themselves"},
		{"status.processing", m.Status.Processing != "", relayGone},
	} {
		if path := join(at, c.key); c.given && !b.hasProblem(path) {
			b.complain(path, "cannot be combined with delivery: exactly_once: what another relay publishes can come twice", "remove it when "+c.remove+", or write delivery: at_least_once")
		}
	}
}

// checkTransactions reports a cluster without fencing: a leader that cannot be fenced could publish rows a
// second time.
func checkTransactions(b *binder, s *Stream, c *Cluster, at string) {
	fencing := join("kafka.clusters", c.Name) + ".fencing"
	if c.Fencing != FencingRequired && !b.hasProblem(fencing) {
		b.complain(fencing, fmt.Sprintf("%s, and stream %s has delivery: exactly_once, which publishes nothing without fencing", c.Fencing, s.Name), "write fencing: required")
	}
	if timeout := at + ".transaction.timeout"; s.Transaction.Timeout <= c.RequestTimeout && !b.hasProblem(timeout) {
		b.complain(timeout, fmt.Sprintf("%s is not longer than request_timeout of cluster %s (%s)", s.Transaction.Timeout, c.Name, c.RequestTimeout), "make it three times as long: one request may take all of request_timeout")
	}
}

// checkJournal reports a journal that is used twice. A journal belongs to one stream on one cluster, and
// holds nothing else. Two names of clusters may lead to the same brokers.
func checkJournal(b *binder, s *Stream, c *Cluster, at string, seen *duplicates) {
	topic, path := s.JournalOn(c), at+".journal.topic"
	if b.hasProblem(path) || b.hasProblem(at+".name") {
		return
	}
	if !isTopic(topic) {
		b.complain(path, fmt.Sprintf("%q is not a topic", topic), "write 1 to 249 letters, digits, dots, - or _")
		return
	}
	for table, t := range s.resolved(at) {
		if slices.Contains(t.Mapping.Topic.Known(), topic) {
			b.complain(table+".topic", fmt.Sprintf("%q is the stream's journal", topic), "publish to another topic, or write journal: {topic: …}")
		}
	}
	for _, broker := range slices.Compact(slices.Sorted(slices.Values(c.Brokers))) {
		if b.hasProblem(path) {
			return
		}
		seen.add("journal "+topic+" on "+broker, path, fmt.Sprintf("the journal %q on broker %s", topic, broker), "give each stream, and each cluster, a journal of its own")
	}
}
