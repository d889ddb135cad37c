package decoder

import (
	"iter"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Batch holds the decoded events of one or more frames, in order. It is meant to be reused: decode into it,
// range over All, then call Reset. The zero Batch is empty.
//
// A Batch has no bound of its own: after each frame, the caller checks Rows and Bytes.
type Batch struct {
	// Ignored counts changes that make no rows for the stream.
	Ignored Ignored
	// NotOurs counts, for each table, the inserted rows that the mapping leaves to another publisher.
	NotOurs []NotOurs

	events []event
	rows   []*outbox.Row
	notes  []Event // the events of all other kinds than Begin, Commit and Rows
	bytes  int
}

// Ignored counts changes that make no rows.
type Ignored struct {
	Inserts   int // into tables that are not the stream's
	Updates   int // in any table: the publication is not insert-only
	Deletes   int
	Truncates int
	Messages  int // from pg_logical_emit_message
}

// NotOurs is a table and the number of its rows that were left to another publisher.
type NotOurs struct {
	Table *outbox.Table
	Rows  int
}

// notOurs adds one row of table t to NotOurs.
func (b *Batch) notOurs(t *outbox.Table) {
	i := slices.IndexFunc(b.NotOurs, func(n NotOurs) bool { return n.Table == t })
	if i < 0 {
		i, b.NotOurs = len(b.NotOurs), append(b.NotOurs, NotOurs{Table: t})
	}
	b.NotOurs[i].Rows++
}

// Kind is the kind of an Event.
type Kind uint8

// The kinds of events.
const (
	// Begin opens a transaction. Transaction has only XID, Commit and Time.
	Begin Kind = iota + 1
	// Rows are rows of the open transaction, in order.
	Rows
	// Commit ends the open transaction: Transaction is complete.
	Commit
	// TableBroken says that the columns of Table do not fit its mapping; Err (a *mapping.Error) says why. No
	// row of the table is decoded until TableMapped.
	TableBroken
	// TableMapped says that rows of Table are decoded from here on. It also comes when a table is first
	// described on a connection.
	TableMapped
	// Passed says that Count rows of a broken Table were not decoded.
	Passed
	// Unmapped says that a row of another table was ignored, and that later ones will be too. Relation is the
	// table's OID, Name its name at that time. The table is neither one of the stream's nor a known partition
	// of one. If it is a new partition after all, do not confirm the open transaction: reconnect, and call
	// SetPartitions first.
	Unmapped
)

// Event is one decoded event. Fields that its kind does not use are zero.
type Event struct {
	Kind        Kind
	Transaction outbox.Transaction
	Rows        []*outbox.Row // the slice is valid until the batch's Reset; the rows stay valid
	Table       *outbox.Table
	Err         error
	Count       int
	Name        string
	Relation    uint32 // of Unmapped: the table's OID
}

// event is a compact form of Event. A stream of small transactions has three events per row, so their size
// matters.
type event struct {
	kind     Kind
	xid      uint32
	commit   outbox.LSN
	end      outbox.LSN
	time     int64
	from, to int // for Rows: a range of Batch.rows; otherwise from is an index of Batch.notes
}

// All iterates over the events in order.
func (b *Batch) All() iter.Seq[Event] {
	return func(yield func(Event) bool) {
		for i := range b.events {
			if !yield(b.at(&b.events[i])) {
				return
			}
		}
	}
}

func (b *Batch) at(e *event) Event {
	switch e.kind {
	case Begin, Commit:
		return Event{Kind: e.kind, Transaction: outbox.Transaction{XID: e.xid, Commit: e.commit, End: e.end, Time: e.time}}
	case Rows:
		return Event{Kind: Rows, Rows: b.rows[e.from:e.to:e.to]}
	}
	return b.notes[e.from]
}

// Empty reports whether the batch has no events.
func (b *Batch) Empty() bool { return len(b.events) == 0 }

// Rows is the number of rows in the batch.
func (b *Batch) Rows() int { return len(b.rows) }

// Bytes is the memory in bytes that the batch holds: the rows, each by outbox.Row.Size, and the events. The
// events count because transactions without rows would otherwise have no bound.
func (b *Batch) Bytes() int {
	return b.bytes + len(b.events)*eventBytes + len(b.notes)*noteBytes
}

const (
	eventBytes = 48
	noteBytes  = 120
)

// Reset empties the batch and keeps its memory for the next use. Rows that it gave out stay valid.
func (b *Batch) Reset() {
	clear(b.rows) // so that the rows can be freed
	b.events, b.rows, b.notes = b.events[:0], b.rows[:0], b.notes[:0]
	b.bytes = 0
	b.Ignored, b.NotOurs = Ignored{}, b.NotOurs[:0]
}

// row appends a row to the batch's last event if that has Rows, and otherwise begins such an event.
func (b *Batch) row(r *outbox.Row) {
	b.rows = append(b.rows, r)
	b.bytes += r.Size()
	if n := len(b.events); n > 0 && b.events[n-1].kind == Rows {
		b.events[n-1].to++
		return
	}
	b.events = append(b.events, event{kind: Rows, from: len(b.rows) - 1, to: len(b.rows)})
}

func (b *Batch) passed(t *outbox.Table) {
	if n := len(b.events); n > 0 && b.events[n-1].kind == Passed {
		if last := &b.notes[b.events[n-1].from]; last.Table == t {
			last.Count++
			return
		}
	}
	b.note(Event{Kind: Passed, Table: t, Count: 1})
}

func (b *Batch) note(e Event) {
	b.events = append(b.events, event{kind: e.Kind, from: len(b.notes)})
	b.notes = append(b.notes, e)
}

// Broken iterates over the TableBroken events. The caller may add to their errors.
func (b *Batch) Broken() iter.Seq[*Event] {
	return func(yield func(*Event) bool) {
		for i := range b.notes {
			if b.notes[i].Kind == TableBroken && !yield(&b.notes[i]) {
				return
			}
		}
	}
}
