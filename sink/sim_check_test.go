package sink

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// This file checks what the machine demands of its surroundings, and checks the machine after each step.

// flying returns how many tries are under way.
func (w *sim) flying() int { return len(w.tries) + w.late }

// busy reports whether a try is under way to the partition.
func (w *sim) busy(q *partitionQueue) bool {
	for b := range w.tries {
		if b.queue == q {
			return true
		}
	}
	return false
}

// current reports whether this queue is the one by which the machine knows the partition.
func (w *sim) current(q *partitionQueue) bool {
	if w.m.tx != nil && q.topic == w.m.tx.journal {
		return true
	}
	t := w.m.topics[q.topic.name]
	return t == q.topic && int(q.partition) < len(t.queues) && t.queues[q.partition] == q
}

// checkSend checks a try before it is sent.
func (w *sim) checkSend(try *simTry) {
	b, q, t := try.b, try.b.queue, w.topic(try.b.queue.topic.name)
	journal := t.name == simJournal
	switch before := w.open[b]; {
	case w.shut:
		w.fail("%s is sent to, although nothing may be", q)
	case !w.current(q) || w.tries[b] != nil || !w.plan.once && w.busy(q) || q.inFlight != b || q.state != queueInFlight:
		w.fail("%s is sent to out of turn", q)
	case !t.ours && (!journal || !w.plan.once):
		w.fail("%s takes no rows", q)
	case try.to == "":
		w.fail("%s is sent to nobody", q)
	case before != nil && (before.as != try.as || before.seq != try.seq || !slices.Equal(before.rows, try.rows)):
		w.fail("%s: a batch was changed whose fate is open", q)
	case !w.plan.once && b.made.Equal(w.now) && b.tries == 1 && b.as != w.m.id:
		w.fail("%s: a new batch of %v, not %v", q, b.as, w.m.id)
	case w.plan.fencing && !w.plan.once && !w.fenced[q]:
		w.fail("%s is sent to before it is fenced", q)
	case !b.sent.Equal(w.now):
		w.fail("%s is sent to at %v", q, b.sent)
	case !w.plan.once && before == nil && w.m.cfg.heldFor > 0 && w.holdsOld(b):
		w.fail("%s: rows are sent that have waited for long, and were not looked at", q)
	}
	bytes, headers := batchOverhead, 0
	for _, p := range b.rows {
		bytes, headers = bytes+recordSize(p), headers+len(p.Headers)
		if p.Key != nil && p.Partition < 0 && PartitionOf(p.Table.Mapping.Partitioner, p.Key, len(q.topic.queues)) != q.partition {
			w.fail("row %s goes to %s", p.ID, q)
		}
		if r := w.of[p]; r != nil {
			if r.named == p && r.at == q && !w.plan.once {
				w.fail("row %s is sent again, although a broker named it", p.ID)
			}
			r.sent = w.now
		}
	}
	if l := w.logs[topicPartition{t.name, q.partition}]; l != nil && float64(b.tries) > 16+8*w.now.Sub(b.made).Seconds()+2*float64(l.moves) {
		w.fail("%s: try %d after %v", q, b.tries, w.now.Sub(b.made))
	}
	if bytes != b.bytes || headers != b.headers {
		w.fail("%s: %d bytes and %d headers, not %d and %d", q, b.bytes, b.headers, bytes, headers)
	}
	if !journal && b.made.Equal(w.now) && b.tries == 1 {
		w.checkSize(b)
	}
}

// holdsOld reports whether the batch has rows to be looked at first.
func (w *sim) holdsOld(b *batch) bool {
	return slices.ContainsFunc(b.rows, func(p *outbox.Row) bool {
		r := w.of[p]
		return p.Stale || w.now.Sub(later(r.since, r.looked)) > w.m.cfg.heldFor+tenth
	})
}

// checkSize checks that a new batch is as large as the limits allow.
func (w *sim) checkSize(b *batch) {
	q, most, bytes := b.queue, w.m.limits(b.queue.topic), b.bytes
	if w.plan.once {
		bytes -= batchOverhead
	}
	if len(b.rows) > most.rows || len(b.rows) > 1 && bytes > most.bytes {
		w.fail("%s: a batch of %d rows and %d bytes", q, len(b.rows), b.bytes)
	}
	if w.plan.once || q.limit > 0 || len(b.rows) == most.rows || q.rows.len() == 0 {
		return
	}
	if next := q.rows.peek()[0]; q.rejected[next] == nil && !q.elsewhere(next) && !most.old(next) && b.bytes+recordSize(next) <= most.bytes {
		w.fail("%s: a batch of %d rows only", q, len(b.rows))
	}
}

// noteOpen remembers that a batch may be in the log.
func (w *sim) noteOpen(try *simTry, r reply) {
	appended := r.offset >= 0 && (r.code == sarama.ErrNotLeaderForPartition || r.code == sarama.ErrUnknownTopicOrPartition)
	unknown := slices.Contains([]sarama.KError{sarama.ErrRequestTimedOut, sarama.ErrNotEnoughReplicasAfterAppend, sarama.ErrUnknown, sarama.ErrNetworkException}, r.code)
	if w.plan.once || !(r.err != nil && !r.unsent || r.err == nil && (appended || unknown)) {
		return
	}
	w.open[try.b] = try
	if !w.plan.fencing {
		w.doubt(try.rows)
	}
}

func (w *sim) checkAsk(a *metadataRequest) {
	if n := len(w.asked); n > 100 && w.now.Sub(w.asked[n-100]) < time.Second {
		w.fail("metadata is asked for without end")
	}
	for i, name := range a.topics {
		t := w.m.topics[name]
		switch {
		case slices.Contains(a.topics[:i], name):
			w.fail("topic %s is asked for twice", name)
		case t == nil && !w.m.isJournal(name):
			w.fail("topic %s is asked for, and is nobody's", name)
		case t != nil && t.state == topicBlocked && !t.anyInFlight() && !w.m.isJournal(name):
			w.fail("topic %s is asked for, and blocked", name)
		}
	}
	for name, t := range w.m.topics {
		if !a.all && (t.state != topicBlocked || t.anyInFlight()) && !slices.Contains(a.topics, name) {
			w.fail("topic %s is not asked for", name)
		}
	}
}

const simSearching = "searching the partition log for a batch whose outcome is unknown"

func (w *sim) checkJob(j *producerIDJob) {
	switch {
	case w.jobOut || w.plan.once:
		w.fail("a job too many")
	case w.m.id == nobody:
		w.fail("a job without an identity")
	case j.keepAlive == nil && len(j.fence)+len(j.resolve) == 0:
		w.fail("a job of nothing")
	case !w.plan.fencing && len(j.fence) > 0 && !w.m.reused:
		w.fail("a fence without a transactional id")
	}
	for _, f := range j.fence {
		if q := w.m.topics[f.Topic].queues[f.Number]; f.leader == "" || f.leader != q.leader || w.fenced[q] || !w.topic(f.Topic).ours || q.topic.state != topicReady {
			w.fail("fence %v", f)
		}
	}
	for _, s := range j.resolve {
		b := s.batch
		if q := b.queue; q.inFlight != b || q.state != queueResolving || s.as != b.as || s.seq != b.seq || s.n != len(b.rows) || s.look != (w.open[b] != nil) || s.from != w.tails[q]-1 ||
			s.sealed != w.sealed[b] || w.notes[simSearching+s.Topic] == 0 {
			w.fail("search for %v: %+v", s.topicPartition, s)
		}
	}
	if p := j.keepAlive; p != nil {
		q := w.m.topics[p.Topic].queues[p.Number]
		if !w.plan.fencing || q.inFlight != nil && q.inFlight.as != w.id || !w.fenced[q] || q.leader == "" || q.topic.state != topicReady || w.now.Sub(w.kept) < w.m.cfg.keepAlive {
			w.fail("the id is kept alive at %v", *p)
		}
		w.kept = w.now
	}
}

// state takes a report about the cluster.
func (w *sim) state(s *outbox.ClusterState) {
	w.tell("usable %v: %v, topics %v", s.Usable, s.Err, s.Topics)
	if s.Topics != nil {
		for name, usable := range w.listed {
			if s.Topics[name] != usable {
				w.fail("topic %s is listed: %v", name, s.Topics[name])
			}
		}
		return
	}
	class, last := "", simState{}
	if n := len(w.states); n > 0 {
		last = w.states[n-1]
	}
	if !s.Usable {
		class = ErrorClass(s.Err)
	}
	switch again := len(w.states) > 0 && last.usable == s.Usable; {
	case s.Usable != (s.Err == nil) || s.Cluster != "main":
		w.fail("the state is %+v", s)
	case again && (s.Usable || class == last.class || w.now.Sub(last.at) < 5*w.m.cfg.outageAfter):
		w.fail("the state is %+v once more", s)
	case !s.Usable && w.wrong == 0 && w.now.Sub(w.hurt) > w.plan.patience:
		w.fail("it is not usable for nothing: %v", s.Err)
	case errors.Is(s.Err, errDark) && w.acked.After(w.askFailed):
		w.fail("it is not usable for %v, and works", s.Err)
	}
	w.states = append(w.states, simState{s.Usable, class, w.now})
}

// simState is a reported state of the cluster.
type simState struct {
	usable bool
	class  string
	at     time.Time
}

// checkPatience checks that no row waits for longer than the present faults explain, and that an outage is
// reported.
func (w *sim) checkPatience() {
	if w.steps++; w.steps%4 != 0 { // it takes long
		return
	}
	last := simState{}
	if n := len(w.states); n > 0 {
		last = w.states[n-1]
	}
	if len(w.states) == 0 && !w.askFailed.IsZero() {
		w.fail("nobody is told that no broker can be reached")
	}
	for _, l := range w.lines {
		t := w.topic(l.topic)
		for _, r := range l.rows {
			if r.pub == nil {
				continue
			}
			since := later(r.since, w.hurt)
			if w.wrong == 0 && w.now.Sub(since) > w.plan.patience {
				w.fail("row %s waits since %v: %s", r.row.ID, since.Sub(w.begin), w.describe())
			}
			works := later(t.acked, w.asksWell)
			if works = later(works, w.askFailed); w.acked.After(w.askFailed) && !w.askFailed.IsZero() {
				works = w.now // where others work, it is no outage that metadata cannot be asked for
			}
			if long := w.m.cfg.outageAfter + 3*time.Second + 40*w.plan.latency; last.usable && !w.jobOut && !w.plan.once && t.there && t.says != sarama.ErrUnknownTopicOrPartition &&
				w.now.Sub(later(later(later(r.since, last.at), w.jobEnd), later(works, w.shutAt))) > long && !w.m.topicBlocked(l.topic) {
				w.fail("row %s waits since %v, and nobody is told of it: %s", r.row.ID, r.since.Sub(w.begin), w.describe())
			}
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (m *machine) topicBlocked(name string) bool {
	return m.topics[name] != nil && m.topics[name].state == topicBlocked
}

// checkParts checks what the machine's parts promise about themselves.
func (w *sim) checkParts() {
	m, places := w.m, 0
	have := func(rows []*outbox.Row) {
		for _, p := range rows {
			if r := w.of[p]; r == nil || r.pub != p {
				w.fail("row %s is kept, and has its outcome", p.ID)
			}
		}
		places += len(rows)
	}
	for name, t := range m.topics {
		switch {
		case t.name != name:
			w.fail("topic %s is %s", name, t.name)
		case t.state == topicReady && (t.waiting.len() > 0 || len(t.queues) == 0), t.state == topicDraining && t.fresh == nil:
			w.fail("topic %s is in state %d: %s", name, t.state, w.describe())
		case t.state == topicBlocked && (t.err == nil || t.waiting.len() > 0):
			w.fail("topic %s is blocked: %s", name, w.describe())
		case t.state == topicBlocked && t.untold && !errors.Is(t.err, errRecreated) && !t.anyInFlight():
			w.fail("topic %s is blocked, and nobody was told", name)
		}
		for k := range t.blocked {
			if s := (outbox.Scope{Kind: outbox.ScopeKey, Table: k.table, Topic: name, Key: k.key}); !w.parked[s] {
				w.fail("%v is blocked", s)
			}
		}
		have(t.waiting.peek())
		for _, q := range t.queues {
			if t.state == topicBlocked && !q.busy() && q.rows.len() > 0 {
				w.fail("%s has rows of a topic that is blocked", q)
			}
			have(q.rows.peek())
			have(q.inFlightRows())
			w.checkQueue(q)
		}
	}
	if w.out != places {
		w.fail("%d rows are kept, %d have no outcome: %s", places, w.out, w.describe())
	}
	for q := range m.waiting {
		if !w.current(q) || q.state != queueWaiting && q.state != queueIdle {
			w.fail("%s waits in state %d", q, q.state)
		}
	}
	for q := range m.failing {
		if !w.current(q) || q.err == nil || q.since.IsZero() || q.failures == 0 {
			w.fail("%s fails for %v", q, q.err)
		}
	}
	for t := range m.stalled {
		if m.topics[t.name] != t {
			w.fail("topic %s is stalled", t.name)
		}
	}
	if m.last != nil && m.topics[m.last.name] != m.last || len(m.dirty) > 0 {
		w.fail("leftovers: last %v, dirty %v", m.last, m.dirty)
	}
	if m.tx != nil && len(m.tx.giving) == 0 && len(m.tx.back) > 0 {
		w.fail("rows to be taken back of no transaction")
	}
}

// checkDirty checks that no partition is twice in dirty.
func (w *sim) checkDirty() {
	seen := map[*partitionQueue]bool{}
	for _, q := range w.m.dirty {
		if seen[q] || !q.dirty {
			w.fail("%s is looked at twice", q)
		}
		seen[q] = true
	}
}

// checkQueue checks a partition's queue.
func (w *sim) checkQueue(q *partitionQueue) {
	_, waits := w.m.waiting[q]
	_, fails := w.m.failing[q]
	switch {
	case q.state == queueWaiting && !waits, (q.state == queueInFlight || q.state == queueResolving) && (q.inFlight == nil || waits), q.state == queueIdle && q.inFlight != nil:
		w.fail("%s is in state %d", q, q.state)
	case q.state == queueInFlight && w.tries[q.inFlight] == nil && !w.plan.once: // else its transaction may be given up
		w.fail("%s awaits an answer that nobody gives", q)
	case q.dirty:
		w.fail("%s is dirty", q)
	case fails != (q.err != nil):
		w.fail("%s fails: %v, for %v", q, fails, q.err)
	case q.limit < 0:
		w.fail("%s takes %d rows", q, q.limit)
	}
	for p := range q.rejected {
		if !slices.Contains(q.rows.peek(), p) {
			w.fail("%s has forgotten row %s, and refuses it", q, p.ID)
		}
	}
}

// checkRest checks a world in which all rows are done, after a long time with this number of requests.
func (w *sim) checkRest(long time.Duration, asked, jobs, seals int) {
	m := w.m
	times := func(what string, n int, every time.Duration) {
		if most := int(long/every) + 1; n > most || n < int(long/(every+4*w.plan.latency))-1 {
			w.fail("%d %s in %v, every %v", n, what, long, every)
		}
	}
	ready := 0
	for _, t := range m.topics {
		if t.state == topicReady {
			ready++
		}
	}
	times("requests for metadata", asked, m.cfg.refresh)
	keep := m.cfg.keepAlive > 0 && w.plan.fencing
	switch {
	case keep && w.plan.once:
		times("seals", seals/2, m.cfg.keepAlive)
	case keep && ready > 0:
		times("jobs", jobs, m.cfg.keepAlive)
	case !keep && jobs+seals > 0:
		w.fail("%d jobs, %d seals at rest", jobs, seals)
	}
	stalled := 0 // a topic that was blocked meanwhile is asked about no more, and its release clears the trouble (seed 92426)
	for t := range m.stalled {
		if t.state != topicBlocked {
			stalled++
		}
	}
	if len(m.waiting)+len(m.failing)+stalled+len(m.resolves)+w.flying() > 0 || !w.states[len(w.states)-1].usable {
		w.fail("it does not rest: %s", w.describe())
	}
	for name, t := range m.topics {
		of := w.topic(name)
		if of.ours && of.there && t.untold && errors.Is(t.err, errRecreated) { // it is told with the next row
			continue
		}
		if !of.ours || !of.there || t.state != topicReady || len(t.queues) != of.count || len(t.blocked) > 0 || t.uuid != (sarama.Uuid{of.uuid}) {
			w.fail("topic %s is remembered: %s", name, w.describe())
		}
		for _, q := range t.queues {
			if q.inFlight != nil || q.given != nil || q.offered || len(q.rejected) > 0 || q.leader != w.logs[topicPartition{name, q.partition}].leader {
				w.fail("%s rests: %s", q, w.describe())
			}
		}
	}
	for _, l := range w.lines {
		for _, r := range l.rows {
			switch {
			case r.done && r.copies != 1 && !r.gone && !(r.doubt && r.copies > 1), !r.done && r.copies > 0 && !r.doubt:
				w.fail("row %s is in the log %d times", r.row.ID, r.copies)
			case !r.done && !r.failed && w.canGo(l), r.done && r.failed:
				w.fail("row %s was lost", r.row.ID)
			}
		}
	}
}

func (w *sim) describe() string {
	var s strings.Builder
	fmt.Fprintf(&s, "wrong %d, at %v; ", w.wrong, w.now.Sub(w.begin))
	_, err := w.m.trouble()
	fmt.Fprintf(&s, "trouble %v, asking %v, job %v, requested %d, next %v, events %d, parked %d; ", err, w.m.asking, w.m.jobOut, len(w.requests), w.m.next().Sub(w.now), len(w.to), len(w.parked))
	for _, t := range w.m.topics {
		fmt.Fprintf(&s, "topic %s state %d err %v waiting %d; ", t.name, t.state, t.err, t.waiting.len())
		for _, q := range t.queues {
			fmt.Fprintf(&s, "%d: leader %q fenced %v state %d queue %d in flight %v at %v err %v; ",
				q.partition, q.leader, q.fenced, q.state, q.rows.len(), q.inFlight != nil, q.at.Sub(w.now), q.err)
		}
	}
	return s.String()
}
