package checkpoint

import (
	"errors"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// This file has Kafka and the sink of the simulation. The sink does exactly what outbox.Command and
// outbox.Outcome say. It has one queue per partition, and at most one batch on the wire per queue. Outcomes
// of a key come in the order in which its rows were published.

var (
	errNoUpdate = errors.New("permission denied for UPDATE")
	errNoMark   = errors.New("a trigger raises")
	errRefused  = errors.New("record refused")
	errTopic    = errors.New("topic not authorised")
	errCluster  = errors.New("cluster unreachable")
	errNoRecord = errors.New("headers are not an object")
	errMapping  = errors.New("column payload does not exist")
)

// kafka is the state of Kafka, which all processes share.
type kafka struct {
	down       map[string]bool // clusters that cannot be reached
	topicDown  map[string]bool // topics of a cluster that refuse every batch
	partitions map[string]int  // number of added partitions
	epochs     map[string]int  // producer epoch by cluster; older epochs are refused
	log        []landing
	journals   map[string]journal // journals of exactly-once delivery, by cluster
}

// landing is one record in Kafka.
type landing struct {
	row  *dbRow
	meta copyMeta
	proc *proc
	step int
}

// item is a row in the sink, from Publish to its outcome.
type item struct {
	row     *outbox.Row
	group   outbox.Scope
	sent    bool // was on the wire at least once
	class   outbox.Class
	scope   outbox.Scope
	err     error
	blocked bool // the sink began to block Scope with this outcome

	since time.Time // when it was published or last looked at
	asked *waited   // the state of the row when the sink asked about it; nil: the sink did not ask
}

type batch struct {
	items  []*item
	queue  *partitionQueue
	done   bool // Kafka has answered
	landed int  // how many of the first items were appended to the log
	tx     *onceTx
	result error
}

type partitionQueue struct {
	cluster, topic string
	part           int
	queue          []*item // items that are not on the wire and have no outcome
	wire           *batch
	order          []*item // items whose outcomes are owed, in the order of publishing
}

type sink struct {
	w          *world
	p          *proc
	cmds       []outbox.Command
	queues     []*partitionQueue
	blocked    map[blocked]bool
	owed       map[outbox.Scope]int // expected releases
	partitions map[string]int       // partitions that the sink knows of
	draining   map[string]bool
	epochs     map[string]int // 0: not fenced yet, nothing may be sent
	told       map[string]bool
	txs        map[string]*onceTx // by cluster
}

func newSink(p *proc) *sink {
	return &sink{w: p.w, p: p, blocked: map[blocked]bool{}, owed: map[outbox.Scope]int{}, partitions: map[string]int{}, draining: map[string]bool{}, epochs: map[string]int{}, told: map[string]bool{}, txs: map[string]*onceTx{}}
}

func (s *sink) queueFor(row *outbox.Row) *partitionQueue {
	id := topicID(row.Cluster, row.Topic)
	part, of := 0, s.known(id)
	switch {
	case s.draining[id]:
		part = draining
	case row.Key == nil:
		part = s.w.meta(row).row.n % of
	default:
		part = int(row.Key[0]) % of
	}
	return s.queueOf(row.Cluster, row.Topic, part)
}

func (s *sink) queueOf(cluster, topic string, part int) *partitionQueue {
	for _, l := range s.queues {
		if l.topic == topic && l.cluster == cluster && l.part == part {
			return l
		}
	}
	l := &partitionQueue{cluster: cluster, topic: topic, part: part}
	s.queues = append(s.queues, l)
	return l
}

// fence is InitProducerId and the empty transaction on one cluster.
func (s *sink) fence(cluster string) {
	s.w.kafka.epochs[cluster]++
	s.epochs[cluster] = s.w.kafka.epochs[cluster]
	s.w.note("%v: fences cluster %s with epoch %d", s.p, cluster, s.epochs[cluster])
}

func (s *sink) fenced(cluster string) bool { return s.epochs[cluster] != s.w.kafka.epochs[cluster] }

// command carries out the oldest command.
func (s *sink) command() {
	c := s.cmds[0]
	s.cmds = s.cmds[1:]
	switch {
	case c.Release != nil:
		s.w.note("%v: sink: release %v", s.p, *c.Release)
		if s.owed[*c.Release]--; s.owed[*c.Release] < 0 {
			s.w.fail("contract", nil, "release of %v, which is not owed", *c.Release)
		}
		s.release(*c.Release)
	case c.Withdraw != nil:
		s.w.note("%v: sink: withdraw %v", s.p, *c.Withdraw)
		behind := s.behindAsked()
		s.giveBack(*c.Withdraw, nil, func(it *item) bool { return (!it.sent || behind[it]) && c.Withdraw.Contains(it.row) })
		s.emitAtOnce()
	case c.Looked != nil:
		for _, a := range c.Looked {
			s.looked(a)
		}
	case c.List:
		s.list()
	default:
		for _, row := range c.Publish {
			if s.p.terminal[row] {
				s.w.fail("I4", s.w.meta(row).row, "row %s is published after a look said that it is not PENDING", row.ID)
			}
			s.publish(row)
		}
	}
	s.emit()
}

// list reports the topics of the clusters that answer.
func (s *sink) list() {
	for _, cl := range s.w.plan.clusters {
		if s.w.kafka.down[cl] {
			continue
		}
		names := map[string]bool{}
		for _, topic := range topics[:s.w.plan.topics] {
			if !s.w.kafka.topicDown[topicID(cl, topic)] {
				names[topic] = true
			}
		}
		s.w.note("%v: sink: cluster %s has topics %v", s.p, cl, names)
		s.p.states = append(s.p.states, outbox.ClusterState{Cluster: cl, Topics: names})
	}
}

func (s *sink) publish(row *outbox.Row) {
	r := s.w.meta(row).row
	s.w.note("%v: sink: publish %v", s.p, r)
	if row.Err != nil {
		s.w.fail("contract", r, "%v cannot become a record and is published", r)
	}
	if s.p.core.cfg.Shadow {
		s.w.fail("contract", r, "%v is published in shadow", r)
	}
	if m := s.w.meta(row); m.waited != nil {
		if !m.looked && !m.seen {
			s.w.fail("I12", r, "%v waited in the WAL, and nobody has looked at it", r)
		}
		s.w.checkWaited(m.waited, r, m)
	}
	if row.Stale {
		s.w.fail("contract", r, "%v is published, and is to be looked at", r)
	}
	if r.foreign {
		s.w.fail("contract", r, "%v was not inserted PENDING and is published", r)
	}
	for _, p := range s.pending() {
		if s.w.row(p.row) == r {
			s.w.fail("I4", r, "%v is published while it is in the sink", r)
		}
	}
	it := &item{row: row, group: outbox.KeyScope(row), since: s.w.now}
	l := s.queueFor(row)
	l.order = append(l.order, it)
	if why, err := s.blocks(row); why != nil {
		it.class, it.scope, it.err = outbox.Withdrawn, *why, err
		return
	}
	l.queue = append(l.queue, it)
}

// blocked is what the sink of one cluster blocks.
type blocked struct {
	cluster string
	scope   outbox.Scope
}

// release goes to the sinks of all clusters, because the scope of a key names no cluster.
func (s *sink) release(scope outbox.Scope) {
	for b := range s.blocked {
		sameTopic := b.scope.Kind == outbox.ScopeTopic && scope.Kind == outbox.ScopeTopic && b.scope.Topic == scope.Topic && s.w.off.releasesOne
		if b.scope == scope || sameTopic {
			delete(s.blocked, b)
		}
	}
}

func (s *sink) pending() []*item {
	var all []*item
	for _, l := range s.queues {
		all = append(all, l.order...)
	}
	return all
}

func (s *sink) blocks(row *outbox.Row) (*outbox.Scope, error) {
	if t := outbox.TopicScope(row.Cluster, row.Topic); s.blocked[blocked{row.Cluster, t}] {
		return &t, errTopic
	}
	if k := outbox.KeyScope(row); s.blocked[blocked{row.Cluster, k}] && !s.w.off.sinkBlocksKey {
		return &k, nil
	}
	return nil, nil
}

// giveBack withdraws queued rows.
func (s *sink) giveBack(why outbox.Scope, err error, which func(*item) bool) {
	for _, l := range s.queues {
		kept := l.queue[:0]
		for _, it := range l.queue {
			if which(it) {
				it.class, it.scope, it.err = outbox.Withdrawn, why, err
			} else {
				kept = append(kept, it)
			}
		}
		l.queue = kept
	}
}

// heldFor returns how long a row may wait in the sink before it is looked at.
func (p *plan) heldFor() time.Duration {
	return [...]time.Duration{5 * time.Second, time.Second, 0}[p.steps%3]
}

// waits reports whether the first row of a queue has to be looked at.
func (l *partitionQueue) waits() bool { return len(l.queue) == 0 || l.queue[0].asked != nil }

// fresh returns how many of the next n rows may be sent as they are. It asks about the others.
func (s *sink) fresh(l *partitionQueue, n int) int {
	may, stale := n, []*outbox.Row(nil)
	for i, it := range l.queue[:n] {
		if old := s.w.now.Sub(it.since) > s.w.plan.heldFor() && it.row.Table.LooksAgain(); old && it.asked == nil {
			it.asked, it.row.Stale = s.w.noticed(s.w.row(it.row)), true
			stale = append(stale, it.row)
		}
		if it.asked != nil {
			may = min(may, i)
		}
	}
	if len(stale) > 0 {
		s.w.note("%v: sink: asks what has become of %v", s.p, outboxIDs(stale))
		s.p.outcomes = append(s.p.outcomes, outbox.Outcome{Rows: stale, Class: outbox.Stale})
	}
	return may
}

// behindAsked returns rows that wait to be looked at, and those behind them, which may have been on the wire.
func (s *sink) behindAsked() map[*item]bool {
	behind := map[*item]bool{}
	for _, l := range s.queues {
		waits := false
		for _, it := range l.queue {
			waits = waits || it.asked != nil
			behind[it] = waits
		}
	}
	return behind
}

// looked takes the result of a look at one row.
func (s *sink) looked(a outbox.Checked) {
	for _, l := range s.queues {
		i := slices.IndexFunc(l.queue, func(it *item) bool { return it.row == a.Row })
		if i < 0 {
			continue
		}
		it := l.queue[i]
		s.w.note("%v: sink: hears of row %s, which goes out: %v", s.p, a.Row.ID, a.Now != nil)
		if a.Now != nil {
			s.checkLooked(it, a.Now)
			it.row, it.since, it.asked = a.Now, s.w.now, nil
			return
		}
		l.queue = slices.Delete(l.queue, i, i+1)
		if it.class = outbox.TakenOut; s.w.chance(50) {
			l.order = slices.DeleteFunc(l.order, func(o *item) bool { return o == it })
			s.outcome(it)
		}
		return
	}
}

// checkLooked checks a row that waited here.
func (s *sink) checkLooked(it *item, now *outbox.Row) {
	r := s.w.row(now)
	if now.Handle != it.row.Handle || now.Stale {
		s.w.fail("contract", r, "%v is answered with another row", r)
	}
	s.w.checkWaited(it.asked, r, s.w.meta(now))
}

// send puts the next batch of a queue on the wire.
func (s *sink) send(l *partitionQueue, n int) {
	if n = s.fresh(l, min(n, len(l.queue))); n == 0 {
		return
	}
	b := &batch{queue: l, items: append([]*item(nil), l.queue[:n]...)}
	l.queue = append([]*item(nil), l.queue[n:]...)
	for _, it := range b.items {
		it.sent = true
		s.w.note("%v: sink: sends %v", s.p, s.w.meta(it.row).row)
	}
	l.wire = b
}

// arrive is what Kafka does when a batch arrives.
func (s *sink) arrive(b *batch) {
	w := s.w
	if w.plan.once {
		s.arriveOnce(b)
		return
	}
	b.done = true
	switch {
	case s.fenced(b.queue.cluster) && !w.off.fencing:
		b.result = errFenced
		return
	case w.kafka.topicDown[topicID(b.queue.cluster, b.queue.topic)]:
		b.result = errTopic
		return
	}
	for _, it := range b.items {
		r := w.meta(it.row).row
		if r.poison != 0 {
			if r.poison > 0 {
				r.poison--
			}
			r.refusals++
			w.note("kafka: refuses %v", r)
			b.result = errRefused
			return
		}
		b.landed++
		w.land(s.p, it.row)
	}
}

var errFenced = errors.New("INVALID_PRODUCER_EPOCH")

// answer is what the sink does when Kafka's answer arrives.
func (s *sink) answer(b *batch) {
	l := b.queue
	l.wire = nil
	for _, it := range b.items[:b.landed] {
		it.class = outbox.Delivered
	}
	rest := b.items[b.landed:]
	switch b.result {
	case nil:
	case errFenced:
		s.p.discard("its sink was fenced")
		return
	case errRefused:
		s.refuse(l, rest)
	case errTopic:
		s.topicError(l, rest)
	}
	s.emitFrom(l)
	s.emit()
}

func (s *sink) refuse(l *partitionQueue, rest []*item) {
	it := rest[0]
	it.class, it.scope, it.err = outbox.Refused, it.group, errRefused
	l.queue = append(append([]*item(nil), rest[1:]...), l.queue...)
	if it.row.Key == nil {
		return
	}
	scope := blocked{l.cluster, it.group}
	it.blocked = !s.blocked[scope]
	s.blocked[scope] = true
	if !s.w.off.sinkBlocksKey {
		s.giveBack(it.group, nil, func(o *item) bool { return o.group == it.group && o.row.Cluster == l.cluster })
	}
}

func (s *sink) topicError(l *partitionQueue, rest []*item) {
	t := outbox.TopicScope(l.cluster, l.topic)
	for i, it := range rest {
		it.class, it.scope, it.err = outbox.Withdrawn, t, errTopic
		it.blocked = i == 0 && !s.blocked[blocked{l.cluster, t}]
	}
	s.blocked[blocked{l.cluster, t}] = true
	s.giveBack(t, errTopic, func(o *item) bool { return t.Contains(o.row) })
}

// emit reports the outcomes that are due. The outcome of a row comes after those of the earlier rows of its
// key.
func (s *sink) emit() {
	for _, l := range s.queues {
		s.emitFrom(l)
	}
}

// emitAtOnce gives back withdrawn rows, though earlier rows of their keys are still on the wire. No row of
// these keys is sent meanwhile.
func (s *sink) emitAtOnce() {
	if !s.w.chance(50) {
		return
	}
	for _, l := range s.queues {
		l.order = slices.DeleteFunc(l.order, func(it *item) bool {
			if it.class == outbox.Withdrawn {
				s.outcome(it)
			}
			return it.class == outbox.Withdrawn
		})
	}
}

func (s *sink) emitFrom(l *partitionQueue) {
	var waiting map[outbox.Scope]bool
	kept := l.order[:0]
	for _, it := range l.order {
		if it.class != 0 && !waiting[it.group] {
			s.outcome(it)
			continue
		}
		if waiting == nil {
			waiting = map[outbox.Scope]bool{}
		}
		waiting[it.group] = true
		kept = append(kept, it)
	}
	l.order = kept
}

func (s *sink) outcome(it *item) {
	p := s.p
	if it.blocked {
		s.owed[it.scope]++
	}
	if n := len(p.outcomes); n > 0 && !it.blocked {
		last := &p.outcomes[n-1]
		if last.Class == it.class && it.class != outbox.Refused && last.Scope == it.scope && last.Err == it.err {
			last.Rows = append(last.Rows, it.row)
			return
		}
	}
	p.outcomes = append(p.outcomes, outbox.Outcome{
		Rows: []*outbox.Row{it.row}, Class: it.class, Scope: it.scope, Blocked: it.blocked, Err: it.err,
	})
}

// land appends a record to Kafka's log and checks what may be there.
func (w *world) land(p *proc, row *outbox.Row) {
	m := *w.meta(row)
	r := m.row
	w.kafka.log = append(w.kafka.log, landing{r, m, p, w.step})
	w.note("kafka: %v is in the log, from %v", r, p)
	r.copies++
	if p != nil && (p.conn == nil || w.lock != p.conn) && !w.plan.once {
		r.allowed++ // by one who does not lead any more and was not fenced yet
	}
	w.checkLanding(r, &w.kafka.log[len(w.kafka.log)-1])
}
