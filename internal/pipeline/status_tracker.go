package pipeline

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/metrics"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// statusTracker is what the stream's status is told from. The driver and the code that counts
// write to it, a batch at a time; any goroutine may read it.
type statusTracker struct {
	mu       sync.Mutex
	leader   *status.Leader // nil: not known
	slot     *status.Slot
	forecast status.Forecast
	tables   map[string]status.Table
	parks    status.Parks
	reason   string // of the stream's park
	kafka    map[string]status.Cluster
	flow     status.Flow
	rate     rate
	recent   recent
	limit    *status.Limit
	once     onceStatus
}

// Status is the state of the stream, as far as this process knows. A standby knows
// who leads, and no more.
func (s *Stream) Status() status.Stream {
	m := s.cfg.Metrics.Status()
	b := &s.tracker
	b.mu.Lock()
	defer b.mu.Unlock()
	out := status.Stream{
		Name: s.cfg.Name, Source: status.FromProcess, Mode: m.Mode, Reason: b.reason, Parks: b.parks,
		Tables: []status.Table{}, Delivery: s.cfg.delivery(), Tallies: b.once.list(),
	}
	if out.Mode == "" {
		out.Mode = status.ModeStarting
	}
	if b.leader != nil && b.leader.Intruder != "" {
		out.Mode, out.Reason = status.ModeStopped, b.leader.Intruder
	}
	out.ModeText, out.Error = status.Words(out.Mode), s.Failing()
	for _, t := range s.cfg.Tables {
		table := b.tables[t.String()]
		table.Name = t.String()
		out.Tables = append(out.Tables, table)
	}
	if b.leader != nil {
		leader := *b.leader
		out.Leader = &leader
	}
	if b.slot != nil {
		slot := *b.slot
		out.Slot = &slot
	}
	for _, name := range slices.Sorted(maps.Keys(b.kafka)) {
		c := b.kafka[name]
		out.Kafka = append(out.Kafka, c)
		if !c.Usable && out.Mode == status.ModeHold {
			out.Reason = "Kafka cluster " + name + ": " + c.Error
		}
	}
	if b.limit != nil {
		limit := *b.limit
		out.Limit = &limit
	}
	flow := b.flow
	flow.PerSecond = b.rate.mean(time.Now())
	out.Flow = &flow
	return out
}

// leads: this process leads from now on.
func (b *statusTracker) leads(name string, epoch int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leader = &status.Leader{Name: name, Epoch: epoch, Since: time.Now().UTC().Format(time.RFC3339), Here: true}
	b.recent.recordEvent(time.Now(), "leader", fmt.Sprintf("this process leads, as %s (epoch %d)", name, epoch))
}

// follows: another process leads.
func (b *statusTracker) follows(h replication.Holder) {
	b.reset()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leader = &status.Leader{Name: h.Name, Address: h.Address, PID: h.PID, Since: h.Since, Intruder: h.Intruder()}
	b.recent.recordEvent(time.Now(), "leader", "waiting as a standby behind "+h.String())
}

// reset forgets what only a leader knows.
func (b *statusTracker) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.leader != nil && b.leader.Here {
		b.recent.recordEvent(time.Now(), "leader", "this process leads no longer")
	}
	b.recent.reset()
	b.leader, b.slot, b.tables, b.parks, b.reason, b.kafka = nil, nil, nil, status.Parks{}, "", nil
	b.forecast, b.limit = status.Forecast{}, nil
	b.once.reset()
	b.flow.InFlight = 0
}

func (b *statusTracker) left(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flow.Left += uint64(n) // #nosec G115 -- a count
}

func (b *statusTracker) outcome(o *outbox.Outcome, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch o.Class {
	case outbox.Delivered:
		b.flow.Published += uint64(len(o.Rows))
		b.rate.add(now, uint64(len(o.Rows)))
		b.once.delivered(o.Unit)
	case outbox.Refused:
		b.flow.Refused += uint64(len(o.Rows))
		b.recent.refusals(o, now)
	case outbox.Withdrawn:
	}
}

func (b *statusTracker) marked(answers []outbox.Marked) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range answers {
		switch answers[i].State {
		case outbox.MarkedSent:
			b.recent.sent++
		case outbox.MarkedFailed:
			b.flow.GivenUp++
			b.recent.failed = true
		case outbox.MarkedRetry, outbox.MarkedSettled, outbox.MarkedInvisible, outbox.MarkedRefused:
		}
	}
}

func (b *statusTracker) cluster(c outbox.ClusterState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kafka == nil {
		b.kafka = map[string]status.Cluster{}
	}
	one := status.Cluster{Name: c.Cluster, Usable: c.Usable}
	if c.Err != nil {
		one.Error = c.Err.Error()
		b.recent.recordError(time.Now(), "Kafka cluster "+c.Cluster, one.Error, "")
	}
	if before, known := b.kafka[c.Cluster]; !known || before.Usable != c.Usable {
		b.recent.recordEvent(time.Now(), "kafka", "Kafka cluster "+c.Cluster+map[bool]string{true: " can be used", false: " cannot be used: " + one.Error}[c.Usable])
	}
	one.Fencing = b.kafka[c.Cluster].Fencing
	b.kafka[c.Cluster] = one
}

func (b *statusTracker) fencing(cluster string, f sink.Fencing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if one, known := b.kafka[cluster]; known {
		one.Fencing = f.String()
		b.kafka[cluster] = one
	}
}

// retained takes what the server says of the slot, and returns it with the forecast
// of its end.
func (b *statusTracker) retained(name string, budget uint64, r replication.Retained, waiting time.Duration, now time.Time) *status.Slot {
	b.mu.Lock()
	defer b.mu.Unlock()
	seconds := waiting.Seconds()
	slot := &status.Slot{
		Name: name, Exists: r.Exists(), Active: r.Active, WALStatus: r.Status,
		Retained: r.Bytes(), Budget: budget, Lag: r.Lag(), LagSeconds: &seconds,
	}
	if r.Safe >= 0 {
		slot.Safe = &r.Safe
	}
	b.forecast.Tell(now, slot)
	b.recent.retained(now, &r)
	b.slot = slot // not changed from here on
	return slot
}

// inFlight takes what the Core holds.
func (b *statusTracker) inFlight(inFlight int, m *metrics.Stream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flow.InFlight = inFlight
	b.recent.sample(time.Now(), b.flow.Published, b.slot, m)
}

// parked takes the parks, which have changed.
func (b *statusTracker) parked(parks []outbox.Park) {
	summary := status.Summarize(parks)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.parks, b.reason, b.recent.parks = summary, "", parks
	if p := status.StreamPark(parks); p != nil {
		b.reason = p.Reason
	}
}

// counted changes what is known of a table's rows.
func (b *statusTracker) counted(t *outbox.Table, change func(*status.Table)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tables == nil {
		b.tables = map[string]status.Table{}
	}
	table := b.tables[t.String()]
	change(&table)
	b.tables[t.String()] = table
}

// rate counts rows by the second, for the last minute.
type rate struct {
	began time.Time
	at    [rateSeconds]int64 // the second that the count is of, since 1970
	rows  [rateSeconds]uint64
}

const rateSeconds = 60

func (r *rate) add(now time.Time, rows uint64) {
	if r.began.IsZero() {
		r.began = now
	}
	second := now.Unix()
	i := second % rateSeconds
	if r.at[i] != second {
		r.at[i], r.rows[i] = second, 0
	}
	r.rows[i] += rows
}

// mean is rows per second over the last minute, or since the first row.
func (r *rate) mean(now time.Time) float64 {
	if r.began.IsZero() {
		return 0
	}
	var sum uint64
	for i := range r.at {
		if age := now.Unix() - r.at[i]; age >= 0 && age < rateSeconds {
			sum += r.rows[i]
		}
	}
	return float64(sum) / max(1, min(rateSeconds, now.Sub(r.began).Seconds()))
}
