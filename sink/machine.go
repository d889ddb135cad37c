package sink

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// machine decides everything that a sink does: which rows make a batch, what a
// reply means, who is given back. It is pure: no I/O, no clock, no goroutine.
// Inputs are methods, what they lead to is collected until take.
//
// Invariants:
//   - a row is in exactly one of: topic.waiting, lane.queue, lane.flight, outcomes;
//   - a batch that may be in the log is never changed, split or given back
//     before its fate is known;
//   - a lane's rows leave it in order.
type machine struct {
	cluster string
	cfg     machineConfig
	now     time.Time
	closed  bool // nothing may be sent now; see Config.Until

	id      identity
	fencing bool // the identity belongs to a transactional id
	topics  map[string]*topic
	last    *topic  // of the last row: most rows go where the one before went
	dirty   []*lane // to be looked at by pump
	waiting map[*lane]struct{}
	failing map[*lane]struct{} // lanes that have an err
	stalled map[*topic]stall

	// Metadata: at most one request is out.
	asking    bool
	askAt     time.Time // next request, or zero
	askErrs   int       // failures in a row
	askErr    error
	askFailed time.Time // since when
	askedAt   time.Time
	crowd     bool // the answer lacks very many topics
	list      bool // all topics are to be asked about
	answered  time.Time
	ackedAt   time.Time

	// Ownership: at most one job is out.
	owning   bool
	ownErr   error
	ownSince time.Time
	resolves []*batch // wanted
	unfenced bool     // some lane may want fencing
	ownAt    time.Time
	keepAt   time.Time
	verdict  usability
	// The class of the reason that was told for an unusable cluster, and when.
	told   string
	toldAt time.Time

	out work
}

// machineConfig bounds a machine; see Config.
type machineConfig struct {
	limits      limits
	topicGrace  time.Duration
	outageAfter time.Duration
	refresh     time.Duration
	keepAlive   time.Duration
	// random chooses one of n; it spreads records without a key.
	random func(n int) int
}

type usability uint8

const (
	usabilityUnknown usability = iota
	usable
	unusable
)

// place is a partition of a topic.
type place struct {
	topic     string
	partition int32
}

// work is what is to be done now.
type work struct {
	send     []*batch
	outcomes []outbox.Outcome
	states   []outbox.ClusterState
	ask      *asking
	own      *ownership
	notes    []note
}

// asking is a request for metadata.
type asking struct {
	topics []string
	all    bool // of the cluster, whatever topics says
}

// topicInfo is what metadata says of a topic.
type topicInfo struct {
	code     sarama.KError
	uuid     sarama.Uuid
	leaders  []string // address by partition, empty: none
	maxBytes int      // max.message.bytes, or 0: not told
	internal bool     // Kafka's own
}

// usable says that rows can go to the topic as far as metadata tells.
func (i *topicInfo) usable() bool {
	return (i.code == sarama.ErrNoError || i.code == sarama.ErrReplicaNotAvailable) && !i.internal
}

// ownership is a job for the owner of the transactional id.
type ownership struct {
	// fence these partitions against older producers.
	fence []fenceTarget
	// resolve these batches: seal their partitions against all their tries,
	// then look for them in the log.
	resolve []search
	// keepAlive, if set, refreshes the id by an empty transaction there.
	keepAlive *place
}

type fenceTarget struct {
	place
	leader string
}

type search struct {
	fenceTarget
	batch  *batch      // only handed back, never looked into
	uuid   sarama.Uuid // of the topic that from is an offset of
	as     identity
	seq    int32
	n      int
	from   int64
	sealed bool
	look   bool // some try may have landed
}

// owned answers an ownership job.
type owned struct {
	id      identity
	fenced  []place
	tails   map[place]int64 // log ends after fencing, where known
	refused map[place]sarama.KError
	found   []searched
}

type searched struct {
	batch  *batch
	sealed bool
	found  bool
	offset int64
	err    error // not found out
}

// note is a line for the log.
type note struct {
	text  string
	topic string
	err   error
}

func newMachine(cluster string, cfg machineConfig, topics []string) *machine {
	m := &machine{cluster: cluster, cfg: cfg, id: nobody, fencing: true, topics: map[string]*topic{}, waiting: map[*lane]struct{}{}, failing: map[*lane]struct{}{}, stalled: map[*topic]stall{}}
	for _, name := range topics {
		m.topics[name] = newTopic(name)
	}
	return m
}

// take returns what is to be done and forgets it.
func (m *machine) take() work {
	w := m.out
	m.out = work{}
	return w
}

// withMend adds to a topic's error what ends it.
func withMend(err error) error {
	if errors.Is(err, sarama.ErrTopicAuthorizationFailed) {
		return fmt.Errorf("%w (grant WRITE on the topic to our user)", err)
	}
	return err
}

// ---- commands ----

// command carries out one instruction.
func (m *machine) command(c outbox.Command) {
	switch {
	case c.Publish != nil:
		for _, r := range c.Publish {
			m.accept(r)
		}
	case c.Release != nil:
		m.release(*c.Release)
	case c.Withdraw != nil:
		m.withdraw(*c.Withdraw)
	case c.List:
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
			m.want(0)
		}
		m.last = t
	}
	m.place(t, r)
}

// place puts a row where its topic's state wants it.
func (m *machine) place(t *topic, r *outbox.Row) {
	switch {
	case t.state == topicBlocked && len(t.lanes) == 0:
		m.giveBackTopic(t, []*outbox.Row{r})
	case t.state == topicReady || t.state == topicBlocked:
		if t.isBlocked(r) {
			m.giveBack([]*outbox.Row{r}, outbox.KeyScope(r))
			return
		}
		l := t.lane(r, m.cfg.random)
		l.queue.push(r)
		m.touch(l)
	default:
		if t.waiting.len() == 0 {
			m.want(0)
		}
		t.waiting.push(r)
	}
}

// touch has the lane looked at by pump.
func (m *machine) touch(l *lane) {
	if !l.dirty {
		l.dirty = true
		m.dirty = append(m.dirty, l)
	}
}

func (m *machine) release(s outbox.Scope) {
	switch s.Kind {
	case outbox.ScopeKey:
		if t := m.topics[s.Topic]; t != nil {
			delete(t.blocked, key{s.Table, s.Key})
		}
	case outbox.ScopeTopic:
		// Commands go to the sinks of all clusters. A topic of this name that another
		// one blocks is not this one, whose rows may have been given back meanwhile.
		if t := m.topics[s.Topic]; t != nil && t.state == topicBlocked && s.Cluster == m.cluster {
			m.unblock(t)
			m.drop(t)
		}
	}
}

// drop forgets a topic of which there is nothing, so that no more are remembered
// than exist or have rows here.
func (m *machine) drop(t *topic) {
	if len(t.lanes) > 0 || len(t.blocked) > 0 || t.waiting.len() > 0 {
		return
	}
	delete(m.topics, t.name)
	delete(m.stalled, t)
	m.last = nil
}

// unblock lets a topic start anew with fresh metadata. Lanes whose flight is
// still open stay until it is known.
func (m *machine) unblock(t *topic) {
	if t.gone && !t.flights() {
		m.forget(t)
	}
	t.state, t.err, t.gone, t.missing = topicUnknown, nil, false, 0
	for _, l := range t.lanes {
		if l.state == laneWaiting {
			l.at = m.now
		}
	}
	m.want(0)
}

func (m *machine) withdraw(s outbox.Scope) {
	var out []*outbox.Row
	for _, t := range m.topics {
		if s.Kind == outbox.ScopeTopic && s.Topic != t.name || s.Kind == outbox.ScopeKey && s.Topic != t.name {
			continue
		}
		for _, l := range t.lanes {
			l.recall()
			gone := l.queue.extract(s.Covers)
			l.pardon(gone)
			out = append(out, gone...)
			m.touch(l)
		}
		out = append(out, t.waiting.extract(s.Covers)...)
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
		m.note("topic is blocked", t.name, t.err)
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
	if kind == "" || !slices.ContainsFunc(rows, func(r *outbox.Row) bool { return failsOn(r, kind) }) {
		return rows
	}
	t.refused = true
	err := fmt.Errorf("%s: %w", name, t.err)
	var rest []*outbox.Row
	for _, r := range rows {
		switch {
		case !failsOn(r, kind):
			rest = append(rest, r)
		case t.isBlocked(r):
			m.giveBack([]*outbox.Row{r}, outbox.KeyScope(r))
		default:
			m.out.outcomes = append(m.out.outcomes, outbox.Outcome{
				Rows: []*outbox.Row{r}, Class: outbox.Refused, Scope: outbox.KeyScope(r), Blocked: r.Key != nil, Err: err,
			})
			if r.Key != nil {
				t.block(r)
			}
		}
	}
	return rest
}

// reopen unblocks a topic that is blocked without anybody having heard of it,
// since all its rows were refused: no Release will come. The next row asks again.
func (m *machine) reopen(t *topic) {
	if t.state != topicBlocked || !t.untold || !t.refused || t.waiting.len() > 0 || t.flights() {
		return
	}
	for _, l := range t.lanes {
		if l.queue.len() > 0 {
			return
		}
	}
	t.untold, t.refused = false, false
	m.unblock(t)
}

// ---- sending ----

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

// ---- replies ----

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

// ---- topics ----

// blockTopic gives back everything of the topic whose fate is known.
func (m *machine) blockTopic(t *topic, err error) {
	if t.state == topicBlocked {
		return
	}
	t.state, t.err, t.fresh, t.untold, t.refused = topicBlocked, err, nil, true, false
	delete(m.stalled, t)
	for _, l := range t.lanes {
		m.touch(l)
	}
	waiting := t.waiting.takeAll()
	if len(t.lanes) == 0 {
		m.giveBackTopic(t, waiting)
		return
	}
	for _, r := range waiting { // behind what their keys have under way
		m.place(t, r)
	}
}

// metadata takes the answer to ask.
func (m *machine) metadata(asked []string, infos map[string]topicInfo, err error) {
	m.asking, m.answered = false, m.now
	if err != nil {
		m.askErrs++
		m.askErr = err
		if m.askFailed.IsZero() {
			m.askFailed = m.now
		}
		m.want(backoff(m.askErrs, backoffMax))
		return
	}
	m.askErr, m.askFailed = nil, time.Time{}
	// All topics have their turn within the refresh time.
	m.askAt = m.now.Add(m.cfg.refresh * time.Duration(max(len(asked), 1)) / time.Duration(max(len(asked), len(m.topics), 1)))
	m.crowd = absentOf(infos) > crowdTopics
	for _, name := range asked {
		if info, ok := infos[name]; ok && m.topics[name] != nil {
			m.topics[name].asked = m.askedAt
			m.learn(m.topics[name], info)
		}
	}
	m.followUp()
}

// listed takes the answer that names all topics. It says nothing of those that are
// not in it: we may not see all.
func (m *machine) listed(infos map[string]topicInfo, err error) {
	if err == nil {
		m.list = false
		names := map[string]bool{}
		for name, info := range infos {
			if info.usable() && len(info.leaders) > 0 {
				names[name] = true
			}
		}
		m.out.states = append(m.out.states, outbox.ClusterState{Cluster: m.cluster, Topics: names})
	}
	m.metadata(nil, nil, err)
	if err == nil {
		m.want(0) // what the list was asked instead of
	}
}

// crowdTopics is how many topics one answer may lack for them to have their grace:
// of so many none is just being made, and their rows fill the memory.
const crowdTopics = 100

func absentOf(infos map[string]topicInfo) (n int) {
	for _, info := range infos {
		if info.code == sarama.ErrUnknownTopicOrPartition {
			n++
		}
	}
	return n
}

// followUp asks again while something is not as it should be.
func (m *machine) followUp() {
	troubled := false
	for _, t := range m.topics {
		switch {
		case t.state == topicUnknown && t.missing == 0 && t.waiting.len() > 0:
			m.want(0)
		case t.state == topicUnknown && t.waiting.len() > 0:
			troubled = true
		}
		for _, l := range t.lanes {
			troubled = troubled || l.err != nil || t.state == topicReady && l.leader == ""
		}
	}
	if !troubled {
		m.askErrs = 0
		return
	}
	m.askErrs++
	m.want(backoff(m.askErrs, backoffMax))
}

// want has metadata asked for after d, unless it is asked for sooner.
func (m *machine) want(d time.Duration) {
	at := m.now.Add(d)
	if !m.answered.IsZero() && m.askErrs > 0 {
		if earliest := m.answered.Add(backoff(m.askErrs, backoffMax)); at.Before(earliest) {
			at = earliest
		}
	}
	if m.askAt.IsZero() || at.Before(m.askAt) {
		m.askAt = at
	}
}

// learn takes what metadata says of a topic.
func (m *machine) learn(t *topic, info topicInfo) {
	switch info.code {
	case sarama.ErrNoError, sarama.ErrReplicaNotAvailable:
		if info.internal { // so it is never fenced either, which would write to it
			m.unfit(t, fmt.Errorf("topic %s is Kafka's own: no row can be published there: %w", t.name, sarama.ErrInvalidTopic))
			return
		}
	case sarama.ErrUnknownTopicOrPartition:
		m.absent(t)
		return
	case sarama.ErrTopicAuthorizationFailed:
		m.unfit(t, fmt.Errorf("topic %s: not authorised: grant DESCRIBE and WRITE on it to our user: %w", t.name, info.code))
		return
	case sarama.ErrInvalidTopic:
		m.unfit(t, fmt.Errorf("topic %q: not a legal topic name: %w", t.name, info.code))
		return
	default:
		m.stall(t, fmt.Errorf("topic %s: %w", t.name, info.code))
		return
	}
	if len(info.leaders) == 0 {
		m.stall(t, fmt.Errorf("topic %s: brokers do not tell its partitions yet", t.name))
		return
	}
	t.missing = 0
	delete(m.stalled, t)
	if info.maxBytes > 0 {
		t.maxBytes, t.told = info.maxBytes, true
	}
	switch t.state {
	case topicUnknown, topicDraining:
		m.adopt(t, info)
	case topicReady:
		if t.uuid != info.uuid && t.uuid != (sarama.Uuid{}) || len(info.leaders) < len(t.lanes) {
			m.blockTopic(t, fmt.Errorf("topic %s was deleted and created again: what its old log held is gone: %w", t.name, errRecreated))
			return
		}
		m.adopt(t, info)
	case topicBlocked: // a flight may still be open
		m.lead(t, info)
	}
}

// stall notes that a topic, being created or otherwise in a state that passes,
// cannot be used yet.
func (m *machine) stall(t *topic, err error) {
	t.missing++
	since := m.now
	if before, ok := m.stalled[t]; ok {
		since = before.since
	}
	m.stalled[t] = stall{since, err}
}

// stall is a topic's passing trouble.
type stall struct {
	since time.Time
	err   error
}

// absent counts answers without the topic; it takes more than one, and some
// time, since a new topic becomes known to brokers one by one.
func (m *machine) absent(t *topic) {
	if t.missing == 0 {
		t.since = m.now.UnixNano()
	}
	t.missing++
	if !m.crowd && t.missing < 2 || !m.crowd && m.now.Sub(time.Unix(0, t.since)) < m.cfg.topicGrace {
		if t.state == topicReady {
			m.want(backoffMax)
		}
		return
	}
	m.unfit(t, fmt.Errorf("topic %s does not exist: create it (topics are never created by outbox-cdc): %w", t.name, sarama.ErrUnknownTopicOrPartition))
}

// unfit blocks a topic if anybody waits for it; otherwise it is forgotten.
func (m *machine) unfit(t *topic, err error) {
	busy := t.waiting.len() > 0 || t.flights()
	for _, l := range t.lanes {
		busy = busy || l.queue.len() > 0
	}
	gone := errors.Is(err, sarama.ErrUnknownTopicOrPartition)
	if busy {
		m.blockTopic(t, err)
	}
	if gone && t.state == topicBlocked {
		m.settle(t)
	}
	if t.state == topicBlocked {
		return
	}
	t.state = topicUnknown
	m.forget(t)
	m.drop(t)
}

// settle closes what is open in a topic that does not exist: its log is no
// more. Only tries that were over when brokers were asked count, since another
// topic of the name may exist by now.
func (m *machine) settle(t *topic) {
	t.gone = true
	for _, l := range t.lanes {
		if b := l.flight; b != nil && l.state == laneWaiting && b.sent.Before(m.askedAt) {
			b.maybe, b.unresolved = false, false
			m.touch(l)
		}
	}
}

// adopt makes the topic's lanes fit the metadata.
func (m *machine) adopt(t *topic, info topicInfo) {
	renewed := t.uuid != info.uuid && t.uuid != (sarama.Uuid{}) || len(info.leaders) < len(t.lanes)
	if len(t.lanes) > 0 && (renewed || len(info.leaders) != len(t.lanes)) {
		t.state, t.fresh = topicDraining, &info
		m.lead(t, info)
		for _, l := range t.lanes {
			l.recall()
			l.guilty = nil
			t.waiting.unshift(l.queue.takeAll())
			m.touch(l)
		}
		m.drained(t)
		return
	}
	m.build(t, info)
}

// drained finishes a change of partitions once no lane has a flight.
func (m *machine) drained(t *topic) {
	if t.state != topicDraining || t.fresh == nil {
		return
	}
	for _, l := range t.lanes {
		l.guilty = nil
		t.waiting.unshift(l.queue.takeAll())
	}
	if t.flights() {
		return
	}
	info := *t.fresh
	t.fresh, t.homes = nil, nil
	if t.uuid != info.uuid || len(info.leaders) < len(t.lanes) {
		m.forget(t)
	}
	m.note(fmt.Sprintf("topic has %d partitions now", len(info.leaders)), t.name, nil)
	m.build(t, info)
}

// forget drops a topic's lanes.
func (m *machine) forget(t *topic) {
	for _, l := range t.lanes {
		delete(m.waiting, l)
		delete(m.failing, l)
	}
	t.lanes, t.homes = nil, nil
}

// build adds the lanes that are missing and hands the waiting rows out.
func (m *machine) build(t *topic, info topicInfo) {
	t.uuid = info.uuid
	for p := len(t.lanes); p < len(info.leaders); p++ {
		t.lanes = append(t.lanes, &lane{topic: t, partition: int32(p), as: nobody, tail: -1})
	}
	m.lead(t, info)
	t.state = topicReady
	for _, r := range t.waiting.takeAll() {
		m.place(t, r)
	}
	for _, l := range t.lanes {
		m.touch(l)
	}
}

// lead sets the leaders. A lane that waited for another leader goes on at once.
func (m *machine) lead(t *topic, info topicInfo) {
	for p, l := range t.lanes {
		if p >= len(info.leaders) {
			break
		}
		changed := l.leader != info.leaders[p]
		l.leader = info.leaders[p]
		m.unfenced = m.unfenced || !l.fenced
		if changed && l.leader != "" && l.state == laneWaiting {
			l.at = m.now
		}
		// Nothing left to send that could prove that it is well again.
		if l.leader != "" && l.flight == nil && l.queue.len() == 0 && t.waiting.len() == 0 {
			m.calm(l)
		}
	}
}

// ---- ownership ----

// owned takes the answer to an ownership job.
func (m *machine) owned(o owned) {
	m.owning, m.ownErr, m.ownSince = false, nil, time.Time{}
	if m.id != o.id {
		m.id = o.id
	}
	for _, p := range o.fenced {
		m.fenced(p, o.tails)
	}
	for p, code := range o.refused {
		if t := m.topics[p.topic]; t != nil {
			m.fenceRefused(t, code)
		}
	}
	for _, s := range o.found {
		m.searched(s)
	}
	for _, t := range m.topics {
		for _, l := range t.lanes {
			m.touch(l)
		}
	}
}

func (m *machine) fenced(p place, tails map[place]int64) {
	t := m.topics[p.topic]
	if t == nil || int(p.partition) >= len(t.lanes) {
		return
	}
	l := t.lanes[p.partition]
	l.fenced = true
	if tail, ok := tails[p]; ok && l.tail < 0 {
		l.tail = tail
	}
}

func (m *machine) fenceRefused(t *topic, code sarama.KError) {
	switch code {
	case sarama.ErrTopicAuthorizationFailed:
		m.unfit(t, fmt.Errorf("topic %s: not authorised: grant WRITE on it to our user: %w", t.name, code))
	default:
		m.unfenced, m.ownAt = true, m.now.Add(backoffMax)
		m.want(backoffMax)
	}
}

// searched takes what the log says of a batch.
func (m *machine) searched(s searched) {
	b, l := s.batch, s.batch.lane
	b.sealed = b.sealed || s.sealed
	switch {
	case s.err != nil:
		m.wait(l, s.err, backoffMax)
	case s.found:
		m.ack(b, s.offset)
	default:
		l.bind(b, m.id)
		m.launch(l)
	}
	m.touch(l)
}

// nextJob collects what the owner has to do, one job at a time.
func (m *machine) nextJob() *ownership {
	var job ownership
	if m.unfenced {
		job.fence = m.toFence()
		m.unfenced = false
	}
	for _, b := range m.resolves {
		job.resolve = append(job.resolve, search{
			fenceTarget: b.lane.target(), batch: b, uuid: b.lane.topic.uuid, as: b.as, seq: b.seq,
			n: len(b.rows), from: b.lane.tail, sealed: b.sealed, look: b.maybe,
		})
	}
	m.resolves = nil
	if job.fence == nil && job.resolve == nil {
		return nil
	}
	return &job
}

// toFence lists the partitions to be fenced. Without a transactional id there
// is nothing to fence with.
func (m *machine) toFence() []fenceTarget {
	var targets []fenceTarget
	for _, t := range m.topics {
		for _, l := range t.lanes {
			switch {
			case l.fenced || l.leader == "" || t.state != topicReady:
			case !m.fencing:
				l.fenced = true
				m.touch(l)
			default:
				targets = append(targets, l.target())
			}
		}
	}
	return targets
}

func (l *lane) target() fenceTarget {
	return fenceTarget{place{l.topic.name, l.partition}, l.leader}
}

// quiet finds a partition for the empty transaction that keeps the id alive:
// one without a batch of an older epoch under way, which the marker would refuse.
func (m *machine) quiet() *place {
	for _, t := range m.topics {
		for _, l := range t.lanes {
			if t.state == topicReady && l.fenced && l.leader != "" && (l.flight == nil || l.flight.as == m.id) {
				return &place{t.name, l.partition}
			}
		}
	}
	return nil
}

// ownTrouble tells that the owner does not get on; it goes on trying.
func (m *machine) ownTrouble(err error) {
	m.ownErr = err
	if m.ownSince.IsZero() {
		m.ownSince = m.now
	}
}

// started tells the first identity.
func (m *machine) started(id identity, fencing bool) {
	m.id, m.fencing = id, fencing
	m.ownErr, m.ownSince = nil, time.Time{}
	m.keepAt = m.now.Add(m.cfg.keepAlive)
	for _, t := range m.topics {
		for _, l := range t.lanes {
			m.touch(l)
		}
	}
}

// ---- time ----

// tick tells the time and does what is due; afterwards everything that can be
// sent is sent.
func (m *machine) tick(now time.Time) {
	m.now = now
	for _, l := range m.due() {
		m.wake(l)
	}
	m.pump()
	m.askIfDue()
	m.ownIfDue()
	m.pump() // lanes that need no fence
	m.judgeCluster()
}

// due are the lanes whose wait is over, in an order that does not depend on
// chance, so that a test's seed reproduces.
func (m *machine) due() []*lane {
	if len(m.waiting) == 0 {
		return nil
	}
	var due []*lane
	for l := range m.waiting {
		if !l.at.After(m.now) {
			due = append(due, l)
		}
	}
	slices.SortFunc(due, func(a, b *lane) int {
		return cmp.Or(cmp.Compare(a.topic.name, b.topic.name), cmp.Compare(a.partition, b.partition))
	})
	return due
}

// wake ends a lane's wait.
func (m *machine) wake(l *lane) {
	delete(m.waiting, l)
	if l.flight == nil {
		l.state = laneIdle
		m.touch(l)
		return
	}
	m.launch(l)
}

func (m *machine) askIfDue() {
	if m.asking || m.askAt.IsZero() && !m.answered.IsZero() || m.askAt.After(m.now) {
		return
	}
	a := &asking{all: m.list}
	if !m.list {
		a.topics = m.askable()
	}
	m.asking, m.askedAt, m.askAt, m.out.ask = true, m.now, time.Time{}, a
}

// maxAsked bounds the topics of one request for metadata.
const maxAsked = 1000

// askable are the topics to be asked about: those with rows that wait first, then
// those that were asked about longest ago.
func (m *machine) askable() []string {
	topics := make([]*topic, 0, len(m.topics))
	for _, t := range m.topics {
		if t.state != topicBlocked || t.flights() {
			topics = append(topics, t)
		}
	}
	if len(topics) > maxAsked {
		waits := func(t *topic) int {
			if t.state == topicUnknown && t.waiting.len() > 0 {
				return 0
			}
			return 1
		}
		slices.SortFunc(topics, func(a, b *topic) int {
			return cmp.Or(cmp.Compare(waits(a), waits(b)), a.asked.Compare(b.asked), cmp.Compare(a.name, b.name))
		})
		topics = topics[:maxAsked]
	}
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = t.name
	}
	return names
}

func (m *machine) ownIfDue() {
	if m.owning || m.id == nobody || m.ownAt.After(m.now) {
		return
	}
	m.ownAt = time.Time{}
	job := m.nextJob()
	if job == nil && m.fencing && m.cfg.keepAlive > 0 && !m.keepAt.After(m.now) {
		m.keepAt = m.now.Add(m.cfg.keepAlive)
		if p := m.quiet(); p != nil {
			job = &ownership{keepAlive: p}
		}
	}
	if job != nil {
		m.owning, m.out.own = true, job
	}
}

// next is when tick is due at the latest, or zero.
func (m *machine) next() time.Time {
	var at time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	for l := range m.waiting {
		sooner(l.at)
	}
	if !m.asking {
		sooner(m.askAt)
	}
	if m.id != nobody && !m.owning {
		sooner(m.ownAt)
		if m.fencing && m.cfg.keepAlive > 0 {
			sooner(m.keepAt)
		}
	}
	if m.verdict != unusable {
		if since, err := m.trouble(); err != nil {
			sooner(since.Add(m.cfg.outageAfter))
		}
	}
	return at
}

// trouble is the oldest reason why the cluster cannot be used, and since when.
func (m *machine) trouble() (since time.Time, err error) {
	older := func(t time.Time, e error) {
		if e != nil && !t.IsZero() && (err == nil || t.Before(since)) {
			since, err = t, e
		}
	}
	if !m.ackedAt.After(m.askFailed) {
		older(m.askFailed, m.askErr)
	}
	older(m.ownSince, m.ownErr)
	for t, s := range m.stalled {
		if t.waiting.len() > 0 {
			older(s.since, s.err)
		}
	}
	for l := range m.failing {
		if l.topic.state != topicBlocked { // else the topic's trouble, not the cluster's
			older(l.since, l.err)
		}
	}
	return since, err
}

// judgeCluster says so when the cluster's usability changed. Before the first
// word it counts at once when no broker can be reached.
func (m *machine) judgeCluster() {
	since, err := m.trouble()
	switch {
	case err == nil:
		if m.verdict != usable && m.id != nobody && !m.answered.IsZero() {
			m.say(usable, nil)
		}
	case m.verdict == unusable:
		m.retell(err)
	case m.now.Sub(since) >= m.cfg.outageAfter, m.verdict == usabilityUnknown && m.askErr != nil:
		m.say(unusable, err)
	}
}

// retell says why the cluster cannot be used once that has become something else:
// first brokers do not answer, then those that are left say that they are too few.
// It waits for a while each time, since lanes may have different reasons.
func (m *machine) retell(err error) {
	if ErrorClass(err) != m.told && m.now.Sub(m.toldAt) >= 5*m.cfg.outageAfter {
		m.say(unusable, err)
	}
}

func (m *machine) say(u usability, err error) {
	m.verdict, m.told, m.toldAt = u, ErrorClass(err), m.now
	m.out.states = append(m.out.states, outbox.ClusterState{Cluster: m.cluster, Usable: u == usable, Err: err})
}

func (m *machine) note(text, topic string, err error) {
	m.out.notes = append(m.out.notes, note{text, topic, err})
}
