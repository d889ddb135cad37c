package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// transactionFamilies are about streams that deliver exactly once. Others have none of them.
type transactionFamilies struct {
	committed, aborted           *prometheus.CounterVec
	tallyOpen, waiting, leftRows *prometheus.GaugeVec
}

func (r *Registry) transactionFamilies() transactionFamilies {
	return transactionFamilies{
		committed: r.counters("transactions_committed_total", "With delivery: exactly_once: Kafka transactions that were committed.", "cluster"),
		aborted: r.counters("transactions_aborted_total", "With delivery: exactly_once: Kafka transactions that were aborted; their rows go into the next one. unanswered: a request had no answer, or none "+
			"that says what became of it; row_refused: Kafka refused a row; stuck: nothing was acknowledged for 5 s; ended_by_kafka: a broker had ended it. "+
			"A transaction that is open when its process dies is not counted.", "cluster", "cause"),
		tallyOpen: r.gauges("tally_open", "With delivery: exactly_once, while this process leads: 1 if rows that were published may not be marked yet, which is so until a clean stop; 0: its journal is not read yet, and a clean stop came before.", "cluster"),
		waiting:   r.gauges("tally_waiting_units", "With delivery: exactly_once: units (up to 1,000 rows of a transaction) behind the tally's head: they are committed, and one of them is not noted in the database yet.", "cluster"),
		leftRows:  r.gauges("tally_left_rows", "With delivery: exactly_once: rows that were published and are marked later, since somebody has them locked or their mark was refused. At most 100,000 are counted.", "cluster"),
	}
}

// transactions are what a stream that delivers exactly once has in addition.
type transactions struct {
	committed map[string]prometheus.Counter // by cluster
	latency   *histogram
}

// ExactlyOnce says that the stream delivers exactly once to these clusters, and by which causes
// transactions are aborted.
func (s *Stream) ExactlyOnce(clusters, causes []string) {
	t := &transactions{
		committed: map[string]prometheus.Counter{},
		latency: newHistogram("transaction_latency_seconds", "With delivery: exactly_once: from the time that a transaction has its rows until it is committed, aborted tries included, each transaction counted.",
			prometheus.Labels{"stream": s.name}),
	}
	for _, c := range clusters {
		t.committed[c] = s.families.committed.WithLabelValues(s.name, c)
		for _, cause := range causes {
			s.families.aborted.WithLabelValues(s.name, c, cause)
		}
	}
	s.transactions = t
	s.register(t.latency)
}

// Transacted counts the end of a transaction: committed, took after it had its rows, or aborted
// by a cause.
func (s *Stream) Transacted(cluster, aborted string, took time.Duration) {
	if aborted != "" {
		s.families.aborted.WithLabelValues(s.name, cluster, aborted).Inc()
		return
	}
	s.transactions.committed[cluster].Inc()
	s.transactions.latency.observe(took.Seconds(), 1)
}

// Tally tells how a cluster's tally is: whether it is open, units behind its head, rows left.
func (s *Stream) Tally(cluster string, open bool, waiting uint64, left int64) {
	s.families.tallyOpen.WithLabelValues(s.name, cluster).Set(number(open))
	s.families.waiting.WithLabelValues(s.name, cluster).Set(float64(waiting))
	s.families.leftRows.WithLabelValues(s.name, cluster).Set(float64(left))
}
