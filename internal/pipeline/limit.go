package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// Limits bound how fast rows are taken from the WAL and from the table.
type Limits struct {
	// RowsPerSecond at most; 0: no limit.
	RowsPerSecond int
	// BackOff slows a catch-up down while standbys fall behind or sessions wait
	// for our locks.
	BackOff bool
}

const (
	pressureEvery   = time.Second
	pressureTimeout = 2 * time.Second
	pacedParts      = 4 // in which the rows of a second come, so that they are spread
)

// limit paces a stream. The rows that come into the Core are what is counted:
// each does so once, whether the WAL brings it or the sweeper, and what stands
// behind them, the connection and the table, waits by itself meanwhile. It is the
// driver's alone.
type limit struct {
	Limits
	taken uint64    // rows that came into the Core so far
	paid  time.Time // when those are paid for

	backOff  backOff
	sampled  time.Time
	before   uint64 // taken at the last sample
	sampling bool
	last     pressure
	said     string // the reason that was logged last
	hidden   bool   // it was said that standbys cannot be seen
}

// inForce is the limit in rows per second, 0 for none, and why.
func (l *limit) inForce() (rows float64, reason string) {
	fixed := float64(l.RowsPerSecond)
	switch {
	case l.backOff.rows > 0 && (fixed == 0 || l.backOff.rows < fixed):
		return l.backOff.rows, l.backOff.reason
	case fixed > 0:
		return fixed, paceConfigured
	}
	return 0, ""
}

// charge counts rows up to this many, and says until when no more may come.
func (l *limit) charge(now time.Time, arrived uint64) time.Time {
	rows := arrived - l.taken
	l.taken = arrived
	rate, _ := l.inForce()
	if rate == 0 {
		l.paid = time.Time{}
		return l.paid
	}
	if l.paid.Before(now) {
		l.paid = now
	}
	l.paid = l.paid.Add(time.Duration(float64(rows) / rate * float64(time.Second)))
	return l.paid
}

// share is how many rows may come at once, 0: any number.
func (l *limit) share() int {
	rate, _ := l.inForce()
	if rate == 0 {
		return 0
	}
	return max(1, int(rate/pacedParts))
}

// pace tells the Core and the WAL reader how fast rows may come.
func (d *driver) pace(now time.Time) {
	l := &d.limit
	arrived := d.core.Arrived()
	d.core.Pace(l.charge(now, arrived), l.share())
	d.wal.atOnce.Store(int64(l.share()))
	if now.Sub(l.sampled) >= pressureEvery {
		d.sample(now)
	}
}

// sample looks what others have to bear, where this stream may be the cause.
func (d *driver) sample(now time.Time) {
	l := &d.limit
	ours := load{fixed: float64(l.RowsPerSecond), behind: true}
	if !l.sampled.IsZero() {
		ours.taken = float64(l.taken-l.before) / now.Sub(l.sampled).Seconds()
	}
	l.sampled, l.before = now, l.taken
	if !l.BackOff || l.sampling || d.cfg.Shadow || l.backOff.rows == 0 && ours.taken < ours.floor()/2 {
		d.tellLimit("")
		return
	}
	l.sampling = true
	d.queries.Go(func() {
		p, err := d.readPressure(d.ctx)
		d.answers.Put(answer{0, func() { d.pressed(p, ours, err) }})
	})
}

func (d *driver) readPressure(ctx context.Context) (pressure, error) {
	ctx, cancel := context.WithTimeout(ctx, pressureTimeout)
	defer cancel()
	var text string
	var p pressure
	err := postgres.On(d.cfg.Pool).QueryRow(ctx, sql.Pressure).Scan(&text)
	if err == nil {
		err = json.Unmarshal([]byte(text), &p)
	}
	if err != nil {
		err = fmt.Errorf("looking for standbys and sessions that wait: %w", err)
	}
	return p, err
}

// pressed takes a sample. One that failed changes nothing.
func (d *driver) pressed(p pressure, ours load, err error) {
	l := &d.limit
	l.sampling = false
	if err != nil {
		d.closeOnShutdown(err)
		d.cfg.Log.Debug().Err(err).Msg("the limit stays as it is")
		return
	}
	if p.Hidden > 0 && !l.hidden {
		l.hidden = true
		d.cfg.Log.Warn().Int("connections", p.Hidden).Str("hint", "GRANT pg_read_all_stats TO the role, or set limits.back_off: false").
			Msg("how far standbys are behind is not shown to this role: nothing slows down for them")
	}
	end, err := outbox.ParseLSN(p.Insert)
	confirmed := d.core.Confirm()
	ours.behind = d.core.Sweeping() || err == nil && confirmed > 0 && uint64(end) > uint64(confirmed)+farBehind
	reason, what := p.trouble(&l.last)
	ours.trouble, l.last = reason, p
	l.backOff = l.backOff.next(ours)
	d.tellLimit(what)
}

// tellLimit says a change of the reason once in the log, and the limit to
// metrics and status.
func (d *driver) tellLimit(what string) {
	l := &d.limit
	rows, reason := l.inForce()
	d.cfg.Metrics.Pace(rows, reason)
	d.stream.tracker.paced(rows, reason)
	if reason == l.said || reason == paceRecovering {
		return
	}
	l.said = reason
	log := d.cfg.Log.With().Str("reason", reason).Float64("rows_per_second", rows).Logger()
	switch reason {
	case "":
		log.Info().Msg("rows are taken as fast as they come again")
	case paceConfigured:
		log.Info().Msg("rows are taken no faster than limits.rows_per_second")
	default:
		log.Info().Msg("rows are taken more slowly: " + what)
	}
}

// paced takes the limit that is in force.
func (b *statusTracker) paced(rows float64, reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit = nil
	if rows > 0 {
		b.limit = &status.Limit{RowsPerSecond: rows, Reason: reason}
	}
}
