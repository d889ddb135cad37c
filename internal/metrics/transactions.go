package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// transactionMetrics are for streams with exactly-once delivery. Other streams have none.
type transactionMetrics struct {
	committed, aborted           *prometheus.CounterVec
	tallyOpen, waiting, leftRows *prometheus.GaugeVec
	unended                      *prometheus.GaugeVec
	transactionLatency           *histogram
}

func (m maker) transaction() transactionMetrics {
	return transactionMetrics{
		committed: m.counters("transactions_committed_total", "With delivery: exactly_once: Kafka transactions that were committed.", "cluster"),
		aborted: m.counters("transactions_aborted_total", "With delivery: exactly_once: Kafka transactions that were aborted; their rows go into the next one. unanswered: a request had no answer, or one "+
			"that leaves its outcome open; row_refused: Kafka refused a row; stuck: nothing was acknowledged for 5 s; ended_by_kafka: a broker had ended it. "+
			"A transaction that is open when its process dies is not counted.", "cluster", "cause"),
		tallyOpen: m.gauges("tally_open", "With delivery: exactly_once, while this process leads: 1 until a clean stop, since published rows may still lack their marks; 0 after a clean stop, until the journal is read.", "cluster"),
		waiting:   m.gauges("tally_waiting_units", "With delivery: exactly_once: units (up to 1,000 rows of a transaction) behind the tally's head: they are committed, and one of them is not noted in the database yet.", "cluster"),
		leftRows:  m.gauges("tally_left_rows", "With delivery: exactly_once: rows that were published and are marked later, since somebody has them locked or their mark was refused. At most 100,000 are counted.", "cluster"),
		unended: m.gauges("transaction_end_missing", "With delivery: exactly_once: 1 for each partition that lacks the end of a transaction: its leader does not show the marker, or there is no leader. Until then "+
			"the transaction's rows are not marked, or after an abort no row is published to the partition. Left out when there is no such partition.", "cluster", "topic", "partition"),
		transactionLatency: newHistogram("transaction_latency_seconds", "With delivery: exactly_once: from the time that a transaction has its rows until it is committed, aborted tries included, each transaction counted.",
			m.stream),
	}
}

// ExactlyOnce declares that the stream has exactly-once delivery to these clusters, and the possible causes
// of aborted transactions.
func (s *Stream) ExactlyOnce(clusters, causes []string) {
	s.causes = causes
	for _, c := range clusters {
		s.committed.WithLabelValues(c)
		for _, cause := range causes {
			s.aborted.WithLabelValues(c, cause)
		}
	}
	s.register(s.transactionLatency)
}

// Transacted counts the end of a transaction. It was committed (took: the time since it had its rows) or, if
// aborted is not empty, aborted for that cause.
func (s *Stream) Transacted(cluster, aborted string, took time.Duration) {
	if aborted != "" {
		s.aborted.WithLabelValues(cluster, aborted).Inc()
		return
	}
	s.committed.WithLabelValues(cluster).Inc()
	s.transactionLatency.observe(took.Seconds(), 1)
}

// Transactions returns how many transactions of a cluster were committed and aborted since the process began.
func (s *Stream) Transactions(cluster string) (committed, aborted uint64) {
	for _, cause := range s.causes {
		aborted += countOf(s.aborted.WithLabelValues(cluster, cause))
	}
	return countOf(s.committed.WithLabelValues(cluster)), aborted
}

// Unended sets which partitions of a cluster lack the end of a transaction.
func (s *Stream) Unended(cluster string, partitions map[string][]int32) {
	s.unended.DeletePartialMatch(prometheus.Labels{"cluster": cluster})
	for topic, numbers := range partitions {
		for _, n := range numbers {
			s.unended.WithLabelValues(cluster, topic, strconv.Itoa(int(n))).Set(1)
		}
	}
}

// Tally sets the state of a cluster's tally: whether it is open, how many units are noted behind its head,
// and how many rows are left to mark.
func (s *Stream) Tally(cluster string, open bool, waiting uint64, left int64) {
	s.tallyOpen.WithLabelValues(cluster).Set(number(open))
	s.waiting.WithLabelValues(cluster).Set(float64(waiting))
	s.leftRows.WithLabelValues(cluster).Set(float64(left))
}
