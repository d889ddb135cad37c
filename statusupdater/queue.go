package statusupdater

import (
	"slices"
	"sync"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

const (
	// A second worker takes from a queue only when half a batch waits, or when the oldest mark has waited
	// this long. One connection with large statements costs the database less than several with small ones.
	// But a connection that waits for a lock must not hold up the other marks.
	secondWorkerAfter = 20 * time.Millisecond
	// slowFor is how long a table counts as slow after one of its statements hung.
	slowFor = time.Minute
)

// markGroup identifies marks that can share a statement.
type markGroup struct {
	table *outbox.Table
	kind  outbox.MarkKind
	free  bool // skip rows that other sessions have locked
	// suspect marks rows that may have made their statement fail, or that were refused before. They are tried
	// apart from other rows.
	suspect bool
	way     way // of marks of success, with exactly-once delivery
}

// markQueue is the queue of marks with one key.
type markQueue struct {
	key   markGroup
	items []*item
	since time.Time // when the first of items was queued
	busy  int       // workers that hold a batch of this queue
}

type item struct {
	mark outbox.Mark
	// expected, for an attempt, is the stored count that the statement raises. It is kept after an unknown
	// outcome, to tell whether the attempt was written.
	expected int64
	aside    int  // how often the item was set aside
	strikes  int  // how often a statement for this row alone failed in a way that the row may have caused
	most     int  // largest batch that this item may be in; 0: any size
	unsure   bool // the outcome of a statement with this item is unknown
	broke    bool // the connection broke during its statement, for whatever cause
}

// batch is the marks that a worker takes at once.
type batch struct {
	key   markGroup
	items []*item
	slow  bool // its statements may hang
}

// queue hands marks to workers. Each mark is held by one worker at a time, so workers do not wait for one
// another's row locks. A batch is a run of rows from the WAL, so workers seldom write to the same page.
//
// A trigger can make a table's statements slow, so no table gets all workers: one is reserved for other
// tables, and one for tables that are not slow. A reserved worker stays idle while only one table has marks.
// It cannot be lent while that table is fast: slow statements begin together, and once the first is known to
// hang, no worker would be left.
type queue struct {
	mu       sync.Mutex
	wake     *sync.Cond
	rows     int // most rows of a batch
	workers  int
	perTable int // most workers for one table
	queues   map[markGroup]*markQueue
	ready    []*markQueue // queues with items; the first is served next
	closed   bool

	busy     map[*outbox.Table]int // number of busy workers by table
	suspects int                   // workers that hold a batch of suspects
	hung     map[*outbox.Table]time.Time
}

func newQueue(rows, workers, tables int) *queue {
	q := &queue{
		rows: rows, workers: workers, perTable: workers, queues: make(map[markGroup]*markQueue),
		busy: make(map[*outbox.Table]int), hung: make(map[*outbox.Table]time.Time),
	}
	if tables > 1 {
		q.perTable = max(1, workers-1)
	}
	q.wake = sync.NewCond(&q.mu)
	return q
}

func (q *queue) put(marks []outbox.Mark) {
	items := make([]item, len(marks)) // all in one allocation
	q.mu.Lock()
	defer q.mu.Unlock()
	var mq *markQueue
	for i := range marks {
		items[i].mark = marks[i]
		key := markGroup{table: marks[i].Row.Table, kind: marks[i].Kind, suspect: marks[i].Refused, way: wayOf(&marks[i])}
		key.free = key.way == ofLeft
		if mq == nil || mq.key != key {
			mq = q.of(key)
			mq.items = slices.Grow(mq.items, len(marks)-i)
		}
		q.add(mq, &items[i])
	}
	q.wake.Broadcast()
}

// putBack queues items again.
func (q *queue) putBack(key markGroup, items []*item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	mq := q.of(key)
	for _, it := range items {
		q.add(mq, it)
	}
	q.wake.Broadcast()
}

func (q *queue) tellHung(table *outbox.Table) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.hung[table] = time.Now()
}

func (q *queue) of(key markGroup) *markQueue {
	mq := q.queues[key]
	if mq == nil {
		mq = &markQueue{key: key}
		q.queues[key] = mq
	}
	return mq
}

func (q *queue) add(mq *markQueue, it *item) {
	if len(mq.items) == 0 {
		mq.since = time.Now()
		q.ready = append(q.ready, mq)
	}
	mq.items = append(mq.items, it)
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.wake.Broadcast()
}

// take waits for a batch. false: the queue was closed. The worker calls done when it has finished the batch.
func (q *queue) take() (batch, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed {
		now := time.Now()
		mq, wait := q.next(now)
		if mq != nil {
			return q.cut(mq, now), true
		}
		q.sleep(wait)
	}
	return batch{}, false
}

// sleep waits for a change, at most for the limit; 0: without a limit.
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

// next returns the queue to serve, or nil and how long to wait for one.
func (q *queue) next(now time.Time) (*markQueue, time.Duration) {
	var wait time.Duration
	for _, mq := range q.ready {
		if !q.admits(mq.key, now) {
			continue
		}
		waited := now.Sub(mq.since)
		if mq.busy == 0 || len(mq.items) >= q.rows/2 || waited >= secondWorkerAfter {
			return mq, 0
		}
		if left := secondWorkerAfter - waited; wait == 0 || left < wait {
			wait = left
		}
	}
	return nil, wait
}

// admits reports whether the queue may have another worker.
func (q *queue) admits(key markGroup, now time.Time) bool {
	switch {
	case q.workers == 1:
		return true
	case key.suspect && q.suspects > 0, q.isSlow(key, now) && q.slowWorkers(now) >= q.workers-1:
		return false
	}
	return q.busy[key.table] < q.perTable
}

// isSlow reports whether a statement of the queue must be expected to hang.
func (q *queue) isSlow(key markGroup, now time.Time) bool {
	return key.suspect || q.hungLately(key.table, now)
}

func (q *queue) hungLately(table *outbox.Table, now time.Time) bool {
	at, hung := q.hung[table]
	return hung && now.Sub(at) < slowFor
}

// slowWorkers counts the workers that hold a batch of a slow table, including those that took it before the
// table was slow.
func (q *queue) slowWorkers(now time.Time) int {
	n := 0
	for table := range q.hung {
		if q.hungLately(table, now) {
			n += q.busy[table]
		}
	}
	return n
}

// cut takes a batch from the queue, and moves the queue to the end of ready.
func (q *queue) cut(mq *markQueue, now time.Time) batch {
	n := mq.batch(q.rows)
	b := batch{key: mq.key, items: mq.items[:n:n], slow: q.isSlow(mq.key, now)}
	mq.items = mq.items[n:]
	if len(mq.items) == 0 {
		mq.items = nil
	}
	mq.since = now
	q.count(mq, b, 1)
	q.ready = slices.DeleteFunc(q.ready, func(other *markQueue) bool { return other == mq })
	if len(mq.items) > 0 {
		q.ready = append(q.ready, mq)
	}
	return b
}

// batch returns how many of the first items may form the next batch.
func (mq *markQueue) batch(rows int) int {
	if mq.key.way == ofUnit {
		return wholeUnits(mq.items, rows)
	}
	for n, it := range mq.items {
		if it.most > 0 {
			rows = min(rows, it.most)
		}
		if n >= rows {
			return n
		}
	}
	return len(mq.items)
}

// count changes by the given number how many workers hold a batch of the queue.
func (q *queue) count(mq *markQueue, b batch, by int) {
	mq.busy += by
	q.busy[b.key.table] += by
	if b.key.suspect {
		q.suspects += by
	}
}

func (q *queue) done(b batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.count(q.queues[b.key], b, -1)
	q.wake.Broadcast()
}
