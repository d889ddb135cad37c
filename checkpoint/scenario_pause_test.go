package checkpoint

import (
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// What is paused is not published, the position passes it, and a process that starts
// meanwhile keeps to it. When it is paused no more, what waited goes first.
func TestPausedRowsWaitAndThePositionPassesThem(t *testing.T) {
	for _, scope := range []outbox.Scope{outbox.StreamScope(), {Kind: outbox.ScopeTable, Table: "public.outbox"}} {
		play(t, func(s *scene) {
			s.pause(outbox.Park{Scope: scope})
			s.rest()
			r := s.row("k", 0)
			s.rest()
			s.advance(10 * time.Second)
			s.rest()
			s.inKafka(r, 0, "while it is paused")
			if s.slot.confirmed <= r.tx.commit {
				s.fail("paused", r, "the position does not move")
			}
			s.restart()
			s.rest()
			s.inKafka(r, 0, "after a restart")
			s.pause()
			later := s.row("k", 0)
			s.rest()
			s.advance(10 * time.Second)
			s.rest()
			s.inKafka(r, 1, "when it is resumed")
			s.inKafka(later, 1, "when it is resumed")
		})
	}
}

// A pause in an outage of Kafka takes back what was never sent: it is not published when Kafka is
// there again, and the position passes it.
func TestAPauseTakesBackWhatWasNeverSent(t *testing.T) {
	for _, scope := range []outbox.Scope{outbox.StreamScope(), {Kind: outbox.ScopeTable, Table: "public.outbox"}} {
		play(t, func(s *scene) {
			r := s.row("k", 0)
			s.rest(evSend)
			s.pause(outbox.Park{Scope: scope})
			s.rest(evSend)
			if s.slot.confirmed <= r.tx.commit {
				s.fail("paused", r, "the position does not move while Kafka is away")
			}
			s.rest()
			s.advance(10 * time.Second)
			s.rest()
			s.inKafka(r, 0, "while it is paused")
			s.pause()
			s.rest()
			s.advance(10 * time.Second)
			s.rest()
			s.inKafka(r, 1, "when it is resumed")
		})
	}
}

// Another reason to park what is paused does not end the pause.
func TestAnotherReasonLeavesItPaused(t *testing.T) {
	play(t, func(s *scene) {
		s.pause(outbox.Park{Scope: outbox.StreamScope()})
		s.rest()
		s.a.input(func() { s.a.core.Retained(1 << 60) })
		s.a.input(func() {
			s.a.core.park(outbox.StreamScope(), outbox.CauseWALBudget, "the slot retains much", time.Time{})
		})
		r := s.row("k", 0)
		s.rest()
		s.advance(10 * time.Second)
		s.rest()
		s.inKafka(r, 0, "while it is paused")
		s.a.input(func() { s.a.core.Retained(0) })
		s.pause()
	})
}

// pause has process a see that this is paused, and nothing else.
func (s *scene) pause(parks ...outbox.Park) {
	s.paused = parks
	s.a.sees(parks)
	s.a.input(func() { s.a.core.Pause(parks) })
}
