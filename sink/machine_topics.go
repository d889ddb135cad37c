package sink

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// blockTopic blocks a topic, and gives back all of its rows whose outcome is known.
func (m *machine) blockTopic(t *topic, err error) {
	if t.state == topicBlocked {
		return
	}
	t.state, t.err, t.untold = topicBlocked, err, true
	m.touchAll(t)
	waiting := t.waiting.takeAll()
	if len(t.queues) == 0 {
		m.giveBackTopic(t, waiting)
		return
	}
	for _, r := range waiting { // they go behind the rows of their keys that are under way
		m.place(t, r)
	}
}

// metadata takes the answer to a request for metadata.
func (m *machine) metadata(asked []string, infos map[string]topicInfo, err error) {
	m.asking, m.answered = false, m.now
	if err != nil {
		m.askErrs++
		m.askFails.fail(m.now, err)
		m.want(backoff(m.askErrs, backoffMax))
		return
	}
	m.askFails = trouble{}
	// Over one refresh time, every topic is asked about once.
	m.askAt = m.now.Add(m.cfg.refresh * time.Duration(max(len(asked), 1)) / time.Duration(max(len(asked), m.turns, 1)))
	m.manyAbsent = absentOf(infos) > manyAbsentTopics
	for _, name := range asked {
		if info, ok := infos[name]; ok && m.topics[name] != nil {
			m.topics[name].asked = m.askedAt
			m.learn(m.topics[name], info)
		}
	}
	if m.tx != nil {
		m.learnJournal(infos[m.tx.journal.name])
	}
	m.followUp()
}

// listed takes the answer that names all topics. A topic that is missing from it may exist: we may not be
// allowed to see it.
func (m *machine) listed(infos map[string]topicInfo, err error) {
	if err == nil {
		m.list = false
		names := map[string]bool{}
		for name, info := range infos {
			usable := info.code == sarama.ErrNoError || info.code == sarama.ErrReplicaNotAvailable
			if usable && !info.internal && len(info.leaders) > 0 {
				names[name] = true
			}
		}
		m.out.states = append(m.out.states, outbox.ClusterState{Cluster: m.cluster, Topics: names})
	}
	m.metadata(nil, nil, err)
	m.want(0) // the list took the turn of an ordinary request
}

// manyAbsentTopics is how many topics may be missing from an answer and still get their grace period. With
// more, no topic gets it: so many topics are not all being created at the moment, and their rows would fill
// the memory.
const manyAbsentTopics = 100

func absentOf(infos map[string]topicInfo) (n int) {
	for _, info := range infos {
		if info.code == sarama.ErrUnknownTopicOrPartition {
			n++
		}
	}
	return n
}

// followUp asks again while a topic is unknown or a partition has an error.
func (m *machine) followUp() {
	troubled := false
	for _, t := range m.topics {
		switch {
		case t.state != topicUnknown || !t.anyWaiting() && !t.anyInFlight():
		case t.missing == 0:
			m.want(0)
		default:
			troubled = true
		}
		for _, q := range t.queues {
			troubled = troubled || q.err != nil
		}
	}
	if !troubled {
		m.askErrs = 0
		return
	}
	m.askErrs++
	m.want(backoff(m.askErrs, backoffMax))
}

// want asks for metadata after d, or earlier if that is planned already. After failures it keeps the
// backoff.
func (m *machine) want(d time.Duration) {
	at := m.now.Add(d)
	if m.askErrs > 0 {
		if earliest := m.answered.Add(backoff(m.askErrs, backoffMax)); at.Before(earliest) {
			at = earliest
		}
	}
	if m.askAt.IsZero() || at.Before(m.askAt) {
		m.askAt = at
	}
}

func (m *machine) learn(t *topic, info topicInfo) {
	if m.isJournal(t.name) || slices.Contains(m.cfg.journals, t.name) {
		m.unfit(t, fmt.Errorf("topic %s: %w", t.name, errIsJournal))
		return
	}
	switch info.code {
	case sarama.ErrNoError, sarama.ErrReplicaNotAvailable:
		if info.internal { // such a topic is never fenced either, since a fence would write to it
			m.unfit(t, fmt.Errorf("topic %s is Kafka's own: no row can be published there: %w", t.name, sarama.ErrInvalidTopic))
			return
		}
	case sarama.ErrUnknownTopicOrPartition:
		m.absent(t)
		return
	case sarama.ErrTopicAuthorizationFailed:
		m.unfit(t, fmt.Errorf("topic %s: not authorised: grant DESCRIBE and WRITE on it to our user: %w", t.name, info.code))
		return
	case sarama.ErrInvalidTopic:
		m.unfit(t, fmt.Errorf("topic %q: not a legal topic name: %w", t.name, info.code))
		return
	default:
		m.stall(t, fmt.Errorf("topic %s: %w", t.name, info.code))
		return
	}
	if len(info.leaders) == 0 {
		m.stall(t, fmt.Errorf("topic %s: brokers do not tell its partitions yet", t.name))
		return
	}
	m.recognise(t, info)
	t.missing, t.since = 0, time.Time{}
	delete(m.stalled, t)
	if info.maxBytes > 0 {
		t.maxBytes, t.told = info.maxBytes, true
	}
	m.settle(t, len(info.leaders))
	switch t.state {
	case topicUnknown, topicDraining:
		m.adopt(t, info)
	case topicReady:
		if t.isReplacedBy(info) {
			m.blockTopic(t, fmt.Errorf("topic %s was deleted and made again: what its old log held is gone: %w", t.name, errRecreated))
			return
		}
		m.adopt(t, info)
	case topicBlocked: // a batch may still be in flight
		m.lead(t, info)
	}
}

// recognise logs that a topic was deleted and made again, even if it was forgotten in between.
func (m *machine) recognise(t *topic, info topicInfo) {
	if info.uuid == (sarama.Uuid{}) {
		return
	}
	if was, ok := m.uuids[t.name]; ok && was != info.uuid {
		m.note(madeAgain(t.name), t.name, nil)
	}
	m.uuids[t.name] = info.uuid
}

func madeAgain(topic string) string {
	return "topic was deleted and made again, so it lacks the rows that were SENT before; to see them: outbox-cdc replay --topic " + topic + " (with --yes they are sent again)"
}

// isReplacedBy reports whether the topic was deleted and made again. Without topic ids, fewer partitions
// show it. Otherwise a topic never loses partitions; only a broker that has not heard of new ones names
// fewer.
func (t *topic) isReplacedBy(info topicInfo) bool {
	if t.uuid == (sarama.Uuid{}) || info.uuid == (sarama.Uuid{}) { // of brokers before Kafka 2.8
		return len(info.leaders) < len(t.queues)
	}
	return t.uuid != info.uuid
}

// stall notes that a topic cannot be used yet, for a reason that passes: for example, it is being created.
func (m *machine) stall(t *topic, err error) {
	t.missing, t.since = t.missing+1, time.Time{}
	s := m.stalled[t]
	s.fail(m.now, err)
	m.stalled[t] = s
}

// absent notes an answer that lacks the topic. The topic counts as missing when such answers have come for
// the grace period, because brokers learn of a new topic one after the other.
func (m *machine) absent(t *topic) {
	t.missing++
	if t.since.IsZero() {
		t.since = m.now
	}
	if !m.manyAbsent && m.now.Sub(t.since) < m.cfg.topicGrace {
		if t.state == topicReady {
			m.want(backoffMax)
		}
		return
	}
	m.unfit(t, missingTopic(t.name))
}

// unfit blocks a topic if rows of it wait or are in flight. Otherwise it forgets the topic.
func (m *machine) unfit(t *topic, err error) {
	if t.anyInFlight() || t.anyWaiting() {
		m.blockTopic(t, err)
	}
	if errors.Is(err, sarama.ErrUnknownTopicOrPartition) && t.state == topicBlocked {
		t.gone = true
		m.settle(t, 0)
	}
	if t.state == topicBlocked {
		return
	}
	t.state = topicUnknown
	m.forget(t)
	m.drop(t)
}

// settle clears maybe in the batches of partitions from this number on: these partitions do not exist, so
// no try can be in their logs. It does so only for batches whose last try was over when the brokers were
// asked: a later try may have reached a new topic of the same name. A broker that has not heard of new
// partitions names too few. So the partition's leader has to have denied it, too, unless the whole topic is
// gone.
func (m *machine) settle(t *topic, from int) {
	for i, q := range t.queues {
		exists := i < from || from > 0 && !errors.Is(q.err, sarama.ErrUnknownTopicOrPartition)
		if b := q.inFlight; b != nil && q.state == queueWaiting && b.sent.Before(m.askedAt) && !exists {
			b.maybe, b.unresolved = false, false
			m.touch(q)
		}
	}
}

// adopt brings the topic's partitions in line with the metadata.
func (m *machine) adopt(t *topic, info topicInfo) {
	if len(t.queues) > 0 && (t.isReplacedBy(info) || len(info.leaders) > len(t.queues)) {
		t.state, t.fresh = topicDraining, &info
		m.lead(t, info)
		m.touchAll(t)
		return
	}
	m.build(t, info)
}

// drained completes a change of partitions once no partition has a batch in flight.
func (m *machine) drained(t *topic) {
	for _, q := range t.queues {
		q.rejected = nil
		t.waiting.unshift(q.rows.takeAll())
	}
	if t.anyInFlight() {
		return
	}
	info := *t.fresh
	if t.isReplacedBy(info) {
		m.forget(t)
	}
	m.note(fmt.Sprintf("topic has %d partitions now", len(info.leaders)), t.name, nil)
	m.build(t, info)
}

func (m *machine) forget(t *topic) {
	delete(m.inherited, t.name)
	for _, q := range t.queues {
		m.reused = m.reused || q.as == m.id
		delete(m.waiting, q)
		delete(m.failing, q)
	}
	t.queues, t.assigned = nil, nil
}

// build adds the missing partitions and distributes the waiting rows.
func (m *machine) build(t *topic, info topicInfo) {
	t.uuid = info.uuid
	for p := len(t.queues); p < len(info.leaders); p++ {
		t.queues = append(t.queues, &partitionQueue{topic: t, partition: int32(p), as: nobody, tail: -1})
	}
	m.lead(t, info)
	t.state = topicReady
	for _, r := range t.waiting.takeAll() {
		m.place(t, r)
	}
	m.touchAll(t) // some have rows from before the topic was blocked
}

// lead sets the leaders. A partition that waited for a new leader goes on at once.
func (m *machine) lead(t *topic, info topicInfo) {
	for p, q := range t.queues {
		if p >= len(info.leaders) {
			break
		}
		changed := q.leader != info.leaders[p]
		q.leader = info.leaders[p]
		m.unfenced = m.unfenced || !q.fenced
		if changed {
			q.at = m.now
		}
		// If nothing is left to send, no success can prove that the partition is well again.
		if !q.busy() && q.rows.len() == 0 {
			m.calm(q)
		}
	}
}

// missingTopic is the error for a topic that the brokers do not have.
type missingTopic string

func (t missingTopic) Error() string {
	return "topic " + string(t) + " does not exist: create it (topics are never created by outbox-cdc)"
}

func (missingTopic) Unwrap() error { return sarama.ErrUnknownTopicOrPartition }
