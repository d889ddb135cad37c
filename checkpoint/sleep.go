package checkpoint

import (
	"container/heap"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Most parked keys only wait for a time. They sleep until then: a step looks only at parks that are awake,
// so it costs as much as is due, however many keys are parked. A park falls asleep at the end of a step.
// Every change of a park wakes it first.

// sleeps reports whether there is nothing to do about the park before wakesAt. Only parks of keys and rows
// sleep: wider ones are few, and depend on more than a time.
func (p *park) sleeps(now time.Time) bool {
	return p.Scope.Kind >= outbox.ScopeKey && p.phase == sweeping && !p.dirty() && !p.sweptOut && p.wakesAt().After(now)
}

// wakesAt returns when the key may be swept, or when its FAILED or unmarked row is due.
func (p *park) wakesAt() time.Time {
	if p.Cause == outbox.CauseBlocked || p.Unmarked() || p.Next.After(p.nextSweep) {
		return p.Next
	}
	return p.nextSweep
}

// wake lets the next step look at the park.
func (s *parkSet) wake(p *park) {
	if p.bed > 0 {
		heap.Remove(&s.asleep, p.bed-1)
		s.awake = append(s.awake, p)
	}
}

// wakeDue wakes the parks whose time has come.
func (s *parkSet) wakeDue(now time.Time) {
	for len(s.asleep) > 0 && !s.asleep[0].wakesAt().After(now) {
		s.wake(s.asleep[0])
	}
}

// rest puts the parks to sleep that wait only for a time.
func (s *parkSet) rest(now time.Time) {
	s.awake = slices.DeleteFunc(s.awake, func(p *park) bool {
		if p.sleeps(now) {
			heap.Push(&s.asleep, p)
		}
		return p.bed > 0
	})
}

// sleepers is a heap of parks, ordered by wakesAt. The bed of a park is its index, counted from 1.
type sleepers []*park

func (s sleepers) Len() int           { return len(s) }
func (s sleepers) Less(i, j int) bool { return s[i].wakesAt().Before(s[j].wakesAt()) }

func (s sleepers) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].bed, s[j].bed = i+1, j+1
}

// Push implements heap.Interface.
func (s *sleepers) Push(p any) {
	*s = append(*s, p.(*park)) //nolint:forcetypeassert // package heap gives back what it was given
	(*s)[len(*s)-1].bed = len(*s)
}

// Pop implements heap.Interface.
func (s *sleepers) Pop() any {
	last := len(*s) - 1
	p := (*s)[last]
	(*s)[last], p.bed = nil, 0
	*s = (*s)[:last]
	return p
}
