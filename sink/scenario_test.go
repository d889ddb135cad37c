package sink

import (
	"errors"
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

// What is wrong with a topic counts from when rows wait for it, whatever was before it was blocked.

// A topic is not blocked for what is over, if nobody was told of it.

// A partition that is there no more says nothing of a batch, ever.

// While a fence waits to be tried again, the id is kept alive.

// The topics that are known beforehand are fenced before rows come.

// A partition that cannot be fenced yet is tried again soon, with fresh metadata.

// A deleted topic is forgotten with its release.

// While the producer id cannot be had or kept, the cluster is not usable.

// Of several troubles the oldest counts; a new reason is told at intervals.

// A row of a new topic has it asked for at once; while metadata fails, as often as that allows.

// A batch that waits goes on at once when another broker leads, and so does one whose topic is released.

// Splitting a batch is no trouble, and a refusal says why in the broker's words.

// Batches keep to the topic's limit, and to what is learnt where it is not told.

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
