package mapping

import (
	"slices"
	"strings"
	"unsafe"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// The sizes of an Arena's pieces. A row that is kept holds on to its pieces,
// so they are small; a piece serves dozens of rows, so an allocation per piece
// is next to none per row.
const (
	rowsPerSlab    = 64
	headersPerSlab = 128
	chunkBytes     = 32 << 10
	// ownBytes and above are allocated by themselves: a large payload shares
	// its memory with no other row, and little of a chunk is left unused.
	ownBytes = 4 << 10
	// maxTopics bounds the topic names that are shared between rows.
	maxTopics = 10_000
	// maxScratch bounds the scratch memory that is kept from row to row.
	maxScratch = 64 << 10
)

// Arena is where rows, headers and bytes are allocated, many at a time. It
// never uses memory again: the garbage collector takes a piece when no row
// points into it. The zero Arena is ready. It is not safe for concurrent use.
type Arena struct {
	// Apart gives each row memory of its own, for when few of many rows are kept for long: a piece stays for as long as
	// any of its rows does.
	Apart bool

	// The current pieces, and how much of each is given away. Cutting that off
	// instead would cost a write barrier each time.
	rows        []outbox.Row
	rowsUsed    int
	slab        []outbox.Header
	headersUsed int
	chunk       []byte
	bytesUsed   int

	topics map[string]string
	last   string // the latest topic, which the next row often has

	clock clockMemory

	// Scratch, overwritten by each row.
	joined     []byte
	converted  []byte
	decoded    []byte
	headerList []outbox.Header
}

// row gives room for a row. One with a long value stands by itself: a slab keeps
// all its rows, and what they point to, for as long as any of them is needed.
func (a *Arena) row(long bool) *outbox.Row {
	// Scratch memory that an unusual row made large is let go of.
	if cap(a.joined) > maxScratch {
		a.joined = nil
	}
	if cap(a.converted) > maxScratch {
		a.converted = nil
	}
	if cap(a.decoded) > maxScratch {
		a.decoded = nil
	}
	if cap(a.headerList) > headersPerSlab {
		a.headerList = nil
	}
	if long || a.Apart {
		return new(outbox.Row)
	}
	if a.rowsUsed == len(a.rows) {
		a.rows, a.rowsUsed = make([]outbox.Row, rowsPerSlab), 0
	}
	r := &a.rows[a.rowsUsed]
	a.rowsUsed++
	return r
}

// bytes returns n bytes, not nil. They are zero.
func (a *Arena) bytes(n int) []byte {
	if n >= ownBytes || a.Apart {
		return make([]byte, n)
	}
	if n > len(a.chunk)-a.bytesUsed || a.chunk == nil {
		a.chunk, a.bytesUsed = make([]byte, chunkBytes), 0
	}
	from := a.bytesUsed
	a.bytesUsed += n
	return a.chunk[from:a.bytesUsed:a.bytesUsed]
}

// copy returns a copy of b, not nil.
func (a *Arena) copy(b []byte) []byte {
	c := a.bytes(len(b))
	copy(c, b)
	return c
}

// headers returns a copy of list, nil when it is empty, and keeps list's
// memory as scratch.
func (a *Arena) headers(list []outbox.Header) []outbox.Header {
	a.headerList = list
	n := len(list)
	if n == 0 {
		return nil
	}
	long := func(h outbox.Header) bool { return len(h.Value) >= ownBytes } // see row
	if a.Apart || n > headersPerSlab/4 || slices.ContainsFunc(list, long) {
		return slices.Clone(list)
	}
	if n > len(a.slab)-a.headersUsed {
		a.slab, a.headersUsed = make([]outbox.Header, headersPerSlab), 0
	}
	from := a.headersUsed
	a.headersUsed += n
	h := a.slab[from:a.headersUsed:a.headersUsed]
	copy(h, list)
	return h
}

// topic returns the name as a string shared by all rows that have it, and
// whether it is legal. A name that is illegal or beyond the bound is a copy.
func (a *Arena) topic(name []byte) (topic string, legal bool) {
	if string(name) == a.last && a.last != "" {
		return a.last, true
	}
	if known, ok := a.topics[string(name)]; ok {
		a.last = known
		return known, true
	}
	if !LegalTopic(asString(name)) {
		return asString(a.copy(name)), false
	}
	if len(a.topics) >= maxTopics {
		return asString(a.copy(name)), true
	}
	if a.topics == nil {
		a.topics = make(map[string]string)
	}
	topic = string(name)
	a.topics[topic] = topic
	a.last = topic
	return topic, true
}

// asString is b without a copy. The caller makes sure that nobody writes to b
// while the string lives: arena bytes are written once, before this; other
// bytes only for a string that ends with the call it is passed to.
func asString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// LegalTopic says whether Kafka takes the name for a topic: 1 to 249 of
// [a-zA-Z0-9._-], but not "." or "..".
// https://kafka.apache.org/41/javadoc/ (org.apache.kafka.common.internals.Topic)
func LegalTopic(name string) bool {
	const legal = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	return name != "" && len(name) <= 249 && name != "." && name != ".." && strings.Trim(name, legal) == ""
}
