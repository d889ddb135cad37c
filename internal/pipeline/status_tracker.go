package pipeline

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/metrics"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/internal/survey"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// statusTracker collects the data of the stream's status. The driver and the code that counts write to it,
// once per batch. Any goroutine may read it. Data behind its pointers is replaced, never changed. Values that
// the metrics count are not counted here again: Status reads them from the metrics.
type statusTracker struct {
	mu       sync.Mutex
	leader   *status.Leader // nil: unknown
	standbys []status.Standby
	slot     *status.Slot
	lostSlot lostSlot
	stall    stall
	forecast status.Forecast
	tables   map[string]status.Table
	parks    status.Parks
	reason   string // why the stream is parked
	kafka    map[string]status.Cluster
	inFlight int // number of rows in flight
	rate     rate
	recent   recent
	limit    *status.Limit
	// The last three fields are about exactly-once delivery, by cluster: the tallies, the last aborted
	// transaction since the process began, and the last committed unit.
	tallies   map[string]status.Tally
	lastAbort map[string]*status.Abort
	lastUnit  map[string]uint64
}

// leads records that this process leads from now on.
func (b *statusTracker) leads(name string, epoch int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leader = &status.Leader{Name: name, Epoch: epoch, Since: time.Now().UTC().Format(time.RFC3339), Here: true}
	b.recent.recordEvent(time.Now(), "leader", fmt.Sprintf("this process leads, as %s (epoch %d)", name, epoch))
}

// follows records that another process leads.
func (b *statusTracker) follows(h replication.Holder) {
	b.reset()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leader = &status.Leader{Name: h.Name, Address: h.Address, PID: h.PID, Since: h.Since, Intruder: h.Intruder()}
	b.recent.recordEvent(time.Now(), "leader", "waiting as a standby behind "+h.String())
}

// leadLost records that the connection that held the lead has ended. The present leader is unknown. Other
// data keeps the age that it shows.
func (b *statusTracker) leadLost() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leader, b.standbys = nil, nil
	b.recent.rates, b.inFlight = status.Rates{}, 0
}

// waiting: these processes wait for the lead, as standbys.
func (b *statusTracker) waiting(waiting []replication.Holder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.standbys = survey.Standbys(waiting)
}

// reset discards what only a leader knows.
func (b *statusTracker) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.leader != nil && b.leader.Here {
		b.recent.recordEvent(time.Now(), "leader", "this process leads no longer")
	}
	r := &b.recent // past events are kept
	r.parks, r.rates, r.positions, r.insertAt = nil, status.Rates{}, nil, time.Time{}
	r.before, r.sampled = counts{}, counts{}
	b.leader, b.standbys, b.slot, b.parks, b.reason = nil, nil, nil, status.Parks{}, ""
	b.forecast, b.limit, b.stall = status.Forecast{}, nil, stall{}
	clear(b.tables)
	clear(b.kafka)
	clear(b.tallies)
	clear(b.lastUnit)
	b.inFlight = 0
}

func (b *statusTracker) outcome(o *outbox.Outcome, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch o.Class {
	case outbox.Delivered:
		b.rate.add(now, uint64(len(o.Rows)))
		if u := o.Unit; u != nil {
			b.lastUnit[u.Cluster] = max(b.lastUnit[u.Cluster], u.Number)
		}
	case outbox.Refused:
		for _, row := range o.Rows {
			b.recent.recordError(now, "topic "+row.Topic, fmt.Sprint(o.Err), row.Table.String()+" "+strings.Join(outbox.SplitID(row.ID), ","))
		}
	}
}

func (b *statusTracker) cluster(c outbox.ClusterState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := status.Cluster{Name: c.Cluster, Usable: c.Usable}
	if c.Err != nil {
		one.Error = c.Err.Error()
		b.recent.recordError(time.Now(), "Kafka cluster "+c.Cluster, one.Error, "")
	}
	before, known := b.kafka[c.Cluster]
	if one.Since = before.Since; !known || before.Usable != c.Usable {
		one.Since = time.Now().UTC()
		b.recent.recordEvent(time.Now(), "kafka", "Kafka cluster "+c.Cluster+map[bool]string{true: " can be used", false: " cannot be used: " + one.Error}[c.Usable])
	}
	one.Fencing = before.Fencing
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

// lostSlot describes the last slot that the server invalidated. It outlives a term.
type lostSlot struct {
	because string
	since   time.Time
	made    bool // another slot has replaced it
}

// toldLost is how long the status shows a slot that was lost and then made again.
const toldLost = time.Hour

// slotLost records that the server invalidated the slot. It returns false if that was known already.
func (b *statusTracker) slotLost(because string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lostSlot.because != "" && !b.lostSlot.made {
		return false
	}
	b.lostSlot = lostSlot{because: because, since: now.UTC()}
	b.slotIs("lost", now)
	b.recent.recordEvent(now, "slot", "the server gave the slot up: "+because)
	return true
}

func (b *statusTracker) slotMade(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.lostSlot.made = true
	b.slotIs("reserved", now)
	b.recent.recordEvent(now, "slot", text)
}

// slotIs sets the slot's state before the slot is read again.
func (b *statusTracker) slotIs(state string, now time.Time) {
	if b.slot == nil {
		return
	}
	slot := &status.Slot{Name: b.slot.Name, Exists: true, WALStatus: state, Budget: b.slot.Budget, Unbounded: b.slot.Unbounded}
	b.lostSlot.told(slot, now)
	b.slot = slot
}

// told adds to the slot's status that this slot, or the one before it, was lost.
func (l *lostSlot) told(slot *status.Slot, now time.Time) {
	if l.because == "" || l.made && now.Sub(l.since) > toldLost {
		return
	}
	slot.Lost, slot.LostSince = cmp.Or(slot.Lost, l.because), l.since
}

// retained records what the server says of the slot, and returns the slot's status with the forecast of its
// loss.
func (b *statusTracker) retained(name string, budget uint64, unbounded bool, r replication.Retained, holder string, waiting time.Duration, now time.Time) *status.Slot {
	b.mu.Lock()
	defer b.mu.Unlock()
	slot := survey.SlotOf(name, r, budget, unbounded)
	slot.LagSeconds, slot.HeldBy = new(waiting.Seconds()), holder
	slot.StalledBy, slot.StalledSince = b.stall.told(r, now)
	b.lostSlot.told(slot, now)
	b.forecast.Tell(now, slot)
	recent := &b.recent
	if passed := now.Sub(recent.insertAt).Seconds(); !recent.insertAt.IsZero() && passed > 0 && r.Insert >= recent.insert {
		recent.rates.WAL = float64(r.Insert-recent.insert) / passed // the rate at which the server writes WAL
	}
	recent.insert, recent.insertAt = r.Insert, now
	recent.positions = &status.Positions{Server: r.Insert.String(), Confirmed: r.Confirmed.String(), Restart: r.Restart.String()}
	b.slot = slot
	return slot
}

// sample records the number of rows in flight, and at intervals the counters of the metrics.
func (b *statusTracker) sample(inFlight int, m *metrics.Stream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inFlight = inFlight
	b.recent.sample(time.Now(), b.slot, m)
}

// parked records the changed parks.
func (b *statusTracker) parked(parks []outbox.Park) {
	summary := status.Summarize(parks)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.parks, b.reason, b.recent.parks = summary, "", parks
	if p := status.StreamPark(parks); p != nil {
		b.reason = p.Reason
	}
}

// counted changes the counts of a table.
func (b *statusTracker) counted(t *outbox.Table, change func(*status.Table)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	table := b.tables[t.String()]
	change(&table)
	b.tables[t.String()] = table
}

// tally records a cluster's tally, and returns how many units are noted behind its head.
func (b *statusTracker) tally(cluster string, open bool, head uint64, left int64) (waiting uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if last := b.lastUnit[cluster]; last > head {
		waiting = last - head
	}
	b.tallies[cluster] = status.Tally{Cluster: cluster, Open: open, Waiting: &waiting, Left: left}
	return waiting
}

// aborted records that a transaction was aborted, and the cause.
func (b *statusTracker) aborted(cluster, cause string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	last := &status.Abort{At: now.UTC(), Cause: cause, Text: status.AbortText(cause)}
	b.lastAbort[cluster] = last
	b.recent.recordError(now, "Kafka cluster "+cluster, "a transaction was aborted: "+last.Text, "")
}

// rate counts the rows of each second of the last minute.
type rate struct {
	began time.Time
	at    [rateSeconds]int64 // the second, since 1970, that the count belongs to
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

// mean returns the rows per second over the last minute, or since the first row if that is shorter.
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

// warned records a warning of the server about the slot.
func (b *statusTracker) warned(text string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	text = bounded(text)
	b.stall.warned(text, now)
	b.recent.recordError(now, "the slot, as the server warns", text, "")
}

// stalledBy returns the server's warning while the server holds the stream back; "" while it does not.
func (b *statusTracker) stalledBy(r replication.Retained, now time.Time) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text, _ := b.stall.told(r, now)
	return text
}
