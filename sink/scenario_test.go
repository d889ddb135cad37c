package sink

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// stage plays the surroundings of a machine, a step at a time.
type stage struct {
	*testing.T
	m *machine
}

func newStage(t *testing.T, fencing bool) *stage {
	s := &stage{t, newMachine("main", machineConfig{
		limits: limits{rows: 10, bytes: 1 << 20}, topicGrace: 3 * time.Second, outageAfter: time.Second, refresh: time.Minute, keepAlive: 20 * time.Second,
		random: func(int) int { return 0 },
	}, nil)}
	s.m.now = time.Unix(1_000_000, 0)
	s.m.started(identity{1, 0}, fencing)
	s.later(0)
	return s
}

// later lets time go by.
func (s *stage) later(d time.Duration) work {
	s.m.now = s.m.now.Add(d)
	s.m.tick(s.m.now)
	return s.m.take()
}

// hear is an answer of metadata about topic t, which was asked for a millisecond before.
func (s *stage) hear(code sarama.KError, uuid byte, partitions int) work {
	info := topicInfo{code: code, uuid: sarama.Uuid{uuid}}
	for range partitions {
		info.leaders = append(info.leaders, "b")
	}
	s.m.askedAt = s.m.now.Add(time.Millisecond)
	s.m.now = s.m.now.Add(2 * time.Millisecond)
	s.m.metadata([]string{"t"}, map[string]topicInfo{"t": info}, nil)
	return s.later(0)
}

func (s *stage) publish(partition int32) (*outbox.Row, work) {
	r := newRow("t", "k", "v")
	r.Partition = partition
	s.m.command(outbox.Command{Publish: []*outbox.Row{r}})
	return r, s.later(0)
}

// sent is the one batch that is to be sent.
func (s *stage) sent(w work) *batch {
	s.Helper()
	if len(w.send) != 1 {
		s.Fatalf("%d batches are sent", len(w.send))
	}
	return w.send[0]
}

// answer is a reply to the batch.
func (s *stage) answer(b *batch, r reply) work {
	s.m.now = s.m.now.Add(time.Millisecond)
	s.m.produced(b, r)
	return s.later(0)
}

// outcome is the one outcome.
func (s *stage) outcome(w work, class outbox.Class, err error) {
	s.Helper()
	if len(w.outcomes) != 1 || w.outcomes[0].Class != class || !errors.Is(w.outcomes[0].Err, err) {
		s.Fatalf("%+v, not class %d: %v", w.outcomes, class, err)
	}
}

func TestATopicThatWasBeingMadeHasItsGrace(t *testing.T) {
	s := newStage(t, false)
	s.publish(-1)
	s.hear(sarama.ErrLeaderNotAvailable, 0, 0)
	s.later(time.Minute)
	s.hear(sarama.ErrLeaderNotAvailable, 0, 0)
	if w := s.hear(sarama.ErrUnknownTopicOrPartition, 0, 0); len(w.outcomes) > 0 {
		t.Fatalf("at once: %+v", w.outcomes)
	}
	s.later(3 * time.Second)
	s.outcome(s.hear(sarama.ErrUnknownTopicOrPartition, 0, 0), outbox.Withdrawn, sarama.ErrUnknownTopicOrPartition)
}

// What is wrong with a topic counts from when rows wait for it, whatever was before it was blocked.
func TestTroubleOfATopicBeginsAnew(t *testing.T) {
	s := newStage(t, false)
	s.publish(-1)
	b := s.sent(s.hear(0, 1, 1))
	s.answer(b, reply{err: errors.New("reset")})
	s.hear(sarama.ErrTopicAuthorizationFailed, 0, 0) // it is blocked, with a batch whose fate is open
	s.hear(sarama.ErrLeaderNotAvailable, 0, 0)
	s.outcome(s.answer(b, reply{}), outbox.Delivered, nil)
	s.later(time.Hour)
	s.publish(-1)
	s.hear(sarama.ErrLeaderNotAvailable, 0, 0)
	if since, err := s.m.trouble(); err == nil || !since.Equal(s.m.now) {
		t.Errorf("trouble since %v: %v", s.m.now.Sub(since), err)
	}
}

// A topic is not blocked for what is over, if nobody was told of it.
func TestABlockThatNobodyHeardOf(t *testing.T) {
	s := newStage(t, false)
	s.publish(-1)
	b := s.sent(s.hear(0, 1, 1))
	s.answer(b, reply{err: errors.New("reset")})
	s.hear(sarama.ErrTopicAuthorizationFailed, 0, 0)
	s.outcome(s.answer(b, reply{}), outbox.Delivered, nil)
	s.hear(0, 1, 1)
	s.later(time.Hour)
	_, w := s.publish(-1)
	s.sent(w)
}

// A partition that is there no more says nothing of a batch, ever.
func TestAPartitionThatIsGone(t *testing.T) {
	for _, uuid := range []byte{0, 1} {
		s := newStage(t, false)
		s.publish(1)
		b := s.sent(s.hear(0, uuid, 2))
		s.answer(b, reply{err: errors.New("reset")})
		b = s.sent(s.later(backoffMin))
		if w := s.hear(0, 2*uuid, 1); len(w.outcomes) > 0 {
			t.Fatalf("before its leader says so: %+v", w.outcomes)
		}
		s.answer(b, reply{code: sarama.ErrUnknownTopicOrPartition, offset: -1})
		s.outcome(s.hear(0, 2*uuid, 1), outbox.Withdrawn, errRecreated)
	}
}

func TestABrokerThatHasNotHeardOfNewPartitions(t *testing.T) {
	s := newStage(t, false)
	s.hear(0, 1, 1)
	s.publish(-1)
	s.hear(0, 1, 2)
	s.hear(0, 1, 1)
	if top := s.m.topics["t"]; top.state != topicReady || len(top.queues) != 2 {
		t.Errorf("state %d with %d partitions: %v", top.state, len(top.queues), top.err)
	}
}

// While a fence waits to be tried again, the id is kept alive.
func TestTheIDIsKeptAliveBesidesAFence(t *testing.T) {
	s := newStage(t, true)
	s.publish(-1)
	w := s.hear(0, 1, 2)
	if w.job == nil || len(w.job.fence) != 2 {
		t.Fatalf("job %+v", w.job)
	}
	s.m.jobDone(producerIDResult{id: identity{1, 1}, fenced: []place{{"t", 0}}})
	s.later(0)
	s.m.keepAt = s.m.now
	s.m.jobAt = s.m.now.Add(backoffMax)
	w = s.later(0)
	if w.job == nil || w.job.keepAlive == nil {
		t.Errorf("job %+v", w.job)
	}
	if at := s.m.next(); !at.After(s.m.now) {
		t.Errorf("it is to be woken %v later", at.Sub(s.m.now))
	}
}

// The topics that are known beforehand are fenced before rows come.
func TestKnownTopicsAreFencedFirst(t *testing.T) {
	m := newMachine("main", machineConfig{refresh: time.Minute}, []string{"t"})
	s := &stage{t, m}
	m.now = time.Unix(1_000_000, 0)
	m.started(identity{1, 0}, true)
	if w := s.later(0); w.ask == nil || len(w.ask.topics) != 1 {
		t.Fatalf("asked for %+v", w.ask)
	}
	if w := s.hear(0, 1, 1); w.job == nil || len(w.job.fence) != 1 {
		t.Errorf("job %+v", w.job)
	}
}

func TestATopicMayNotBeFenced(t *testing.T) {
	s := newStage(t, true)
	s.publish(-1)
	s.hear(0, 1, 2)
	s.m.jobDone(producerIDResult{id: identity{1, 1}, refused: map[place]sarama.KError{
		{"t", 0}: sarama.ErrTopicAuthorizationFailed, {"gone", 0}: sarama.ErrTopicAuthorizationFailed,
	}, fenced: []place{{"t", 2}, {"gone", 0}}})
	w := s.later(0)
	s.outcome(w, outbox.Withdrawn, sarama.ErrTopicAuthorizationFailed)
	if !strings.Contains(w.outcomes[0].Err.Error(), "grant WRITE") {
		t.Error(w.outcomes[0].Err)
	}
}

// A partition that cannot be fenced yet is tried again soon, with fresh metadata.
func TestAFenceIsTriedAgain(t *testing.T) {
	s := newStage(t, true)
	s.publish(-1)
	s.hear(0, 1, 1)
	s.m.jobDone(producerIDResult{id: identity{1, 1}, refused: map[place]sarama.KError{{"t", 0}: sarama.ErrUnknownTopicOrPartition}})
	if w := s.later(0); w.job != nil {
		t.Fatalf("at once: %+v", w.job)
	}
	if at := s.m.next(); at.Sub(s.m.now) != backoffMax {
		t.Fatalf("after %v", at.Sub(s.m.now))
	}
	if w := s.later(backoffMax); w.job == nil || w.ask == nil {
		t.Errorf("job %+v, asked %+v", w.job, w.ask)
	}
}

// A deleted topic is forgotten with its release.
func TestADeletedTopicIsForgotten(t *testing.T) {
	s := newStage(t, false)
	s.publish(-1)
	b := s.sent(s.hear(0, 1, 1))
	s.answer(b, reply{err: errors.New("reset")})
	b = s.sent(s.later(backoffMin))
	s.hear(sarama.ErrUnknownTopicOrPartition, 0, 0)
	s.m.now = s.m.now.Add(time.Minute)
	s.m.produced(b, reply{code: sarama.ErrUnknownTopicOrPartition, offset: -1})
	s.outcome(s.hear(sarama.ErrUnknownTopicOrPartition, 0, 0), outbox.Withdrawn, sarama.ErrUnknownTopicOrPartition)
	scope := outbox.TopicScope("main", "t")
	s.m.command(outbox.Command{Release: &scope})
	if len(s.m.topics) != 0 {
		t.Errorf("topics %v", s.m.topics)
	}
}

// While the producer id cannot be had or kept, the cluster is not usable.
func TestTroubleOfTheProducerID(t *testing.T) {
	s := newStage(t, false)
	s.hear(0, 1, 1)
	s.m.idTrouble(errDark)
	s.later(400 * time.Millisecond)
	s.m.idTrouble(errReset)
	if since, err := s.m.trouble(); !errors.Is(err, errReset) || s.m.now.Sub(since) != 400*time.Millisecond {
		t.Fatalf("trouble since %v: %v", since, err)
	}
	if at := s.m.next(); at.Sub(s.m.now) != 600*time.Millisecond {
		t.Fatalf("told after %v", at.Sub(s.m.now))
	}
	if w := s.later(600 * time.Millisecond); len(w.states) != 1 || w.states[0].Usable || !errors.Is(w.states[0].Err, errReset) {
		t.Fatalf("states %+v", w.states)
	}
	s.m.jobDone(producerIDResult{id: identity{1, 0}})
	if w := s.later(0); len(w.states) != 1 || !w.states[0].Usable {
		t.Errorf("states %+v", w.states)
	}
}

// Of several troubles the oldest counts; a new reason is told at intervals.
func TestTheOldestTroubleIsTold(t *testing.T) {
	s := newStage(t, false)
	s.publish(-1)
	b := s.sent(s.hear(0, 1, 1))
	s.answer(b, reply{code: sarama.ErrNotEnoughReplicas, offset: -1})
	since := s.m.now
	s.m.now = s.m.now.Add(100 * time.Millisecond)
	s.m.idTrouble(errDark)
	if at, err := s.m.trouble(); !at.Equal(since) || !errors.Is(err, sarama.ErrNotEnoughReplicas) {
		t.Fatalf("since %v: %v", at, err)
	}
	if w := s.later(time.Second); len(w.states) != 1 || !errors.Is(w.states[0].Err, sarama.ErrNotEnoughReplicas) {
		t.Fatalf("states %+v", w.states)
	}
	s.m.produced(b, reply{})
	if w := s.later(5*time.Second - time.Millisecond); len(w.states) != 0 {
		t.Fatalf("too soon: %+v", w.states)
	}
	if w := s.later(time.Millisecond); len(w.states) != 1 || w.states[0].Usable || !errors.Is(w.states[0].Err, errDark) {
		t.Fatalf("states %+v", w.states)
	}
	if w := s.later(time.Hour); len(w.states) != 0 {
		t.Errorf("states %+v", w.states)
	}
}

// A row of a new topic has it asked for at once; while metadata fails, as often as that allows.
func TestMetadataIsAskedForAtOnce(t *testing.T) {
	s := newStage(t, false)
	s.m.asking = false
	s.m.metadata(nil, nil, nil)
	if _, w := s.publish(-1); w.ask == nil {
		t.Fatal("it is not asked for")
	}
	s.m.metadata([]string{"t"}, nil, errDark)
	s.m.command(outbox.Command{Publish: []*outbox.Row{newRow("u", "k", "v")}})
	if w := s.later(backoffMin - 1); w.ask != nil {
		t.Fatal("it is asked for without a pause")
	}
	if w := s.later(1); w.ask == nil {
		t.Fatal("it is not asked for after the pause")
	}
	s.m.metadata([]string{"t", "u"}, nil, errDark)
	if at := s.m.next(); at.Sub(s.m.now) != 2*backoffMin {
		t.Errorf("asked for after %v", at.Sub(s.m.now))
	}
}

func TestAListOfTopics(t *testing.T) {
	s := newStage(t, false)
	s.m.metadata(nil, nil, nil)
	s.publish(-1)
	s.m.asking = false
	s.m.command(outbox.Command{List: true})
	w := s.later(0)
	if w.ask == nil || !w.ask.all || w.ask.topics != nil {
		t.Fatalf("asked for %+v", w.ask)
	}
	s.m.listed(nil, errDark)
	if w = s.later(backoffMin); w.ask == nil || !w.ask.all || len(w.states) > 0 && w.states[0].Topics != nil {
		t.Fatalf("asked for %+v after a failure, states %+v", w.ask, w.states)
	}
	leader := []string{"b"}
	s.m.listed(map[string]topicInfo{
		"good": {leaders: leader}, "away": {code: sarama.ErrReplicaNotAvailable, leaders: leader}, "new": {}, "theirs": {leaders: leader, internal: true},
		"theirs, too": {code: sarama.ErrReplicaNotAvailable, leaders: leader, internal: true}, "secret": {code: sarama.ErrTopicAuthorizationFailed, leaders: leader},
	}, nil)
	w = s.later(0)
	if w.ask == nil || w.ask.all || len(w.ask.topics) != 1 {
		t.Errorf("asked for %+v", w.ask)
	}
	if len(w.states) == 0 || !maps.Equal(w.states[0].Topics, map[string]bool{"good": true, "away": true}) {
		t.Errorf("states %+v", w.states)
	}
}

// A batch that waits goes on at once when another broker leads, and so does one whose topic is released.
func TestWhatEndsAWait(t *testing.T) {
	s := newStage(t, false)
	s.publish(-1)
	b := s.sent(s.hear(0, 1, 1))
	wait := func() {
		t.Helper()
		for range 5 {
			if w := s.answer(b, reply{code: sarama.ErrClusterAuthorizationFailed, offset: -1}); len(w.send) > 0 {
				t.Fatal("it does not wait")
			}
			s.later(backoffSlow)
		}
		if w := s.answer(b, reply{code: sarama.ErrClusterAuthorizationFailed, offset: -1}); len(w.send) > 0 {
			t.Fatal("it does not wait")
		}
	}
	wait()
	s.m.topics["t"].queues[0].leader = "other"
	s.sent(s.hear(0, 1, 1))
	wait()
	if w := s.hear(0, 1, 1); len(w.send) > 0 { // led by the same
		t.Fatal("it does not wait")
	}
	s.m.topics["t"].queues[0].leader = "" // a batch in flight is not sent to nobody
	s.later(backoffSlow)
	s.hear(0, 1, 1)
	b.maybe = true
	s.m.produced(b, reply{code: sarama.ErrTopicAuthorizationFailed, offset: -1})
	s.later(0)
	scope := outbox.TopicScope("main", "t")
	s.m.command(outbox.Command{Release: &scope})
	s.sent(s.later(0))
}

// Splitting a batch is no trouble, and a refusal says why in the broker's words.
func TestARefusal(t *testing.T) {
	s := newStage(t, false)
	first, second := newRow("t", "a", "v"), newRow("t", "b", "v")
	s.m.command(outbox.Command{Publish: []*outbox.Row{first, second}})
	b := s.sent(s.hear(0, 1, 1))
	s.answer(b, reply{code: sarama.ErrNotEnoughReplicas, offset: -1})
	b = s.sent(s.later(backoffMin))
	w := s.answer(b, reply{code: sarama.ErrInvalidRecord, offset: -1, rejected: []int{0}, message: "no"})
	s.outcome(w, outbox.Refused, sarama.ErrInvalidRecord)
	if w.outcomes[0].Rows[0] != first || !strings.HasSuffix(w.outcomes[0].Err.Error(), ": no") {
		t.Errorf("%+v", w.outcomes[0])
	}
	if _, err := s.m.trouble(); err != nil {
		t.Error(err)
	}
	s.outcome(s.answer(s.sent(w), reply{}), outbox.Delivered, nil)
	if len(s.m.failing) > 0 {
		t.Error("it fails")
	}
}

// Batches keep to the topic's limit, and to what is learnt where it is not told.
func TestTheTopicsLimit(t *testing.T) {
	size := batchOverhead + recordSize(newRow("t", "k", "v"))
	for _, told := range []bool{true, false} {
		s := newStage(t, false)
		s.m.command(outbox.Command{Publish: rowsOf("t", "k", "v", 8)})
		b := s.sent(s.hear(0, 1, 1))
		if len(b.rows) != 8 {
			t.Fatalf("%d rows", len(b.rows))
		}
		if told {
			s.m.metadata([]string{"t"}, map[string]topicInfo{"t": {uuid: sarama.Uuid{1}, leaders: []string{"b"}, maxBytes: 2 * size}}, nil)
		}
		b = s.sent(s.answer(b, reply{code: sarama.ErrMessageSizeTooLarge, offset: -1}))
		for range 10 { // the halving is over then
			if w := s.answer(b, reply{}); len(w.send) == 1 {
				b = w.send[0]
			}
		}
		s.m.command(outbox.Command{Publish: rowsOf("t", "k", "v", 100)})
		most := 2 * size
		if !told {
			most = batchOverhead + 4*recordSize(newRow("t", "k", "v1"))
		}
		if b = s.sent(s.later(0)); b.bytes > most || b.bytes < most/2 || len(b.rows) == 1 {
			t.Errorf("told %v: %d rows, %d bytes of %d", told, len(b.rows), b.bytes, most)
		}
	}
}

func TestRowsWithLongIDs(t *testing.T) {
	s := newStage(t, false)
	long := newRow("t", "k", "v")
	long.ID = strings.Repeat("i", longestID+1)
	s.m.command(outbox.Command{Publish: []*outbox.Row{long}})
	s.sent(s.hear(0, 1, 1)) // where there is no journal

	m, _ := journalled(t, "", topicInfo{uuid: sarama.Uuid{1}, leaders: []string{"b"}})
	m.metadata([]string{"t"}, nil, nil)
	fits := newRow("t", "k", "v")
	fits.ID = strings.Repeat("i", longestID)
	m.command(outbox.Command{Publish: []*outbox.Row{fits, long}})
	m.metadata([]string{"t"}, map[string]topicInfo{"t": {leaders: []string{"b"}}, "journal": {uuid: sarama.Uuid{1}, leaders: []string{"b"}}}, nil)
	q := m.topics["t"].queues[0]
	if q.rejected[fits] != nil || q.rejected[long] == nil {
		t.Errorf("rejected %v", q.rejected)
	}
}
