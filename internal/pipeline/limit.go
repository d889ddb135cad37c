package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

const (
	pressureEvery   = time.Second
	pressureTimeout = 2 * time.Second
	pacedParts      = 4 // a second's rows are spread over this many parts of it
)

// limit paces a stream. It counts rows as they come into the Core. Each row comes in once, from the WAL or
// from the sweeper; the connection and the table behind them then wait by themselves. Only the driver uses
// limit.
type limit struct {
	Limits
	taken uint64    // number of rows that have come into the Core
	next  time.Time // when the next rows may come

	backOff  backOff
	sampled  time.Time
	before   uint64 // taken at the time of the last sample
	sampling bool
	last     pressure
	said     string // the reason that was logged last
	hidden   bool   // it was logged that some standbys are hidden from the role
}

// inForce returns the limit in rows per second (0: none) and the reason for it.
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

// charge counts the rows that arrived since the last call, and returns when the next ones may come.
func (l *limit) charge(now time.Time, arrived uint64) time.Time {
	rows := arrived - l.taken
	l.taken = arrived
	rate, _ := l.inForce()
	if rate == 0 {
		l.next = time.Time{}
		return l.next
	}
	if l.next.Before(now) {
		l.next = now
	}
	l.next = l.next.Add(time.Duration(float64(rows) / rate * float64(time.Second)))
	return l.next
}

// share returns how many rows may come at once; 0: any number.
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

// sample looks for trouble of other sessions that this stream may cause.
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
	d.running.Go(func() {
		p, err := readPressure(d.ctx, d.pool)
		d.answers.Put(answer{0, func() { d.pressed(p, ours, err) }})
	})
}

func readPressure(ctx context.Context, pool *pgxpool.Pool) (pressure, error) {
	ctx, cancel := context.WithTimeout(ctx, pressureTimeout)
	defer cancel()
	var text string
	var p pressure
	err := postgres.On(pool).QueryRow(ctx, sql.Pressure).Scan(&text)
	if err == nil {
		err = json.Unmarshal([]byte(text), &p)
	}
	if err != nil {
		err = fmt.Errorf("looking for standbys and sessions that wait: %w", err)
	}
	return p, err
}

// pressed adjusts the limit after a sample. A failed sample changes nothing.
func (d *driver) pressed(p pressure, ours load, err error) {
	l := &d.limit
	l.sampling = false
	if err != nil {
		d.wal.closeOnShutdown(err)
		d.log.Debug().Err(err).Msg("the limit stays as it is")
		return
	}
	if p.Hidden > 0 && !l.hidden {
		l.hidden = true
		d.log.Warn().Int("connections", p.Hidden).Str("hint", "GRANT pg_read_all_stats TO the role, or set limits.back_off: false").
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

// tellLimit logs a change of the reason once, and updates the limit in metrics and status.
func (d *driver) tellLimit(what string) {
	l := &d.limit
	rows, reason := l.inForce()
	d.metrics.Pace(rows, reason)
	d.tracker.paced(rows, reason)
	if reason == l.said || reason == paceRecovering {
		return
	}
	l.said = reason
	log := d.log.With().Str("reason", reason).Float64("rows_per_second", rows).Logger()
	switch reason {
	case "":
		log.Info().Msg("the rate limit is lifted: rows are taken as fast as they come")
	case paceConfigured:
		log.Info().Msg("rows are taken no faster than limits.rows_per_second")
	default:
		log.Info().Msg("rows are taken more slowly: " + what)
	}
}

// paced records the limit in force.
func (b *statusTracker) paced(rows float64, reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit = nil
	if rows > 0 {
		b.limit = &status.Limit{RowsPerSecond: rows, Reason: reason}
	}
}

// The reasons for a limit, as metrics and status name them.
const (
	paceConfigured = "configured"  // limits.rows_per_second
	paceStandby    = "standby_lag" // a standby falls behind
	paceLocks      = "lock_waits"  // sessions wait for our locks
	paceRecovering = "recovering"  // the trouble is over, and the limit rises
)

const (
	backOffFloor   = 1000             // rows per second that the back-off always allows,
	floorOfFixed   = 10               // or this fraction of a configured limit below ten times that rate
	backOffSteps   = 16               // number of samples in which the limit rises back to the rate at which trouble came
	farBehind      = uint64(16 << 20) // bytes of unconfirmed WAL that count as a catch-up
	standbyTrouble = uint64(64 << 20) // bytes not yet replayed by a standby that count as trouble
)

// backOff is a limit that gives way to other sessions: additive increase, multiplicative decrease, as in TCP
// (RFC 5681, section 3.1). The zero value is no limit.
type backOff struct {
	rows   float64 // per second; 0: no limit
	step   float64 // by how much a sample without trouble raises rows
	reason string  // the last trouble
}

// load is what a sample shows of this stream and of other sessions.
type load struct {
	behind  bool    // the stream catches up: there are more rows to take
	taken   float64 // rows per second since the last sample
	trouble string  // the reason for which other sessions are in trouble; empty: none is
	fixed   float64 // the configured limit; 0: none
}

// floor is the rate that the back-off always allows.
func (l load) floor() float64 {
	if l.fixed > 0 {
		return max(1, min(backOffFloor, l.fixed/floorOfFixed))
	}
	return backOffFloor
}

// next returns the limit after a sample. Trouble halves the limit, down to the floor, if this stream is fast
// enough to be the cause. Each sample without trouble raises it. The limit ends when there is nothing to
// catch up with, or when it no longer restrains the stream.
func (b backOff) next(l load) backOff {
	floor := l.floor()
	switch {
	case !l.behind:
		return backOff{}
	case l.trouble != "" && l.taken >= floor/2:
		if b.rows == 0 || l.taken < b.rows/2 {
			b = backOff{rows: l.taken, step: max(floor, l.taken) / backOffSteps}
		}
		return backOff{rows: max(floor, b.rows/2), step: b.step, reason: l.trouble}
	case b.rows == 0:
		return b
	}
	b.rows, b.reason = b.rows+b.step, paceRecovering
	if b.rows > 4*max(l.taken, floor) || l.fixed > 0 && b.rows >= l.fixed {
		return backOff{}
	}
	return b
}

// pressure is the result of sql/pressure.sql.
type pressure struct {
	Insert   string          `json:"insert"`
	Standbys []standbyServer `json:"standbys"`
	Hidden   int             `json:"hidden"`
	Waiting  int             `json:"waiting"`
}

type standbyServer struct {
	PID  int    `json:"pid"`
	Name string `json:"name"`
	Lag  uint64 `json:"lag"` // bytes of WAL
}

// trouble compares this sample with the one before. It finds sessions that wait for our locks, or a standby
// that is far behind and falls back further. A standby that catches up is no trouble.
func (p *pressure) trouble(before *pressure) (reason, what string) {
	if p.Waiting > 0 {
		return paceLocks, fmt.Sprintf("%d sessions wait for locks of ours", p.Waiting)
	}
	lagged := map[int]uint64{}
	for _, s := range before.Standbys {
		lagged[s.PID] = s.Lag
	}
	for _, s := range p.Standbys {
		if lag, known := lagged[s.PID]; known && s.Lag > standbyTrouble && s.Lag > lag {
			return paceStandby, fmt.Sprintf("standby %s has %d MiB of WAL to replay, and more each second", s.Name, s.Lag>>20)
		}
	}
	return "", ""
}
