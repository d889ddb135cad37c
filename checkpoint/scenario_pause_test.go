package checkpoint

import (
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Paused rows are not published, and the position passes them. A process that starts during the pause keeps
// to it. After the pause, the rows that waited are published first.
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

// A pause during an outage of Kafka takes back the rows that were never sent. They are not published when
// Kafka is available again, and the position passes them.
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

// A pause does not end when its scope is parked for another cause.
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

// pause makes process a learn that exactly these scopes are paused.
func (s *scene) pause(parks ...outbox.Park) {
	s.paused = parks
	s.a.sees(parks)
	s.a.input(func() { s.a.core.Pause(parks) })
}
