package metrics

import (
	"cmp"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

// Stream is one stream's metrics, and what readiness is judged by. Its methods
// may be called from any goroutine; the driver calls most of them.
type Stream struct {
	rowMetrics
	slotMetrics
	stateMetrics
	kafkaMetrics
	transactionMetrics
	publishLatency, markLatency, age *histogram

	name     string
	tables   map[*outbox.Table]*tableCounters // made once, then only read
	causes   []string                         // by which transactions are aborted; told before the stream runs
	register func(...prometheus.Collector)

	heard   atomic.Int64 // nanoseconds from began to the last wire activity; 0: never
	leading atomic.Bool

	mu                 sync.Mutex
	mode               string
	position           uint64          // the confirmed position that was told last
	usable             map[string]bool // Kafka clusters
	repeated, setAside int64           // what MarkStats told last

	topicsMu sync.Mutex
	topics   map[topicName]*topicCounters
}

// tableCounters are a table's counters, its labels resolved.
type tableCounters struct {
	name                          string
	decoded, published            prometheus.Counter
	marked, left, changed         prometheus.Counter
	row, budget, topic, writeBack prometheus.Counter
	marks                         [len(markOutcomes)]prometheus.Counter
	relay                         *relay // the replaced relay's own metrics, or nil
}

// markOutcomes are the labels of marks_total, by outbox.MarkState.
var markOutcomes = [...]string{
	outbox.MarkedSent: "sent", outbox.MarkedRetry: "retry", outbox.MarkedFailed: "failed",
	outbox.MarkedSettled: "settled", outbox.MarkedInvisible: "invisible", outbox.MarkedRefused: "refused",
}

// Stream makes the metrics of a stream, all at 0. walBudget is in bytes. A
// stream's name may be used once.
func (r *Registry) Stream(name string, tables []*outbox.Table, walBudget uint64) *Stream {
	labels := prometheus.Labels{"stream": name}
	m := maker{r.prometheus, labels}
	s := &Stream{
		rowMetrics: m.row(), slotMetrics: m.slot(), stateMetrics: m.state(), kafkaMetrics: m.kafka(), transactionMetrics: m.transaction(),
		publishLatency: newHistogram("publish_latency_seconds", "From sending a row's batch to Kafka to its acknowledgement, each row counted.", labels),
		markLatency:    newHistogram("mark_latency_seconds", "How long the statement that marked a row took, commit included, each row counted.", labels),
		age:            newHistogram("created_to_published_seconds", "From a row's created_at, by the database's or application's clock, to its acknowledgement, by this process's clock.", labels),
		name:           name,
		tables:         map[*outbox.Table]*tableCounters{},
		register:       r.prometheus.MustRegister,
		usable:         map[string]bool{},
		topics:         map[topicName]*topicCounters{},
	}
	for _, t := range tables {
		s.tables[t] = s.rowMetrics.table(t.String())
		s.tables[t].relay = r.relay(t.Mapping.MetricsCompat)
	}
	for _, mode := range outbox.Modes {
		s.modes.WithLabelValues(string(mode))
	}
	s.forgetSlot()
	s.budget.Set(float64(walBudget))
	silence := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "replication_silence_seconds",
		Help:        "Since the last message on the replication connection. 0: never connected.",
		ConstLabels: labels,
	}, func() float64 {
		if at := s.Status().Heard; !at.IsZero() {
			return time.Since(at).Seconds()
		}
		return 0
	})
	s.register(s.publishLatency, s.markLatency, s.age, silence)
	return s
}

func (m *rowMetrics) table(name string) *tableCounters {
	c := &tableCounters{
		name:      name,
		decoded:   m.decoded.WithLabelValues(name),
		published: m.published.WithLabelValues(name),
		marked:    m.marked.WithLabelValues(name),
		left:      m.left.WithLabelValues(name),
		changed:   m.changed.WithLabelValues(name),
		row:       m.failed.WithLabelValues(name, "row"),
		budget:    m.failed.WithLabelValues(name, "budget"),
		topic:     m.failed.WithLabelValues(name, "topic"),
		writeBack: m.failed.WithLabelValues(name, "write_back"),
	}
	for state, outcome := range markOutcomes {
		if outcome != "" {
			c.marks[state] = m.marks.WithLabelValues(name, outcome)
		}
	}
	return c
}

// ---- rows, in batches ----

// each calls add once per run of rows of one table.
func (s *Stream) each(rows []*outbox.Row, add func(*tableCounters, int)) {
	for i := 0; i < len(rows); {
		table, first := rows[i].Table, i
		for i < len(rows) && rows[i].Table == table {
			i++
		}
		if c := s.tables[table]; c != nil {
			add(c, i-first)
		}
	}
}

// Decoded counts pending rows from the WAL.
func (s *Stream) Decoded(rows []*outbox.Row) {
	s.each(rows, func(c *tableCounters, n int) {
		c.decoded.Add(float64(n))
		c.relay.tell(func(r *relay) { r.looks.add(1, "") })
	})
}

// Left counts rows from the WAL that are left to others.
func (s *Stream) Left(t *outbox.Table, n int) {
	if c := s.tables[t]; c != nil {
		c.left.Add(float64(n))
	}
}

// Changed counts a row that was not published as its table has it.
func (s *Stream) Changed(t *outbox.Table) {
	if c := s.tables[t]; c != nil {
		c.changed.Inc()
	}
}

// Swept counts rows that a sweep read, by the cause of their park.
func (s *Stream) Swept(cause outbox.Cause, rows []*outbox.Row) {
	s.each(rows, func(c *tableCounters, n int) {
		s.swept.WithLabelValues(c.name, string(cause)).Add(float64(n))
		c.relay.tell(func(r *relay) { r.looks.add(1, "") })
	})
}

// Missed counts rows that the watcher found.
func (s *Stream) Missed(cause outbox.Cause, n int) {
	s.missed.WithLabelValues(string(cause)).Add(float64(n))
}

// Outcome counts what became of rows at the sink, a run of rows of one table and topic at a time.
func (s *Stream) Outcome(o outbox.Outcome, now time.Time) {
	var ages observations // of rows that were delivered
	s.topicsMu.Lock()
	defer s.topicsMu.Unlock()
	for i := 0; i < len(o.Rows); {
		r, first := o.Rows[i], i
		for i < len(o.Rows) && o.Rows[i].Table == r.Table && o.Rows[i].Topic == r.Topic && o.Rows[i].Cluster == r.Cluster {
			i++
		}
		s.topicOutcome(o.Class, o.Rows[first:i], &ages, now)
		if c := s.tables[r.Table]; c != nil {
			c.outcome(&o, r.Topic, i-first, now)
		}
	}
	if o.Class == outbox.Delivered {
		s.age.merge(&ages)
	}
}

func (c *tableCounters) outcome(o *outbox.Outcome, topic string, n int, now time.Time) {
	switch {
	case o.Class == outbox.Delivered:
		c.published.Add(float64(n))
	case o.Class == outbox.Refused:
		c.row.Add(float64(n))
	case o.Class == outbox.Withdrawn && o.Err != nil && o.Scope.Kind == outbox.ScopeTopic:
		c.topic.Add(float64(n))
	}
	c.relay.tell(func(r *relay) { r.outcome(o, topic, n, now) })
}

// Produced counts a batch of a topic that Kafka acknowledged; bytes are before
// compression.
func (s *Stream) Produced(cluster, topic string, rows, bytes int, took time.Duration) {
	s.publishLatency.observe(took.Seconds(), rows)
	s.batches.WithLabelValues(cluster).Inc()
	s.topicsMu.Lock()
	defer s.topicsMu.Unlock()
	s.topic(topicName{cluster, topic}).bytes.Add(float64(bytes))
}

// Retried counts a try to send a batch that was not acknowledged. The class is
// one of a few words.
func (s *Stream) Retried(cluster, class string) { s.retries.WithLabelValues(cluster, class).Inc() }

// Throttled counts how long a broker asks us to wait.
func (s *Stream) Throttled(cluster string, d time.Duration) {
	s.throttled.WithLabelValues(cluster).Add(d.Seconds())
}

// MarkLatency counts rows whose mark was committed by a statement that took d.
func (s *Stream) MarkLatency(d time.Duration, rows int) { s.markLatency.observe(d.Seconds(), rows) }

// Marked counts the answers to marks.
func (s *Stream) Marked(answers []outbox.Marked) {
	for i := range answers {
		c := s.tables[answers[i].Row.Table]
		if c == nil || int(answers[i].State) >= len(c.marks) {
			continue
		}
		c.marks[answers[i].State].Inc()
		switch answers[i].State {
		case outbox.MarkedSent:
			c.marked.Inc()
			c.relay.tell(func(r *relay) { r.published.add(1, "") })
		case outbox.MarkedFailed:
			c.budget.Inc()
			c.relay.tell(func(r *relay) { r.failed.add(1, "") })
		case outbox.MarkedRefused:
			c.writeBack.Inc()
		case outbox.MarkedRetry, outbox.MarkedSettled, outbox.MarkedInvisible:
		}
	}
}

// Rows are how many rows of all tables something became of, since the process began.
type Rows struct {
	// Published rows: Kafka acknowledged them.
	Published uint64
	// Sent rows were marked so.
	Sent uint64
	// Refused is how often Kafka refused a row.
	Refused uint64
	// Failed rows became FAILED.
	Failed uint64
	// Left rows were read from the WAL, and are for others.
	Left uint64
}

// Rows reads the counters back: who tells of rows counts them only here.
func (s *Stream) Rows() (sum Rows) {
	for _, c := range s.tables {
		sum.Published += countOf(c.published)
		sum.Sent += countOf(c.marked)
		sum.Refused += countOf(c.row)
		sum.Failed += countOf(c.budget)
		sum.Left += countOf(c.left)
	}
	return sum
}

// ---- states ----

// Memory tells how many rows are in memory, how many of them in flight, and
// their bytes.
func (s *Stream) Memory(rows, inFlight, bytes int) {
	s.rowsInMemory.Set(float64(rows))
	s.inflightRows.Set(float64(inFlight))
	s.inflightBytes.Set(float64(bytes))
}

// Lag tells how far the confirmed position is behind the server's end, and for
// how long something has been waiting.
func (s *Stream) Lag(bytes uint64, waiting time.Duration) {
	s.lagBytes.Set(float64(bytes))
	s.lagSeconds.Set(waiting.Seconds())
}

// Limits tells the bounds of memory from the configuration.
func (s *Stream) Limits(rows, bytes int) {
	s.maxRows.Set(float64(rows))
	s.maxBytes.Set(float64(bytes))
}

// slotStates are the words of pg_replication_slots.wal_status, and our own for
// a slot that is not there.
// https://www.postgresql.org/docs/current/view-pg-replication-slots.html
var slotStates = []string{"reserved", "extended", "unreserved", "lost", slotMissing}

const slotMissing = "missing"

// Slot tells what the server says of the slot, and the forecast of its end.
func (s *Stream) Slot(told *status.Slot) {
	s.retained.Set(float64(told.Retained))
	safe, lostIn := math.Inf(1), math.Inf(1) // no bound, not at this rate
	if told.Safe != nil {
		safe = float64(*told.Safe)
	}
	if told.Loss != nil {
		lostIn = told.Loss.Seconds
	}
	s.setSlot(cmp.Or(told.WALStatus, slotMissing), safe, lostIn)
}

// setSlot sets what only a leader knows; an empty state and infinities say nothing.
func (s *Stream) setSlot(state string, safe, lostIn float64) {
	for _, name := range slotStates {
		s.slotState.WithLabelValues(name).Set(number(name == state))
	}
	s.safeWAL.Set(safe)
	s.lostIn.Set(lostIn)
}

func (s *Stream) forgetSlot() { s.setSlot("", math.Inf(1), math.Inf(1)) }

// Confirmed tells the confirmed position.
func (s *Stream) Confirmed(position uint64, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if position != s.position {
		s.position = position
		s.progressed.Set(float64(now.UnixMilli()) / 1000)
	}
}

// PublicationChanged counts a change after which rows may have been passed over.
func (s *Stream) PublicationChanged() { s.publication.Inc() }

// SlotLost says that the server gave the slot up.
func (s *Stream) SlotLost() { s.slotsLost.Inc() }

// MarkStats tells how many marks wait, and what one updater has counted so far:
// statements that were repeated and rows that were set aside.
func (s *Stream) MarkStats(waiting, repeated, setAside int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.markWaiting.Set(float64(waiting))
	s.markRetries.Add(float64(grown(s.repeated, repeated)))
	s.markLocked.Add(float64(grown(s.setAside, setAside)))
	s.repeated, s.setAside = repeated, setAside
}

// grown is by how much a count grew; it restarted from zero where it is less.
func grown(before, now int64) int64 {
	if now < before {
		return now
	}
	return now - before
}

// Backlog is what counting a table's rows found.
type Backlog struct {
	// Rows are to be published; Ready are those of them whose time has come.
	Rows, Ready int64
	// Oldest is the age of the oldest of Ready; 0: none.
	Oldest time.Duration
	// Took is how long counting took.
	Took time.Duration
}

// Pending tells what waits in a table.
func (s *Stream) Pending(t *outbox.Table, b Backlog) {
	s.pending.WithLabelValues(t.String()).Set(float64(b.Rows))
	s.oldest.WithLabelValues(t.String()).Set(b.Oldest.Seconds())
	s.relay(t).tell(func(r *relay) {
		r.gauges[s.name+" "+t.String()] = b
		r.query.add(b.Took.Seconds(), 1, time.Now())
		r.looks.add(1, "")
	})
}

// Failed tells how many rows of a table are FAILED, and how many others failed and are
// to be sent once more.
func (s *Stream) Failed(t *outbox.Table, rows, resend int64) {
	s.failedRows.WithLabelValues(t.String()).Set(float64(rows))
	s.relay(t).tell(func(r *relay) { r.states[s.name+" "+t.String()] = states{rows, resend} })
}

// Uncounted tells that rows of a table could not be counted: what Pending, Failed
// or NeverReady told before is old.
func (s *Stream) Uncounted(t *outbox.Table) {
	s.uncounted.WithLabelValues(t.String()).Inc()
}

// NeverReady tells how many rows of a table nobody will send as they are.
func (s *Stream) NeverReady(t *outbox.Table, rows int64) {
	s.neverReady.WithLabelValues(t.String()).Set(float64(rows))
}

// Recovered counts rows of a table that another relay had taken and left; they are pending again.
func (s *Stream) Recovered(t *outbox.Table, rows int) {
	s.recovered.WithLabelValues(t.String()).Add(float64(rows))
	s.relay(t).tell(func(r *relay) { r.stuck.add(rows, "") })
}

// Parked counts a scope that was parked.
func (s *Stream) Parked(p *outbox.Park) {
	s.parked.WithLabelValues(p.Scope.Kind.String(), string(p.Cause)).Inc()
}

// HandedBack counts a scope that went back to the stream.
func (s *Stream) HandedBack(p *outbox.Park) {
	s.handedBack.WithLabelValues(p.Scope.Kind.String()).Inc()
}

// Parks tells everything that is parked.
func (s *Stream) Parks(parks []outbox.Park) {
	s.parks.Reset()
	s.tablePaused.Reset()
	counts := map[[2]string]int{}
	for i := range parks {
		scope, cause := parks[i].Scope, parks[i].Cause
		counts[[2]string{scope.Kind.String(), string(cause)}]++
		if cause != outbox.CausePaused { // there may be thousands
			continue
		}
		for t, c := range s.tables {
			if scope == outbox.StreamScope() || scope == outbox.TableScope(t) {
				s.tablePaused.WithLabelValues(c.name).Set(1)
			}
		}
	}
	for k, n := range counts {
		s.parks.WithLabelValues(k[0], k[1]).Set(float64(n))
	}
}

// Cluster tells whether a Kafka cluster can be used.
func (s *Stream) Cluster(c outbox.ClusterState) {
	s.clusterGood.WithLabelValues(c.Cluster).Set(number(c.Usable))
	s.mu.Lock()
	defer s.mu.Unlock()
	outages := s.clusterOutages.WithLabelValues(c.Cluster) // at 0 before the first
	if s.usable[c.Cluster] && !c.Usable {
		outages.Inc()
	}
	s.usable[c.Cluster] = c.Usable
}

// Fenced tells whether former leaders are fenced in a Kafka cluster.
func (s *Stream) Fenced(cluster string, yes bool) {
	s.fenced.WithLabelValues(cluster).Set(number(yes))
}

// ShedLock tells whether an application's lock, as shedlock.Lock.Name gives it,
// is held by this process.
func (s *Stream) ShedLock(lock string, held bool) {
	s.shedLocks.WithLabelValues(lock).Set(number(held))
}

// Mode tells the stream's mode: standby, stream, hold, sweep, paused or shadow.
func (s *Stream) Mode(mode string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mode = mode
	for _, of := range outbox.Modes {
		s.modes.WithLabelValues(string(of)).Set(number(string(of) == mode))
	}
}

// Pace tells how many rows per second may be taken, and why no more; 0: any number.
func (s *Stream) Pace(rows float64, reason string) {
	s.limit.Reset()
	if rows > 0 {
		s.limit.WithLabelValues(reason).Set(rows)
	}
}

// Findings registers how many findings of each level a stream has: as many as its status says, at the time of
// the scrape.
func (s *Stream) Findings(of func() status.Stream) {
	s.register(findings{prometheus.NewDesc(namespace+"_findings", "Findings about the stream, by level, as in the status.",
		[]string{"level"}, prometheus.Labels{"stream": s.name}), of})
}

type findings struct {
	desc *prometheus.Desc
	of   func() status.Stream
}

// Describe is part of prometheus.Collector.
func (f findings) Describe(to chan<- *prometheus.Desc) { to <- f.desc }

// Collect is part of prometheus.Collector.
func (f findings) Collect(to chan<- prometheus.Metric) {
	counts := map[string]int{status.Bad: 0, status.Warn: 0, status.Note: 0}
	for _, found := range f.of().Findings {
		counts[found.Level]++
	}
	for level, n := range counts {
		to <- prometheus.MustNewConstMetric(f.desc, prometheus.GaugeValue, float64(n), level)
	}
}

// Leading says that this process leads the stream from now on.
func (s *Stream) Leading(epoch int64) {
	s.leading.Store(true)
	s.leaderships.Inc()
	s.leader.Set(1)
	s.lockForeign.Set(0)
	s.epoch.Set(float64(epoch))
}

// Standby says that another process leads and this one waits.
func (s *Stream) Standby() {
	s.rest()
	s.Mode(string(outbox.ModeStandby))
}

// LockForeign says, after Standby, that the holder of the leadership lock can be
// no leader.
func (s *Stream) LockForeign() { s.lockForeign.Set(1) }

// LeadLost says that the connection that holds the lead, or waits for it, has ended: who leads is not known.
func (s *Stream) LeadLost() {
	s.leading.Store(false)
	s.heard.Store(0)
	s.leader.Set(0)
	s.Mode("")
}

// Stopped says that the stream does not work; it will restart.
func (s *Stream) Stopped() {
	s.rest()
	s.Mode("")
	s.errors.Inc()
}

// rest sets to 0 what only a leader has.
func (s *Stream) rest() {
	s.leading.Store(false)
	s.heard.Store(0)
	for _, g := range []prometheus.Gauge{s.leader, s.epoch, s.lockForeign, s.rowsInMemory, s.inflightRows, s.inflightBytes, s.lagBytes, s.lagSeconds, s.retained, s.markWaiting} {
		g.Set(0)
	}
	s.forgetSlot()
	s.Parks(nil)
	for _, of := range []*prometheus.GaugeVec{s.pending, s.oldest, s.failedRows, s.neverReady, s.clusterGood, s.fenced, s.shedLocks, s.limit, s.tallyOpen, s.waiting, s.leftRows, s.unended} {
		of.Reset()
	}
	for _, c := range s.tables {
		c.relay.tell(func(r *relay) {
			delete(r.gauges, s.name+" "+c.name)
			delete(r.states, s.name+" "+c.name)
		})
	}
}

// Connected counts a replication connection.
func (s *Stream) Connected() { s.connections.Inc() }

// Heard says that a message came on the replication connection.
func (s *Stream) Heard(at time.Time) { s.heard.Store(max(1, int64(at.Sub(began)))) }

// began keeps its monotonic reading: a clock that is set must not look like silence.
var began = time.Now()

// Status is what readiness is judged by.
type Status struct {
	// Mode is standby, stream, hold, sweep, paused or shadow; empty: not working yet or any more.
	Mode string
	// Leader says whether this process leads.
	Leader bool
	// Heard is the time of the last message on the replication connection, or zero.
	Heard time.Time
}

// Status returns the stream's state.
func (s *Stream) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{Mode: s.mode, Leader: s.leading.Load()}
	if ns := s.heard.Load(); ns != 0 {
		st.Heard = began.Add(time.Duration(ns))
	}
	return st
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
