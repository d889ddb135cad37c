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

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// stage plays the surroundings of a machine, a step at a time.
type stage struct {
	*testing.T
	m *machine
}

// newStage is one on which topic t is known.
func newStage(t *testing.T, fencing bool) *stage {
	s := &stage{t, newMachine("main", machineConfig{
		limits: limits{rows: 10, bytes: 1 << 20}, topicGrace: 3 * time.Second, outageAfter: time.Second, refresh: time.Minute, keepAlive: 20 * time.Second,
		random: func(int) int { return 0 },
	}, []string{"t"})}
	s.m.now = time.Unix(1_000_000, 0)
	s.m.started(producer{1, 0}, fencing)
	s.later(0)
	return s
}

// later lets time go by.
func (s *stage) later(d time.Duration) work {
	s.m.now = s.m.now.Add(d)
	s.m.tick(s.m.now)
	return s.m.take()
}

// hear gives the machine an answer of metadata about topic t, a millisecond after the request. It returns
// the work that follows.
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

// sent returns the only batch that is to be sent.
func (s *stage) sent(w work) *batch {
	s.Helper()
	if len(w.send) != 1 {
		s.Fatalf("%d batches are sent", len(w.send))
	}
	return w.send[0]
}

// answer gives the machine a reply to the batch, and returns the work that follows.
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
func TestTroubleOfATopicBeginsAgain(t *testing.T) {
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
		if s.hear(0, uuid, 2); !b.maybe {
			t.Fatal("it is there")
		}
		if w := s.hear(0, 2*uuid, 1); len(w.outcomes) > 0 || !b.maybe {
			t.Fatalf("before its leader says so: %+v", w.outcomes)
		}
		b = s.sent(s.later(backoffMin))
		s.answer(b, reply{code: sarama.ErrUnknownTopicOrPartition, offset: -1})
		s.m.askedAt = b.sent // it was on its way then
		s.m.metadata([]string{"t"}, map[string]topicInfo{"t": {uuid: sarama.Uuid{2 * uuid}, leaders: []string{"b"}}}, nil)
		if w := s.later(0); len(w.outcomes) > 0 {
			t.Fatalf("of a try that was not over: %+v", w.outcomes)
		}
		s.outcome(s.hear(0, 2*uuid, 1), outbox.Withdrawn, errRecreated)
	}
}

func TestABrokerThatHasNotHeardOfNewPartitions(t *testing.T) {
	s := newStage(t, false)
	s.hear(0, 1, 1)
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
	s.m.jobDone(producerIDResult{id: producer{1, 1}, fenced: []topicPartition{{"t", 0}}})
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
	s.m.keepAt = s.m.now
	if at := s.m.next(); !at.IsZero() && !at.After(s.m.now) { // while a job is out
		t.Errorf("it is to be woken %v later", at.Sub(s.m.now))
	}
	s.m.jobDone(producerIDResult{id: producer{1, 1}})
	s.m.keepAt, s.m.jobAt, s.m.unfenced = s.m.now, s.m.now, true
	if w = s.later(0); w.job == nil || len(w.job.fence) != 1 { // what is wanted comes first
		t.Errorf("job %+v", w.job)
	}
}

// What was not sent, or cannot have arrived, is given back.
func TestAWithdrawal(t *testing.T) {
	s := newStage(t, false)
	s.publish(-1)
	b := s.sent(s.hear(0, 1, 1))
	s.answer(b, reply{err: errReset, unsent: true})
	scope := outbox.StreamScope()
	s.m.command(outbox.Command{Withdraw: &scope})
	s.outcome(s.later(0), outbox.Withdrawn, nil)
	if w := s.later(time.Minute); len(w.send) > 0 {
		t.Errorf("sent %v", w.send)
	}
}

func TestTopicErrors(t *testing.T) {
	for err, want := range map[error]outbox.TopicError{
		sarama.ErrTopicAuthorizationFailed: outbox.TopicUnauthorized, sarama.ErrInvalidTopic: outbox.TopicInvalid,
		sarama.ErrUnknownTopicOrPartition: outbox.TopicMissing, sarama.ErrPolicyViolation: "", errRecreated: "",
	} {
		if kind, name := topicErrorOf(fmt.Errorf("topic t: %w", err)); kind != want || (name == "") != (want == "") {
			t.Errorf("%v: %q, %q", err, kind, name)
		}
	}
}

// The topics that are known beforehand are fenced before rows come.
func TestKnownTopicsAreFencedFirst(t *testing.T) {
	m := newMachine("main", machineConfig{refresh: time.Minute}, []string{"t"})
	s := &stage{t, m}
	m.now = time.Unix(1_000_000, 0)
	m.started(producer{1, 0}, true)
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
	s.m.jobDone(producerIDResult{id: producer{1, 1}, refused: map[topicPartition]sarama.KError{
		{"t", 0}: sarama.ErrTopicAuthorizationFailed, {"gone", 0}: sarama.ErrTopicAuthorizationFailed,
	}, fenced: []topicPartition{{"t", 2}, {"gone", 0}}})
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
	s.m.jobDone(producerIDResult{id: producer{1, 1}, refused: map[topicPartition]sarama.KError{{"t", 0}: sarama.ErrUnknownTopicOrPartition}})
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
	s.m.produced(b, reply{err: errReset})
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
	s.m.jobDone(producerIDResult{id: producer{1, 0}})
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
	s.m.metadata(nil, nil, nil)
	if s.m.askErrs == 0 {
		t.Error("metadata is asked for without a pause while a partition fails")
	}
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
	b = s.sent(w)
	if b.queue.limit != 0 {
		t.Errorf("the next batches have %d rows, although the record is known", b.queue.limit)
	}
	s.outcome(s.answer(b, reply{}), outbox.Delivered, nil)
	if len(s.m.failing) > 0 || b.queue.topic.accepted != b.bytes {
		t.Errorf("failing %v, accepted %d bytes", s.m.failing, b.queue.topic.accepted)
	}
}

// Rows whose time the topic refuses go out with the time of producing where their table says so, next to others that keep
// theirs; others are refused at no cost.
func TestRefusedTimes(t *testing.T) {
	s := newStage(t, false)
	now := *testTable
	now.Mapping.TimestampNow = true
	old, kept, waits, none := newRow("t", "a", "v"), newRow("t", "b", "v"), newRow("t", "c", "v"), newRow("t", "d", "v")
	old.Table, kept.Table = &now, &now
	old.Timestamp, kept.Timestamp, waits.Timestamp = 1000, 999_999_000, 1001
	s.m.command(outbox.Command{Publish: []*outbox.Row{old, kept, waits, none}})
	b := s.sent(s.hear(0, 1, 1))
	refusal := reply{code: sarama.ErrInvalidTimestamp, offset: -1, rejected: []int{0, 2}}
	times := func(b *batch) (all []int64) {
		for i := range b.rows {
			all = append(all, b.timeOf(i))
		}
		return all
	}
	again := s.sent(s.answer(b, refusal))
	made := again.made.UnixMilli()
	if got := times(again); again != b || !slices.Equal(got, []int64{made, 999_999_000, 1001, made}) {
		t.Fatalf("times %v, made %d", got, made)
	}
	w := s.answer(again, reply{code: sarama.ErrInvalidTimestamp, offset: -1, rejected: []int{2}})
	b = s.sent(w) // those before it go first
	if got := times(b); len(got) != 2 || got[0] != 1000 {
		t.Fatalf("times %v", got)
	}
	b = s.sent(s.answer(b, reply{code: sarama.ErrInvalidTimestamp, offset: -1, rejected: []int{0}}))
	w = s.answer(b, reply{})
	if len(w.outcomes) != 2 || w.outcomes[0].Class != outbox.Delivered || w.outcomes[1].Class != outbox.Refused || w.outcomes[1].Rows[0] != waits || !w.outcomes[1].Uncharged {
		t.Fatalf("%+v", w.outcomes)
	}
	b = s.sent(w)
	w = s.answer(b, reply{code: sarama.ErrInvalidTimestamp, offset: -1}) // it got old while it waited
	s.outcome(w, outbox.Refused, sarama.ErrInvalidTimestamp)
	if !w.outcomes[0].Uncharged {
		t.Errorf("%+v", w.outcomes[0])
	}
}

// Batches keep to the topic's limit, and to what is learnt where it is not told.
func TestTheTopicsLimit(t *testing.T) {
	size := batchOverhead + 2*recordSize(newRow("t", "k", "v1"))
	for _, told := range []bool{true, false} {
		s := newStage(t, false)
		s.m.command(outbox.Command{Publish: rowsOf("t", "k", "v", 8)})
		b := s.sent(s.hear(0, 1, 1))
		if len(b.rows) != 8 {
			t.Fatalf("%d rows", len(b.rows))
		}
		if told {
			s.m.metadata([]string{"t"}, map[string]topicInfo{"t": {uuid: sarama.Uuid{1}, leaders: []string{"b"}, maxBytes: size}}, nil)
		}
		b = s.sent(s.answer(b, reply{code: sarama.ErrMessageSizeTooLarge, offset: -1}))
		for range 10 { // the halving is over then
			if w := s.answer(b, reply{}); len(w.send) == 1 {
				b = w.send[0]
			}
		}
		s.m.command(outbox.Command{Publish: rowsOf("t", "k", "v", 100)})
		most := size
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
	inLog := *long // named by a hash, which is never long
	inLog.Table = logTable
	m.command(outbox.Command{Publish: []*outbox.Row{&inLog}})
	if q.rejected[&inLog] != nil {
		t.Errorf("rejected %v", q.rejected)
	}
}

func TestWhetherATopicIsReplaced(t *testing.T) {
	for _, c := range []struct {
		known, told byte
		fewer, is   bool
	}{{1, 1, false, false}, {1, 1, true, false}, {1, 2, false, true}, {0, 0, false, false}, {0, 0, true, true}, {0, 1, false, false}, {0, 1, true, true}, {1, 0, false, false}, {1, 0, true, true}} {
		top := newTopic("t")
		top.uuid = sarama.Uuid{c.known}
		top.queues = make([]*partitionQueue, 2)
		info := topicInfo{uuid: sarama.Uuid{c.told}, leaders: make([]string, 2)}
		if c.fewer {
			info.leaders = info.leaders[:1]
		}
		if got := top.isReplacedBy(info); got != c.is {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// Rows of the same key are those that name their partitions, too.
func TestSameKey(t *testing.T) {
	r := newRow("t", "k", "v")
	r.Partition = 0
	same, other, keyless, unnamed, foreign := *r, *r, *r, *r, *r
	other.Key, keyless.Key, unnamed.Partition, foreign.Table = []byte("o"), nil, -1, ownTable
	empty := *r
	empty.Key = []byte{}
	for row, want := range map[*outbox.Row]bool{&same: true, &other: false, &keyless: false, &unnamed: false, &foreign: false} {
		if sameKey(r)(row) != want {
			t.Errorf("%+v: %v", row, !want)
		}
	}
	if sameKey(&empty)(&keyless) {
		t.Error("a key that is empty is one, and none is not")
	}
	top := newTopic("t")
	q := &partitionQueue{topic: top}
	top.queues = []*partitionQueue{q}
	for _, row := range []*outbox.Row{&keyless, &unnamed, &other} {
		q.rows.push(row)
	}
	if got := top.stillAssigned(); len(got) != 1 || got[namedKey{testTable, "o"}] != q {
		t.Errorf("%v", got)
	}
	top.namedQueue(&keyless)
	if len(top.assigned) != 0 {
		t.Errorf("%v", top.assigned)
	}
}

func TestAnAbsentTopicIsLookedAtAgain(t *testing.T) {
	s := newStage(t, false)
	s.m.topics["t"] = newTopic("t")
	s.hear(sarama.ErrUnknownTopicOrPartition, 0, 0)
	if at := s.m.next(); at.Sub(s.m.now) != s.m.cfg.refresh { // nobody waits for it
		t.Errorf("asked for after %v", at.Sub(s.m.now))
	}
	s.hear(0, 1, 1)
	s.hear(sarama.ErrUnknownTopicOrPartition, 0, 0)
	if at := s.m.next(); at.Sub(s.m.now) != backoffMax { // rows may come
		t.Errorf("asked for after %v", at.Sub(s.m.now))
	}
	s.later(3*time.Second - 2*time.Millisecond - time.Nanosecond)
	s.hear(sarama.ErrUnknownTopicOrPartition, 0, 0)
	if s.m.topics["t"] == nil {
		t.Fatal("it has no grace")
	}
	s.m.now = s.m.now.Add(time.Nanosecond - 2*time.Millisecond)
	s.hear(sarama.ErrUnknownTopicOrPartition, 0, 0)
	if len(s.m.topics) != 0 {
		t.Error("it is remembered")
	}
	s.hear(0, 1, 1)
	s.publish(-1)
	s.m.asking = false
	s.m.metadata([]string{"t"}, map[string]topicInfo{"t": {leaders: []string{"b"}}}, nil)
	s.later(0)
}

// So many topics that are missing at once are not all just being made.
func TestVeryManyTopicsHaveNoGrace(t *testing.T) {
	for n, blocked := range map[int]bool{manyAbsentTopics: false, manyAbsentTopics + 1: true} {
		s := newStage(t, false)
		infos := map[string]topicInfo{"there": {leaders: []string{"b"}}}
		var names []string
		for i := range n {
			r := newRow(fmt.Sprint("t", i), "k", "v")
			s.m.command(outbox.Command{Publish: []*outbox.Row{r}})
			infos[r.Topic] = topicInfo{code: sarama.ErrUnknownTopicOrPartition}
			names = append(names, r.Topic)
		}
		s.m.metadata(append(names, "there"), infos, nil)
		if w := s.later(0); (len(w.outcomes) == n) != blocked || !blocked && len(w.outcomes) > 0 {
			t.Errorf("%d topics: %d outcomes", n, len(w.outcomes))
		}
	}
}

// A topic without leaders is the cluster's trouble as long as rows wait for it, since the first answer.
func TestTroubleOfATopic(t *testing.T) {
	s := newStage(t, false)
	s.hear(0, 1, 1)
	s.hear(sarama.ErrLeaderNotAvailable, 0, 0)
	if _, err := s.m.trouble(); err != nil {
		t.Errorf("nobody waits: %v", err)
	}
	s = newStage(t, false)
	s.publish(-1)
	s.hear(sarama.ErrLeaderNotAvailable, 0, 0)
	since := s.m.now
	s.later(100 * time.Millisecond)
	s.hear(sarama.ErrLeaderNotAvailable, 0, 0)
	if at, err := s.m.trouble(); !at.Equal(since) || !errors.Is(err, sarama.ErrLeaderNotAvailable) {
		t.Errorf("since %v: %v", at, err)
	}
	b := s.sent(s.hear(0, 1, 1)) // what a topic is blocked for is not the cluster's
	s.answer(b, reply{err: errReset})
	s.hear(sarama.ErrTopicAuthorizationFailed, 0, 0)
	if _, err := s.m.trouble(); err != nil || !s.m.topicBlocked("t") {
		t.Errorf("blocked: %v", err)
	}
}

// Partitions that are there keep their batches and what is known of them when others are added.
func TestPartitionsAreAddedBesides(t *testing.T) {
	s := newStage(t, false)
	s.publish(0)
	b := s.sent(s.hear(0, 1, 1))
	later, _ := s.publish(-1)
	q := b.queue
	q.leader = "other"
	w := s.hear(0, 1, 2)
	if top := s.m.topics["t"]; top.state != topicDraining || top.waiting.len() != 1 || top.waiting.peek()[0] != later {
		t.Fatalf("state %d, %d rows wait", top.state, top.waiting.len())
	}
	if len(w.notes) > 0 || q.leader != "b" {
		t.Errorf("too soon: %+v, led by %q", w.notes, q.leader)
	}
	w = s.answer(b, reply{offset: 3})
	if top := s.m.topics["t"]; top.state != topicReady || len(top.queues) != 2 || top.queues[0] != q || q.seq != 1 || q.tail != 4 {
		t.Fatalf("state %d, %d partitions, tail %d", top.state, len(top.queues), q.tail)
	}
	if len(w.notes) != 1 || w.notes[0].topic != "t" {
		t.Errorf("%+v", w.notes)
	}
	b = s.sent(w)
	s.answer(b, reply{err: errReset, unsent: true}) // nothing of it can be there: it need not be awaited
	if s.hear(0, 1, 3); s.m.topics["t"].state != topicReady || len(s.m.topics["t"].queues) != 3 {
		t.Errorf("state %d", s.m.topics["t"].state)
	}
}

// A broker whose disk is full says so once. Then it has ended, or the partition has no leader.
func TestTheDiskOfABroker(t *testing.T) {
	s := newStage(t, false)
	s.publish(-1)
	b := s.sent(s.hear(0, 1, 1))
	full := reply{code: sarama.ErrKafkaStorageError, offset: -1}
	w := s.answer(b, full)
	if len(w.notes) != 1 || w.notes[0].topic != "t" || !strings.Contains(w.notes[0].text, "disk") || !errors.Is(w.notes[0].err, sarama.ErrKafkaStorageError) {
		t.Errorf("%+v", w.notes)
	}
	if len(w.outcomes) > 0 || b.maybe {
		t.Errorf("%+v, in doubt: %v", w.outcomes, b.maybe)
	}
	s.m.metadata([]string{"t"}, map[string]topicInfo{"t": {uuid: sarama.Uuid{1}, leaders: []string{""}}}, nil)
	if w = s.later(2 * time.Second); len(w.states) != 1 || w.states[0].Usable || !strings.Contains(w.states[0].Err.Error(), "their disks") {
		t.Errorf("%+v", w.states)
	}
	if again := s.sent(s.hear(0, 1, 1)); again != b {
		t.Errorf("%+v is sent, and not the same batch", again)
	}
	once := newOnceStage(t, 1)
	b, _ = once.begun(newRow("t", "k", "v"))
	if again := once.answer(b, full); !slices.ContainsFunc(again.notes, func(n note) bool { return strings.Contains(n.text, "disk") }) {
		t.Errorf("in a transaction: %+v", again.notes)
	}
}

// A partition whose offsets go back has lost records that were acknowledged.
func TestAcknowledgedRecordsAreLost(t *testing.T) {
	s := newStage(t, false)
	s.publish(-1)
	b := s.sent(s.hear(0, 1, 1))
	said := func(w work) bool {
		return slices.ContainsFunc(w.notes, func(n note) bool { return strings.Contains(n.text, "Kafka lost") && n.topic == "t" })
	}
	for i, c := range []struct {
		offset int64
		lost   bool
	}{{6, false}, {7, false}, {20, false}, {-1, false}, {20, true}, {21, false}, {0, true}} {
		w := s.answer(b, reply{offset: c.offset})
		s.outcome(w, outbox.Delivered, nil)
		if said(w) != c.lost {
			t.Errorf("answer %d, offset %d: %+v", i, c.offset, w.notes)
		}
		_, w = s.publish(-1)
		b = s.sent(w)
	}
	s.answer(b, reply{err: errReset})
	b = s.sent(s.later(backoffMin))
	if w := s.answer(b, reply{offset: 0}); said(w) { // of an earlier try, perhaps
		t.Errorf("of a batch that was sent twice: %+v", w.notes)
	}
	_, w := s.publish(-1)
	if w = s.answer(s.sent(w), reply{offset: 0}); !said(w) {
		t.Errorf("of the batch behind it: %+v", w.notes)
	}
	once := newOnceStage(t, 1)
	rows, journal := once.begun(newRow("t", "k", "v"))
	if w := once.answer(rows, reply{offset: 9}); said(w) {
		t.Errorf("in a transaction: %+v", w.notes)
	}
	once.coordinate(once.answer(journal, reply{offset: 9}))
	rows, journal = once.batches(once.coordinate(once.put(newRow("t", "k", "v"))))
	if w := once.answer(rows, reply{offset: 3}); !said(w) {
		t.Errorf("in a transaction: %+v", w.notes)
	}
	if w := once.answer(journal, reply{offset: 3}); len(w.notes) > 0 {
		t.Errorf("of the journal: %+v", w.notes)
	}
}

// Rows that are not sent because the time is over are no failure, and no batch is made of them before.
func TestNothingMayBeSent(t *testing.T) {
	s := newStage(t, false)
	s.hear(0, 1, 1)
	s.m.closed = true
	r, w := s.publish(-1)
	q := s.m.topics["t"].queues[0]
	if len(w.send) > 0 || q.inFlight != nil || q.rows.peek()[0] != r || s.m.next().Sub(s.m.now) != holdPause {
		t.Fatalf("sent %v", w.send)
	}
	s.m.closed = false
	b := s.sent(s.later(holdPause))
	s.answer(b, reply{err: errLate, unsent: true})
	if q.err != nil || q.failures != 0 || b.maybe || q.at.Sub(s.m.now) != holdPause || len(s.m.failing) > 0 {
		t.Errorf("%v", q.err)
	}
}

func TestAPartitionWithoutLeader(t *testing.T) {
	s := newStage(t, false)
	r, _ := s.publish(-1)
	s.m.metadata([]string{"t"}, map[string]topicInfo{"t": {leaders: []string{""}}}, nil)
	w := s.later(0)
	q := s.m.topics["t"].queues[0]
	if len(w.send) > 0 || q.state != queueWaiting || q.rows.peek()[0] != r || q.err == nil || s.m.next().After(s.m.now.Add(backoffMin)) {
		t.Fatalf("state %d, %v, next %v", q.state, q.err, s.m.next().Sub(s.m.now))
	}
	since, _ := s.m.trouble()
	if s.publish(-1); w.ask == nil || q.failures != 1 {
		t.Errorf("asked %+v, %d failures", w.ask, q.failures)
	}
	s.m.metadata([]string{"t"}, map[string]topicInfo{"t": {leaders: []string{""}}}, nil)
	if at, err := s.m.trouble(); err == nil || !at.Equal(since) {
		t.Errorf("trouble since %v: %v", at, err)
	}
	if q.leader = "b"; s.m.quiet() != nil {
		t.Error("an id can be kept alive before the fence")
	}
	q.fenced = true
	if s.m.quiet() == nil {
		t.Error("no id can be kept alive")
	}
	if q.leader = ""; s.m.quiet() != nil {
		t.Error("an id can be kept alive without a leader")
	}
	q.leader, q.inFlight = "b", &batch{as: producer{1, 7}}
	if s.m.quiet() != nil {
		t.Error("an id can be kept alive at a partition with an older batch")
	}
	q.inFlight.as = s.m.id
	if s.m.quiet() == nil {
		t.Error("no id can be kept alive next to a batch of it")
	}
}

// A batch that our own fence refused goes on the new epoch; the epoch's sequences are its own.
func TestABatchOfAnOlderEpoch(t *testing.T) {
	s := newStage(t, false)
	s.publish(-1)
	b := s.sent(s.hear(0, 1, 1))
	s.m.jobDone(producerIDResult{id: producer{1, 2}})
	b = s.sent(s.answer(b, reply{code: sarama.ErrInvalidProducerEpoch, offset: -1}))
	if b.as != s.m.id || b.seq != 0 || b.tries != 2 {
		t.Errorf("as %v", b.as)
	}
	q := &partitionQueue{as: producer{1, 4}, seq: 5}
	q.acked(&batch{as: producer{1, 2}, rows: rowsOf("t", "k", "v", 3)}, -1)
	if q.seq != 5 {
		t.Errorf("sequence %d", q.seq)
	}
	q = &partitionQueue{state: queueWaiting, inFlight: &batch{unresolved: true}}
	if q.recall() {
		t.Error("a batch is taken back that is to be searched for")
	}
	s.m.reused = true
	if s.m.jobDone(producerIDResult{id: s.m.id}); !s.m.reused {
		t.Error("the same identity is taken for a new one")
	}
	if s.m.jobDone(producerIDResult{id: producer{9, 0}}); s.m.reused {
		t.Error("a new identity is taken for the same")
	}
}

func TestTheFirstStates(t *testing.T) {
	m := newMachine("main", machineConfig{refresh: time.Minute, outageAfter: time.Second}, nil)
	s := &stage{t, m}
	m.now = time.Unix(1_000_000, 0)
	m.started(producer{1, 0}, false)
	if w := s.later(0); len(w.states) > 0 {
		t.Fatalf("before metadata: %+v", w.states)
	}
	m.idTrouble(errReset)
	if w := s.later(0); len(w.states) > 0 { // only brokers that do not answer are told at once
		t.Fatalf("at once: %+v", w.states)
	}
	m.metadata(nil, nil, errDark)
	if w := s.later(0); len(w.states) != 1 || w.states[0].Usable {
		t.Fatalf("states: %+v", w.states)
	}
	m.metadata(nil, nil, nil)
	m.started(producer{1, 0}, false)
	if w := s.later(0); len(w.states) != 1 || !w.states[0].Usable {
		t.Fatalf("states: %+v", w.states)
	}
	m.metadata([]string{"t"}, nil, nil) // says nothing of it
	if m.topics["t"] = newTopic("t"); len(m.stalled) > 0 {
		t.Errorf("stalled: %v", m.stalled)
	}
	m.metadata([]string{"t"}, nil, nil)
	if len(m.stalled) > 0 {
		t.Errorf("stalled: %v", m.stalled)
	}
	m.metadata(nil, nil, errDark)
	if w := s.later(0); len(w.states) > 0 { // not for a moment
		t.Fatalf("states: %+v", w.states)
	}
}

func TestWantedMetadata(t *testing.T) {
	m := newMachine("main", machineConfig{refresh: time.Minute}, nil)
	m.now = time.Unix(1_000_000, 0)
	for _, c := range []struct {
		errs   int
		wanted []time.Duration
		at     time.Duration
	}{
		{0, []time.Duration{0}, 0},
		{0, []time.Duration{backoffMax, 0}, 0},
		{0, []time.Duration{0, backoffMax}, 0},
		{1, []time.Duration{0}, backoffMin},
		{1, []time.Duration{backoffMax}, backoffMax},
	} {
		m.answered, m.askErrs, m.askAt = m.now, c.errs, time.Time{}
		for _, d := range c.wanted {
			m.want(d)
		}
		if got := m.askAt.Sub(m.now); got != c.at {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// Rows behind a batch whose topic was blocked, and released before its fate was known, go on.
func TestRowsBehindABlock(t *testing.T) {
	s := newStage(t, false)
	s.publish(-1)
	b := s.sent(s.hear(0, 1, 1))
	s.answer(b, reply{err: errReset})
	s.publish(-1)
	s.hear(sarama.ErrTopicAuthorizationFailed, 0, 0)
	scope := outbox.TopicScope("main", "t")
	s.m.command(outbox.Command{Release: &scope})
	asksAgain := func() {
		t.Helper()
		s.hear(sarama.ErrLeaderNotAvailable, 1, 0)
		if after := s.m.askAt.Sub(s.m.now); after > backoffMax {
			t.Errorf("the topic is asked about after %v", after)
		}
		if _, err := s.m.trouble(); err == nil {
			t.Error("there is no trouble")
		}
	}
	asksAgain() // for the batch
	s.outcome(s.answer(b, reply{}), outbox.Delivered, nil)
	asksAgain() // for the row behind it
	s.sent(s.hear(0, 1, 1))
	s.publish(-1)
	s.hear(sarama.ErrLeaderNotAvailable, 1, 0)
	if _, err := s.m.trouble(); err != nil {
		t.Errorf("of a topic that takes rows: %v", err)
	}
}

// Rows move with what is known of them.
func TestRowsMove(t *testing.T) {
	for _, key := range []string{"k", ""} {
		s := newStage(t, false)
		s.hear(0, 1, 2)
		from, to := s.m.topics["t"].queues[0], s.m.topics["t"].queues[1]
		r, x := newRow("t", key, "v"), newRow("t", key, "v")
		r.Partition, x.Partition = 1, 1
		from.rows.push(r)
		from.rows.push(x)
		from.reject(x, errLongID)
		s.m.move(from, r)
		if key == "" {
			if from.rows.len() != 1 || to.rows.len() != 1 || to.rows.peek()[0] != r {
				t.Errorf("%d rows are left, %d there", from.rows.len(), to.rows.len())
			}
			continue
		}
		if from.rows.len() != 0 || to.rows.len() != 2 || to.rejected[x] == nil || len(from.rejected) > 0 {
			t.Errorf("%d rows are left, %d there, rejected %v", from.rows.len(), to.rows.len(), to.rejected)
		}
	}
}

// What is learnt of a topic's limit comes from refusals for size alone; and records without a
// key move on with each batch.
func TestWhatABatchTeaches(t *testing.T) {
	for code, learns := range map[sarama.KError]bool{sarama.ErrMessageSizeTooLarge: true, sarama.ErrMessageSetSizeTooLarge: true, sarama.ErrInvalidRecord: false} {
		s := newStage(t, false)
		s.hear(0, 1, 2)
		s.m.command(outbox.Command{Publish: rowsOf("t", "", "v", 2)})
		b := s.sent(s.later(0))
		s.m.command(outbox.Command{Publish: rowsOf("t", "", "v", 1)})
		if other := s.sent(s.later(0)); other.queue == b.queue {
			t.Errorf("%s again", b.queue)
		}
		s.answer(b, reply{code: code, offset: -1})
		if got := s.m.topics["t"].maxBytes; got != map[bool]int{true: b.bytes / 2}[learns] {
			t.Errorf("%v: %d bytes of %d", code, got, b.bytes)
		}
	}
	if err := withHint(errReset); err != errReset {
		t.Error(err)
	}
}

// A list of topics is asked for at once, however long the next request is off.
func TestAListIsAskedForAtOnce(t *testing.T) {
	s := newStage(t, false)
	s.hear(0, 1, 1)
	s.m.command(outbox.Command{List: true})
	if w := s.later(0); w.ask == nil || !w.ask.all {
		t.Errorf("asked for %+v", w.ask)
	}
}

// A topic's trouble is forgotten with the topic.
func TestTroubleOfATopicThatIsForgotten(t *testing.T) {
	s := newStage(t, false)
	s.hear(sarama.ErrLeaderNotAvailable, 0, 0)
	s.hear(sarama.ErrUnknownTopicOrPartition, 0, 0)
	s.later(3 * time.Second)
	s.hear(sarama.ErrUnknownTopicOrPartition, 0, 0)
	if len(s.m.topics)+len(s.m.stalled) > 0 {
		t.Errorf("topics %v, stalled %v", s.m.topics, s.m.stalled)
	}
}

// That a topic was made again is told with the next row, if none was there.
func TestATopicThatWasMadeAgain(t *testing.T) {
	s := newStage(t, false)
	s.hear(0, 1, 1)
	s.madeAgain(s.hear(0, 2, 1), 1)
	s.madeAgain(s.hear(0, 2, 1), 0)
	_, w := s.publish(-1)
	s.outcome(w, outbox.Withdrawn, errRecreated)
}

// That is told, too, if the topic was forgotten while it was not there.
func TestATopicThatWasForgottenAndMadeAgain(t *testing.T) {
	s := newStage(t, false)
	s.madeAgain(s.hear(0, 1, 1), 0)
	s.hear(sarama.ErrUnknownTopicOrPartition, 0, 0)
	s.later(3 * time.Second)
	s.hear(sarama.ErrUnknownTopicOrPartition, 0, 0)
	if len(s.m.topics) > 0 {
		t.Fatalf("topics %v", s.m.topics)
	}
	s.publish(-1)
	s.madeAgain(s.hear(0, 2, 1), 1)
}

// madeAgain expects so many log lines that name the command for the rows of the old topic.
func (s *stage) madeAgain(w work, times int) {
	s.Helper()
	n := 0
	for _, note := range w.notes {
		if note.topic == "t" && strings.Contains(note.text, "outbox-cdc replay --topic t ") {
			n++
		}
	}
	if n != times {
		s.Errorf("%d lines, not %d: %+v", n, times, w.notes)
	}
}

// deleted deletes a topic while a batch is on its way there. An earlier try of it may have
// arrived.
func (s *stage) deleted() *batch {
	s.Helper()
	s.publish(-1)
	b := s.sent(s.hear(0, 1, 1))
	s.answer(b, reply{err: errReset})
	b = s.sent(s.later(backoffMin))
	s.hear(sarama.ErrUnknownTopicOrPartition, 0, 0)
	s.later(3 * time.Second)
	if w := s.hear(sarama.ErrUnknownTopicOrPartition, 0, 0); len(w.outcomes) > 0 || !s.m.topicBlocked("t") {
		s.Fatalf("blocked %v: %+v", s.m.topicBlocked("t"), w.outcomes)
	}
	return b
}

func (s *stage) release() work {
	scope := outbox.TopicScope("main", "t")
	s.m.command(outbox.Command{Release: &scope})
	return s.later(0)
}

// A topic that is gone settles no batch whose try is not over.
func TestABatchOnItsWayToADeletedTopic(t *testing.T) {
	s := newStage(t, false)
	b := s.deleted()
	if w := s.answer(b, reply{err: errReset, unsent: true}); len(w.outcomes) > 0 {
		t.Fatalf("%+v", w.outcomes)
	}
	s.outcome(s.hear(sarama.ErrUnknownTopicOrPartition, 0, 0), outbox.Withdrawn, sarama.ErrUnknownTopicOrPartition)
}

// Partitions of a deleted topic stay as long as a batch is on its way, and so do the rows behind it.
func TestRowsBehindABatchOfADeletedTopic(t *testing.T) {
	s := newStage(t, false)
	b := s.deleted()
	s.publish(-1)
	s.release()
	s.outcome(s.answer(b, reply{}), outbox.Delivered, nil)
	s.sent(s.hear(0, 1, 1))
}

// A topic that is gone when nobody waits for it is not blocked. If it is remembered, for a key,
// and blocked later for something else, its partitions are there when it is released.
func TestATopicThatWasGoneBefore(t *testing.T) {
	s := newStage(t, false)
	s.publish(-1)
	b := s.sent(s.hear(0, 1, 1))
	s.outcome(s.answer(b, reply{code: sarama.ErrInvalidRecord, offset: -1}), outbox.Refused, sarama.ErrInvalidRecord)
	s.hear(sarama.ErrUnknownTopicOrPartition, 0, 0)
	s.later(3 * time.Second)
	s.hear(sarama.ErrUnknownTopicOrPartition, 0, 0)
	top := s.m.topics["t"]
	if top == nil || len(top.queues) > 0 {
		t.Fatalf("%+v", top)
	}
	s.hear(0, 2, 1)
	s.m.command(outbox.Command{Publish: []*outbox.Row{newRow("t", "other", "v")}})
	s.outcome(s.hear(sarama.ErrTopicAuthorizationFailed, 0, 0), outbox.Withdrawn, sarama.ErrTopicAuthorizationFailed)
	if s.release(); len(top.queues) != 1 {
		t.Error("its partitions are forgotten")
	}
}

// A topic that is released is asked about at once, and what it was blocked for is over.
func TestATopicIsReleased(t *testing.T) {
	s := newStage(t, false)
	s.publish(-1)
	b := s.sent(s.hear(0, 1, 1))
	forbidden := reply{code: sarama.ErrTopicAuthorizationFailed, offset: -1}
	s.outcome(s.answer(b, forbidden), outbox.Withdrawn, forbidden.code)
	s.release()
	if _, err := s.m.trouble(); err != nil {
		t.Errorf("trouble: %v", err)
	}
	s.hear(0, 1, 1)
	_, w := s.publish(-1)
	s.outcome(s.answer(s.sent(w), forbidden), outbox.Withdrawn, forbidden.code)
	s.hear(0, 1, 1)
	if w := s.release(); w.ask == nil {
		t.Error("it is not asked about")
	}
}

// A fence is tried again also when metadata was asked for meanwhile.
func TestAFenceIsTriedAgainByItself(t *testing.T) {
	s := newStage(t, true)
	s.publish(-1)
	s.hear(0, 1, 1)
	s.m.jobDone(producerIDResult{id: producer{1, 1}, refused: map[topicPartition]sarama.KError{{"t", 0}: sarama.ErrUnknownTopicOrPartition}})
	s.hear(0, 1, 1)
	if at := s.m.next(); at.Sub(s.m.now) > backoffMax {
		t.Errorf("after %v", at.Sub(s.m.now))
	}
}

func TestATopicWithoutPartitions(t *testing.T) {
	s := newStage(t, false)
	s.publish(-1)
	s.hear(0, 1, 0)
	if _, err := s.m.trouble(); err == nil || !strings.Contains(err.Error(), "do not tell its partitions") {
		t.Errorf("trouble: %v", err)
	}
}

// A partition's trouble counts from the first of its failures.
func TestTroubleOfAPartition(t *testing.T) {
	s := newStage(t, false)
	s.publish(-1)
	b := s.sent(s.hear(0, 1, 1))
	s.answer(b, reply{code: sarama.ErrNotEnoughReplicas, offset: -1})
	first := s.m.now
	b = s.sent(s.later(backoffMin))
	s.answer(b, reply{code: sarama.ErrNotEnoughReplicas, offset: -1})
	if since, err := s.m.trouble(); err == nil || !since.Equal(first) {
		t.Errorf("trouble since %v: %v", s.m.now.Sub(since), err)
	}
}

// A row that waits for long is looked at, one of the partition first. What may be in the log is sent as it was.
func TestRowsThatWaitAreLookedAt(t *testing.T) {
	s := newStage(t, false)
	s.m.cfg.heldFor = 5 * time.Second
	a, _ := s.publish(-1)
	b := s.sent(s.hear(0, 1, 1))
	c, _ := s.publish(-1)
	d, _ := s.publish(-1)
	s.answer(b, reply{err: errors.New("refused"), unsent: true})
	b = s.sent(s.later(time.Second))
	s.answer(b, reply{err: errors.New("refused"), unsent: true})
	w := s.later(5 * time.Second)
	if s.outcome(w, outbox.Stale, nil); len(w.send) > 0 || !slices.Equal(w.outcomes[0].Rows, []*outbox.Row{a}) {
		t.Fatalf("sends %v, asks about %v", w.send, w.outcomes[0].Rows)
	}
	if w = s.later(time.Hour); len(w.send)+len(w.outcomes) > 0 {
		t.Fatal("it does not wait for the answer")
	}
	look := func(row, now *outbox.Row) work {
		s.m.command(outbox.Command{Looked: []outbox.Checked{{Row: row, Now: now}}})
		return s.later(0)
	}
	changed := newRow("t", "k", "changed")
	b = s.sent(look(a, changed))
	if !slices.Equal(b.rows, []*outbox.Row{changed}) || b.seq != 0 {
		t.Fatalf("sends %v, sequence %d", b.rows, b.seq)
	}
	s.answer(b, reply{err: errors.New("reset")})
	if again := s.sent(s.later(time.Hour)); again != b || !slices.Equal(b.rows, []*outbox.Row{changed}) {
		t.Fatal("a batch was changed whose fate is open")
	}
	w = s.answer(b, reply{})
	if len(w.outcomes) != 2 || w.outcomes[1].Class != outbox.Stale || !slices.Equal(w.outcomes[1].Rows, []*outbox.Row{c, d}) {
		t.Fatalf("then %+v", w.outcomes)
	}
	w = look(c, nil)
	if s.outcome(w, outbox.TakenOut, nil); len(w.send) > 0 || !slices.Equal(w.outcomes[0].Rows, []*outbox.Row{c}) {
		t.Fatalf("then %+v", w)
	}
	s.m.command(outbox.Command{Withdraw: new(outbox.StreamScope())})
	s.outcome(s.later(0), outbox.Withdrawn, nil)
	if w = look(d, newRow("t", "k", "late")); len(w.send)+len(w.outcomes) > 0 {
		t.Fatalf("of a row that has left: %+v", w)
	}
}

// A row that names another partition since it was looked at goes there before its key's later rows.
func TestALookedAtRowNamesAnotherPartition(t *testing.T) {
	s := newStage(t, false)
	s.m.cfg.heldFor = 5 * time.Second
	a, _ := s.publish(1)
	b, _ := s.publish(0)
	s.later(10 * time.Second)
	w := s.hear(0, 1, 2)
	if s.outcome(w, outbox.Stale, nil); !slices.Equal(w.outcomes[0].Rows, []*outbox.Row{a, b}) {
		t.Fatalf("asks about %v", w.outcomes[0].Rows)
	}
	now := [2]*outbox.Row{newRow("t", "k", "a"), newRow("t", "k", "b")}
	now[0].Partition, now[1].Partition = 0, 0
	s.m.command(outbox.Command{Looked: []outbox.Checked{{Row: a, Now: now[0]}, {Row: b, Now: now[1]}}})
	sent := s.sent(s.later(0))
	if !slices.Equal(sent.rows, now[:]) || sent.queue.partition != 0 {
		t.Errorf("partition %d gets %v", sent.queue.partition, sent.rows)
	}
}

// A row behind one that waits for its look goes out when that one is withdrawn.
func TestRowBehindOneThatIsWithdrawn(t *testing.T) {
	s := newStage(t, false)
	s.m.cfg.heldFor = 5 * time.Second
	a, _ := s.publish(-1)
	s.later(10 * time.Second)
	w := s.hear(0, 1, 1)
	if s.outcome(w, outbox.Stale, nil); len(w.send) > 0 {
		t.Fatalf("sends %v", w.send)
	}
	b := newRow("t", "another", "v")
	s.m.command(outbox.Command{Publish: []*outbox.Row{b}})
	if w = s.later(0); len(w.send)+len(w.outcomes) > 0 {
		t.Fatalf("it is passed: %+v", w)
	}
	s.m.command(outbox.Command{Withdraw: new(outbox.KeyScope(a))})
	w = s.later(0)
	s.outcome(w, outbox.Withdrawn, nil)
	if sent := s.sent(w); !slices.Equal(sent.rows, []*outbox.Row{b}) {
		t.Errorf("then %v", sent.rows)
	}
}
