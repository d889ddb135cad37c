package checkpoint

import (
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// line holds rows in memory that are looked at before they go on. Per key they
// leave it in the order in which they came.
type line struct {
	queue []uint32
	// asked are being looked at; stuck wait with their keys, each until its time,
	// for rows that are not visible yet or that another relay has.
	asked     []uint32
	stuck     []uint32
	stuckKeys map[outbox.Scope]time.Time
	retry     time.Time // the first of them
}

// stick makes the row's key wait; rows that follow wait behind it.
func (l *line) stick(h uint32, key outbox.Scope, until time.Time) {
	if l.stuckKeys == nil {
		l.stuckKeys = map[outbox.Scope]time.Time{}
	}
	if _, waits := l.stuckKeys[key]; !waits {
		l.stuckKeys[key] = until
		if len(l.stuckKeys) == 1 || until.Before(l.retry) {
			l.retry = until
		}
	}
	l.stuck = append(l.stuck, h)
}

// sticks says that an earlier row of the row's key waits.
func (l *line) sticks(r *outbox.Row) bool {
	if len(l.stuckKeys) == 0 {
		return false // spares the key, for nearly every row
	}
	_, waits := l.stuckKeys[outbox.KeyScope(r)]
	return waits
}

// resume puts the keys whose wait is over back in front.
func (c *Core) resume(l *line) {
	if len(l.stuckKeys) == 0 || l.retry.After(c.now) {
		return
	}
	var front, rest []uint32
	for _, h := range l.stuck {
		if l.stuckKeys[outbox.KeyScope(c.entries[h].row)].After(c.now) {
			rest = append(rest, h)
		} else {
			front = append(front, h)
		}
	}
	l.queue, l.stuck = append(front, l.queue...), rest
	l.retry = time.Time{}
	for key, until := range l.stuckKeys {
		switch {
		case !until.After(c.now):
			delete(l.stuckKeys, key)
		case l.retry.IsZero() || until.Before(l.retry):
			l.retry = until
		}
	}
}

// dropLine forgets the line's rows with their holds.
func (c *Core) dropLine(l *line) {
	for _, h := range slices.Concat(l.queue, l.asked, l.stuck) {
		c.drop(h)
	}
	*l = line{}
}

// checked does what the look at a row says.
func (c *Core) checked(l *line, a outbox.Checked) {
	h := a.Row.Handle
	p := c.leftUnder(&c.entries[h])
	switch {
	case a.State == outbox.CheckFailed:
		if a.Row.Table.Mapping.OnFailed == outbox.OnFailedBlock {
			c.block(a.Row)
		}
		c.settle(h)
	case a.State == outbox.CheckSettled:
		c.settle(h)
	case p != nil:
		c.leaveStood(h, p)
	case a.State == outbox.CheckInvisible:
		l.stick(h, outbox.KeyScope(a.Row), c.now.Add(c.invisibleFor(a.Row)))
	case a.State == outbox.CheckTaken, l.sticks(a.Row):
		l.stick(h, outbox.KeyScope(a.Row), c.now.Add(takenWait))
	default:
		c.publish(h)
	}
}
