package sink

import "github.com/outbox-cdc/outbox-cdc/internal/outbox"

// queue holds waiting rows, first in first out. The rows of a split or recalled batch are put back at the
// front.
type queue struct {
	rows []*outbox.Row
	head int // the rows before it have left
}

func (q *queue) len() int { return len(q.rows) - q.head }

func (q *queue) push(r *outbox.Row) { q.rows = append(q.rows, r) }

// peek returns the waiting rows, in order. The slice is valid until the queue changes.
func (q *queue) peek() []*outbox.Row { return q.rows[q.head:] }

// drop removes the first n rows.
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

// unshift puts rows in front of all others.
func (q *queue) unshift(rows []*outbox.Row) {
	if len(rows) <= q.head {
		q.head -= len(rows)
		copy(q.rows[q.head:], rows)
		return
	}
	all := make([]*outbox.Row, 0, len(rows)+q.len())
	q.rows, q.head = append(append(all, rows...), q.peek()...), 0
}

// takeAll empties the queue and returns its rows.
func (q *queue) takeAll() []*outbox.Row {
	rows := q.peek()
	q.rows, q.head = nil, 0
	return rows
}

// replace replaces stale rows by the rows given for them. It removes and returns those for which nil is
// given.
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

// extract removes and returns the wanted rows. Both parts keep their order.
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
