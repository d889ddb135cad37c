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
	pacedParts      = 4 // the parts of a second over which its rows are spread
)

// limit paces a stream. It counts rows as they come into the Core: each does so once, from the WAL or the sweeper,
// and the connection and the table behind them wait by themselves. Only the driver uses it.
type limit struct {
	Limits
	taken uint64    // rows that came into the Core so far
	next  time.Time // when more may come

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

// charge counts the rows that arrived since the last call, and returns when more may come.
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

// sample looks for trouble of others that this stream may cause.
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

// pressed adjusts the limit by a sample. A failed one changes nothing.
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

// tellLimit logs a change of the reason once, and tells metrics and status the limit.
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

// paced notes the limit in force.
func (b *statusTracker) paced(rows float64, reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.limit = nil
	if rows > 0 {
		b.limit = &status.Limit{RowsPerSecond: rows, Reason: reason}
	}
}

// Why rows are taken no faster, as metrics and status say it.
const (
	paceConfigured = "configured"  // limits.rows_per_second
	paceStandby    = "standby_lag" // a standby falls behind
	paceLocks      = "lock_waits"  // sessions wait for locks of ours
	paceRecovering = "recovering"  // the trouble is over, the limit rises
)

const (
	backOffFloor   = 1000             // rows per second that the back-off always leaves,
	floorOfFixed   = 10               // or this part of a configured limit that is less than ten times as much
	backOffSteps   = 16               // samples in which the limit rises by the rate at which trouble came
	farBehind      = uint64(16 << 20) // bytes of WAL that are not confirmed yet: a catch-up
	standbyTrouble = uint64(64 << 20) // bytes that a standby has not replayed
)

// backOff is a limit that gives way to others: additive increase, multiplicative
// decrease, as TCP does it (RFC 5681, section 3.1). The zero value limits nothing.
type backOff struct {
	rows   float64 // per second; 0: no limit
	step   float64 // by which it rises
	reason string  // the trouble that was seen last
}

// load is what a sample says of ourselves and of others.
type load struct {
	behind  bool    // we catch up: there is more to be taken than came just now
	taken   float64 // rows per second since the last sample
	trouble string  // of others, or empty
	fixed   float64 // the configured limit; 0: none
}

// floor is what the back-off always leaves.
func (l load) floor() float64 {
	if l.fixed > 0 {
		return max(1, min(backOffFloor, l.fixed/floorOfFixed))
	}
	return backOffFloor
}

// next is the limit after a sample. Trouble halves it, down to the floor, if we
// take enough for it to be ours; each sample without trouble raises it; it is
// lifted where there is nothing to catch up with, and where it binds no more.
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

// pressure is what sql/pressure.sql finds.
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

// trouble is what this sample and the one before show: sessions that wait for us, or a standby far behind that falls
// back further. A standby that catches up is no trouble.
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
