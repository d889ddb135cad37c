package sink

import (
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// While nothing can be sent, applications may change, cancel or delete waiting rows. So when a row that
// waited for heldFor can be sent at last, the stream is asked for its present state. Meanwhile the row
// stays in its place, in no batch, and no row passes it.

const tenth = 100 * time.Millisecond

// tenths returns the time since the machine's first use, in tenths of a second. Row.Since has the same
// unit.
func (m *machine) tenths() uint32 {
	if m.begin.IsZero() {
		m.begin = m.now
	}
	return uint32(m.now.Sub(m.begin) / tenth)
}

// freshSince returns the time, in tenths, since which a row may have waited to be sent as it is.
func (m *machine) freshSince() uint32 {
	held, now := uint32(m.cfg.heldFor/tenth), m.tenths()
	if held == 0 || now < held {
		return 0
	}
	return now - held
}

func (l *limits) old(r *outbox.Row) bool { return r.Since < l.since && r.Table.LooksAgain() }

// stale reports whether the queue has to wait for a look at its first row. If so, it asks about the old
// rows of the next batch.
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

// looked takes the present state of stale rows.
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

// recallOld takes back a batch with old rows, if none of it can be in the partition log. Afterwards batches
// of one row try whether anything can be sent, so that few rows are looked at during an outage.
func (m *machine) recallOld(q *partitionQueue) bool {
	most := m.limits(q.topic)
	if m.tx != nil || !slices.ContainsFunc(q.inFlight.rows, most.old) {
		return false
	}
	if q.state = queueWaiting; !q.recall() { // a recall needs this state, and no try is under way
		return false
	}
	q.limit = 1
	m.touch(q)
	return true
}
