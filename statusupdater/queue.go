package statusupdater

import (
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// A second worker takes of a lane only when half a batch waits, or when its
// oldest mark has waited for this long: one connection with larger statements
// is cheaper for the database than several with small ones, and a connection
// that waits for a lock must not hold up the rest.
const patience = 20 * time.Millisecond

// laneKey says which marks can share a statement.
type laneKey struct {
	table *outbox.Table
	kind  outbox.MarkKind
	free  bool // only rows that nobody has locked
}

// lane is the queue of one kind of mark for one table.
type lane struct {
	key   laneKey
	items []*item
	since time.Time // when the first of items came
	busy  int       // workers that have a batch of it
}

// item is one mark on its way.
type item struct {
	mark outbox.Mark
	// Of an attempt: the count that it is charged to. After an
	// unknown outcome it stays what it was, to tell by it whether the attempt
	// was written.
	expected int64
	unsure   bool
	aside    int // how often it was set aside
	raised   int // how often a trigger failed with an error that passes
}

// batch is what a worker takes at once.
type batch struct {
	key   laneKey
	items []*item
}

// queue hands marks to workers. Every mark is with one worker at a time, so
// workers do not wait for one another's row locks, and a batch is a run of the
// log, so they seldom touch the same page.
type queue struct {
	mu     sync.Mutex
	wake   *sync.Cond
	rows   int // of a batch
	lanes  map[laneKey]*lane
	turns  []*lane // lanes with items, the next to be served first
	closed bool
}

func newQueue(rows int) *queue {
	q := &queue{rows: rows, lanes: make(map[laneKey]*lane)}
	q.wake = sync.NewCond(&q.mu)
	return q
}

func (q *queue) put(marks []outbox.Mark) {
	items := make([]item, len(marks)) // one allocation
	q.mu.Lock()
	defer q.mu.Unlock()
	var l *lane
	for i := range marks {
		items[i].mark = marks[i]
		key := laneKey{table: marks[i].Row.Table, kind: marks[i].Kind}
		if l == nil || l.key != key {
			l = q.lane(key)
		}
		q.add(l, &items[i])
	}
	q.wake.Broadcast()
}

// putBack queues items again, to be tried where nobody has them locked.
func (q *queue) putBack(key laneKey, items []*item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lane(key)
	for _, it := range items {
		q.add(l, it)
	}
	q.wake.Broadcast()
}

func (q *queue) lane(key laneKey) *lane {
	l := q.lanes[key]
	if l == nil {
		l = &lane{key: key}
		q.lanes[key] = l
	}
	return l
}

func (q *queue) add(l *lane, it *item) {
	if len(l.items) == 0 {
		l.since = time.Now()
		q.turns = append(q.turns, l)
	}
	l.items = append(l.items, it)
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.wake.Broadcast()
}

// take waits for a batch; false: the queue was closed. The worker tells done
// when it has dealt with the batch.
func (q *queue) take() (batch, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed {
		l, wait := q.next(time.Now())
		if l != nil {
			return q.cut(l), true
		}
		q.sleep(wait)
	}
	return batch{}, false
}

// sleep waits for a change, at most as long as said; 0: without limit.
func (q *queue) sleep(limit time.Duration) {
	if limit > 0 {
		timer := time.AfterFunc(limit, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.wake.Broadcast()
		})
		defer timer.Stop()
	}
	q.wake.Wait()
}

// next is the lane to be served, or how long to wait for one.
func (q *queue) next(now time.Time) (*lane, time.Duration) {
	var wait time.Duration
	for _, l := range q.turns {
		waited := now.Sub(l.since)
		if l.busy == 0 || len(l.items) >= q.rows/2 || waited >= patience {
			return l, 0
		}
		if left := patience - waited; wait == 0 || left < wait {
			wait = left
		}
	}
	return nil, wait
}

// cut takes a batch of the lane, which goes to the end of the turns.
func (q *queue) cut(l *lane) batch {
	n := min(len(l.items), q.rows)
	b := batch{key: l.key, items: l.items[:n:n]}
	l.items = l.items[n:]
	if len(l.items) == 0 {
		l.items = nil
	}
	l.busy++
	l.since = time.Now()
	q.requeue(l)
	return b
}

func (q *queue) requeue(l *lane) {
	for i := range q.turns {
		if q.turns[i] == l {
			q.turns = append(q.turns[:i], q.turns[i+1:]...)
			break
		}
	}
	if len(l.items) > 0 {
		q.turns = append(q.turns, l)
	}
}

func (q *queue) done(key laneKey) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lanes[key].busy--
	q.wake.Broadcast()
}
