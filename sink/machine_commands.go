package sink

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

func (m *machine) command(c outbox.Command) {
	switch {
	case c.Publish != nil:
		at := m.tenths()
		for _, r := range c.Publish {
			r.Since = at
			m.accept(r)
		}
	case c.Looked != nil:
		m.looked(c.Looked)
	case c.Release != nil:
		m.release(*c.Release)
	case c.Withdraw != nil:
		m.withdraw(*c.Withdraw)
	default: // List
		m.list = true
		m.want(0)
	}
}

func (m *machine) accept(r *outbox.Row) {
	t := m.last
	if t == nil || t.name != r.Topic {
		if t = m.topics[r.Topic]; t == nil {
			t = newTopic(r.Topic)
			m.topics[r.Topic] = t
		}
		m.last = t
	}
	m.place(t, r)
}

// place puts a row into the queue of its partition, lets it wait in the topic, or gives it back. This
// depends on the topic's state.
func (m *machine) place(t *topic, r *outbox.Row) {
	switch {
	case t.state == topicBlocked && len(t.queues) == 0:
		m.giveBackTopic(t, []*outbox.Row{r})
	case t.state == topicReady || t.state == topicBlocked:
		if t.isBlocked(r) {
			m.giveBack([]*outbox.Row{r}, outbox.KeyScope(r))
			return
		}
		q := t.queueFor(r, m.cfg.random)
		q.rows.push(r)
		if m.tx != nil && len(r.ID) > longestID && r.Table.Stateful() {
			q.reject(r, errLongID)
		}
		m.touch(q)
	default:
		t.waiting.push(r)
		m.want(0)
	}
}

// touch makes pump look at the partition.
func (m *machine) touch(q *partitionQueue) {
	if !q.dirty {
		q.dirty = true
		m.dirty = append(m.dirty, q)
	}
}

func (m *machine) touchAll(t *topic) {
	for _, q := range t.queues {
		m.touch(q)
	}
}

// names returns the names of all topics in a fixed order, so that a test's seed always leads to the same
// run.
func (m *machine) names() []string { return slices.Sorted(maps.Keys(m.topics)) }

func (m *machine) release(s outbox.Scope) {
	switch s.Kind {
	case outbox.ScopeKey:
		if t := m.topics[s.Topic]; t != nil {
			delete(t.blocked, key{s.Table, s.Key})
		}
	case outbox.ScopeTopic:
		// Commands go to the sinks of all clusters. If another sink has blocked its topic of this name, the
		// Release is not for ours, whose rows may have been given back since.
		if t := m.topics[s.Topic]; t != nil && t.state == topicBlocked && s.Cluster == m.cluster {
			m.unblock(t)
			m.drop(t)
		}
	}
}

// drop forgets a topic that has neither queues nor blocked keys. So the sink remembers only topics that
// exist or have rows here.
func (m *machine) drop(t *topic) {
	if len(t.queues) > 0 || len(t.blocked) > 0 {
		return
	}
	delete(m.topics, t.name)
	delete(m.stalled, t)
	m.last = nil
}

// unblock lets a topic start again with new metadata. Partitions with a batch in flight stay until the
// batch's outcome is known.
func (m *machine) unblock(t *topic) {
	if t.gone && !t.anyInFlight() {
		m.forget(t)
	}
	t.state, t.err, t.gone, t.missing, t.since = topicUnknown, nil, false, 0, time.Time{}
	delete(m.stalled, t)
	for _, q := range t.queues {
		q.at = m.now
	}
	m.want(0)
}

func (m *machine) withdraw(s outbox.Scope) {
	var out []*outbox.Row
	for _, name := range m.names() {
		t := m.topics[name]
		if s.Topic != "" && s.Topic != name {
			continue
		}
		for _, q := range t.queues {
			q.recall()
			gone := q.rows.extract(s.Contains)
			q.clearRejected(gone)
			out = append(out, gone...)
			m.touch(q) // rows behind a stale row that has left may be sent
		}
		out = append(out, t.waiting.extract(s.Contains)...)
	}
	m.giveBack(out, s)
}

func (m *machine) giveBack(rows []*outbox.Row, s outbox.Scope) {
	if len(rows) == 0 {
		return
	}
	m.out.outcomes = append(m.out.outcomes, outbox.Outcome{Rows: rows, Class: outbox.Withdrawn, Scope: s})
}

// giveBackTopic gives back rows of a blocked topic. The first outcome tells that the sink expects a Release
// of the topic. For a table whose FailOn names the topic's error, the error is the row's own: then each row
// is refused by itself.
func (m *machine) giveBackTopic(t *topic, rows []*outbox.Row) {
	rows = m.refuseOwn(t, rows)
	if len(rows) == 0 {
		m.reopen(t)
		return
	}
	if t.untold {
		m.note("the topic cannot be written to: its rows wait", t.name, t.err)
	}
	m.out.outcomes = append(m.out.outcomes, outbox.Outcome{
		Rows: rows, Class: outbox.Withdrawn, Scope: outbox.TopicScope(m.cluster, t.name), Blocked: t.untold, Err: t.err,
	})
	t.untold = false
}

// refuseOwn refuses those of a blocked topic's rows for which the topic's error is their own. It gives back
// the later rows of their keys, and returns all other rows.
func (m *machine) refuseOwn(t *topic, rows []*outbox.Row) []*outbox.Row {
	kind, name := topicErrorOf(t.err)
	var rest []*outbox.Row
	for _, r := range rows {
		if !slices.Contains(r.Table.Mapping.FailOn, kind) {
			rest = append(rest, r)
			continue
		}
		if t.isBlocked(r) {
			m.giveBack([]*outbox.Row{r}, outbox.KeyScope(r))
			continue
		}
		m.out.outcomes = append(m.out.outcomes, outbox.Outcome{
			Rows: []*outbox.Row{r}, Class: outbox.Refused, Scope: outbox.KeyScope(r), Blocked: r.Key != nil, Err: fmt.Errorf("%s: %w", name, t.err),
		})
		if r.Key != nil {
			t.block(r)
		}
	}
	return rest
}

// reopen unblocks a topic if no outcome has told that it is blocked, because all its rows were refused or,
// after all, delivered. No Release will come for the topic, so the next row asks for its metadata again. A
// topic that was deleted and created again stays blocked: the next row is given back with that reason.
func (m *machine) reopen(t *topic) {
	if t.untold && !errors.Is(t.err, errRecreated) && !t.anyInFlight() && !t.anyWaiting() {
		m.unblock(t)
	}
}
