// Package mailbox is the queue between two goroutines of a stream: putting
// never blocks, taking takes all. It costs one lock per batch, not per row.
// It never bounds its length: the sender is bounded by the ledger, which
// limits rows and bytes in flight.
package mailbox

import "sync"

// Mailbox is a queue of T. Use New.
type Mailbox[T any] struct {
	mu     sync.Mutex
	items  []T
	signal chan struct{}
}

// New returns an empty mailbox.
func New[T any]() *Mailbox[T] { return &Mailbox[T]{signal: make(chan struct{}, 1)} }

// Put appends items in order and wakes the taker. It never blocks.
func (m *Mailbox[T]) Put(items ...T) {
	if len(items) == 0 {
		return
	}
	m.mu.Lock()
	m.items = append(m.items, items...)
	m.mu.Unlock()
	select {
	case m.signal <- struct{}{}:
	default:
	}
}

// Ready has a value when there may be something to take.
func (m *Mailbox[T]) Ready() <-chan struct{} { return m.signal }

// Take returns everything put so far, in order, and reuses spare for what
// comes next. It returns nil when there is nothing, and spare stays the taker's.
func (m *Mailbox[T]) Take(spare []T) []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.items) == 0 {
		return nil
	}
	taken := m.items
	clear(spare[:cap(spare)])
	m.items = spare[:0]
	return taken
}
