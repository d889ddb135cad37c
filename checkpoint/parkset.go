package checkpoint

import (
	"slices"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// parkSet holds all parks. Each park is in byScope, in list, and in either awake or asleep. The counts are
// kept up to date with them.
type parkSet struct {
	byScope map[outbox.Scope]*park
	list    []*park // in the order of parking, so that simulations are repeatable
	awake   []*park // the parks that every step looks at; all others are in asleep
	asleep  sleepers
	ofKind  [outbox.ScopeRow + 1]int
	// keys counts, per table, the parked keys and rows by their weight. blocked counts those of them that
	// wait for the operator; unmarked counts those that were published and cannot be marked.
	keys, blocked, unmarked map[string]int
	// holds is the number of holds that wait for a park to be durable.
	holds int
	// changes counts the changes that make a list of parks outdated.
	changes uint64
}

// of returns the park of exactly this scope, or nil.
func (s *parkSet) of(scope outbox.Scope) *park { return s.byScope[scope] }

func (s *parkSet) stream() *park { return s.byScope[outbox.StreamScope()] }

// ofKey returns the park of the row's key, or of the row if it has no key, or nil.
func (s *parkSet) ofKey(r *outbox.Row) *park {
	if len(s.list) == 0 {
		return nil // the usual case: no key is built
	}
	if r.Key == nil {
		return s.byScope[outbox.RowScope(r)]
	}
	// The same as KeyScope. But in an index expression Go does not copy the key, which may be long.
	return s.byScope[outbox.Scope{Kind: outbox.ScopeKey, Table: r.Table.String(), Topic: r.Topic, Key: string(r.Key)}]
}

// containing calls yield for each park that covers the row, widest first, until it returns false.
func (s *parkSet) containing(r *outbox.Row, yield func(*park) bool) {
	if len(s.list) == 0 {
		return
	}
	for kind := outbox.ScopeStream; kind <= outbox.ScopeRow; kind++ {
		if s.ofKind[kind] == 0 {
			continue
		}
		if p := s.ofScope(r, kind); p != nil && p.takes(r) && !p.ofAnother(r) && !yield(p) {
			return
		}
	}
}

// ofScope returns the park of the row's scope of this kind, or nil.
func (s *parkSet) ofScope(r *outbox.Row, kind outbox.ScopeKind) *park {
	switch kind {
	case outbox.ScopeStream:
		return s.stream()
	case outbox.ScopeCluster:
		return s.of(outbox.ClusterScope(r.Cluster))
	case outbox.ScopeTable:
		return s.of(outbox.TableScope(r.Table))
	case outbox.ScopeTopics:
		return s.of(outbox.TopicsScope(r.Table))
	case outbox.ScopeTopic:
		return s.of(outbox.TopicScope(r.Cluster, r.Topic))
	case outbox.ScopeKey:
		if r.Key != nil {
			return s.ofKey(r)
		}
	case outbox.ScopeRow:
		return s.of(outbox.RowScope(r))
	}
	return nil
}

// discarding returns the park under which the WAL's row is discarded, or nil. It prefers a durable park:
// under one, the row is settled at once.
func (s *parkSet) discarding(r *outbox.Row) *park {
	var found *park
	s.containing(r, func(p *park) bool {
		if p.phase == sweeping && (found == nil || p.durable) {
			found = p
		}
		return found == nil || !found.durable
	})
	return found
}

// wider returns the parks that are certain to contain p's scope: the stream's, and a key's or row's
// table's.
func (s *parkSet) wider(p *park) []*park {
	var parks []*park
	if o := s.stream(); o != nil && o != p {
		parks = append(parks, o)
	}
	if p.Scope.Kind < outbox.ScopeKey {
		return parks
	}
	if o := s.of(outbox.Scope{Kind: outbox.ScopeTable, Table: p.Scope.Table}); o != nil {
		parks = append(parks, o)
	}
	return parks
}

// add begins a park. Its cause is still to be set.
func (s *parkSet) add(scope outbox.Scope, now time.Time) *park {
	p := &park{Park: outbox.Park{Scope: owned(scope), Since: now}}
	s.byScope[p.Scope] = p
	s.list, s.awake = append(s.list, p), append(s.awake, p)
	s.ofKind[scope.Kind]++
	if scope.Kind >= outbox.ScopeKey {
		s.keys[scope.Table] += weight(&p.Scope)
	}
	switch scope.Kind { // a park of unknown topics leaves out the topics with a park of their own
	case outbox.ScopeTopic:
		s.addKnownTopic(p.Scope)
	case outbox.ScopeTopics:
		p.knownTopics = map[outbox.Scope]bool{}
		for _, o := range s.list {
			if o.Scope.Kind == outbox.ScopeTopic {
				p.knownTopics[o.Scope] = true
			}
		}
	}
	return p
}

// shortKey is the size of the keys that count as one, in bytes.
const shortKey = 256

// weight returns how many keys a scope counts as. The bounds on numbers of keys are to bound memory, and a
// key may be as long as a row.
func weight(s *outbox.Scope) int { return 1 + (len(s.Topic)+len(s.Key)+len(s.ID))/shortKey }

// owned copies the text of a scope. A row's text is part of a block of memory that many rows share
// (mapping.Arena); a park that pointed to it would keep the whole block.
func owned(s outbox.Scope) outbox.Scope {
	s.Topic, s.ID = strings.Clone(s.Topic), strings.Clone(s.ID)
	return s
}

// remove removes many parks at once, because a table may have tens of thousands.
func (s *parkSet) remove(parks []*park) {
	if len(parks) == 0 {
		return
	}
	for _, p := range parks {
		s.setCause(p, "")
		s.takeHolds(p)
		delete(s.byScope, p.Scope)
		s.ofKind[p.Scope.Kind]--
		if p.Scope.Kind >= outbox.ScopeKey {
			s.keys[p.Scope.Table] -= weight(&p.Scope)
		}
		p.phase = removed
	}
	gone := func(p *park) bool { return p.phase == removed }
	s.list, s.awake = slices.DeleteFunc(s.list, gone), slices.DeleteFunc(s.awake, gone)
}

// setCause sets the park's cause, and keeps count of the keys that wait for the operator and of the rows
// that wait for their marks.
func (s *parkSet) setCause(p *park, cause outbox.Cause) {
	s.wake(p)
	s.countCause(p, -1)
	p.Cause, p.blocker = cause, stillFailed
	s.countCause(p, 1)
	s.changes++
}

func (s *parkSet) tryAt(p *park, next time.Time) {
	s.wake(p)
	p.Next = next
	s.changes++
}

func (s *parkSet) countCause(p *park, sign int) {
	switch {
	case p.Cause == outbox.CauseBlocked:
		s.blocked[p.Scope.Table] += sign * weight(&p.Scope)
	case p.Unmarked():
		s.unmarked[p.Scope.Table] += sign * weight(&p.Scope)
	}
}

// wait makes a hold of the transaction wait until the park is durable.
func (s *parkSet) wait(p *park, seq int64) {
	s.holds++
	if last := len(p.waiting) - 1; last >= 0 && p.waiting[last].seq == seq {
		p.waiting[last].n++
		return
	}
	p.waiting = append(p.waiting, hold{seq, 1})
}

// takeHolds removes and returns the holds that waited for the park.
func (s *parkSet) takeHolds(p *park) []hold {
	holds := p.waiting
	for _, h := range holds {
		s.holds -= h.n
	}
	p.waiting = nil
	return holds
}

// addKnownTopic tells the parks of unknown topics that this topic has a park of its own.
func (s *parkSet) addKnownTopic(topic outbox.Scope) {
	for _, p := range s.list {
		if p.knownTopics != nil {
			p.knownTopics[topic] = true
		}
	}
}
