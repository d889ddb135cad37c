package checkpoint

import (
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// keyQueue holds rows in memory that are looked at before they go on. The rows of one key leave it in the
// order in which they came.
type keyQueue struct {
	queue []uint32
	// asked are the rows that are being looked at. waiting are rows that are not visible yet or that
	// another relay has, with the later rows of their keys. Each waits until its key's time in waitingKeys.
	asked       []uint32
	waiting     []uint32
	waitingKeys map[outbox.Scope]time.Time
	retry       time.Time // the earliest of waitingKeys
}

// wait lets the row wait, and with it the rows of its key that follow. A key that waits already keeps its
// time.
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

// waits reports whether an earlier row of the row's key waits.
func (q *keyQueue) waits(r *outbox.Row) bool {
	if len(q.waitingKeys) == 0 {
		return false // the usual case: no key is built
	}
	_, waits := q.waitingKeys[outbox.KeyScope(r)]
	return waits
}

// resume puts rows whose keys have waited long enough back at the front of the queue.
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

// dropQueue forgets the queue's rows, and their holds with them.
func (c *Core) dropQueue(q *keyQueue) {
	for _, h := range slices.Concat(q.queue, q.asked, q.waiting) {
		c.drop(h)
	}
	*q = keyQueue{}
}
