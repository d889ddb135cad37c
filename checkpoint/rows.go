package checkpoint

import (
	"iter"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// state is the state of a row in memory.
type state uint8

const (
	unused  state = iota
	kept          // just added, or kept by the gate
	queued        // waiting for a look, before it goes to the sink
	inSink        // handed to the sink; no outcome yet
	acked         // delivered; its mark is outstanding
	attempt       // refused; the mark of its attempt is outstanding
)

// entry is one row in memory.
type entry struct {
	row   *outbox.Row
	state state
	size  int
	// tx is the number of the transaction that the row holds, or noTx.
	tx         int64
	carried    bool              // the row is from an earlier connection
	hb         *handback         // the hand-back that waits until the row has left memory, or nil
	awaits     *park             // the park that waits for the sink's answer to the row, or nil
	prev, next uint32            // neighbours in the list of rows in flight; next also links free entries
	reason     string            // in state attempt: the text of the error
	uncharged  bool              // in state attempt: the error is not counted
	spends     bool              // in state attempt: it uses up the row's budget
	unmarked   bool              // the last mark was refused together with the table's other marks
	once       bool              // delivered exactly once: the answer to its first mark means that its unit is noted
	stale      bool              // in state inSink: the sink has asked for the row's present state
	looked     bool              // in state inSink: the sink was told the row's present state
	grown      int               // in state inSink: bytes that looks have added to the row
	found      outbox.CheckState // in state inSink: the result of a look because of which the row leaves the sink unsent, or 0
	arrival    uint64            // place in the order in which rows came into memory
	page       *pageRequest      // the page that brought the row; nil: the WAL brought it
	due        time.Time         // in state queued: the time from which it may be looked at
	look       bool              // in state queued: the row itself is to be looked at; otherwise it waits only behind such rows
	claim      *claim            // the claim that holds the row's lock, or nil
}

// awaitedBy makes the hand-back wait until the row has left memory.
func (e *entry) awaitedBy(h *handback) {
	e.hb = h
	h.outstanding++
}

// rowTable holds the rows in memory, and counts them.
type rowTable struct {
	// entries[1:] are the rows; free ones are linked by next. Those in flight (every state but kept) form a
	// list: head is the latest, and the list ends at entries[0]. The row before that has been in flight for
	// longest.
	entries []entry
	free    uint32
	head    uint32

	count, bytes int
	published    int // size of the rows in the sink and behind it, in bytes
	grown        int // of these, bytes that looks have added
	queued       int // number of rows in state queued
	inFlight     int
	arrivals     uint64
	// byID has the rows in flight from an earlier connection, which the WAL may bring again. Looks leave
	// their ids unchanged.
	byID map[rowID]uint32
}

// rowID identifies a row. created distinguishes rows with the same id, where the table has such a column.
type rowID struct {
	table   *outbox.Table
	id      string
	created int64
}

func idOf(r *outbox.Row) rowID { return rowID{r.Table, r.ID, r.CreatedAt} }

func (t *rowTable) add(r *outbox.Row, tx int64) uint32 {
	h := t.free
	if h == 0 {
		t.entries = append(t.entries, entry{})
		h = uint32(len(t.entries) - 1)
	} else {
		t.free = t.entries[h].next
	}
	t.entries[h] = entry{row: r, state: kept, size: r.Size(), tx: tx}
	t.arrive(h)
	r.Handle = h
	t.count++
	t.bytes += t.entries[h].size
	return h
}

// arrive makes the row the last in the order of coming into memory.
func (t *rowTable) arrive(h uint32) {
	t.arrivals++
	t.entries[h].arrival = t.arrivals
}

// resized updates the counts after a look has changed the row's size.
func (t *rowTable) resized(h uint32) {
	e := &t.entries[h]
	was := e.size
	e.size = e.row.Size()
	t.bytes += e.size - was
	if e.state >= inSink {
		t.published += e.size - was
		t.grown += e.size - was
		e.grown += e.size - was
	}
}

// fly sets the row's state, and puts it in flight if it was not.
func (t *rowTable) fly(h uint32, s state) {
	e := &t.entries[h]
	if e.state == kept {
		e.prev, e.next = 0, t.head
		t.entries[t.head].prev = h
		t.head = h
		t.inFlight++
	}
	if e.state < inSink && s >= inSink {
		t.published += e.size
	}
	if e.state == queued {
		t.queued--
	}
	if s == queued {
		t.queued++
	}
	e.state = s
}

func (t *rowTable) flying() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for h := t.head; h != 0; h = t.entries[h].next {
			if !yield(&t.entries[h]) {
				return
			}
		}
	}
}

// carry keeps the rows in flight for a new connection. They hold none of its transactions until the WAL
// brings them again.
func (t *rowTable) carry() {
	for e := range t.flying() {
		e.tx, e.carried = noTx, true
		t.byID[idOf(e.row)] = e.row.Handle
	}
}

func (t *rowTable) remove(h uint32) {
	e := &t.entries[h]
	if e.state != kept { // in flight
		if e.prev == 0 {
			t.head = e.next
		} else {
			t.entries[e.prev].next = e.next
		}
		t.entries[e.next].prev = e.prev
		t.inFlight--
	}
	if e.carried {
		delete(t.byID, idOf(e.row))
	}
	switch {
	case e.state >= inSink:
		t.published -= e.size
		t.grown -= e.grown
	case e.state == queued:
		t.queued--
	}
	t.count--
	t.bytes -= e.size
	*e = entry{next: t.free}
	t.free = h
}

// ids returns the ids of the rows in flight, by table.
func (t *rowTable) ids() map[*outbox.Table][]string {
	ids := map[*outbox.Table][]string{}
	for e := range t.flying() {
		ids[e.row.Table] = append(ids[e.row.Table], e.row.ID)
	}
	return ids
}

// answered ends a park's wait for this row.
func (c *Core) answered(e *entry) {
	if e.awaits != nil {
		e.awaits.awaiting--
		e.awaits = nil
	}
}
