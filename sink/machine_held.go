package sink

import (
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// While nothing can be sent, waiting rows may be changed, cancelled and deleted. So when a row that waited for heldFor
// could be sent, the stream is asked what it is now. It stays in its place, in no batch: nothing passes it.

const tenth = 100 * time.Millisecond

// tenths is what Row.Since counts.
func (m *machine) tenths() uint32 {
	if m.begin.IsZero() {
		m.begin = m.now
	}
	return uint32(m.now.Sub(m.begin) / tenth)
}

// freshSince is since when a row may wait to be sent as it is.
func (m *machine) freshSince() uint32 {
	held, now := uint32(m.cfg.heldFor/tenth), m.tenths()
	if held == 0 || now < held {
		return 0
	}
	return now - held
}

func (l *limits) old(r *outbox.Row) bool { return r.Since < l.since && r.Table.LooksAgain() }

// stale says that the queue waits for its first row to be looked at. It asks for those of the next batch.
func (m *machine) stale(q *partitionQueue) bool {
	rows, most := q.rows.peek(), m.limits(q.topic)
	switch {
	case rows[0].Stale:
		return true
	case !most.old(rows[0]) || q.rejected[rows[0]] != nil:
		return false
	case q.limit > 0:
		most.rows = min(most.rows, q.limit)
	}
	var asked []*outbox.Row
	for _, r := range rows[:min(len(rows), most.rows)] {
		if most.old(r) && !r.Stale && q.rejected[r] == nil {
			r.Stale = true
			asked = append(asked, r)
		}
	}
	m.out.outcomes = append(m.out.outcomes, outbox.Outcome{Rows: asked, Class: outbox.Stale})
	return true
}

// looked takes what stale rows are now.
func (m *machine) looked(answers []outbox.Checked) {
	now := make(map[*outbox.Row]*outbox.Row, len(answers))
	var topics []*topic
	for _, a := range answers {
		if a.Row.Cluster != m.cluster {
			continue
		}
		now[a.Row] = a.Now
		if t := m.topics[a.Row.Topic]; t != nil && !slices.Contains(topics, t) {
			topics = append(topics, t)
		}
	}
	var out []*outbox.Row
	for _, t := range topics {
		out = append(out, t.waiting.replace(now, m.tenths())...)
		for _, q := range t.queues {
			out = append(out, q.rows.replace(now, m.tenths())...)
			m.touch(q)
		}
	}
	if len(out) > 0 {
		m.out.outcomes = append(m.out.outcomes, outbox.Outcome{Rows: out, Class: outbox.TakenOut})
	}
}

// recallOld takes back a batch with old rows, if nothing of it can be in the partition log. One row then tries whether
// anything can be sent, so that few are looked at in an outage.
func (m *machine) recallOld(q *partitionQueue) bool {
	most := m.limits(q.topic)
	if m.tx != nil || !slices.ContainsFunc(q.inFlight.rows, most.old) {
		return false
	}
	if q.state = queueWaiting; !q.recall() { // no try is under way
		return false
	}
	q.limit = 1
	m.touch(q)
	return true
}
