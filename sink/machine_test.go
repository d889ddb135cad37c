package sink

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"pgregory.net/rapid"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// world is a model of a Kafka cluster with a bad network around a machine. Its
// brokers treat sequences and epochs as seen on real ones (doc.go):
// content is never compared, a duplicate is answered with its old offset, a
// partition without state accepts any sequence, an older epoch is refused.
type world struct {
	t   *rapid.T
	m   *machine
	now time.Time

	parts map[place]*modelLog
	count int // partitions of the one topic
	uuid  byte
	state sarama.KError // what metadata says of the topic
	write sarama.KError // what produce says, 29 or 0
	epoch int16

	network []*message // sent, not handled
	asked   *metadataRequest
	job     *producerIDJob
	// Of transactions.
	requests []*exactlyonce.Request
	recovery *exactlyonce.Recovery

	published []*outbox.Row
	index     map[*outbox.Row]int
	fate      map[*outbox.Row]outbox.Outcome
	closed    map[string]outbox.Scope // key → why nothing of it may be delivered
	blocked   map[outbox.Scope]bool
	appended  int
	where     map[*outbox.Row]int  // order of appending over all partitions
	gone      map[*outbox.Row]bool // their topic was deleted
	calm      bool                 // nothing fails any more
}

// message is one try on its way.
type message struct {
	b       *batch
	as      identity
	seq     int32
	rows    []*outbox.Row
	settled bool // the machine got its reply; only a late copy is left
}

// modelLog is one partition.
type modelLog struct {
	entries []*outbox.Row
	known   bool
	epoch   int16
	next    int32
	last    []modelBatch
}

type modelBatch struct {
	as     identity
	seq    int32
	n      int
	offset int64
}

const (
	oversized = "oversized" // rows with this value have their batch refused
	invalid   = "invalid"   // and these are named next to
	worldName = "t"

	worldJournal = "journal"
)

func newWorld(t *rapid.T, tx *Transactions) *world {
	w := &world{
		t: t, now: time.Unix(1_000_000, 0), count: 2, uuid: 1, parts: map[place]*modelLog{},
		index: map[*outbox.Row]int{}, fate: map[*outbox.Row]outbox.Outcome{}, blocked: map[outbox.Scope]bool{}, where: map[*outbox.Row]int{}, gone: map[*outbox.Row]bool{}, closed: map[string]outbox.Scope{},
	}
	w.m = newMachine("main", machineConfig{
		limits: limits{rows: 5, bytes: 1 << 20}, topicGrace: time.Second, outageAfter: time.Second, refresh: time.Minute, keepAlive: time.Hour,
		random:       func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "partition") },
		transactions: tx,
	}, nil)
	w.m.tick(w.now)
	w.collect()
	if tx == nil {
		w.m.started(identity{1, 0}, true)
	}
	return w
}

// step lets the machine act and takes what it wants done.
func (w *world) step(d time.Duration) {
	w.now = w.now.Add(d)
	w.m.tick(w.now)
	w.collect()
}

func (w *world) collect() {
	out := w.m.take()
	for _, b := range out.send {
		if w.m.closed {
			w.t.Fatalf("row %s is sent although nothing may be", b.rows[0].ID)
		}
		w.network = append(w.network, &message{b: b, as: b.as, seq: b.seq, rows: slices.Clone(b.rows)})
	}
	if out.ask != nil {
		w.asked = out.ask
	}
	w.requests = append(w.requests, out.requests...)
	if out.fatal != nil {
		w.t.Fatal(out.fatal)
	}
	if out.recovery != nil {
		w.recovery = out.recovery
	}
	if out.job != nil {
		if w.job != nil {
			w.t.Fatal("two jobs at once")
		}
		w.job = out.job
	}
	for _, o := range out.outcomes {
		w.outcome(o)
	}
}

// ownTable is a table for which it is a row's own error that its topic is
// forbidden.
var ownTable = &outbox.Table{Schema: "public", Name: "own", Mapping: outbox.Mapping{FailOn: []outbox.TopicError{outbox.TopicUnauthorized}}}

func (w *world) outcome(o outbox.Outcome) {
	forbidden := errors.Is(o.Err, sarama.ErrTopicAuthorizationFailed)
	for _, r := range o.Rows {
		if forbidden && (o.Class == outbox.Refused) != (r.Table == ownTable) {
			w.t.Fatalf("row %s of table %s: class %d: %v", r.ID, r.Table, o.Class, o.Err)
		}
		if before, ok := w.fate[r]; ok {
			w.t.Fatalf("row %s: class %d after class %d", r.ID, o.Class, before.Class)
		}
		w.fate[r] = o
		if scope, closed := w.closed[string(r.Key)]; o.Class == outbox.Delivered && r.Key != nil && closed {
			w.t.Fatalf("row %s delivered although an earlier one of its key is not, for %v", r.ID, scope)
		}
		if o.Class == outbox.Refused || o.Err != nil {
			w.closed[string(r.Key)] = o.Scope
		}
	}
	blocks := o.Class == outbox.Refused && o.Scope.Kind == outbox.ScopeKey || o.Class == outbox.Withdrawn && o.Scope.Kind == outbox.ScopeTopic && o.Err != nil
	if o.Blocked != (blocks && !w.blocked[o.Scope]) {
		w.t.Fatalf("row %s: blocked is %v, of %v", o.Rows[0].ID, o.Blocked, o.Scope)
	}
	switch {
	case o.Class == outbox.Refused && o.Scope.Kind == outbox.ScopeKey:
		w.blocked[o.Scope] = true
	case o.Class == outbox.Refused && string(o.Rows[0].Value) == "v" && o.Rows[0].Partition < 4 && !forbidden:
		w.t.Fatalf("row %s charged for nothing: %v", o.Rows[0].ID, o.Err)
	case o.Class == outbox.Withdrawn && o.Scope.Kind == outbox.ScopeTopic && o.Err != nil:
		w.blocked[o.Scope] = true
	}
}

// land is what a broker does with a try.
func (w *world) land(m *message) reply {
	p := place{worldName, m.b.queue.partition}
	log := w.parts[p]
	if log == nil {
		log = &modelLog{}
		w.parts[p] = log
	}
	switch {
	case w.state != 0:
		return reply{code: sarama.ErrUnknownTopicOrPartition, offset: -1}
	case w.write != 0:
		return reply{code: w.write, offset: -1}
	case log.known && m.as.epoch < log.epoch:
		return reply{code: sarama.ErrInvalidProducerEpoch, offset: -1}
	}
	for _, b := range log.last { // before anything else, as the broker does
		if b.as == m.as && b.seq == m.seq && b.n == len(m.rows) {
			return reply{offset: b.offset}
		}
	}
	rejected := reply{offset: -1}
	for i, r := range m.rows {
		switch string(r.Value) {
		case oversized:
			return reply{code: sarama.ErrMessageSizeTooLarge, offset: -1}
		case invalid:
			rejected.code = sarama.ErrInvalidRecord
			rejected.rejected = append(rejected.rejected, i)
		}
	}
	if rejected.code != 0 {
		return rejected
	}
	if log.known && (m.as.epoch == log.epoch && m.seq != log.next || m.as.epoch > log.epoch && m.seq != 0) {
		return reply{code: sarama.ErrOutOfOrderSequenceNumber, offset: -1}
	}
	offset := int64(len(log.entries))
	for _, r := range m.rows {
		if _, twice := w.where[r]; twice {
			w.t.Fatalf("row %s is in the log twice", r.ID)
		}
		w.where[r] = w.appended
		w.appended++
		log.entries = append(log.entries, r)
	}
	if !log.known || m.as.epoch > log.epoch {
		log.last = nil
	}
	log.known, log.epoch, log.next = true, m.as.epoch, advance(m.seq, len(m.rows))
	log.last = append(log.last, modelBatch{m.as, m.seq, len(m.rows), offset})
	if len(log.last) > 5 {
		log.last = log.last[1:]
	}
	return reply{offset: offset}
}

// handle decides a message's fate.
func (w *world) handle(i int, how string) {
	m := w.network[i]
	if m.settled { // a late copy arrives
		w.network = slices.Delete(w.network, i, i+1)
		r := w.land(m)
		w.t.Logf("late copy to partition %d as %v seq %d n %d: %+v; row %s", m.b.queue.partition, m.as, m.seq, len(m.rows), r, m.rows[0].ID)
		return
	}
	drop := true
	var r reply
	switch how {
	case "ok":
		r = w.land(m)
	case "lost answer":
		w.land(m)
		r = reply{err: errors.New("reset")}
	case "late":
		m.settled, drop = true, false
		r = reply{err: errors.New("timeout")}
	case "too late":
		r = reply{err: errLate, unsent: true}
	case "never sent":
		r = reply{err: errors.New("refused"), unsent: true}
	case "not leader":
		r = reply{code: sarama.ErrNotLeaderForPartition, offset: -1}
	case "appended, fate unknown":
		if r = w.land(m); r.code == 0 {
			r.code = sarama.ErrRequestTimedOut
		}
	case "too few replicas":
		r = reply{code: sarama.ErrNotEnoughReplicas, offset: -1}
	case "rejected":
		r = reply{code: sarama.ErrOutOfOrderSequenceNumber, offset: -1}
		if m.b.maybe { // the limit was lowered since the first try
			r.code = sarama.ErrMessageSizeTooLarge
		}
	}
	if drop {
		w.network = slices.Delete(w.network, i, i+1)
	}
	w.t.Logf("reply to partition %d as %v seq %d n %d: %+v; row %s", m.b.queue.partition, m.as, m.seq, len(m.rows), r, m.rows[0].ID)
	w.m.produced(m.b, r)
}

var fates = []string{"ok", "ok", "ok", "lost answer", "late", "never sent", "too late", "not leader", "appended, fate unknown", "too few replicas", "rejected"}

func (w *world) answerMetadata(fail bool) {
	if w.asked == nil {
		return
	}
	asked := w.asked.topics
	w.asked = nil
	if fail {
		w.m.metadata(asked, nil, errors.New("no broker"))
		return
	}
	info := topicInfo{code: w.state, uuid: sarama.Uuid{w.uuid}}
	for range w.count {
		info.leaders = append(info.leaders, "broker:1")
	}
	journal := topicInfo{uuid: sarama.Uuid{99}, leaders: []string{"broker:1"}}
	w.m.metadata(asked, map[string]topicInfo{worldName: info, worldJournal: journal}, nil)
}

// answerJob fences and searches like the producerIDClient.
func (w *world) answerJob(fail bool) {
	if w.job == nil {
		return
	}
	job := w.job
	w.job = nil
	res := producerIDResult{tails: map[place]int64{}, refused: map[place]sarama.KError{}}
	seal := func(p place) bool {
		if w.state != 0 || w.write != 0 {
			res.refused[p] = or(w.write, sarama.ErrUnknownTopicOrPartition)
			return false
		}
		log := w.parts[p]
		if log == nil {
			log = &modelLog{}
			w.parts[p] = log
		}
		log.known, log.epoch, log.next, log.last = true, w.epoch, 0, nil
		log.entries = append(log.entries, nil) // the marker
		return true
	}
	w.epoch++
	for _, f := range job.fence {
		if seal(f.place) {
			res.fenced = append(res.fenced, f.place)
			res.tails[f.place] = int64(len(w.parts[f.place].entries))
		}
	}
	for _, s := range job.resolve {
		out := searched{batch: s.batch, sealed: s.sealed}
		if !s.sealed && seal(s.place) {
			out.sealed = true
		}
		switch {
		case !out.sealed || fail:
			out.err = errors.New("not found out")
		case s.look:
			out.offset, out.found = w.find(s)
		}
		res.found = append(res.found, out)
	}
	w.epoch++
	res.id = identity{1, w.epoch}
	w.t.Logf("owned %+v %+v", res, job)
	w.m.jobDone(res)
}

// find looks for the rows of a batch; the log does not forget like last does.
func (w *world) find(s search) (int64, bool) {
	log := w.parts[s.place]
	if log == nil {
		return 0, false
	}
	if s.uuid != (sarama.Uuid{w.uuid}) {
		s.from = 0
	}
	for i := max(0, int(s.from)); i < len(log.entries); i++ {
		if log.entries[i] == s.batch.rows[0] {
			return int64(i), true
		}
	}
	return 0, false
}

func (w *world) publish() {
	n := rapid.IntRange(1, 6).Draw(w.t, "rows")
	var rows []*outbox.Row
	for range n {
		key := rapid.SampledFrom([]string{"a", "b", "c", "d", ""}).Draw(w.t, "key")
		value := rapid.SampledFrom([]string{"v", "v", "v", "v", "v", "v", oversized, invalid}).Draw(w.t, "value")
		r := newRow(worldName, key, value)
		if key == "c" { // partitions of its own: 4 may not exist yet
			r.Partition = rapid.SampledFrom([]int32{1, 1, 1, 4}).Draw(w.t, "own partition")
		}
		if key == "d" || key == "" && rapid.Bool().Draw(w.t, "own error") {
			r.Table = ownTable
		}
		w.index[r] = len(w.published)
		w.published = append(w.published, r)
		rows = append(rows, r)
	}
	w.m.command(outbox.Command{Publish: rows})
}

func (w *world) release() {
	for scope := range w.blocked {
		delete(w.blocked, scope)
		maps.DeleteFunc(w.closed, func(_ string, s outbox.Scope) bool { return s == scope })
		w.m.command(outbox.Command{Release: &scope})
	}
}

func (w *world) withdraw() {
	scope := rapid.SampledFrom([]outbox.Scope{
		outbox.StreamScope(), outbox.TopicScope("main", worldName), outbox.TableScope(testTable),
		{Kind: outbox.ScopeKey, Table: testTable.String(), Topic: worldName, Key: "a"},
	}).Draw(w.t, "scope")
	w.m.command(outbox.Command{Withdraw: &scope})
	w.collect()
	for _, r := range w.published {
		if _, ok := w.fate[r]; ok || !scope.Contains(r) {
			continue
		}
		if !w.flying(r) {
			w.t.Fatalf("row %s was never sent and not given back", r.ID)
		}
	}
}

func (w *world) flying(r *outbox.Row) bool {
	for _, t := range w.m.topics {
		for _, q := range t.queues {
			if slices.Contains(q.inFlightRows(), r) {
				return true
			}
		}
	}
	return false
}

// heal lets everything end well and everybody have an outcome.
func (w *world) heal() {
	w.calm, w.state, w.write, w.m.closed = true, 0, 0, false
	for range 3000 {
		w.release()
		w.step(time.Second)
		w.answerMetadata(false)
		w.answerJob(false)
		for len(w.network) > 0 {
			w.handle(0, "ok")
		}
		w.step(0)
		if len(w.fate) == len(w.published) && w.asked == nil && w.job == nil && len(w.network) == 0 {
			return
		}
	}
	w.t.Fatalf("%d of %d rows have an outcome: %s", len(w.fate), len(w.published), w.describe())
}

func (w *world) describe() string {
	var s strings.Builder
	for _, t := range w.m.topics {
		fmt.Fprintf(&s, "topic %s state %d err %v waiting %d; ", t.name, t.state, t.err, t.waiting.len())
		for _, q := range t.queues {
			fmt.Fprintf(&s, "partition %d leader %q fenced %v state %d queue %d in flight %+v at %v err %v; ",
				q.partition, q.leader, q.fenced, q.state, q.rows.len(), q.inFlight, q.at.Sub(w.now), q.err)
		}
	}
	return s.String()
}

// check compares the log with what was said.
func (w *world) check() {
	last := map[string]int{}
	order := map[string]*outbox.Row{}
	for _, r := range w.published {
		o := w.fate[r]
		at, there := w.where[r]
		if there != (o.Class == outbox.Delivered) && !w.gone[r] {
			w.t.Fatalf("row %s: class %d for %v (%v), in the log: %v", r.ID, o.Class, o.Scope, o.Err, there)
		}
		if !there || r.Key == nil {
			continue
		}
		if before, ok := last[string(r.Key)]; ok && at < before {
			w.t.Fatalf("key %s: row %s overtook row %s", r.Key, r.ID, order[string(r.Key)].ID)
		}
		last[string(r.Key)], order[string(r.Key)] = at, r
	}
}

// TestExactlyOnceInOrder drives the machine through random faults: each row
// that is said to be delivered is in the log once, no other is, and the rows
// of a key are there in the order of publishing.
func TestExactlyOnceInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, nil)
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{
				"publish", "publish", "publish", "network", "network", "network", "network", "network", "tick", "tick", "metadata", "metadata", "job", "job", "rare",
			}).Draw(t, "step") {
			case "publish":
				w.publish()
			case "network":
				if len(w.network) > 0 {
					w.handle(rapid.IntRange(0, len(w.network)-1).Draw(t, "message"), rapid.SampledFrom(fates).Draw(t, "fate"))
				}
			case "tick":
				w.step(time.Duration(rapid.IntRange(1, 700).Draw(t, "ms")) * time.Millisecond)
			case "metadata":
				w.answerMetadata(rapid.IntRange(0, 4).Draw(t, "metadata fails") == 0)
			case "job":
				w.answerJob(rapid.IntRange(0, 3).Draw(t, "search fails") == 0)
			case "rare":
				w.rare()
			}
			w.step(0)
		}
		w.heal()
		w.check()
	})
}

// remove deletes the topic; what stays under way is lost with it.
func (w *world) remove() {
	w.state = sarama.ErrUnknownTopicOrPartition
	w.uuid++
	for r := range w.where {
		w.gone[r] = true
	}
	clear(w.where)
	clear(w.parts)
	w.network = slices.DeleteFunc(w.network, func(m *message) bool { return m.settled })
}

func (w *world) rare() {
	switch rapid.SampledFrom([]string{"withdraw", "release", "grow", "missing", "there again", "forbidden", "allowed", "closed", "open"}).Draw(w.t, "rare") {
	case "withdraw":
		w.withdraw()
	case "release":
		w.release()
	case "grow":
		w.count = min(w.count+1, 5)
	case "missing":
		w.remove()
	case "there again":
		w.state = 0
	case "forbidden":
		w.write = sarama.ErrTopicAuthorizationFailed
	case "allowed":
		w.write = 0
	case "closed":
		w.m.closed = true
	case "open":
		w.m.closed = false
	}
}
