package sink

import (
	"fmt"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// pump drives every partition to which something has happened.
func (m *machine) pump() {
	for i := 0; i < len(m.dirty); i++ { // drive may add partitions
		q := m.dirty[i]
		q.dirty = false
		m.drive(q)
	}
	m.dirty = m.dirty[:0]
}

// drive sends the partition's next batch, if it may be sent. With transactions, it offers the partition's
// rows for the next one.
func (m *machine) drive(q *partitionQueue) {
	t := q.topic
	switch t.state {
	case topicBlocked:
		m.returnQueue(q)
		return
	case topicDraining:
		q.recall()
		m.drained(t)
		return
	case topicUnknown: // the topic was released, and its metadata is awaited
		return
	}
	if q.busy() || q.state == queueWaiting {
		return
	}
	m.front(q)
	if q.rows.len() == 0 {
		return
	}
	switch {
	case q.leader == "":
		m.wait(q, errLeaderless(q), backoffMax)
	case m.tx != nil:
		if !q.offered && !m.stale(q) {
			q.offered = true
			m.tx.ready = append(m.tx.ready, q)
		}
	case !q.fenced:
	case m.closed:
		m.hold(q)
	case !m.stale(q):
		q.inFlight = q.next(m.limits(t), m.id, m.now)
		t.batched(q.partition)
		m.launch(q)
	}
}

func (m *machine) limits(t *topic) limits {
	most := m.cfg.limits
	if t.maxBytes > 0 {
		most.bytes = min(most.bytes, t.maxBytes)
	}
	most.since = m.freshSince()
	return most
}

// returnQueue gives back the rows of a blocked topic's partition, once the rows in flight before them have
// their outcome or are back in the queue.
func (m *machine) returnQueue(q *partitionQueue) {
	t := q.topic
	if !q.recall() {
		return
	}
	q.state = queueIdle
	m.calm(q)
	q.limit, q.rejected = 0, nil
	m.giveBackTopic(t, q.rows.takeAll())
}

// front removes rows from the front of the queue that cannot be sent to this partition: rejected rows, and
// rows that name another partition.
func (m *machine) front(q *partitionQueue) {
	for q.rows.len() > 0 {
		r := q.rows.peek()[0]
		err := q.rejected[r]
		switch {
		case err == nil && !q.elsewhere(r):
			return
		case err == nil && int(r.Partition) < len(q.topic.queues):
			m.move(q, r)
			continue
		case err == nil:
			err = fmt.Errorf("partition %d of topic %s does not exist (it has %d): correct the row's partition or add partitions", r.Partition, q.topic.name, len(q.topic.queues))
		}
		delete(q.rejected, r)
		q.rows.drop(1)
		m.refuse(q, r, err)
	}
}

// move takes a row to the queue of the partition that it names, together with the later rows of its key.
func (m *machine) move(q *partitionQueue, r *outbox.Row) {
	target := q.topic.queues[r.Partition]
	rows := []*outbox.Row{r}
	if r.Key == nil {
		q.rows.drop(1)
	} else {
		rows = q.rows.extract(sameKey(r))
		q.topic.assign(r, target)
	}
	for _, x := range rows {
		if err := q.rejected[x]; err != nil {
			delete(q.rejected, x)
			target.reject(x, err)
		}
		target.rows.push(x)
	}
	m.touch(target)
}

// refuse reports that a row is refused with its own error, and gives back the later rows of its key.
func (m *machine) refuse(q *partitionQueue, r *outbox.Row, err error) {
	t, scope := q.topic, outbox.KeyScope(r)
	m.out.outcomes = append(m.out.outcomes, outbox.Outcome{
		Rows: []*outbox.Row{r}, Class: outbox.Refused, Scope: scope, Blocked: r.Key != nil, Err: err, Uncharged: passes(r, err),
	})
	if r.Key == nil {
		return
	}
	t.block(r)
	later := append(q.rows.extract(scope.Contains), t.waiting.extract(scope.Contains)...)
	q.clearRejected(later)
	m.giveBack(later, scope)
}

// launch sends the batch in flight to the partition's leader. If the batch is unresolved, it is searched for
// in the partition log first.
func (m *machine) launch(q *partitionQueue) {
	delete(m.waiting, q)
	b := q.inFlight
	if b.request != nil && !m.tx.once.Awaits(b.request.Batch) {
		m.clearBatch(q)
		return
	}
	if b.unresolved {
		q.state = queueResolving
		m.resolves = append(m.resolves, b)
		return
	}
	if q.leader == "" {
		m.wait(q, errLeaderless(q), backoffMax)
		return
	}
	if m.closed {
		m.hold(q)
		return
	}
	if b.tries > 0 && m.recallOld(q) {
		return
	}
	q.state = queueInFlight
	b.tries++
	b.sent = m.now
	m.out.send = append(m.out.send, b)
}

// wait makes the partition try again after a backoff, with new metadata.
func (m *machine) wait(q *partitionQueue, err error, most time.Duration) {
	q.failures++
	q.fail(m.now, err)
	m.failing[q] = struct{}{}
	q.state = queueWaiting
	q.at = m.now.Add(backoff(q.failures, most))
	m.waiting[q] = struct{}{}
	m.want(0)
}

// holdPause is the interval at which a held partition checks whether it may send again.
const holdPause = 50 * time.Millisecond

// hold makes the partition wait while nothing may be sent. This is not counted as a failure.
func (m *machine) hold(q *partitionQueue) {
	q.state = queueWaiting
	q.at = m.now.Add(holdPause)
	m.waiting[q] = struct{}{}
}

// calm ends the partition's failures in a row.
func (m *machine) calm(q *partitionQueue) {
	q.failures, q.trouble = 0, trouble{}
	delete(m.failing, q)
}

func errLeaderless(q *partitionQueue) error {
	return fmt.Errorf("partition %d of topic %s has no leader: are enough of its brokers up, and can they write to their disks?", q.partition, q.topic.name)
}
