package pipeline

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/metrics"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

func TestRateOfTheLastMinute(t *testing.T) {
	var r rate
	at := time.Unix(10_000, 0)
	if r.mean(at) != 0 {
		t.Error("a rate before any row")
	}
	for s := range 10 {
		r.add(at.Add(time.Duration(s)*time.Second), 50)
	}
	if got := r.mean(at.Add(10 * time.Second)); got != 50 {
		t.Errorf("after ten seconds %v", got)
	}
	if got := r.mean(at.Add(59 * time.Second)); got < 8 || got > 9 {
		t.Errorf("after a minute %v", got)
	}
	if got := r.mean(at.Add(2 * time.Minute)); got != 0 {
		t.Errorf("after two minutes %v", got)
	}
}

func TestStatusOfALeader(t *testing.T) {
	table := &outbox.Table{Schema: "public", Name: "outbox"}
	m := metrics.New("1", "a").Stream("orders", []*outbox.Table{table}, 1000)
	s := New(Config{Name: "orders", Tables: []*outbox.Table{table}, Metrics: m})
	if st := s.Status(); st.Mode != status.ModeStarting || st.Leader != nil || st.Tables[0].Name != "public.outbox" || st.Tables[0].Pending != nil {
		t.Errorf("at the start: %+v", st)
	}
	m.Leading(7)
	m.Mode("hold")
	b, now := &s.tracker, time.Now()
	b.leads("outbox-cdc/orders@here", 7)
	row := &outbox.Row{Table: table, ID: "1"}
	for _, o := range []outbox.Outcome{
		{Class: outbox.Delivered, Rows: slices.Repeat([]*outbox.Row{row}, 30)},
		{Class: outbox.Refused, Rows: []*outbox.Row{row, row}, Err: errors.New("too large")},
	} {
		m.Outcome(o, now)
		b.outcome(&o, now)
	}
	m.Marked([]outbox.Marked{{Row: row, State: outbox.MarkedFailed}, {Row: row, State: outbox.MarkedSent}})
	b.cluster(outbox.ClusterState{Cluster: "main", Err: errors.New("refused")})
	away := b.kafka["main"].Since
	b.cluster(outbox.ClusterState{Cluster: "main", Err: errors.New("nobody answers")})
	b.retained("slot", 1_000_000, false, replication.Retained{Insert: 500, Restart: 300, Status: "reserved", Safe: -1}, "", time.Second, now)
	b.retained("slot", 1_000_000, false, replication.Retained{Insert: 6500, Restart: 300, Status: "reserved", Safe: 50}, "process 7 app", time.Second, now.Add(time.Minute))
	b.parked([]outbox.Park{{Scope: outbox.TopicScope("main", "t"), Reason: "no such topic"}})
	m.Left(table, 2)
	m.ExactlyOnce([]string{"main"}, []string{"stuck"})
	for _, aborted := range []string{"", "", "stuck"} {
		m.Transacted("main", aborted, 0)
	}
	b.tallies = map[string]status.Tally{"main": {}}
	b.sample(3, m)
	b.waiting([]replication.Holder{{Name: "outbox-cdc/orders@there", Address: "10.0.0.2"}})
	n := int64(5)
	b.counted(table, func(s *status.Table) { s.Pending = &n })
	st := s.Status()
	switch {
	case st.Mode != status.ModeHold || st.Reason != "Kafka cluster main cannot be used: nobody answers":
		t.Errorf("mode %s, %s", st.Mode, st.Reason)
	case len(st.Standbys) != 1 || st.Standbys[0] != (status.Standby{Name: "outbox-cdc/orders@there", Address: "10.0.0.2"}):
		t.Errorf("%+v", st.Standbys)
	case !st.Leader.Here || st.Leader.Epoch != 7:
		t.Errorf("%+v", st.Leader)
	case st.Flow.Published != 30 || st.Flow.Refused != 2 || st.Flow.GivenUp != 1 || st.Flow.InFlight != 3 || st.Flow.Left != 2 || st.Flow.PerSecond != 30:
		t.Errorf("%+v", st.Flow)
	case len(st.Tallies) != 1 || *st.Tallies[0].Transactions != (status.Transactions{Committed: 2, Aborted: 1}):
		t.Errorf("%+v", st.Tallies)
	case st.Slot.Retained != 6200 || *st.Slot.Growth != 100 || *st.Slot.Loss != (status.Loss{Seconds: 0.5, By: status.LossByServer}):
		t.Errorf("%+v", st.Slot)
	case away.IsZero() || !st.Kafka[0].Since.Equal(away):
		t.Errorf("an outage goes on, for another reason: %+v, before since %s", st.Kafka, away)
	case st.Parks.Total != 1 || *st.Tables[0].Pending != 5:
		t.Errorf("%+v", st)
	}
	m.LeadLost()
	b.recent.rates.Published = 30
	b.leadLost()
	if a := s.Activity(); a.Rates != (status.Rates{}) || s.Status().Flow.InFlight != 0 {
		t.Errorf("nothing goes through any more: %+v", a.Rates)
	}
	s.report(&net.OpError{Op: "dial", Err: errors.New("refused")}, time.Second)
	st = s.Status()
	if st.Mode != status.ModeUnknown || !strings.HasPrefix(st.ModeText, "cannot connect; who leads is unknown") || st.Leader != nil || st.Standbys != nil || st.Slot.At.IsZero() || st.Level != status.Bad {
		t.Errorf("the connection is lost: %+v", st)
	}
	s.report(errors.New("another reason"), time.Second)
	if again := s.Status(); !again.ErrorSince.Equal(st.ErrorSince) || st.ErrorSince.IsZero() || again.Error != "another reason" {
		t.Errorf("since %s, before since %s", again.ErrorSince, st.ErrorSince)
	}
	s.failed.Store(nil)
	m.Standby()
	b.follows(replication.Holder{Name: "outbox-cdc/orders@there", PID: "9"})
	if st = s.Status(); st.Mode != status.ModeStandby || st.Leader.Here || st.Leader.Name != "outbox-cdc/orders@there" || st.Slot != nil || st.Parks.Total != 0 || st.Flow.Published != 30 {
		t.Errorf("standby: %+v", st)
	}
	b.follows(replication.Holder{PID: "9", Role: "reader", Foreign: true})
	if st = s.Status(); st.Mode != status.ModeStopped || st.Reason == "" || st.Reason != st.Leader.Intruder {
		t.Errorf("behind an intruder: %+v", st)
	}
}

// A slot that the server invalidated is shown at once, until it is made again and for an hour after that.
func TestALostSlotIsToldForAnHour(t *testing.T) {
	b := &statusTracker{slot: &status.Slot{Name: "s", WALStatus: "unreserved"}}
	at := time.Now()
	if !b.slotLost("too much WAL", at) || b.slotLost("too much WAL", at.Add(time.Second)) {
		t.Error("it is news once")
	}
	if s := b.slot; s.WALStatus != "lost" || s.Lost != "too much WAL" || !s.LostSince.Equal(at) {
		t.Errorf("%+v", s)
	}
	told := func(after time.Duration) bool {
		var s status.Slot
		b.lostSlot.told(&s, at.Add(after))
		return s.Lost == "too much WAL" && s.LostSince.Equal(at)
	}
	if !told(2 * time.Hour) {
		t.Error("it is still lost")
	}
	if b.slotMade("made it"); b.slot.WALStatus != "reserved" || !told(59*time.Minute) || told(61*time.Minute) {
		t.Error("it is told for an hour")
	}
	if !b.slotLost("again", at.Add(2*time.Hour)) {
		t.Error("the next one is news")
	}
}
