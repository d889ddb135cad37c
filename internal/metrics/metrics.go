// Package metrics keeps a process's Prometheus metrics. A stream's driver reports events to a Stream, one
// batch at a time. Labels are resolved when the Stream is made, so that nothing is looked up for a row. The
// package does not decide, log or start goroutines. docs/metrics.md lists the metrics.
package metrics

import (
	"net/http"
	"runtime"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Registry is a process's metrics. It does not use the library's global registry.
type Registry struct {
	prometheus *prometheus.Registry
	logins     prometheus.Counter

	mu     sync.Mutex
	relays map[string]*relay // by the layout whose names they keep alive
}

// New makes the registry for a process of this version and commit.
func New(version, commit string) *Registry {
	r := &Registry{prometheus: prometheus.NewRegistry(), relays: map[string]*relay{}}
	r.logins = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: namespace, Name: "http_logins_refused_total",
		Help: "HTTP requests with wrong credentials, or with any credentials after too many wrong ones from the same address.",
	})
	r.prometheus.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), r.logins)
	r.info("build_info", "Always 1; the labels name the running version.",
		prometheus.Labels{"version": version, "commit": commit, "go_version": runtime.Version()})
	return r
}

// Configuration exports the hash of the configuration, so that processes with different ones can be found.
func (r *Registry) Configuration(hash string) {
	r.info("config_info", "Always 1; the hash of the configuration, without its secrets, is in the label.", prometheus.Labels{"hash": hash})
}

func (r *Registry) info(name, help string, labels prometheus.Labels) {
	r.prometheus.MustRegister(prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help, ConstLabels: labels}, func() float64 { return 1 },
	))
}

// RefusedLogin counts a login over HTTP with wrong credentials.
func (r *Registry) RefusedLogin() { r.logins.Inc() }

// Handler returns the handler that serves the metrics.
func (r *Registry) Handler() http.Handler {
	return promhttp.HandlerFor(r.prometheus, promhttp.HandlerOpts{Registry: r.prometheus, EnableOpenMetrics: true})
}

const namespace = "outbox_cdc"

// maker makes and registers metrics of one stream. The stream's name is a label of each.
type maker struct {
	registry *prometheus.Registry
	stream   prometheus.Labels
}

func (m maker) counters(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help, ConstLabels: m.stream}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m maker) gauges(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help, ConstLabels: m.stream}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m maker) counter(name, help string) prometheus.Counter {
	return m.counters(name, help).WithLabelValues()
}

func (m maker) gauge(name, help string) prometheus.Gauge {
	return m.gauges(name, help).WithLabelValues()
}

// rowMetrics are about rows on their way from the WAL or the table to their marks.
type rowMetrics struct {
	decoded, published, marked, swept, marks, failed, missed, recovered, shadowRows, left, changed *prometheus.CounterVec
	markRetries, markLocked                                                                        prometheus.Counter
	markWaiting, rowsInMemory, inflightRows, inflightBytes, maxRows, maxBytes                      prometheus.Gauge
}

func (m maker) row() rowMetrics {
	return rowMetrics{
		decoded:   m.counters("rows_decoded_total", "Rows read from the write-ahead log in their pending state.", "table"),
		published: m.counters("rows_published_total", "Rows that Kafka acknowledged.", "table"),
		marked:    m.counters("rows_marked_total", "Rows whose success was written back and committed.", "table"),
		swept:     m.counters("rows_swept_total", "Rows read from the table instead of the WAL, by the cause of the park.", "table", "cause"),
		marks: m.counters("marks_total", "Answers of the database to marks. sent: written; retry: one attempt charged; failed: FAILED now; settled: "+
			"terminal already or gone; invisible: not visible yet, asked again; refused: by the database.", "table", "outcome"),
		failed: m.counters("rows_failed_total", "Failures of rows. Class row: refused by itself, one attempt charged; budget: its attempts are used up, it is FAILED; "+
			"topic: given back because of its topic, nothing charged; write_back: the database refused the mark.", "table", "class"),
		missed:      m.counters("rows_missed_total", "Pending rows found in the table that the WAL did not carry, by cause.", "cause"),
		recovered:   m.counters("rows_recovered_total", "Rows that another relay took and left, and that were made pending again.", "table"),
		markWaiting: m.gauge("mark_waiting_rows", "Rows whose mark was asked for and not answered."),
		markRetries: m.counter("mark_retries_total", "Marking statements that failed and were repeated."),
		markLocked:  m.counter("mark_locked_rows_total", "Rows set aside because somebody else had them locked; they are tried again."),
		shadowRows: m.counters("shadow_rows_total", "Rows that a stream in shadow read and did not publish. record: it would have published them; "+
			"error: they cannot become a record. Topics beyond the first 200 of a stream count as other.", "table", "topic", "outcome"),
		changed:       m.counters("rows_changed_total", "Rows of a sample, at most one a second, that the application changed after they were read and before they were marked: other content was published (look_first).", "table"),
		left:          m.counters("rows_left_total", "Rows read from the write-ahead log that the mapping leaves to others (rows, otherwise: leave). A publication's row filter holds them back.", "table"),
		rowsInMemory:  m.gauge("memory_rows", "Rows in memory: queued, sent, waiting to be marked, or kept."),
		inflightRows:  m.gauge("inflight_rows", "Rows between publishing and the end of their marking."),
		inflightBytes: m.gauge("inflight_bytes", "Bytes of all rows in memory (memory_rows), in flight or not, and 512 for each row. memory.bytes bounds them."),
		maxRows:       m.gauge("memory_limit_rows", "The bound of memory_rows from the configuration (memory.rows)."),
		maxBytes:      m.gauge("memory_limit_bytes", "The bound of inflight_bytes from the configuration (memory.bytes)."),
	}
}

// slotMetrics are about the replication connection and what the slot holds back.
type slotMetrics struct {
	connections, publication, slotsLost                                 prometheus.Counter
	lagBytes, lagSeconds, retained, budget, safeWAL, lostIn, progressed prometheus.Gauge
	slotState                                                           *prometheus.GaugeVec
}

func (m maker) slot() slotMetrics {
	return slotMetrics{
		lagBytes:    m.gauge("replication_lag_bytes", "WAL between the server's end and the confirmed position."),
		lagSeconds:  m.gauge("replication_lag_seconds", "How long ago everything in the WAL was last confirmed. 0: nothing is waiting."),
		retained:    m.gauge("retained_wal_bytes", "WAL that the slot holds back on the server's disk."),
		budget:      m.gauge("wal_budget_bytes", "The bound of retained_wal_bytes from the configuration (wal_budget)."),
		safeWAL:     m.gauge("slot_safe_wal_bytes", "WAL that may still be written before the server may drop the slot (safe_wal_size). +Inf: the server sets no bound."),
		slotState:   m.gauges("slot_state", "1 for the slot's state, 0 for the others: reserved, extended, unreserved, lost, missing.", "state"),
		lostIn:      m.gauge("slot_lost_in_seconds", "Seconds until the WAL that is held back reaches its budget or the server's bound, at the rate of the last minutes. +Inf: never at this rate, or not measured for a minute yet."),
		progressed:  m.gauge("last_progress_timestamp_seconds", "When the confirmed position last moved, in seconds since 1970. 0: not yet."),
		slotsLost:   m.counter("slots_lost_total", "Slots that the server gave up. Their rows are read from the table."),
		connections: m.counter("replication_connections_total", "Replication connections made."),
		publication: m.counter("publication_changes_total", "Times that the publication was found changed so that rows may have been passed over."),
	}
}

// stateMetrics are about the stream and what waits in its tables.
type stateMetrics struct {
	leaderships, errors                                                                  prometheus.Counter
	leader, lockForeign, epoch                                                           prometheus.Gauge
	parked, handedBack, uncounted                                                        *prometheus.CounterVec
	modes, limit, parks, shedLocks, pending, failedRows, neverReady, oldest, tablePaused *prometheus.GaugeVec
}

func (m maker) state() stateMetrics {
	return stateMetrics{
		modes:       m.gauges("mode", "1 for the stream's mode, 0 for the others: standby, stream, hold, sweep, paused, shadow.", "mode"),
		limit:       m.gauges("limit_rows_per_second", "How fast rows may be taken at most, where something limits it, by reason: configured, standby_lag, lock_waits, recovering.", "reason"),
		leader:      m.gauge("leader", "1 while this process leads the stream."),
		lockForeign: m.gauge("leadership_lock_foreign", "1 while this process cannot lead because a session that can be no leader holds the leadership lock."),
		epoch:       m.gauge("leader_epoch", "The number of the stream's leadership, while this process leads."),
		leaderships: m.counter("leaderships_total", "Times that this process took the lead."),
		errors:      m.counter("stream_errors_total", "Times that the stream stopped working and restarted."),
		parks:       m.gauges("parks", "Scopes left to the sweeper, by scope and cause.", "scope", "cause"),
		parked:      m.counters("parked_total", "Scopes that were parked, by scope and cause.", "scope", "cause"),
		handedBack:  m.counters("handed_back_total", "Scopes that were handed back from the sweeper to the stream.", "scope"),
		shedLocks:   m.gauges("shedlock_held", "1 while the application's own lock is held, so that its relay rests; 0 while it is waited for.", "lock"),
		pending:     m.gauges("pending_rows", "Rows in the table that are still to be published, at the last count. At most 100,000 are counted.", "table"),
		failedRows:  m.gauges("failed_rows", "Rows in the table that are FAILED, at the last count. At most 100,000 are counted.", "table"),
		neverReady:  m.gauges("never_ready_rows", "Pending rows that neither their writer nor anybody else will send as they are, at the last count. At most 100,000 are counted.", "table"),
		oldest:      m.gauges("pending_oldest_age_seconds", "Age of the oldest row still to be published whose time has come, at the last count. 0: none.", "table"),
		tablePaused: m.gauges("table_paused", "1 while an operator has paused the table, or its stream; else left out.", "table"),
		uncounted:   m.counters("count_errors_total", "Counts of a table's rows that failed: its gauges stay at the last count. The log has the reason.", "table"),
	}
}

// kafkaMetrics are about what Kafka answered.
type kafkaMetrics struct {
	topicRows, topicBytes, batches, retries, throttled, clusterOutages *prometheus.CounterVec
	clusterGood, fenced                                                *prometheus.GaugeVec
}

func (m maker) kafka() kafkaMetrics {
	return kafkaMetrics{
		clusterGood: m.gauges("kafka_usable", "1 while the Kafka cluster can be used.", "cluster"),
		fenced:      m.gauges("kafka_fenced", "1 while former leaders are fenced in the Kafka cluster; 0: the transactional id may not be used, or the brokers have no transactions. Left out with fencing: off.", "cluster"),
		topicRows: m.counters("topic_rows_total", "Rows by their outcome at Kafka: published, refused by themselves, or withdrawn "+
			"(given back unsent). Topics beyond the first 200 of a stream count as other.", "cluster", "topic", "outcome"),
		topicBytes:     m.counters("topic_bytes_total", "Bytes of acknowledged records before compression.", "cluster", "topic"),
		batches:        m.counters("kafka_batches_total", "Batches that Kafka acknowledged.", "cluster"),
		retries:        m.counters("kafka_retries_total", "Tries to send a batch that were not acknowledged, by class of the error.", "cluster", "class"),
		throttled:      m.counters("kafka_throttled_seconds_total", "How long brokers asked us to wait before the next request, since a quota was used up.", "cluster"),
		clusterOutages: m.counters("kafka_outages_total", "Times that the Kafka cluster became unusable.", "cluster"),
	}
}
