package sink

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// tick sets the time and does what is due. Afterwards everything that can be sent is among the work.
func (m *machine) tick(now time.Time) {
	m.now = now
	for _, q := range m.due() {
		delete(m.waiting, q)
		if q.inFlight != nil {
			m.launch(q)
			continue
		}
		q.state = queueIdle
		m.touch(q)
	}
	m.pump()
	m.askIfDue()
	m.giveJobIfDue()
	m.pump() // sends to partitions that turned out to need no fence
	if m.tx != nil {
		m.tickTransactions()
	}
	m.judgeCluster()
}

// due returns the partitions whose wait is over, in a fixed order, so that a test's seed always leads to the
// same run.
func (m *machine) due() []*partitionQueue {
	var due []*partitionQueue
	for q := range m.waiting {
		if !q.at.After(m.now) {
			due = append(due, q)
		}
	}
	slices.SortFunc(due, func(a, b *partitionQueue) int {
		return cmp.Or(cmp.Compare(a.topic.name, b.topic.name), cmp.Compare(a.partition, b.partition))
	})
	return due
}

func (m *machine) askIfDue() {
	if m.asking || m.askAt.After(m.now) {
		return
	}
	a := &metadataRequest{all: m.list}
	if !m.list {
		a.topics = m.askable()
	}
	m.asking, m.askedAt, m.askAt, m.out.ask = true, m.now, time.Time{}, a
}

// maxAsked is the maximum number of topics in one request for metadata.
const maxAsked = 1000

// askable returns the topics of the next request for metadata. If there are too many topics, those whose
// rows wait for metadata come first, then those that were asked about longest ago.
func (m *machine) askable() []string {
	topics := make([]*topic, 0, len(m.topics))
	for _, t := range m.topics {
		if t.state != topicBlocked || t.anyInFlight() {
			topics = append(topics, t)
		}
	}
	if m.turns = len(topics); m.turns > maxAsked {
		waits := func(t *topic) int {
			if t.state == topicUnknown && t.anyWaiting() {
				return 0
			}
			return 1
		}
		slices.SortFunc(topics, func(a, b *topic) int {
			return cmp.Or(cmp.Compare(waits(a), waits(b)), a.asked.Compare(b.asked), cmp.Compare(a.name, b.name))
		})
		topics = topics[:maxAsked]
	}
	names := make([]string, 0, len(topics)+1)
	for _, t := range topics {
		names = append(names, t.name)
	}
	if m.tx != nil && !slices.Contains(names, m.tx.journal.name) {
		names = append(names, m.tx.journal.name)
	}
	return names
}

func (m *machine) giveJobIfDue() {
	if m.jobOut || m.id == nobody {
		return
	}
	var job *producerIDJob
	if !m.jobAt.After(m.now) {
		m.jobAt = time.Time{}
		job = m.nextJob()
	}
	if job == nil && m.fencing && m.cfg.keepAlive > 0 && !m.keepAt.After(m.now) {
		m.keepAt = m.now.Add(m.cfg.keepAlive)
		if p := m.quiet(); p != nil {
			job = &producerIDJob{keepAlive: p}
		}
	}
	if job != nil {
		m.jobOut, m.out.job = true, job
	}
}

// next returns the time at which tick is due at the latest, or zero.
func (m *machine) next() time.Time {
	var at time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	for q := range m.waiting {
		sooner(q.at)
	}
	if !m.asking {
		sooner(m.askAt)
	}
	if !m.jobOut {
		sooner(m.jobAt)
		if m.fencing && m.cfg.keepAlive > 0 {
			sooner(m.keepAt)
		}
	}
	if m.tx != nil && len(m.tx.giving) > 0 {
		sooner(m.tx.progress.Add(stuckAfter))
	}
	if m.tx != nil && m.tx.once != nil && m.tx.once.Lacking(m.led) {
		sooner(m.tx.revisitAt)
	}
	if m.usability != unusable {
		if since, err := m.trouble(); err != nil {
			sooner(since.Add(m.cfg.outageAfter))
		}
	}
	return at
}

// trouble returns the oldest reason why the cluster cannot be used, and since when; or nil.
func (m *machine) trouble() (since time.Time, err error) {
	older := func(t trouble) {
		if t.err != nil && (err == nil || t.since.Before(since)) {
			since, err = t.since, t.err
		}
	}
	if !m.ackedAt.After(m.askFails.since) {
		older(m.askFails)
	}
	older(m.idFails.slow())
	if m.tx != nil {
		older(m.tx.trouble)
	}
	for t, s := range m.stalled {
		if (t.state == topicUnknown || t.state == topicDraining) && t.anyWaiting() {
			older(s)
		}
	}
	for q := range m.failing {
		if q.topic.state != topicBlocked { // a blocked topic's trouble is not the cluster's
			older(q.trouble)
		}
	}
	return since, err
}

// slowEnd is how long the coordinator may take to end a transaction. During this time it counts as slow,
// which any broker may be, and not as failing.
const slowEnd = 10 * time.Second

// slow returns the trouble. If the end of a transaction is missing, the trouble begins slowEnd later.
func (t trouble) slow() trouble {
	if errors.Is(t.err, sarama.ErrConcurrentTransactions) || errors.Is(t.err, errNoEnd) {
		t.since = t.since.Add(slowEnd)
	}
	return t
}

// judgeCluster reports when the cluster becomes usable or unusable. An outage is reported after OutageAfter.
// Only if no report was made yet and no broker can be reached, it is reported at once.
func (m *machine) judgeCluster() {
	since, err := m.trouble()
	switch {
	case err == nil:
		if m.usability != usable && m.begun() && !m.answered.IsZero() {
			m.say(usable, nil)
		}
	case m.usability == unusable:
		// Another reason is reported, too: at first brokers do not answer, then the remaining brokers answer
		// that they are too few. This happens only at intervals, since partitions may have different reasons.
		if ErrorClass(err) != m.told && m.now.Sub(m.toldAt) >= 5*m.cfg.outageAfter {
			m.say(unusable, err)
		}
	case m.now.Sub(since) >= m.cfg.outageAfter, m.usability == usabilityUnknown && m.askFails.err != nil:
		m.say(unusable, err)
	}
}

// begun reports whether rows may be published.
func (m *machine) begun() bool {
	if m.tx != nil {
		return m.tx.recovered
	}
	return m.id != nobody
}

func (m *machine) say(u usability, err error) {
	m.usability, m.told, m.toldAt = u, ErrorClass(err), m.now
	m.out.states = append(m.out.states, outbox.ClusterState{Cluster: m.cluster, Usable: u == usable, Err: err})
}

func (m *machine) note(text, topic string, err error) {
	m.out.notes = append(m.out.notes, note{text, topic, err})
}
