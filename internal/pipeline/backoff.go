package pipeline

import "fmt"

// Why rows are taken no faster, as metrics and status say it.
const (
	paceConfigured = "configured"     // limits.rows_per_second
	paceStandby    = "standby_lag"    // a standby falls behind
	paceLocks      = "lock_waits"     // sessions wait for locks of ours
	paceRecovering = "recovering"     // the trouble is over, the limit rises
	backOffFloor   = 1000             // rows per second that the back-off always leaves,
	floorOfFixed   = 10               // or this part of a configured limit that is less than ten times as much
	backOffSteps   = 16               // samples in which the limit rises by what was taken when it came
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
	trouble string  // what others have to bear, or empty
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
	Insert   string    `json:"insert"`
	Standbys []standby `json:"standbys"`
	Hidden   int       `json:"hidden"`
	Waiting  int       `json:"waiting"`
}

type standby struct {
	PID  int    `json:"pid"`
	Name string `json:"name"`
	Lag  uint64 `json:"lag"` // bytes of WAL
}

// trouble is what others have to bear now, given the sample before: sessions that
// wait for us, or a standby far behind that falls back further. One that is far
// behind and catches up is left to do so.
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
