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
	// asked are being looked at. waiting are rows that are not visible yet, or another
	// relay's, and the later rows of their keys, each until its key's time.
	asked       []uint32
	waiting     []uint32
	waitingKeys map[outbox.Scope]time.Time
	retry       time.Time // the earliest of waitingKeys
}

// wait makes the row's key wait; rows that follow wait behind it.
func (q *keyQueue) wait(h uint32, key outbox.Scope, until time.Time) {
	if q.waitingKeys == nil {
		q.waitingKeys = map[outbox.Scope]time.Time{}
	}
	if _, waits := q.waitingKeys[key]; !waits {
		q.waitingKeys[key] = until
		if len(q.waitingKeys) == 1 || until.Before(q.retry) {
			q.retry = until
		}
	}
	q.waiting = append(q.waiting, h)
}

// waits says that an earlier row of the row's key waits.
func (q *keyQueue) waits(r *outbox.Row) bool {
	if len(q.waitingKeys) == 0 {
		return false // as nearly always: no key is built
	}
	_, waits := q.waitingKeys[outbox.KeyScope(r)]
	return waits
}

// resume puts the keys whose wait is over back in front.
func (c *Core) resume(q *keyQueue) {
	if len(q.waitingKeys) == 0 || q.retry.After(c.now) {
		return
	}
	var front, rest []uint32
	for _, h := range q.waiting {
		if q.waitingKeys[outbox.KeyScope(c.rows.entries[h].row)].After(c.now) {
			rest = append(rest, h)
		} else {
			front = append(front, h)
		}
	}
	q.queue, q.waiting = append(front, q.queue...), rest
	q.retry = time.Time{}
	for key, until := range q.waitingKeys {
		switch {
		case !until.After(c.now):
			delete(q.waitingKeys, key)
		case q.retry.IsZero() || until.Before(q.retry):
			q.retry = until
		}
	}
}

// dropQueue forgets the queue's rows with their holds.
func (c *Core) dropQueue(q *keyQueue) {
	for _, h := range slices.Concat(q.queue, q.asked, q.waiting) {
		c.drop(h)
	}
	*q = keyQueue{}
}
