package metrics

import (
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// This file keeps the metric names of replaced relays alive, in the form in which Micrometer's Prometheus
// registry prints them: dots become underscores, a counter ends in _total, and a timer is a summary of
// seconds without quantiles, with a gauge _max next to it. docs/metrics.md says what each metric means here.
// https://docs.micrometer.io/micrometer/reference/implementations/prometheus.html

// The layouts whose metric names are known.
const (
	compatIM2BE  = "im2be"
	compatAdvert = "advert-market"
	compatJEAP   = "jeap"
)

// relay exports the metric names of one layout. The old relays knew one table, so their metrics have no label
// for it: the values of several tables of one layout are added up. A metric that the layout has no name for
// is nil.
type relay struct {
	mu     sync.Mutex
	gauges map[string]Backlog // by stream and table, for those that this process leads
	states map[string]states

	looks, published, refused, failed, stuck *counted
	publishing, transmit, query              *timed
	describe                                 []*prometheus.Desc
	collect                                  func(chan<- prometheus.Metric)
}

type states struct{ failed, resend int64 }

// relay returns the layout's metrics. They are made when the first table asks for them.
func (r *Registry) relay(layout string) *relay {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.relays[layout]; known != nil {
		return known
	}
	made := map[string]func() *relay{compatIM2BE: newIM2BE, compatAdvert: newAdvertMarket, compatJEAP: newJEAP}[layout]
	if made == nil {
		return nil
	}
	c := made()
	r.relays[layout] = c
	r.prometheus.MustRegister(c)
	return c
}

func newRelay() *relay { return &relay{gauges: map[string]Backlog{}, states: map[string]states{}} }

func newIM2BE() *relay {
	pending := prometheus.NewDesc("im2be_outbox_pending_total", "Rows that are PENDING, at the last count.", nil, nil)
	age := prometheus.NewDesc("im2be_outbox_backlog_age_seconds", "Age of the oldest PENDING row, at the last count. 0: none.", nil, nil)
	r := newRelay()
	r.publishing = newTimed("im2be_outbox_publish_latency_seconds", "From sending a row's batch to Kafka to its acknowledgement, each row counted.", "topic")
	r.refused = newCounted("im2be_outbox_publish_failure_total", "Rows that Kafka refused, or did not take because of their topic.", "topic")
	r.describe = append(append(r.publishing.descs(), r.refused.desc), pending, age)
	r.collect = func(to chan<- prometheus.Metric) {
		rows, _, oldest := r.backlog()
		to <- prometheus.MustNewConstMetric(pending, prometheus.GaugeValue, rows)
		to <- prometheus.MustNewConstMetric(age, prometheus.GaugeValue, oldest)
		r.publishing.collect(to)
		r.refused.collect(to)
	}
	return r
}

func newAdvertMarket() *relay {
	r := newRelay()
	r.looks = newCounted("outbox_poll_count_total", "Times that rows were read: from the WAL, or from the table.")
	r.published = newCounted("outbox_published_total", "Rows that were published and marked DELIVERED.")
	r.failed = newCounted("outbox_records_failed_total", "Rows that became FAILED.")
	r.stuck = newCounted("outbox_stuck_recovered_total", "Rows that a dead poller had left in PROCESSING and that were taken up again.")
	r.query = newTimed("outbox_poll_duration_seconds", "How long counting the PENDING rows took.")
	counters := []*counted{r.looks, r.published, r.failed, r.stuck}
	r.describe = r.query.descs()
	for _, c := range counters {
		c.add(0, "")
		r.describe = append(r.describe, c.desc)
	}
	r.collect = func(to chan<- prometheus.Metric) {
		for _, c := range counters {
			c.collect(to)
		}
		r.query.collect(to)
	}
	return r
}

// jeapSender is the class name that the application's own timer used as a label.
const jeapSender = "ch.admin.bit.jeap.messaging.transactionaloutbox.messaging.KafkaDeferredMessageSender"

func newJEAP() *relay {
	ready := prometheus.NewDesc("outbox_messages_ready_to_be_sent_count", "Messages that are ready to be sent, at the last count.", nil, nil)
	failed := prometheus.NewDesc("outbox_messages_failed_count", "Messages that failed, at the last count.", []string{"resend_status"}, nil)
	r := newRelay()
	r.transmit = newTimed("outbox_messages_transmit_seconds", "From sending a message's batch to Kafka to its acknowledgement, each message counted.",
		"delivery_type", "class", "exception", "method")
	r.query = newTimed("outbox_messages_ready_to_be_sent_query_seconds", "How long counting the messages that are ready took.")
	r.describe = append(append(r.transmit.descs(), r.query.descs()...), ready, failed)
	r.collect = func(to chan<- prometheus.Metric) {
		_, due, _ := r.backlog()
		to <- prometheus.MustNewConstMetric(ready, prometheus.GaugeValue, due)
		var sum states
		for _, s := range r.states {
			sum.failed += s.failed
			sum.resend += s.resend
		}
		to <- prometheus.MustNewConstMetric(failed, prometheus.GaugeValue, float64(sum.failed), "resend_disabled")
		to <- prometheus.MustNewConstMetric(failed, prometheus.GaugeValue, float64(sum.resend), "resend_enabled")
		r.transmit.collect(to)
		r.query.collect(to)
	}
	return r
}

// backlog adds up the tables' values: rows, rows that are due, and the greatest age in seconds.
func (r *relay) backlog() (rows, ready, oldest float64) {
	for _, w := range r.gauges {
		rows += float64(w.Rows)
		ready += float64(w.Ready)
		oldest = max(oldest, w.Oldest.Seconds())
	}
	return rows, ready, oldest
}

// Describe implements prometheus.Collector.
func (r *relay) Describe(to chan<- *prometheus.Desc) {
	for _, d := range r.describe {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (r *relay) Collect(to chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.collect(to)
}

// ---- what the stream tells ----

// tell calls f with the relay locked, unless the table replaced no relay.
func (r *relay) tell(f func(*relay)) {
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		f(r)
	}
}

// outcome counts rows of one topic. The caller holds the lock.
func (r *relay) outcome(o *outbox.Outcome, topic string, n int, now time.Time) {
	switch {
	case o.Class == outbox.Delivered:
		took := 0.0
		if !o.Sent.IsZero() {
			took = max(0, now.Sub(o.Sent).Seconds())
		}
		r.publishing.add(took, n, now, topic)
		r.transmit.add(took, n, now, "scheduled", jeapSender, "none", "sendAsScheduled")
	case o.Err != nil:
		r.refused.add(n, topic)
	}
}

// relay returns the replaced relay whose names the table keeps alive, or nil.
func (s *Stream) relay(t *outbox.Table) *relay {
	if c := s.tables[t]; c != nil {
		return c.relay
	}
	return nil
}

// ---- counters and timers ----

// counted is a counter with at most one label. Its methods may be called on nil.
type counted struct {
	desc   *prometheus.Desc
	labels int
	counts map[string]float64
}

func newCounted(name, help string, labels ...string) *counted {
	return &counted{prometheus.NewDesc(name, help, labels, nil), len(labels), map[string]float64{}}
}

func (c *counted) add(n int, label string) {
	if c == nil {
		return
	}
	if _, known := c.counts[label]; !known && len(c.counts) >= maxTopics {
		label = otherTopics
	}
	c.counts[label] += float64(n)
}

func (c *counted) collect(to chan<- prometheus.Metric) {
	for label, n := range c.counts {
		to <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, n, []string{label}[:c.labels]...)
	}
}

// timed is one of Micrometer's timers. Its methods may be called on nil.
type timed struct {
	desc, most *prometheus.Desc
	labels     int
	cells      map[[4]string]*cell
}

// cell is a timer with its labels. As in Micrometer, its maximum forgets observations that are older than two
// to three minutes.
type cell struct {
	count uint64
	sum   float64
	most  [maxSteps]float64
	step  int64 // step of the newest entry in most
}

const (
	maxSteps = 3
	maxStep  = time.Minute
)

func newTimed(name, help string, labels ...string) *timed {
	return &timed{
		desc:   prometheus.NewDesc(name, help, labels, nil),
		most:   prometheus.NewDesc(name+"_max", help+" The longest of the last minutes.", labels, nil),
		labels: len(labels),
		cells:  map[[4]string]*cell{},
	}
}

func (t *timed) descs() []*prometheus.Desc { return []*prometheus.Desc{t.desc, t.most} }

// add counts n observations of the same length (seconds).
func (t *timed) add(seconds float64, n int, now time.Time, labels ...string) {
	if t == nil || math.IsNaN(seconds) {
		return
	}
	var key [4]string
	copy(key[:], labels)
	if t.cells[key] == nil && len(t.cells) >= maxTopics {
		key[0] = otherTopics
	}
	c := t.cells[key]
	if c == nil {
		c = &cell{}
		t.cells[key] = c
	}
	c.count += uint64(n)
	c.sum += seconds * float64(n)
	c.turn(now)
	c.most[c.step%maxSteps] = max(c.most[c.step%maxSteps], seconds)
}

// turn discards entries that are too old.
func (c *cell) turn(now time.Time) {
	step := now.UnixNano() / int64(maxStep)
	for i := max(c.step+1, step-maxSteps+1); i <= step; i++ {
		c.most[i%maxSteps] = 0
	}
	c.step = max(c.step, step)
}

func (t *timed) collect(to chan<- prometheus.Metric) {
	for key, c := range t.cells {
		c.turn(time.Now())
		labels := key[:t.labels]
		to <- prometheus.MustNewConstSummary(t.desc, c.count, c.sum, nil, labels...)
		to <- prometheus.MustNewConstMetric(t.most, prometheus.GaugeValue, max(c.most[0], c.most[1], c.most[2]), labels...)
	}
}
