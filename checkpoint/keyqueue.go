package checkpoint

import (
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// keyQueue holds rows in memory that are looked at before they go on. Per key they
// leave it in the order in which they came.
type keyQueue struct {
	queue []uint32
	// asked are being looked at; waiting rows wait with their keys, each until its time,
	// for rows that are not visible yet or that another relay has.
	asked       []uint32
	waiting     []uint32
	waitingKeys map[outbox.Scope]time.Time
	retry       time.Time // the first of them
}

// wait makes the row's key wait; rows that follow wait behind it.
func (l *keyQueue) wait(h uint32, key outbox.Scope, until time.Time) {
	if l.waitingKeys == nil {
		l.waitingKeys = map[outbox.Scope]time.Time{}
	}
	if _, waits := l.waitingKeys[key]; !waits {
		l.waitingKeys[key] = until
		if len(l.waitingKeys) == 1 || until.Before(l.retry) {
			l.retry = until
		}
	}
	l.waiting = append(l.waiting, h)
}

// waits says that an earlier row of the row's key waits.
func (l *keyQueue) waits(r *outbox.Row) bool {
	if len(l.waitingKeys) == 0 {
		return false // spares the key, for nearly every row
	}
	_, waits := l.waitingKeys[outbox.KeyScope(r)]
	return waits
}

// resume puts the keys whose wait is over back in front.
func (c *Core) resume(l *keyQueue) {
	if len(l.waitingKeys) == 0 || l.retry.After(c.now) {
		return
	}
	var front, rest []uint32
	for _, h := range l.waiting {
		if l.waitingKeys[outbox.KeyScope(c.rows.entries[h].row)].After(c.now) {
			rest = append(rest, h)
		} else {
			front = append(front, h)
		}
	}
	l.queue, l.waiting = append(front, l.queue...), rest
	l.retry = time.Time{}
	for key, until := range l.waitingKeys {
		switch {
		case !until.After(c.now):
			delete(l.waitingKeys, key)
		case l.retry.IsZero() || until.Before(l.retry):
			l.retry = until
		}
	}
}

// dropQueue forgets the line's rows with their holds.
func (c *Core) dropQueue(l *keyQueue) {
	for _, h := range slices.Concat(l.queue, l.asked, l.waiting) {
		c.drop(h)
	}
	*l = keyQueue{}
}

// checked does what the look at a row says.
func (c *Core) checked(l *keyQueue, a outbox.Checked) {
	h := a.Row.Handle
	p := c.leftUnder(&c.rows.entries[h])
	switch {
	case a.State == outbox.CheckFailed:
		if a.Row.Table.Mapping.OnFailed == outbox.OnFailedBlock {
			c.block(a.Row)
		}
		c.settle(h)
	case a.State == outbox.CheckSettled:
		c.settle(h)
	case p != nil:
		c.leaveRead(h, p)
	case a.State == outbox.CheckInvisible:
		l.wait(h, outbox.KeyScope(a.Row), c.now.Add(c.invisibleFor(a.Row)))
	case a.State == outbox.CheckTaken, l.waits(a.Row):
		l.wait(h, outbox.KeyScope(a.Row), c.now.Add(takenWait))
	default:
		c.publish(h)
	}
}
