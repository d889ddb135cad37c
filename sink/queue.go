package sink

import "github.com/outbox-cdc/outbox-cdc/internal/outbox"

// queue holds rows that wait, first in first out. Rows can be put back at the
// front, which is where a split or withdrawn batch goes.
type queue struct {
	rows []*outbox.Row
	head int // rows before it are gone
}

func (q *queue) len() int { return len(q.rows) - q.head }

func (q *queue) push(r *outbox.Row) { q.rows = append(q.rows, r) }

// peek is what waits, in order. It is valid until the queue changes.
func (q *queue) peek() []*outbox.Row { return q.rows[q.head:] }

// drop forgets the first n rows.
func (q *queue) drop(n int) {
	clear(q.rows[q.head : q.head+n])
	q.head += n
	switch {
	case q.head == len(q.rows):
		q.rows, q.head = q.rows[:0], 0
	case q.head > len(q.rows)/2 && q.head > 1024:
		rest := copy(q.rows, q.rows[q.head:])
		clear(q.rows[rest:])
		q.rows, q.head = q.rows[:rest], 0
	}
}

// unshift puts rows before everything else.
func (q *queue) unshift(rows []*outbox.Row) {
	if len(rows) <= q.head {
		q.head -= len(rows)
		copy(q.rows[q.head:], rows)
		return
	}
	all := make([]*outbox.Row, 0, len(rows)+q.len())
	q.rows, q.head = append(append(all, rows...), q.peek()...), 0
}

// takeAll empties the queue; the rows are the caller's.
func (q *queue) takeAll() []*outbox.Row {
	rows := q.peek()
	q.rows, q.head = nil, 0
	return rows
}

// replace puts rows in place of those that are stale, and gives back those for which there is nil.
func (q *queue) replace(now map[*outbox.Row]*outbox.Row, since uint32) (out []*outbox.Row) {
	kept := q.rows[:q.head]
	for _, r := range q.peek() {
		if r.Stale {
			if as, is := now[r]; is && as == nil {
				out = append(out, r)
				continue
			} else if is {
				as.Since = since
				r = as
			}
		}
		kept = append(kept, r)
	}
	clear(q.rows[len(kept):])
	q.rows = kept
	return out
}

// extract takes out the rows that are wanted, keeping order on both sides.
func (q *queue) extract(wanted func(*outbox.Row) bool) []*outbox.Row {
	var out []*outbox.Row
	kept := q.rows[:q.head]
	for _, r := range q.peek() {
		if wanted(r) {
			out = append(out, r)
		} else {
			kept = append(kept, r)
		}
	}
	clear(q.rows[len(kept):])
	q.rows = kept
	return out
}
