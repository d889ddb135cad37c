package metrics

import (
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
	name     string
	families *families
	tables   map[*outbox.Table]*tableCounters // made once, then only read

	published, marked, age *histogram

	rowsInMemory, inflightRows, inflightBytes prometheus.Gauge
	lagBytes, lagSeconds, retained            prometheus.Gauge
	leaderGauge, epochGauge, lockForeign      prometheus.Gauge
	modes                                     map[string]prometheus.Gauge
	connections, errors                       prometheus.Counter
	progressed, markWaiting                   prometheus.Gauge
	markRetries, markLocked, leaderships      prometheus.Counter
	publication                               prometheus.Counter
	slot                                      *slot
	topics                                    *topics
	transactions                              *transactions // nil: rows are delivered at least once
	register                                  func(...prometheus.Collector)

	heard   atomic.Int64 // nanoseconds from began to the last wire activity; 0: never
	leading atomic.Bool

	mu                 sync.Mutex
	mode               string
	position           uint64          // the confirmed position that was told last
	usable             map[string]bool // Kafka clusters
	repeated, setAside int64           // what MarkStats told last
}

// tableCounters are a table's counters, its labels resolved.
type tableCounters struct {
	name                          string
	decoded, published            prometheus.Counter
	marked, left                  prometheus.Counter
	row, budget, topic, writeBack prometheus.Counter
	marks                         [len(markOutcomes)]prometheus.Counter
	relay                         *relay // the replaced relay's own metrics, or nil
}

// markOutcomes are the labels of marks_total, by outbox.MarkState.
var markOutcomes = [...]string{
	outbox.MarkedSent: "sent", outbox.MarkedRetry: "retry", outbox.MarkedFailed: "failed",
	outbox.MarkedSettled: "settled", outbox.MarkedInvisible: "invisible", outbox.MarkedRefused: "refused",
}

// Classes of failures, as labels.
const (
	ClassRow       = "row"
	ClassBudget    = "budget"
	ClassTopic     = "topic"
	ClassWriteBack = "write_back"
)

var modes = []string{"standby", "stream", "hold", "sweep", "paused", "shadow"}

// Stream makes the metrics of a stream, all at 0. walBudget is in bytes. A
// stream's name may be used once.
func (r *Registry) Stream(name string, tables []*outbox.Table, walBudget uint64) *Stream {
	f := &r.families
	labels := prometheus.Labels{"stream": name}
	s := &Stream{
		name:          name,
		families:      f,
		tables:        map[*outbox.Table]*tableCounters{},
		published:     newHistogram("publish_latency_seconds", "From sending a row's batch to Kafka to its acknowledgement, each row counted.", labels),
		marked:        newHistogram("mark_latency_seconds", "How long the statement that marked a row took, commit included, each row counted.", labels),
		age:           newHistogram("created_to_published_seconds", "From a row's created_at, by the database's or application's clock, to its acknowledgement, by this process's clock.", labels),
		rowsInMemory:  f.rowsInMemory.WithLabelValues(name),
		inflightRows:  f.inflightRows.WithLabelValues(name),
		inflightBytes: f.inflightBytes.WithLabelValues(name),
		lagBytes:      f.lagBytes.WithLabelValues(name),
		lagSeconds:    f.lagSeconds.WithLabelValues(name),
		retained:      f.retained.WithLabelValues(name),
		leaderGauge:   f.leader.WithLabelValues(name),
		epochGauge:    f.epoch.WithLabelValues(name),
		lockForeign:   f.lockForeign.WithLabelValues(name),
		modes:         map[string]prometheus.Gauge{},
		connections:   f.connections.WithLabelValues(name),
		errors:        f.errors.WithLabelValues(name),
		progressed:    f.progressed.WithLabelValues(name),
		markWaiting:   f.markWaiting.WithLabelValues(name),
		markRetries:   f.markRetries.WithLabelValues(name),
		markLocked:    f.markLocked.WithLabelValues(name),
		leaderships:   f.leaderships.WithLabelValues(name),
		publication:   f.publication.WithLabelValues(name),
		slot:          newSlot(f, name),
		topics:        newTopics(f, name),
		usable:        map[string]bool{},
	}
	s.register = r.prometheus.MustRegister
	for _, t := range tables {
		s.tables[t] = f.table(name, t.String())
		s.tables[t].relay = r.relay(t.Mapping.MetricsCompat)
	}
	for _, m := range modes {
		s.modes[m] = f.mode.WithLabelValues(name, m)
	}
	f.budget.WithLabelValues(name).Set(float64(walBudget))
	s.register(s.published, s.marked, s.age, s.silence())
	return s
}

func (f *families) table(stream, table string) *tableCounters {
	c := &tableCounters{
		name:      table,
		decoded:   f.decoded.WithLabelValues(stream, table),
		published: f.published.WithLabelValues(stream, table),
		marked:    f.marked.WithLabelValues(stream, table),
		left:      f.left.WithLabelValues(stream, table),
		row:       f.failed.WithLabelValues(stream, table, ClassRow),
		budget:    f.failed.WithLabelValues(stream, table, ClassBudget),
		topic:     f.failed.WithLabelValues(stream, table, ClassTopic),
		writeBack: f.failed.WithLabelValues(stream, table, ClassWriteBack),
	}
	for state, outcome := range markOutcomes {
		if outcome != "" {
			c.marks[state] = f.marks.WithLabelValues(stream, table, outcome)
		}
	}
	return c
}

// silence tells how long the replication connection has been quiet.
func (s *Stream) silence() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "replication_silence_seconds",
		Help:        "Since the last message on the replication connection. 0: never connected.",
		ConstLabels: prometheus.Labels{"stream": s.name},
	}, func() float64 {
		if at := s.Status().Heard; !at.IsZero() {
			return time.Since(at).Seconds()
		}
		return 0
	})
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

// Decoded counts pending rows from the log.
func (s *Stream) Decoded(rows []*outbox.Row) {
	s.each(rows, func(c *tableCounters, n int) {
		c.decoded.Add(float64(n))
		c.relay.looked()
	})
}

// Left counts rows from the log that are left to others.
func (s *Stream) Left(t *outbox.Table, n int) {
	if c := s.tables[t]; c != nil {
		c.left.Add(float64(n))
	}
}

// Swept counts rows that a sweep read, by the cause of their park.
func (s *Stream) Swept(cause outbox.Cause, rows []*outbox.Row) {
	s.each(rows, func(c *tableCounters, n int) {
		s.families.swept.WithLabelValues(s.name, c.name, string(cause)).Add(float64(n))
		c.relay.looked()
	})
}

// Missed counts rows that the watcher found.
func (s *Stream) Missed(cause outbox.Cause, n int) {
	s.families.missed.WithLabelValues(s.name, string(cause)).Add(float64(n))
}

// Outcome counts what became of rows at the sink.
func (s *Stream) Outcome(o outbox.Outcome, now time.Time) {
	ages := s.topics.outcome(&o, now)
	s.relays(&o, now)
	switch {
	case o.Class == outbox.Delivered:
		s.each(o.Rows, func(c *tableCounters, n int) { c.published.Add(float64(n)) })
		s.age.merge(&ages)
	case o.Class == outbox.Refused:
		s.each(o.Rows, func(c *tableCounters, n int) { c.row.Add(float64(n)) })
	case o.Class == outbox.Withdrawn && o.Err != nil && o.Scope.Kind == outbox.ScopeTopic:
		s.each(o.Rows, func(c *tableCounters, n int) { c.topic.Add(float64(n)) })
	}
}

// Produced counts a batch of a topic that Kafka acknowledged; bytes are before
// compression.
func (s *Stream) Produced(cluster, topic string, rows, bytes int, took time.Duration) {
	s.published.observe(took.Seconds(), rows)
	s.topics.produced(cluster, topic, bytes)
}

// Retried counts a try to send a batch that was not acknowledged. The class is
// one of a few words.
func (s *Stream) Retried(cluster, class string) { s.topics.retried(cluster, class) }

// MarkLatency counts rows whose mark was committed by a statement that took d.
func (s *Stream) MarkLatency(d time.Duration, rows int) { s.marked.observe(d.Seconds(), rows) }

// Marked counts the answers to marks.
func (s *Stream) Marked(answers []outbox.Marked) {
	for i := range answers {
		c := s.tables[answers[i].Row.Table]
		if c == nil || int(answers[i].State) >= len(c.marks) {
			continue
		}
		c.marks[answers[i].State].Inc()
		c.relay.marked(&answers[i])
		switch answers[i].State {
		case outbox.MarkedSent:
			c.marked.Inc()
		case outbox.MarkedFailed:
			c.budget.Inc()
		case outbox.MarkedRefused:
			c.writeBack.Inc()
		case outbox.MarkedRetry, outbox.MarkedSettled, outbox.MarkedInvisible:
		}
	}
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
	s.families.maxRows.WithLabelValues(s.name).Set(float64(rows))
	s.families.maxBytes.WithLabelValues(s.name).Set(float64(bytes))
}

// Slot tells what the server says of the slot, and the forecast of its end.
func (s *Stream) Slot(told *status.Slot) {
	s.retained.Set(float64(told.Retained))
	s.slot.tell(told)
}

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
	s.families.pending.WithLabelValues(s.name, t.String()).Set(float64(b.Rows))
	s.families.oldest.WithLabelValues(s.name, t.String()).Set(b.Oldest.Seconds())
	if c := s.tables[t]; c != nil {
		c.relay.waiting(s.name+" "+c.name, b, time.Now())
	}
}

// Failed tells how many rows of a table are FAILED, and how many others failed and are
// to be sent once more.
func (s *Stream) Failed(t *outbox.Table, rows, resend int64) {
	s.families.failedRows.WithLabelValues(s.name, t.String()).Set(float64(rows))
	if c := s.tables[t]; c != nil {
		c.relay.failed(s.name+" "+c.name, rows, resend)
	}
}

// Uncounted tells that rows of a table could not be counted: what Pending, Failed
// or NeverReady told before is old.
func (s *Stream) Uncounted(t *outbox.Table) {
	s.families.uncounted.WithLabelValues(s.name, t.String()).Inc()
}

// NeverReady tells how many rows of a table nobody will send as they are.
func (s *Stream) NeverReady(t *outbox.Table, rows int64) {
	s.families.neverReady.WithLabelValues(s.name, t.String()).Set(float64(rows))
}

// Recovered counts rows of a table that a dead relay had claimed and that were
// taken up again.
func (s *Stream) Recovered(t *outbox.Table, rows int) {
	s.families.recovered.WithLabelValues(s.name, t.String()).Add(float64(rows))
	if c := s.tables[t]; c != nil {
		c.relay.recovered(rows)
	}
}

// Parked counts a scope that was parked.
func (s *Stream) Parked(p *outbox.Park) {
	s.families.parked.WithLabelValues(s.name, p.Scope.Kind.String(), string(p.Cause)).Inc()
}

// HandedBack counts a scope that went back to the stream.
func (s *Stream) HandedBack(p *outbox.Park) {
	s.families.handedBack.WithLabelValues(s.name, p.Scope.Kind.String()).Inc()
}

// Parks tells everything that is parked.
func (s *Stream) Parks(parks []outbox.Park) {
	s.families.parks.DeletePartialMatch(prometheus.Labels{"stream": s.name})
	s.families.tablePaused.DeletePartialMatch(prometheus.Labels{"stream": s.name})
	counts := map[[2]string]int{}
	for i := range parks {
		counts[[2]string{parks[i].Scope.Kind.String(), string(parks[i].Cause)}]++
		if parks[i].Cause == outbox.CausePaused {
			s.paused(parks[i].Scope)
		}
	}
	for k, n := range counts {
		s.families.parks.WithLabelValues(s.name, k[0], k[1]).Set(float64(n))
	}
}

// paused tells which tables a pause stops.
func (s *Stream) paused(scope outbox.Scope) {
	for t, c := range s.tables {
		if scope == outbox.StreamScope() || scope == outbox.TableScope(t) {
			s.families.tablePaused.WithLabelValues(s.name, c.name).Set(1)
		}
	}
}

// Cluster tells whether a Kafka cluster can be used.
func (s *Stream) Cluster(c outbox.ClusterState) {
	s.families.clusterGood.WithLabelValues(s.name, c.Cluster).Set(number(c.Usable))
	s.mu.Lock()
	defer s.mu.Unlock()
	outages := s.families.clusterOutages.WithLabelValues(s.name, c.Cluster)
	if s.usable[c.Cluster] && !c.Usable {
		outages.Inc()
	}
	s.usable[c.Cluster] = c.Usable
}

// Fenced tells whether former leaders are fenced in a Kafka cluster.
func (s *Stream) Fenced(cluster string, yes bool) {
	s.families.fenced.WithLabelValues(s.name, cluster).Set(number(yes))
}

// ShedLock tells whether an application's lock, as shedlock.Lock.Name gives it,
// is held by this process.
func (s *Stream) ShedLock(lock string, held bool) {
	s.families.shedLocks.WithLabelValues(s.name, lock).Set(number(held))
}

// Mode tells the stream's mode: standby, stream, hold, sweep, paused or shadow.
func (s *Stream) Mode(mode string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mode = mode
	for m, g := range s.modes {
		g.Set(number(m == mode))
	}
}

// Pace tells how many rows per second may be taken, and why no more; 0: any number.
func (s *Stream) Pace(rows float64, reason string) {
	s.families.limit.DeletePartialMatch(prometheus.Labels{"stream": s.name})
	if rows > 0 {
		s.families.limit.WithLabelValues(s.name, reason).Set(rows)
	}
}

// Leading says that this process leads the stream from now on.
func (s *Stream) Leading(epoch int64) {
	s.leading.Store(true)
	s.leaderships.Inc()
	s.leaderGauge.Set(1)
	s.lockForeign.Set(0)
	s.epochGauge.Set(float64(epoch))
}

// Standby says that another process leads and this one waits.
func (s *Stream) Standby() {
	s.rest()
	s.Mode("standby")
}

// LockForeign says, after Standby, that the holder of the leadership lock can be
// no leader.
func (s *Stream) LockForeign() { s.lockForeign.Set(1) }

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
	for _, g := range []prometheus.Gauge{s.leaderGauge, s.epochGauge, s.lockForeign, s.rowsInMemory, s.inflightRows, s.inflightBytes, s.lagBytes, s.lagSeconds, s.retained, s.markWaiting} {
		g.Set(0)
	}
	s.slot.forget()
	s.Parks(nil)
	for _, of := range []*prometheus.GaugeVec{s.families.pending, s.families.oldest, s.families.failedRows, s.families.neverReady, s.families.clusterGood, s.families.fenced, s.families.shedLocks, s.families.limit, s.families.tallyOpen, s.families.waiting, s.families.leftRows} {
		of.DeletePartialMatch(prometheus.Labels{"stream": s.name})
	}
	for _, c := range s.tables {
		c.relay.forget(s.name + " " + c.name)
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
