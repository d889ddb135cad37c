package sink

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// produced takes the reply to one try to produce a batch.
func (m *machine) produced(b *batch, r reply) {
	if m.tx != nil {
		m.producedOnce(b, r)
		return
	}
	q := b.queue
	if errors.Is(r.err, errLate) {
		m.hold(q)
		return
	}
	if r.leader != "" {
		q.leader = r.leader
	}
	m.noteDisk(q, r)
	if !b.maybe && b.retime(r) {
		m.launch(q)
		m.touch(q)
		return
	}
	switch b.judge(r, m.id) {
	case actionAck:
		m.ack(b, r.offset)
	case actionRetry:
		m.wait(q, r.cause(q), backoffMax)
	case actionSlow:
		m.wait(q, r.cause(q), backoffSlow)
	case actionSplit:
		m.split(b, r)
	case actionRebind:
		q.bind(b, m.id)
		m.launch(q)
	case actionResolve:
		b.unresolved = true
		m.note("searching the partition log for a batch whose outcome is unknown", q.topic.name, r.cause(q))
		m.launch(q)
	case actionTopic:
		m.wait(q, r.cause(q), backoffSlow)
		m.blockTopic(q.topic, withHint(r.cause(q)))
	}
	m.touch(q)
}

func (m *machine) ack(b *batch, offset int64) {
	m.ackedAt = m.now
	t := b.queue.topic
	t.accepted = max(t.accepted, b.bytes)
	m.noteLoss(b, offset)
	b.queue.shown = b.queue.shown || b.as == m.id
	b.queue.acked(b, offset)
	m.calm(b.queue)
	m.out.outcomes = append(m.out.outcomes, outbox.Outcome{Rows: b.rows, Class: outbox.Delivered, Sent: b.sent})
}

// noteLoss logs that brokers lost records: a batch was appended before the end of the records that they had
// acknowledged. The rows of the lost records are SENT.
func (m *machine) noteLoss(b *batch, offset int64) {
	q, end := b.queue, offset+int64(len(b.rows))
	if offset < 0 || b.tries > 1 && offset < q.end {
		return // the offset may be that of an earlier try, which proves no loss: if there is one, the next batch shows it
	}
	if offset < q.end && !m.isJournal(q.topic.name) {
		m.note(lost(q.topic.name), q.topic.name, fmt.Errorf("topic %s, partition %d: offset %d was given to a new record, although records up to %d had been acknowledged", q.topic.name, q.partition, offset, q.end-1))
	}
	q.end = end
}

func lost(topic string) string {
	return "Kafka lost records that it had acknowledged, so the topic lacks rows that were published; to see which rows to send again: outbox-cdc replay --topic " + topic + " --since TIME (with --yes they are sent)"
}

// split deals with a batch that was rejected for a record's fault and is not in the partition log. Its rows
// go back to the front of the queue. Either the broker has named the rejected records, or smaller batches
// will find them.
func (m *machine) split(b *batch, r reply) {
	q, t := b.queue, b.queue.topic
	q.clearInFlight()
	m.calm(q)
	if r.code == sarama.ErrMessageSizeTooLarge || r.code == sarama.ErrMessageSetSizeTooLarge {
		t.tooLarge(b)
	}
	q.rows.unshift(b.rows)
	named := 0
	for _, i := range r.rejected {
		if i >= 0 && i < len(b.rows) {
			q.reject(b.rows[i], r.cause(q))
			named++
		}
	}
	switch {
	case named > 0:
	case len(b.rows) == 1:
		q.reject(b.rows[0], r.cause(q))
	default:
		q.limit = max(1, len(b.rows)/2)
	}
}

// noteDisk logs that a broker cannot write to its disk. Only this one answer says so: afterwards the broker
// has stopped, or its partitions have no leader.
func (m *machine) noteDisk(q *partitionQueue, r reply) {
	if r.err == nil && r.code == sarama.ErrKafkaStorageError {
		m.note("a broker cannot write to its disk, which is full or broken: the partition's rows wait", q.topic.name, r.cause(q))
	}
}

// cause returns the reply's error, with topic, partition and hints.
func (r reply) cause(q *partitionQueue) error {
	if r.err != nil {
		return r.err
	}
	err := fmt.Errorf("topic %s, partition %d: %w", q.topic.name, q.partition, r.code)
	if r.message != "" && r.message != r.code.Error() {
		err = fmt.Errorf("%w: %s", err, r.message)
	}
	if r.code == sarama.ErrUnknown {
		err = fmt.Errorf("%w%s", err, unknownHint)
	}
	if r.code == sarama.ErrInvalidTimestamp {
		err = fmt.Errorf("%w (the row waits, at no cost, until the topic's message.timestamp.before.max.ms and message.timestamp.after.max.ms allow its time, unless timestamp_refused is now)", err)
	}
	return err
}
