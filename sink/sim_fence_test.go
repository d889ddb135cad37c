package sink

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// This file simulates leaders that follow one another: clean stops, kills, frozen processes that go on
// later, a second installation with our transactional id, a restored database, topics that are made again, and
// markers that Kafka loses. When a broker has shown a leader's fence in a partition, the partition takes no
// batch of another leader. Without any one of the rules of Fences this breaks.

// fenceRules are the rules: how to do without each, and near which seed that breaks something.
var fenceRules = map[string]struct {
	without string
	from    uint64
}{
	"nextEpoch":   {"any epoch of the producer id will do", 30},
	"sameID":      {"any producer id will do", 1140},
	"sameTopic":   {"a topic is known by its name", 2500},
	"shown":       {"a marker is taken for written that nobody has shown", 30},
	"nothingOpen": {"partitions with a batch on its way are left, too", 30},
	"forgotten":   {"a topic that was forgotten is still inherited", 1450},
	"nothingMore": {"who has left its fences goes on", 30},
}

func TestFencesAreInherited(t *testing.T) {
	t.Parallel()
	seeds := uint64(*simSeeds) / 4
	if testing.Short() {
		seeds = min(seeds, 50)
	}
	spared := 0
	for seed := range seeds {
		w := newFenceSim(seed, "")
		if err := w.run(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		spared += w.spared
	}
	if spared < int(seeds) {
		t.Errorf("%d partitions in %d worlds were not fenced again", spared, seeds)
	}
}

func TestTheRulesOfFencesMatter(t *testing.T) {
	t.Parallel()
	for name, rule := range fenceRules {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(10_000) {
				if err := newFenceSim(rule.from+seed, name).run(); err != nil {
					t.Logf("seed %d: %v", rule.from+seed, err)
					return
				}
			}
			t.Errorf("nothing breaks if %s", rule.without)
		})
	}
}

// fenceSim is Kafka, the stream's row in outbox_cdc.leader, and the processes.
type fenceSim struct {
	*rand.Rand
	off    string // a rule
	now    time.Time
	id     producer // of the coordinator
	topics map[string]byte
	logs   map[topicPartition]*fenceLog
	note   []byte
	dump   []byte
	all    []*fenceProcess // alive
	leader *fenceProcess   // of the newest producer id, alive or not
	tries  []*fenceTry     // on their way
	rows   int
	spared int
}

// fenceLog is what a partition's leader knows: of each producer id the epoch, the next sequence and its batches.
type fenceLog struct {
	epochs map[int64]int16
	next   map[int64]int32
	had    map[string]string
}

type fenceProcess struct {
	m   *machine
	ask *metadataRequest
	job *producerIDJob
}

type fenceTry struct {
	of   *fenceProcess
	b    *batch
	at   topicPartition
	as   producer
	seq  int32
	rows string
	n    int
	told bool // the process has its answer, or is gone
}

func newFenceSim(seed uint64, off string) *fenceSim {
	w := &fenceSim{
		Rand: rand.New(rand.NewPCG(seed, 2)), off: off, now: time.Unix(1_000_000, 0),
		id: producer{7, -1}, topics: map[string]byte{}, logs: map[topicPartition]*fenceLog{},
	}
	for _, name := range []string{"a", "b"} {
		w.make(name)
	}
	return w
}

func (w *fenceSim) coin() bool { return w.IntN(2) == 0 }

// make makes a topic, maybe again.
func (w *fenceSim) make(name string) {
	w.topics[name]++
	for p := range int32(2) {
		w.logs[topicPartition{name, p}] = &fenceLog{map[int64]int16{}, map[int64]int32{}, map[string]string{}}
	}
}

func (w *fenceSim) run() (err error) {
	defer func() {
		if p := recover(); p != nil {
			v, is := p.(violation)
			if !is {
				panic(p)
			}
			err = v
		}
	}()
	for range 300 {
		w.now = w.now.Add(time.Duration(w.IntN(400)) * time.Millisecond)
		if w.leader == nil || !slices.Contains(w.all, w.leader) {
			w.start(w.note)
		}
		w.happen()
		for _, p := range slices.Clone(w.all) {
			w.collect(p)
		}
	}
	return nil
}

// happen is one event.
func (w *fenceSim) happen() {
	p := w.all[w.IntN(len(w.all))]
	switch n := w.IntN(39); {
	case n < 8:
		w.rows++
		r := newRow([]string{"a", "b"}[w.IntN(2)], fmt.Sprint("k", w.IntN(4)), "v")
		r.ID = fmt.Sprint(w.rows)
		w.input(p, func() { p.m.command(outbox.Command{Publish: []*outbox.Row{r}}) })
	case n < 16 && len(w.tries) > 0:
		w.arrive(w.IntN(len(w.tries)))
	case n < 18 && len(w.tries) > 0:
		w.reply(w.tries[w.IntN(len(w.tries))], reply{err: errReset})
	case n < 24 && p.ask != nil:
		w.metadata(p)
	case n < 32 && p.job != nil:
		w.do(p)
	case n == 32:
		w.stop()
	case n == 33: // killed
		w.gone(p)
	case n == 34: // frozen: the next one leads
		w.start(w.note)
	case n == 35: // a copy of the database, whose stream starts
		w.start(w.dump)
	case n == 36: // restored
		w.note = w.dump
	case n == 37:
		w.make([]string{"a", "b"}[w.IntN(2)])
	case n == 38 && len(w.tries) == 0: // long after all: the coordinator forgets the id
		w.all, w.leader = nil, nil
		w.id = producer{w.id.PID + 1, -1}
	}
}

func (w *fenceSim) input(p *fenceProcess, do func()) {
	p.m.now = w.now
	do()
}

// start has a process lead, after what its database says.
func (w *fenceSim) start(note []byte) {
	w.id.Epoch += 1 + int16(w.IntN(8)/7) // an answer was lost
	var before *outbox.Fences
	if note != nil {
		_ = json.Unmarshal(note, &before)
	}
	if before != nil {
		switch w.off {
		case "nextEpoch":
			before.Epoch = w.id.Epoch - 1
		case "sameID":
			before.PID = w.id.PID
		case "sameTopic":
			for name, t := range before.Topics {
				before.Topics[name] = outbox.FencedTopic{ID: (sarama.Uuid{w.topics[name]}).String(), Partitions: t.Partitions}
			}
		}
	}
	p := &fenceProcess{m: newMachine("main", machineConfig{
		limits: limits{rows: 3, bytes: 1 << 20}, topicGrace: time.Second, outageAfter: time.Second, refresh: 2 * time.Second,
		keepAlive: 20 * time.Second, random: w.IntN, before: before,
	}, []string{"a"})}
	w.all, w.leader, w.note = append(w.all, p), p, nil // the claim removes it
	w.input(p, func() { p.m.started(w.id, true) })
}

// stop is a clean one of the leader. Its connection to the database may be gone: then another leads.
func (w *fenceSim) stop() {
	p := w.leader
	if !slices.Contains(w.all, p) {
		return
	}
	f := p.m.leave()
	for name, t := range p.m.topics {
		if w.off != "shown" && w.off != "nothingOpen" {
			continue
		}
		left := outbox.FencedTopic{ID: t.uuid.String()}
		for _, q := range t.queues {
			if q.fenced && (q.shown || w.off == "shown") && (!q.busy() || w.off == "nothingOpen") {
				left.Partitions = append(left.Partitions, q.partition)
			}
		}
		if t.state == topicReady && len(left.Partitions) > 0 {
			f.Topics[name] = left
		}
	}
	w.note, _ = json.Marshal(f)
	if w.coin() {
		w.dump = w.note
	}
	if w.off == "nothingMore" {
		w.start(w.note)
		return
	}
	w.gone(p)
}

// gone is the end of a process. What it sent is on its way.
func (w *fenceSim) gone(p *fenceProcess) {
	w.all = slices.DeleteFunc(w.all, func(x *fenceProcess) bool { return x == p })
	for _, t := range w.tries {
		t.told = t.told || t.of == p
	}
}

func (w *fenceSim) collect(p *fenceProcess) {
	w.input(p, func() { p.m.tick(w.now) })
	out := p.m.take()
	slices.SortFunc(out.send, func(a, b *batch) int { return strings.Compare(a.queue.String(), b.queue.String()) })
	for _, b := range out.send {
		t := &fenceTry{of: p, b: b, at: topicPartition{b.queue.topic.name, b.queue.partition}, as: b.as, seq: b.seq, rows: ids(b.rows), n: len(b.rows)}
		w.tries = append(w.tries, t)
	}
	if out.ask != nil {
		p.ask = out.ask
	}
	if out.job != nil {
		p.job = out.job
	}
	for _, o := range out.outcomes {
		if o.Blocked {
			w.input(p, func() { p.m.command(outbox.Command{Release: &o.Scope}) })
		}
	}
}

func (w *fenceSim) metadata(p *fenceProcess) {
	infos := map[string]topicInfo{}
	for _, name := range p.ask.topics {
		infos[name] = topicInfo{uuid: sarama.Uuid{w.topics[name]}, leaders: []string{"x", "x"}}
		if w.IntN(8) == 0 {
			infos[name] = topicInfo{code: sarama.ErrTopicAuthorizationFailed}
		}
	}
	asked := p.ask.topics
	p.ask = nil
	inherited := maps.Clone(p.m.inherited)
	w.input(p, func() { p.m.metadata(asked, infos, nil) })
	if w.off == "forgotten" {
		p.m.inherited = inherited
	}
}

// do carries a job out, as the producerIDClient does, or ends the process where there is a newer one.
func (w *fenceSim) do(p *fenceProcess) {
	job := p.job
	p.job = nil
	slices.SortFunc(job.fence, func(a, b fenceTarget) int {
		return strings.Compare(fmt.Sprint(a.topicPartition), fmt.Sprint(b.topicPartition))
	}) // topics come in any order
	slices.SortFunc(job.resolve, func(a, b search) int {
		return strings.Compare(fmt.Sprint(a.topicPartition), fmt.Sprint(b.topicPartition))
	})
	held := p.m.id
	res := producerIDResult{id: held, shown: map[topicPartition]bool{}, tails: map[topicPartition]int64{}, refused: map[topicPartition]sarama.KError{}}
	if held != w.id && (job.keepAlive != nil || slices.ContainsFunc(job.fence, func(f fenceTarget) bool { return !f.spared }) || len(job.resolve) > 0) {
		w.gone(p)
		return
	}
	if job.keepAlive != nil {
		w.logs[*job.keepAlive].raise(held)
		w.input(p, func() { p.m.jobDone(res) })
		return
	}
	marked := false
	for _, f := range job.fence {
		unlucky := w.coin()
		switch lost := unlucky && w.coin(); {
		case f.spared:
			w.spared++
			res.shown[f.topicPartition] = true
		case lost && w.coin():
			res.refused[f.topicPartition] = sarama.ErrLeaderNotAvailable
			continue
		case lost: // it is not asked for again
			marked = true
		default:
			marked = true
			w.logs[f.topicPartition].raise(held)
			res.shown[f.topicPartition] = true
		}
		res.fenced = append(res.fenced, f.topicPartition)
	}
	if len(job.resolve) > 0 {
		w.id.Epoch++
	}
	for _, s := range job.resolve {
		marked = true
		w.logs[s.topicPartition].raise(w.id)
		_, found := w.logs[s.topicPartition].had[fmt.Sprint(s.as, s.seq)]
		res.found = append(res.found, searched{batch: s.batch, sealed: true, found: found})
	}
	if marked {
		w.id.Epoch++
	}
	res.id = w.id
	if !marked {
		res.id = held
	}
	w.input(p, func() { p.m.jobDone(res) })
}

// raise is a marker.
func (l *fenceLog) raise(as producer) {
	if epoch, known := l.epochs[as.PID]; !known || epoch < as.Epoch {
		l.epochs[as.PID], l.next[as.PID] = as.Epoch, 0
	}
}

// arrive is a try that a broker gets.
func (w *fenceSim) arrive(i int) {
	t := w.tries[i]
	w.tries = slices.Delete(w.tries, i, i+1)
	w.reply(t, w.append(t))
}

func (w *fenceSim) append(t *fenceTry) reply {
	l, key := w.logs[t.at], fmt.Sprint(t.as, t.seq)
	epoch, known := l.epochs[t.as.PID]
	switch had, is := l.had[key]; {
	case known && t.as.Epoch < epoch:
		return reply{code: sarama.ErrInvalidProducerEpoch, offset: -1}
	case is && had != t.rows:
		panic(violation(fmt.Sprintf("rows %s are taken for %s", t.rows, had)))
	case is:
		return reply{}
	case known && (t.as.Epoch == epoch && t.seq != l.next[t.as.PID] || t.as.Epoch > epoch && t.seq != 0):
		return reply{code: sarama.ErrOutOfOrderSequenceNumber, offset: -1}
	}
	if q := w.leader.queueAt(t.at); t.of != w.leader && q != nil && q.fenced && q.shown && q.topic.uuid == (sarama.Uuid{w.topics[t.at.Topic]}) {
		panic(violation(fmt.Sprintf("rows %s of %v land in %v, which %v has fenced", t.rows, t.as, t.at, w.leader.m.id)))
	}
	l.epochs[t.as.PID], l.next[t.as.PID], l.had[key] = t.as.Epoch, advance(t.seq, t.n), t.rows
	return reply{}
}

func (p *fenceProcess) queueAt(at topicPartition) *partitionQueue {
	if p == nil {
		return nil
	}
	return p.m.queueOf(at)
}

func (w *fenceSim) reply(t *fenceTry, r reply) {
	if !t.told {
		t.told = true
		w.input(t.of, func() { t.of.m.produced(t.b, r) })
	}
}
