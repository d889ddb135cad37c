package sink

import (
	"fmt"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// pump looks at every lane that something happened to.
func (m *machine) pump() {
	for i := 0; i < len(m.dirty); i++ { // grows while we go
		l := m.dirty[i]
		l.dirty = false
		m.drive(l)
	}
	m.dirty = m.dirty[:0]
}

// drive does the next thing for a lane.
func (m *machine) drive(l *lane) {
	t := l.topic
	switch t.state {
	case topicBlocked:
		m.returnQueue(l)
		return
	case topicDraining:
		l.recall()
		m.drained(t)
		return
	case topicUnknown: // released, and metadata awaited
		return
	}
	if l.flight != nil || l.state == laneWaiting {
		return
	}
	m.front(l)
	if l.queue.len() == 0 || m.id == nobody {
		return
	}
	if l.leader == "" {
		m.wait(l, errLeaderless(l), backoffMax)
		return
	}
	if !l.fenced {
		return
	}
	if m.closed {
		m.hold(l)
		return
	}
	if b := l.next(m.limits(t), m.id, m.now); b != nil {
		t.batched(l.partition)
		l.flight = b
		m.launch(l)
	}
}

func (m *machine) limits(t *topic) limits {
	most := m.cfg.limits
	if t.maxBytes > 0 {
		most.bytes = min(most.bytes, t.maxBytes)
	}
	return most
}

// returnQueue gives a blocked topic's rows back, once nothing before them is open.
func (m *machine) returnQueue(l *lane) {
	t := l.topic
	if !l.recall() {
		return
	}
	delete(m.waiting, l)
	l.state = laneIdle
	m.calm(l)
	l.limit, l.guilty = 0, nil
	m.giveBackTopic(t, l.queue.takeAll())
}

// front deals with rows at the front of the queue that cannot be sent here.
func (m *machine) front(l *lane) {
	for l.queue.len() > 0 {
		r := l.queue.peek()[0]
		err := l.guilty[r]
		switch {
		case err == nil && !l.strange(r):
			return
		case err == nil && int(r.Partition) < len(l.topic.lanes):
			m.move(l, r)
			continue
		case err == nil:
			err = fmt.Errorf("partition %d of topic %s does not exist (it has %d): correct the row's partition or add partitions", r.Partition, l.topic.name, len(l.topic.lanes))
		}
		delete(l.guilty, r)
		l.queue.drop(1)
		m.refuse(l, r, err)
	}
}

// move takes a row, and its key's later rows, to the partition that it names.
func (m *machine) move(l *lane, r *outbox.Row) {
	target := l.topic.lanes[r.Partition]
	rows := []*outbox.Row{r}
	if r.Key == nil {
		l.queue.drop(1)
	} else {
		rows = l.queue.extract(sameKey(r))
		l.topic.settleDown(r, target)
	}
	for _, x := range rows {
		if err := l.guilty[x]; err != nil {
			delete(l.guilty, x)
			target.blame(x, err)
		}
		target.queue.push(x)
	}
	m.touch(target)
}

// refuse charges a row with its own error and gives its key's later rows back.
func (m *machine) refuse(l *lane, r *outbox.Row, err error) {
	t, scope := l.topic, outbox.KeyScope(r)
	m.out.outcomes = append(m.out.outcomes, outbox.Outcome{
		Rows: []*outbox.Row{r}, Class: outbox.Refused, Scope: scope, Blocked: r.Key != nil, Err: err, Uncharged: passes(r, err),
	})
	if r.Key == nil {
		return
	}
	t.block(r)
	later := append(l.queue.extract(scope.Covers), t.waiting.extract(scope.Covers)...)
	l.pardon(later)
	m.giveBack(later, scope)
}

// launch sends the flight to the lane's leader, or to the owner first.
func (m *machine) launch(l *lane) {
	delete(m.waiting, l)
	b := l.flight
	if b.unresolved {
		l.state = laneResolving
		m.resolves = append(m.resolves, b)
		return
	}
	if l.leader == "" {
		m.wait(l, errLeaderless(l), backoffMax)
		return
	}
	if m.closed {
		m.hold(l)
		return
	}
	l.state = laneFlying
	b.tries++
	b.sent = m.now
	m.out.send = append(m.out.send, b)
}

// wait makes the lane try again after a backoff, with fresh metadata.
func (m *machine) wait(l *lane, err error, most time.Duration) {
	l.fail(m.now, err)
	m.failing[l] = struct{}{}
	l.state = laneWaiting
	l.at = m.now.Add(backoff(l.failures, most))
	m.waiting[l] = struct{}{}
	m.want(0)
}

// holdPause is how often a lane looks whether it may send again.
const holdPause = 50 * time.Millisecond

// hold makes the lane wait while nothing may be sent, which is no failure.
func (m *machine) hold(l *lane) {
	l.state = laneWaiting
	l.at = m.now.Add(holdPause)
	m.waiting[l] = struct{}{}
}

// calm forgets a lane's failures.
func (m *machine) calm(l *lane) {
	l.failures, l.since, l.err = 0, time.Time{}, nil
	delete(m.failing, l)
}

func errLeaderless(l *lane) error {
	return fmt.Errorf("partition %d of topic %s has no leader: are enough of its brokers up?", l.partition, l.topic.name)
}
