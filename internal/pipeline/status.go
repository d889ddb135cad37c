package pipeline

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

// Status returns the state of the stream as far as this process knows it. A standby knows only who leads.
func (s *Stream) Status() status.Stream {
	m := s.metrics.Status()
	b := &s.tracker
	b.mu.Lock()
	defer b.mu.Unlock()
	out := status.Stream{
		Name: s.cfg.Name, Source: status.FromProcess, Mode: cmp.Or(m.Mode, status.ModeStarting), Reason: b.reason, Parks: b.parks,
		Tables: []status.Table{}, Leader: b.leader, Standbys: b.standbys, Slot: b.slot, Limit: b.limit, Delivery: "at_least_once",
	}
	if s.cfg.Once != nil {
		out.Delivery = "exactly_once"
	}
	if b.leader != nil && b.leader.Intruder != "" {
		out.Mode, out.Reason = status.ModeStopped, b.leader.Intruder
	}
	if f := s.failed.Load(); f != nil {
		out.Error, out.ErrorSince = f.text, f.since
		if s.unreachable.Load() {
			out.Mode, out.Unreachable = status.ModeUnknown, true
		}
	}
	out.Deaf = m.Leader && m.Heard.IsZero()
	if quiet := time.Since(m.Heard); m.Leader && !m.Heard.IsZero() && quiet > s.cfg.Silence && s.cfg.Silence > 0 {
		out.Silence = quiet
	}
	for _, t := range s.cfg.Tables {
		table := b.tables[t.String()]
		table.Name = t.String()
		out.Tables = append(out.Tables, table)
	}
	for _, name := range slices.Sorted(maps.Keys(b.kafka)) {
		c := b.kafka[name]
		out.Kafka = append(out.Kafka, c)
		if !c.Usable && out.Mode == status.ModeHold {
			out.Reason = "Kafka cluster " + name + " cannot be used: " + c.Error
		}
	}
	for _, cluster := range slices.Sorted(maps.Keys(b.tallies)) {
		t := b.tallies[cluster]
		committed, aborted := s.metrics.Transactions(cluster)
		t.Transactions = &status.Transactions{Committed: committed, Aborted: aborted, LastAbort: b.lastAbort[cluster]}
		out.Tallies = append(out.Tallies, t)
	}
	rows := s.metrics.Rows()
	out.Flow = &status.Flow{
		Published: rows.Published, Refused: rows.Refused, GivenUp: rows.Failed, Left: rows.Left,
		PerSecond: b.rate.mean(time.Now()), InFlight: b.inFlight,
	}
	if s.cfg.Unproven != nil {
		out.Unproven = s.cfg.Unproven()
	}
	status.Judge(&out)
	return out
}

// Activity returns what this process remembers of the stream's recent past.
func (s *Stream) Activity() status.Activity {
	topics := s.metrics.Topics()
	b := &s.tracker
	b.mu.Lock()
	r := &b.recent
	parks := r.parks // not copied: the slice may be long and is never changed
	a := status.Activity{
		Events: append([]status.Event{}, r.events...), Errors: append([]status.ErrorGroup{}, r.errors...),
		History: append([]status.Point{}, r.history...), Rates: r.rates, Topics: topics, Positions: r.positions,
	}
	for i := range topics {
		if samples := r.topics[topicKey(&topics[i])]; samples != nil {
			topics[i].History = slices.Clone(samples.history)
		}
	}
	b.mu.Unlock()
	a.Parks = status.ListParks(parks)
	slices.Reverse(a.Events)
	slices.SortStableFunc(a.Errors, func(x, y status.ErrorGroup) int { return y.Last.Compare(x.Last) })
	return a
}

// Halted returns how long ago the driver last completed a round of its loop. It is 0 while no driver runs:
// another process leads, or the next attempt to connect is waiting.
func (s *Stream) Halted(now time.Time) time.Duration { return s.watchdog.halted(now) }

// Recount requests a new count of the stream's FAILED rows, after somebody other than the stream has changed
// them.
func (s *Stream) Recount() {
	select {
	case s.recount <- struct{}{}:
	default: // a request is pending already
	}
}
