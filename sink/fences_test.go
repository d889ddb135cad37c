package sink

import (
	"errors"
	"slices"
	"testing"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// A leader with the next epoch does not fence the partitions whose fence the leader before has left, if the
// topic is still the same.
func TestWhatALeaderInherits(t *testing.T) {
	id := func(n byte) string { return (sarama.Uuid{n}).String() }
	left := outbox.FencedTopic{ID: id(1), Partitions: []int32{0, 2}}
	for name, c := range map[string]struct {
		before *outbox.Fences
		spared []int32
	}{
		"the next epoch":            {&outbox.Fences{PID: 1, Epoch: 4, Topics: map[string]outbox.FencedTopic{"t": left}}, []int32{0, 2}},
		"no clean stop":             {nil, nil},
		"somebody in between":       {&outbox.Fences{PID: 1, Epoch: 3, Topics: map[string]outbox.FencedTopic{"t": left}}, nil},
		"an epoch of before":        {&outbox.Fences{PID: 1, Epoch: 5, Topics: map[string]outbox.FencedTopic{"t": left}}, nil},
		"another producer id":       {&outbox.Fences{PID: 2, Epoch: 4, Topics: map[string]outbox.FencedTopic{"t": left}}, nil},
		"a topic made again":        {&outbox.Fences{PID: 1, Epoch: 4, Topics: map[string]outbox.FencedTopic{"t": {ID: id(2), Partitions: []int32{0, 1, 2}}}}, nil},
		"another topic":             {&outbox.Fences{PID: 1, Epoch: 4, Topics: map[string]outbox.FencedTopic{"u": left}}, nil},
		"brokers without topic ids": {&outbox.Fences{PID: 1, Epoch: 4}, nil},
	} {
		s := fenceStage(t, c.before)
		w := s.hear(0, 1, 3)
		if w.job == nil || len(w.job.fence) != 3 {
			t.Fatalf("%s: job %+v", name, w.job)
		}
		for _, f := range w.job.fence {
			if f.spared != slices.Contains(c.spared, f.Number) {
				t.Errorf("%s: partition %d is spared: %v", name, f.Number, f.spared)
			}
		}
	}
}

// fenceStage returns a stage whose leader has producer id 1 and epoch 5.
func fenceStage(t *testing.T, before *outbox.Fences) *stage {
	s := newStage(t, true)
	s.m.cfg.before = before
	s.m.started(producer{1, 5}, true)
	return s
}

// A leader that never meets a topic, or stops before it has looked at a partition, passes on the fences that it
// inherited.
func TestWhatALeaderPassesOn(t *testing.T) {
	inherited := outbox.FencedTopic{ID: (sarama.Uuid{1}).String(), Partitions: []int32{0, 2}}
	before := &outbox.Fences{PID: 1, Epoch: 4, Topics: map[string]outbox.FencedTopic{"t": inherited}}
	leaves := func(s *stage, want []int32) {
		t.Helper()
		if f := s.m.leave(); f.Epoch != 5 || !slices.Equal(f.Topics["t"].Partitions, want) {
			t.Errorf("left %+v", f)
		}
	}
	s := fenceStage(t, before)
	leaves(s, inherited.Partitions)
	s.publish(0) // metadata is asked for
	leaves(s, inherited.Partitions)
	s.hear(0, 1, 3) // and the fence is on its way
	leaves(s, inherited.Partitions)
	s.m.jobDone(producerIDResult{id: producer{1, 5}, fenced: []topicPartition{{"t", 0}, {"t", 1}, {"t", 2}}, shown: map[topicPartition]bool{{"t", 0}: true, {"t", 2}: true}})
	s.sent(s.later(0))
	leaves(s, []int32{2})

	s = fenceStage(t, before)
	s.m.id = nobody // the machine has had no answer of the coordinator
	if f := s.m.leave(); f != before {
		t.Errorf("left %+v", f)
	}
	s = fenceStage(t, before)
	s.hear(0, 2, 3) // made again
	leaves(s, nil)
	s = fenceStage(t, &outbox.Fences{PID: 1, Epoch: 3, Topics: before.Topics})
	leaves(s, nil)
}

// A topic that was forgotten begins with sequence 0 again, so it is fenced.
func TestAForgottenTopicIsNotInherited(t *testing.T) {
	s := fenceStage(t, &outbox.Fences{PID: 1, Epoch: 4, Topics: map[string]outbox.FencedTopic{"t": {ID: (sarama.Uuid{1}).String(), Partitions: []int32{0}}}})
	s.hear(0, 1, 1)
	s.m.jobDone(producerIDResult{id: producer{1, 5}, fenced: []topicPartition{{"t", 0}}, shown: map[topicPartition]bool{{"t", 0}: true}})
	_, w := s.publish(-1)
	s.answer(s.sent(w), reply{})
	s.hear(sarama.ErrTopicAuthorizationFailed, 1, 1)
	s.publish(-1)
	if w := s.hear(0, 1, 1); w.job == nil || len(w.job.fence) != 1 || w.job.fence[0].spared {
		t.Errorf("job %+v", w.job)
	}
}

// A leader leaves the partitions where a broker has shown the fence, or has taken a batch, and nothing is on its way.
func TestWhatALeaderLeaves(t *testing.T) {
	s := newStage(t, true)
	s.publish(0)
	s.hear(0, 1, 4)
	s.m.jobDone(producerIDResult{id: producer{1, 1}, fenced: []topicPartition{{"t", 0}, {"t", 1}, {"t", 2}, {"t", 3}}, shown: map[topicPartition]bool{{"t", 1}: true, {"t", 2}: true}})
	b := s.sent(s.later(0))
	leaves := func(what string, want ...int32) {
		t.Helper()
		f := s.m.leave()
		if got := f.Topics["t"]; f.PID != 1 || f.Epoch != 1 || !slices.Equal(got.Partitions, want) || got.ID != (sarama.Uuid{1}).String() {
			t.Errorf("%s: %+v", what, f)
		}
	}
	leaves("a batch is on its way", 1, 2)
	s.answer(b, reply{err: errors.New("reset")})
	leaves("its answer was lost", 1, 2)
	s.later(backoffMax)
	s.answer(b, reply{})
	leaves("it was taken", 0, 1, 2)
	_, w := s.publish(2)
	leaves("another is on its way", 0, 1)
	s.answer(s.sent(w), reply{})
	leaves("all is done", 0, 1, 2)
	s.hear(0, 0, 4)
	if f := s.m.leave(); len(f.Topics) > 0 {
		t.Errorf("of brokers without topic ids: %+v", f)
	}
	s.m.fencing = false
	if f := s.m.leave(); f != nil {
		t.Errorf("without a transactional id: %+v", f)
	}
}
