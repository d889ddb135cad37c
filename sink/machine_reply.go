package sink

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// produced takes the reply to a try.
func (m *machine) produced(b *batch, r reply) {
	l := b.lane
	if errors.Is(r.err, errLate) {
		m.hold(l)
		return
	}
	if r.leader != "" {
		l.leader = r.leader
	}
	switch b.judge(r, m.id) {
	case verdictAck:
		m.ack(b, r.offset)
	case verdictRetry:
		m.wait(l, r.cause(l), backoffMax)
	case verdictSlow:
		m.wait(l, r.cause(l), backoffSlow)
	case verdictSplit:
		m.split(b, r)
	case verdictRebind:
		l.bind(b, m.id)
		m.launch(l)
	case verdictResolve:
		b.unresolved = true
		m.note("looking in the log for a batch whose fate is unknown", l.topic.name, r.cause(l))
		m.launch(l)
	case verdictTopic:
		m.wait(l, r.cause(l), backoffSlow)
		m.blockTopic(l.topic, withMend(r.cause(l)))
	}
	m.touch(l)
}

func (m *machine) ack(b *batch, offset int64) {
	m.ackedAt = m.now
	t := b.lane.topic
	t.accepted = max(t.accepted, b.bytes)
	b.lane.acked(b, offset)
	m.calm(b.lane)
	m.out.outcomes = append(m.out.outcomes, outbox.Outcome{Rows: b.rows, Class: outbox.Delivered, Sent: b.sent})
}

// split deals with a batch that was rejected for a record's fault, and of
// which nothing is in the log: its rows go back to the front of the queue, and
// either the guilty ones are known or smaller batches will find them.
func (m *machine) split(b *batch, r reply) {
	l, t := b.lane, b.lane.topic
	l.land()
	m.calm(l)
	if r.code == sarama.ErrMessageSizeTooLarge || r.code == sarama.ErrMessageSetSizeTooLarge {
		t.tooLarge(b)
	}
	l.queue.unshift(b.rows)
	named := 0
	for _, i := range r.guilty {
		if i >= 0 && i < len(b.rows) {
			l.blame(b.rows[i], r.cause(l))
			named++
		}
	}
	switch {
	case named > 0:
	case len(b.rows) == 1:
		l.blame(b.rows[0], r.cause(l))
	default:
		l.halve(len(b.rows))
	}
}

// cause is the reply's error in words.
func (r reply) cause(l *lane) error {
	if r.err != nil {
		return r.err
	}
	if r.message != "" && r.message != r.code.Error() {
		return fmt.Errorf("topic %s, partition %d: %w: %s", l.topic.name, l.partition, r.code, r.message)
	}
	return fmt.Errorf("topic %s, partition %d: %w", l.topic.name, l.partition, r.code)
}
