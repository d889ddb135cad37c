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

// place puts a row where its topic's state wants it.
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

// names are those of all topics, in an order that does not depend on chance, so that a
// test's seed reproduces.
func (m *machine) names() []string { return slices.Sorted(maps.Keys(m.topics)) }

func (m *machine) release(s outbox.Scope) {
	switch s.Kind {
	case outbox.ScopeKey:
		if t := m.topics[s.Topic]; t != nil {
			delete(t.blocked, key{s.Table, s.Key})
		}
	case outbox.ScopeTopic:
		// Commands go to the sinks of all clusters. A topic of this name that another
		// sink blocks is not ours, whose rows may have been given back meanwhile.
		if t := m.topics[s.Topic]; t != nil && t.state == topicBlocked && s.Cluster == m.cluster {
			m.unblock(t)
			m.drop(t)
		}
	}
}

// drop forgets a topic that has neither queues nor blocked keys, so that no more
// are remembered than exist or have rows here.
func (m *machine) drop(t *topic) {
	if len(t.queues) > 0 || len(t.blocked) > 0 {
		return
	}
	delete(m.topics, t.name)
	delete(m.stalled, t)
	m.last = nil
}

// unblock lets a topic start again with fresh metadata. Partitions with an open
// batch stay until its outcome is known.
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
			m.touch(q) // what waited behind a stale row may go
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

// giveBackTopic gives rows of a blocked topic back. The first of them say that
// a Release is owed. Rows of tables for which the topic's error is the row's own
// are refused instead, each by itself.
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

// refuseOwn refuses those of a blocked topic's rows whose own error it is, gives
// back those behind them, and returns the rest.
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

// reopen unblocks a topic if nobody has heard that it is blocked, since its rows were refused,
// or delivered after all: no Release will come, and the next row asks again. A topic that was
// made again stays blocked: the next row is given back with that reason.
func (m *machine) reopen(t *topic) {
	if t.untold && !errors.Is(t.err, errRecreated) && !t.anyInFlight() && !t.anyWaiting() {
		m.unblock(t)
	}
}
