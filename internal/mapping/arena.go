package mapping

import (
	"slices"
	"strings"
	"unsafe"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// The sizes of an Arena's pieces. A row keeps the pieces that it lies in alive, so pieces are small. A piece
// serves dozens of rows, so that allocating a piece costs almost nothing per row.
const (
	rowsPerSlab    = 64
	headersPerSlab = 128
	chunkBytes     = 32 << 10
	// Values of ownBytes or more are allocated by themselves. So a large payload shares its memory with no
	// other row, and little of a chunk stays unused.
	ownBytes = 4 << 10
	// maxTopics is how many topic names are shared between rows.
	maxTopics = 10_000
	// maxScratch is the most scratch memory in bytes that is kept from row to row.
	maxScratch = 64 << 10
)

// Arena allocates rows, headers and bytes, many at a time. It never reuses memory: the garbage collector
// frees a piece when no row points into it. The zero Arena is ready. An Arena is not safe for concurrent use.
type Arena struct {
	// Apart gives each row memory of its own. It is for the case that few of many rows are kept for long: a
	// shared piece lives as long as any row in it.
	Apart bool

	// The present pieces, and how much of each is used. Reslicing them instead would cost a write barrier
	// each time.
	rows        []outbox.Row
	rowsUsed    int
	slab        []outbox.Header
	headersUsed int
	chunk       []byte
	bytesUsed   int

	topics map[string]string
	last   string // the topic of the latest row; the next row often has the same

	clock clockMemory

	// Scratch memory, overwritten by each row.
	joined     []byte
	converted  []byte
	decoded    []byte
	headerList []outbox.Header
}

// row allocates a row. A row with a long value is allocated by itself: a slab keeps all its rows, and
// everything that they point to, as long as any row in it is in use.
func (a *Arena) row(long bool) *outbox.Row {
	// Scratch memory that an unusual row has made large is released.
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

// bytes returns n zero bytes, never nil.
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

// copy returns a copy of b, never nil.
func (a *Arena) copy(b []byte) []byte {
	c := a.bytes(len(b))
	copy(c, b)
	return c
}

// headers returns a copy of list, or nil if list is empty. It keeps list's memory as scratch.
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

// topic returns the name as a string that all rows with this topic share, and whether the name is legal. A
// name that is illegal, or that is new when maxTopics are shared already, is copied.
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

// asString returns b as a string without copying. Nobody may write to b while the string is in use. Arena
// bytes are written only once, before this call. Other bytes may be passed only if the string is not used
// after the call that it is passed to.
func asString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// LegalTopic reports whether Kafka accepts the name for a topic: 1 to 249 characters of [a-zA-Z0-9._-], but
// not "." or "..". https://kafka.apache.org/41/javadoc/ (org.apache.kafka.common.internals.Topic)
func LegalTopic(name string) bool {
	const legal = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	return name != "" && len(name) <= 249 && name != "." && name != ".." && strings.Trim(name, legal) == ""
}
