// Package mailbox is a queue between two goroutines of a stream. Putting never blocks, and taking takes
// everything. The queue costs one lock per batch, not per row. It does not bound its own length: the ledger
// bounds the rows and bytes in flight, and so the sender.
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

// Ready returns a channel that has a value when there may be something to take.
func (m *Mailbox[T]) Ready() <-chan struct{} { return m.signal }

// Take returns everything that was put, in order, and keeps spare for later items. It returns nil if there is
// nothing; the caller then keeps spare.
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
