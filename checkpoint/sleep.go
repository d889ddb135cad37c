package checkpoint

import (
	"container/heap"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Most parked keys only wait for their time. They sleep until then, so that a step
// costs what is due and not what is parked: it looks at the parks that are awake. A
// park falls asleep at the end of a step. Whatever changes it wakes it first.

// sleeps says that nothing is to be done about the park before wakesAt. Parks of wider
// scopes are few, and depend on more than their time.
func (p *park) sleeps(now time.Time) bool {
	return p.Scope.Kind >= outbox.ScopeKey && p.phase == sweeping && !p.dirty() && !p.ready && p.wakesAt().After(now)
}

// wakesAt is when the key may be swept, or asked about.
func (p *park) wakesAt() time.Time {
	if p.Cause == outbox.CauseBlocked || p.Unmarked() || p.Next.After(p.nextSweep) {
		return p.Next
	}
	return p.nextSweep
}

// wake has the next step look at the park.
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

// rest lets the parks sleep that have nothing to wait for but their time.
func (s *parkSet) rest(now time.Time) {
	s.awake = slices.DeleteFunc(s.awake, func(p *park) bool {
		if p.sleeps(now) {
			heap.Push(&s.asleep, p)
		}
		return p.bed > 0
	})
}

// sleepers is a heap, by wakesAt. The bed of each is its index, counted from 1.
type sleepers []*park

func (s sleepers) Len() int           { return len(s) }
func (s sleepers) Less(i, j int) bool { return s[i].wakesAt().Before(s[j].wakesAt()) }

func (s sleepers) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].bed, s[j].bed = i+1, j+1
}

// Push is for package heap.
func (s *sleepers) Push(p any) {
	*s = append(*s, p.(*park)) //nolint:forcetypeassert // package heap gives back what it was given
	(*s)[len(*s)-1].bed = len(*s)
}

// Pop is for package heap.
func (s *sleepers) Pop() any {
	last := len(*s) - 1
	p := (*s)[last]
	(*s)[last], p.bed = nil, 0
	*s = (*s)[:last]
	return p
}
