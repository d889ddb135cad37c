package sink

import (
	"fmt"
	"maps"
	"slices"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

func (m *machine) jobDone(o producerIDResult) {
	m.jobOut, m.idFails = false, trouble{}
	if m.id != o.id {
		m.id, m.reused = o.id, false
	}
	for _, p := range o.fenced {
		if q := m.queueOf(p); q != nil {
			q.fenced, q.shown = true, o.shown[p]
			if tail, ok := o.tails[p]; ok {
				q.tail = tail
			}
		}
	}
	for p, code := range o.refused {
		t := m.topics[p.Topic]
		switch {
		case t == nil:
		case code == sarama.ErrTopicAuthorizationFailed:
			m.unfit(t, fmt.Errorf("topic %s: not authorised: grant WRITE on it to our user: %w", t.name, code))
		default:
			m.unfenced, m.jobAt = true, m.now.Add(backoffMax)
			m.want(backoffMax)
		}
	}
	for _, s := range o.found {
		m.searched(s)
	}
	for _, name := range m.names() {
		m.touchAll(m.topics[name])
	}
}

// queueOf returns a partition's queue, or nil if metadata never named it or it was forgotten meanwhile.
func (m *machine) queueOf(p topicPartition) *partitionQueue {
	if t := m.topics[p.Topic]; t != nil && int(p.Number) < len(t.queues) {
		return t.queues[p.Number]
	}
	return nil
}

// searched takes the result of a search for a batch in the partition log.
func (m *machine) searched(s searched) {
	b, q := s.batch, s.batch.queue
	b.sealed = s.sealed
	switch {
	case s.err != nil:
		m.wait(q, s.err, backoffMax)
	case s.found:
		m.ack(b, s.offset)
	default:
		q.bind(b, m.id)
		m.launch(q)
	}
}

// nextJob collects the next job for the producerIDClient, or returns nil. One job is done at a time.
func (m *machine) nextJob() *producerIDJob {
	var job producerIDJob
	if m.unfenced {
		job.fence = m.toFence()
		m.unfenced = false
	}
	for _, b := range m.resolves {
		job.resolve = append(job.resolve, search{
			fenceTarget: b.queue.target(), batch: b, uuid: b.queue.topic.uuid, as: b.as, seq: b.seq,
			n: len(b.rows), from: b.queue.tail, sealed: b.sealed, look: b.maybe,
		})
	}
	m.resolves = nil
	if job.fence == nil && job.resolve == nil {
		return nil
	}
	return &job
}

// toFence lists the partitions to be fenced. Without a transactional id no fence is possible, and
// partitions count as fenced. There is one exception: a partition that was forgotten and is there again
// begins with sequence 0. A broker would take its first batch for a repeated one of this producer id, and
// acknowledge it without appending it. So a new producer id has to come first.
func (m *machine) toFence() []fenceTarget {
	var targets []fenceTarget
	for _, t := range m.topics {
		for _, q := range t.queues {
			switch {
			case q.fenced || q.leader == "" || t.state != topicReady:
			case !m.fencing && !m.reused:
				q.fenced = true
				m.touch(q)
			default:
				target := q.target()
				target.spared = m.inherits(q)
				targets = append(targets, target)
			}
		}
	}
	return targets
}

func (q *partitionQueue) target() fenceTarget {
	return fenceTarget{topicPartition: topicPartition{q.topic.name, q.partition}, leader: q.leader}
}

// quiet returns a partition for the empty transaction that keeps the id alive, or nil. No batch of an older
// epoch may be in flight there, because the partition would refuse it after the marker.
func (m *machine) quiet() *topicPartition {
	for _, t := range m.topics {
		for _, q := range t.queues {
			if t.state == topicReady && q.fenced && q.leader != "" && (q.inFlight == nil || q.inFlight.as == m.id) {
				return &topicPartition{t.name, q.partition}
			}
		}
	}
	return nil
}

// idTrouble notes why the producerIDClient fails. The client goes on trying.
func (m *machine) idTrouble(err error) { m.idFails.fail(m.now, err) }

// started takes the first producer id of the Run.
func (m *machine) started(id producer, fencing bool) {
	m.id, m.fencing = id, fencing
	m.idFails = trouble{}
	m.keepAt = m.now.Add(m.cfg.keepAlive)
	// With the next epoch, nobody else has had the transactional id in between.
	if f := m.cfg.before; f != nil && fencing && id.PID == f.PID && id.Epoch == f.Epoch+1 {
		m.inherited = maps.Clone(f.Topics)
	}
}

// inherits reports whether the leader before has left the partition fenced.
func (m *machine) inherits(q *partitionQueue) bool {
	t := m.inherited[q.topic.name]
	_, is := slices.BinarySearch(t.Partitions, q.partition)
	return is && t.ID == q.topic.uuid.String()
}

// passedOn is the maximum number of topics that this leader has not met but passes on to the next one.
const passedOn = 1000

// leave returns what the next leader inherits: the partitions that are fenced, and those that were
// inherited and not sent to. The machine must not be used afterwards.
func (m *machine) leave() *outbox.Fences {
	if m.tx == nil && m.fencing && m.id == nobody {
		return m.cfg.before // if the coordinator has given us an epoch unnoticed, the next leader's is not the one after Before's, and it spares nothing
	}
	if m.tx != nil || !m.fencing {
		return nil
	}
	f := &outbox.Fences{PID: m.id.PID, Epoch: m.id.Epoch, Topics: map[string]outbox.FencedTopic{}}
	for name, t := range m.topics {
		if t.state != topicReady || t.uuid == (sarama.Uuid{}) { // brokers before Kafka 2.8 have no topic ids
			continue
		}
		left := outbox.FencedTopic{ID: t.uuid.String()}
		for _, q := range t.queues {
			if (q.fenced && q.shown || !q.fenced && m.inherits(q)) && !q.busy() {
				left.Partitions = append(left.Partitions, q.partition)
			}
		}
		if len(left.Partitions) > 0 {
			f.Topics[name] = left
		}
	}
	for name, left := range m.inherited {
		if t := m.topics[name]; (t == nil || len(t.queues) == 0) && len(f.Topics) < passedOn {
			f.Topics[name] = left
		}
	}
	return f
}
