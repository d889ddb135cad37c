package pipeline

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/loglimit"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

// This file tells people of exactly-once delivery: transactions, and tallies in the database.

// tallyEvery is how often the database is asked for the tallies.
const tallyEvery = 2 * time.Second

// The words of the configuration.
const (
	atLeastOnce = "at_least_once"
	exactlyOnce = "exactly_once"
)

func (c *Config) delivery() string {
	if c.Once != nil {
		return exactlyOnce
	}
	return atLeastOnce
}

// onceStatus is part of the tracker, and under its lock.
type onceStatus struct {
	tallies map[string]status.Tally
	// ends are the transactions since the process began, last the last unit that was committed.
	ends map[string]status.Transactions
	last map[string]uint64
}

// reset forgets what only a leader knows.
func (o *onceStatus) reset() { o.tallies, o.last = nil, nil }

func (o *onceStatus) list() []status.Tally {
	var all []status.Tally
	for _, cluster := range slices.Sorted(maps.Keys(o.tallies)) {
		t, ends := o.tallies[cluster], o.ends[cluster]
		t.Transactions = &ends
		all = append(all, t)
	}
	return all
}

func (o *onceStatus) delivered(u *outbox.Unit) {
	switch {
	case u == nil:
		return
	case o.last == nil:
		o.last = map[string]uint64{}
	}
	o.last[u.Cluster] = max(o.last[u.Cluster], u.Number)
}

// tally takes what the database knows, and returns how many units are behind the head.
func (b *statusTracker) tally(cluster string, open bool, head uint64, left int64) (waiting uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if last := b.once.last[cluster]; last > head {
		waiting = last - head
	}
	if b.once.tallies == nil {
		b.once.tallies = map[string]status.Tally{}
	}
	b.once.tallies[cluster] = status.Tally{Cluster: cluster, Open: open, Waiting: &waiting, Left: left}
	return waiting
}

// transacted takes the end of a transaction.
func (b *statusTracker) transacted(cluster, aborted string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.once.ends == nil {
		b.once.ends = map[string]status.Transactions{}
	}
	ends := b.once.ends[cluster]
	if aborted == "" {
		ends.Committed++
	} else {
		ends.Aborted++
		ends.LastAbort = &status.Abort{At: now.UTC(), Cause: aborted, Text: status.AbortText(aborted)}
		b.recent.recordError(now, "Kafka cluster "+cluster, "a transaction was aborted: "+ends.LastAbort.Text, "")
	}
	b.once.ends[cluster] = ends
}

// Transacted is part of sink.Observer.
func (o observer) Transacted(aborted string, _ int, took time.Duration) {
	o.stream.cfg.Metrics.Transacted(o.cluster, aborted, took)
	o.stream.tracker.transacted(o.cluster, aborted, time.Now())
	if aborted != "" {
		o.stream.cfg.Log.Warn().Ctx(loglimit.About(o.cluster)).Str("cluster", o.cluster).Str("cause", status.AbortText(aborted)).
			Msg("a Kafka transaction was aborted: its rows go into the next one")
	}
}

// tellTallies tells how the tallies are.
func (d *driver) tellTallies(ctx context.Context) error {
	if d.once == nil {
		return nil
	}
	for {
		states, err := d.stream.store.TallyStates(ctx, status.MaxLeft)
		for _, t := range states {
			waiting := d.stream.tracker.tally(t.Cluster, t.Open, uint64(t.Head), t.Left) // #nosec G115 -- counted from 0
			d.cfg.Metrics.Tally(t.Cluster, t.Open, waiting, t.Left)
		}
		if err != nil && ctx.Err() == nil {
			d.cfg.Log.Debug().Err(err).Msg("the tallies could not be read")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(tallyEvery):
		}
	}
}
