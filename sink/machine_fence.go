package sink

import (
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

// owned takes the answer to an ownership job.
func (m *machine) owned(o owned) {
	m.owning, m.ownErr, m.ownSince = false, nil, time.Time{}
	if m.id != o.id {
		m.id = o.id
	}
	for _, p := range o.fenced {
		m.fenced(p, o.tails)
	}
	for p, code := range o.refused {
		if t := m.topics[p.topic]; t != nil {
			m.fenceRefused(t, code)
		}
	}
	for _, s := range o.found {
		m.searched(s)
	}
	for _, t := range m.topics {
		for _, l := range t.lanes {
			m.touch(l)
		}
	}
}

func (m *machine) fenced(p place, tails map[place]int64) {
	t := m.topics[p.topic]
	if t == nil || int(p.partition) >= len(t.lanes) {
		return
	}
	l := t.lanes[p.partition]
	l.fenced = true
	if tail, ok := tails[p]; ok && l.tail < 0 {
		l.tail = tail
	}
}

func (m *machine) fenceRefused(t *topic, code sarama.KError) {
	switch code {
	case sarama.ErrTopicAuthorizationFailed:
		m.unfit(t, fmt.Errorf("topic %s: not authorised: grant WRITE on it to our user: %w", t.name, code))
	default:
		m.unfenced, m.ownAt = true, m.now.Add(backoffMax)
		m.want(backoffMax)
	}
}

// searched takes what the log says of a batch.
func (m *machine) searched(s searched) {
	b, l := s.batch, s.batch.lane
	b.sealed = b.sealed || s.sealed
	switch {
	case s.err != nil:
		m.wait(l, s.err, backoffMax)
	case s.found:
		m.ack(b, s.offset)
	default:
		l.bind(b, m.id)
		m.launch(l)
	}
	m.touch(l)
}

// nextJob collects what the owner has to do, one job at a time.
func (m *machine) nextJob() *ownership {
	var job ownership
	if m.unfenced {
		job.fence = m.toFence()
		m.unfenced = false
	}
	for _, b := range m.resolves {
		job.resolve = append(job.resolve, search{
			fenceTarget: b.lane.target(), batch: b, uuid: b.lane.topic.uuid, as: b.as, seq: b.seq,
			n: len(b.rows), from: b.lane.tail, sealed: b.sealed, look: b.maybe,
		})
	}
	m.resolves = nil
	if job.fence == nil && job.resolve == nil {
		return nil
	}
	return &job
}

// toFence lists the partitions to be fenced. Without a transactional id there
// is nothing to fence with.
func (m *machine) toFence() []fenceTarget {
	var targets []fenceTarget
	for _, t := range m.topics {
		for _, l := range t.lanes {
			switch {
			case l.fenced || l.leader == "" || t.state != topicReady:
			case !m.fencing:
				l.fenced = true
				m.touch(l)
			default:
				targets = append(targets, l.target())
			}
		}
	}
	return targets
}

func (l *lane) target() fenceTarget {
	return fenceTarget{place{l.topic.name, l.partition}, l.leader}
}

// quiet finds a partition for the empty transaction that keeps the id alive:
// one without a batch of an older epoch under way, which the marker would refuse.
func (m *machine) quiet() *place {
	for _, t := range m.topics {
		for _, l := range t.lanes {
			if t.state == topicReady && l.fenced && l.leader != "" && (l.flight == nil || l.flight.as == m.id) {
				return &place{t.name, l.partition}
			}
		}
	}
	return nil
}

// ownTrouble tells that the owner does not get on; it goes on trying.
func (m *machine) ownTrouble(err error) {
	m.ownErr = err
	if m.ownSince.IsZero() {
		m.ownSince = m.now
	}
}

// started tells the first identity.
func (m *machine) started(id identity, fencing bool) {
	m.id, m.fencing = id, fencing
	m.ownErr, m.ownSince = nil, time.Time{}
	m.keepAt = m.now.Add(m.cfg.keepAlive)
	for _, t := range m.topics {
		for _, l := range t.lanes {
			m.touch(l)
		}
	}
}
