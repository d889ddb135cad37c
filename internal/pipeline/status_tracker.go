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

// statusTracker is what the stream's status is told from. The driver and the code that counts
// write to it, a batch at a time; any goroutine may read it. What it points to is replaced, never
// changed. What the metrics count is not counted here again: Status reads it back.
type statusTracker struct {
	mu       sync.Mutex
	leader   *status.Leader // nil: not known
	standbys []status.Standby
	slot     *status.Slot
	lostSlot lostSlot
	stall    stall
	forecast status.Forecast
	tables   map[string]status.Table
	parks    status.Parks
	reason   string // of the stream's park
	kafka    map[string]status.Cluster
	inFlight int // rows
	rate     rate
	recent   recent
	limit    *status.Limit
	// Of exactly-once delivery, by cluster: the tallies, the last abort since the process began, and the
	// last unit that was committed.
	tallies   map[string]status.Tally
	lastAbort map[string]*status.Abort
	lastUnit  map[string]uint64
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

// leadLost: the connection that holds the lead has ended. Who leads now is not known; the rest is as old as it says.
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

// reset forgets what only a leader knows.
func (b *statusTracker) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.leader != nil && b.leader.Here {
		b.recent.recordEvent(time.Now(), "leader", "this process leads no longer")
	}
	r := &b.recent // what happened stays
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

// lostSlot is the last slot that the server gave up. It outlives a term.
type lostSlot struct {
	because string
	since   time.Time
	made    bool // another has taken its place
}

// toldLost is for how long a slot that was lost and made again is told of.
const toldLost = time.Hour

// slotLost notes that the server gave the slot up, and says whether that is news.
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

// slotIs says what became of the slot, before it is read again.
func (b *statusTracker) slotIs(state string, now time.Time) {
	if b.slot == nil {
		return
	}
	slot := &status.Slot{Name: b.slot.Name, Exists: true, WALStatus: state, Budget: b.slot.Budget, Unbounded: b.slot.Unbounded}
	b.lostSlot.told(slot, now)
	b.slot = slot
}

// told adds to the slot's status when it, or the one before it, was lost.
func (l *lostSlot) told(slot *status.Slot, now time.Time) {
	if l.because == "" || l.made && now.Sub(l.since) > toldLost {
		return
	}
	slot.Lost, slot.LostSince = cmp.Or(slot.Lost, l.because), l.since
}

// retained takes what the server says of the slot, and returns it with the forecast
// of its end.
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
		recent.rates.WAL = float64(r.Insert-recent.insert) / passed // how fast the server writes
	}
	recent.insert, recent.insertAt = r.Insert, now
	recent.positions = &status.Positions{Server: r.Insert.String(), Confirmed: r.Confirmed.String(), Restart: r.Restart.String()}
	b.slot = slot
	return slot
}

// sample takes the rows that are in flight, and now and then what the metrics counted.
func (b *statusTracker) sample(inFlight int, m *metrics.Stream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inFlight = inFlight
	b.recent.sample(time.Now(), b.slot, m)
}

// parked notes the parks, which have changed.
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
	table := b.tables[t.String()]
	change(&table)
	b.tables[t.String()] = table
}

// tally notes what the database knows, and returns how many units are behind the head.
func (b *statusTracker) tally(cluster string, open bool, head uint64, left int64) (waiting uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if last := b.lastUnit[cluster]; last > head {
		waiting = last - head
	}
	b.tallies[cluster] = status.Tally{Cluster: cluster, Open: open, Waiting: &waiting, Left: left}
	return waiting
}

// aborted notes that a transaction was aborted, by this cause.
func (b *statusTracker) aborted(cluster, cause string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	last := &status.Abort{At: now.UTC(), Cause: cause, Text: status.AbortText(cause)}
	b.lastAbort[cluster] = last
	b.recent.recordError(now, "Kafka cluster "+cluster, "a transaction was aborted: "+last.Text, "")
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

// warned notes a warning of the server about the slot.
func (b *statusTracker) warned(text string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	text = bounded(text)
	b.stall.warned(text, now)
	b.recent.recordError(now, "the slot, as the server warns", text, "")
}

// stalledBy is what the server says while it holds the stream back; empty: it does not.
func (b *statusTracker) stalledBy(r replication.Retained, now time.Time) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text, _ := b.stall.told(r, now)
	return text
}
