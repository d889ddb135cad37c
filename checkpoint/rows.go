package checkpoint

import (
	"iter"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// state is what became of a row in memory.
type state uint8

const (
	unused  state = iota
	kept          // just added, or behind the gate
	queued        // to be looked at before it goes to the sink
	inSink        // handed to the sink, not answered
	acked         // delivered, its mark outstanding
	attempt       // refused, the mark of its attempt outstanding
)

// entry is one row in memory.
type entry struct {
	row   *outbox.Row
	state state
	size  int
	// tx is the hold on a transaction, or noTx.
	tx         int64
	carried    bool              // from an earlier connection
	hb         *handback         // the hand-back that waits until the row has left memory, or nil
	awaits     *park             // the park that waits for the sink's answer to the row, or nil
	prev, next uint32            // in flight; next also links free entries
	reason     string            // of attempt: the error's text
	uncharged  bool              // of attempt: the error is not to be counted
	spends     bool              // of attempt: it uses up the row's budget
	unmarked   bool              // its last mark was refused with those of its table
	once       bool              // delivered exactly once: its unit is noted with its first mark's answer
	stale      bool              // of inSink: the sink has asked what the row is now
	looked     bool              // of inSink: the sink was told what the row is now
	grown      int               // of inSink: bytes that a look has added
	found      outbox.CheckState // of inSink: what a look saw that has the row leave the sink unsent, or 0
	arrival    uint64            // the order of coming into memory
	page       *pageRequest      // that brought the row, or nil: the WAL did
	due        time.Time         // of queued: when it may be looked at
	look       bool              // of queued: it is to be looked at; otherwise it only waits behind such rows
	claim      *claim            // that holds the row's lock, or nil
}

// awaitedBy makes the hand-back wait until the row has left memory.
func (e *entry) awaitedBy(h *handback) {
	e.hb = h
	h.outstanding++
}

// rowTable holds the rows in memory. Its counts are those of its entries.
type rowTable struct {
	// entries[1:] are the rows; free ones are linked by next. Those in flight (every
	// state but kept) form a list from head, which ends at entries[0]: before that is the one
	// that has been in flight for longest.
	entries []entry
	free    uint32
	head    uint32

	count, bytes int
	published    int // bytes of those that went to the sink
	grown        int // bytes that looks have added to those
	queued       int // rows in that state
	inFlight     int
	arrivals     uint64
	// byID are the rows in flight from an earlier connection, which the WAL may bring again. No look changes their ids.
	byID map[rowID]uint32
}

// rowID identifies a row. created, where the table has it, tells rows with one id apart.
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

// arrive puts a row last in the order of coming into memory.
func (t *rowTable) arrive(h uint32) {
	t.arrivals++
	t.entries[h].arrival = t.arrivals
}

// resized counts what a look has added to a row.
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

// fly puts an entry among those in flight.
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

// carry keeps the rows in flight for a new connection, whose ledger does not hold
// them until the WAL brings them again.
func (t *rowTable) carry() {
	for e := range t.flying() {
		e.tx, e.carried = noTx, true
		t.byID[idOf(e.row)] = e.row.Handle
	}
}

func (t *rowTable) remove(h uint32) {
	e := &t.entries[h]
	if e.state != kept { // it is in flight
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

// ids of the rows in flight, by table.
func (t *rowTable) ids() map[*outbox.Table][]string {
	ids := map[*outbox.Table][]string{}
	for e := range t.flying() {
		ids[e.row.Table] = append(ids[e.row.Table], e.row.ID)
	}
	return ids
}

// answered ends the wait for the sink's answer.
func (c *Core) answered(e *entry) {
	if e.awaits != nil {
		e.awaits.awaiting--
		e.awaits = nil
	}
}
