package decoder

import (
	"iter"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Batch is what frames meant, in their order. It is made to be used again:
// decode into it, go through All, Reset. The zero Batch is empty.
//
// It has no bound of its own: the caller looks at Rows and Bytes
// after each frame.
type Batch struct {
	// Ignored counts what is of no concern to the stream.
	Ignored Ignored
	// NotOurs counts inserts of rows that the mapping leaves to others, by their tables.
	NotOurs []NotOurs

	events []event
	rows   []*outbox.Row
	notes  []Event // the rare ones
	bytes  int
}

// Ignored counts changes that make no rows.
type Ignored struct {
	Inserts   int // of tables that are not the stream's
	Updates   int // of any table: the publication is not insert-only
	Deletes   int
	Truncates int
	Messages  int // of pg_logical_emit_message
}

// NotOurs is a count of rows of a table.
type NotOurs struct {
	Table *outbox.Table
	Rows  int
}

// notOurs counts a row.
func (b *Batch) notOurs(t *outbox.Table) {
	i := slices.IndexFunc(b.NotOurs, func(n NotOurs) bool { return n.Table == t })
	if i < 0 {
		i, b.NotOurs = len(b.NotOurs), append(b.NotOurs, NotOurs{Table: t})
	}
	b.NotOurs[i].Rows++
}

// Kind is what an Event says.
type Kind uint8

// The kinds of events.
const (
	// Begin opens a transaction: Transaction has XID and Commit.
	Begin Kind = iota + 1
	// Rows are rows of the open transaction, in order.
	Rows
	// Commit ends the open transaction: Transaction is complete.
	Commit
	// TableBroken says that from here on no row of Table is mapped, because of
	// Err (a *mapping.Error), until TableMapped.
	TableBroken
	// TableMapped says that rows of Table are mapped from here on. It also
	// comes when a table is first described on a connection.
	TableMapped
	// Passed says that Count rows of Table, which is broken, were passed over.
	Passed
	// Unmapped says that a row of Relation, then called Name, was ignored, as further ones
	// will be: it is none of the stream's tables or known partitions. If it is a partition of
	// one, the open transaction must not be confirmed: reconnect with SetPartitions.
	Unmapped
)

// Event is one thing that frames meant. Fields that a kind does not use are
// zero.
type Event struct {
	Kind        Kind
	Transaction outbox.Transaction
	Rows        []*outbox.Row // valid until the batch's Reset, the rows themselves for ever
	Table       *outbox.Table
	Err         error
	Count       int
	Name        string
	Relation    uint32 // the OID of Unmapped
}

// event is an Event in little memory, since small transactions make three per
// row.
type event struct {
	kind     Kind
	xid      uint32
	commit   outbox.LSN
	end      outbox.LSN
	time     int64
	from, to int // of rows, or from: of notes
}

// All goes through the events in order.
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

// Empty says that there are no events.
func (b *Batch) Empty() bool { return len(b.events) == 0 }

// Rows is how many rows the batch holds.
func (b *Batch) Rows() int { return len(b.rows) }

// Bytes is the memory that the batch holds: its rows as outbox.Row.Size counts
// it, and its events, since transactions without rows have no other bound.
func (b *Batch) Bytes() int {
	return b.bytes + len(b.events)*eventBytes + len(b.notes)*noteBytes
}

const (
	eventBytes = 48
	noteBytes  = 120
)

// Reset empties the batch and keeps its memory. Rows stay valid.
func (b *Batch) Reset() {
	clear(b.rows) // or they would stay alive
	b.events, b.rows, b.notes = b.events[:0], b.rows[:0], b.notes[:0]
	b.bytes = 0
	b.Ignored, b.NotOurs = Ignored{}, b.NotOurs[:0]
}

// row lengthens the run of rows that the batch ends with, or begins one.
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

// Broken goes through the events that say that a table is broken, so that more can be said in their errors.
func (b *Batch) Broken() iter.Seq[*Event] {
	return func(yield func(*Event) bool) {
		for i := range b.notes {
			if b.notes[i].Kind == TableBroken && !yield(&b.notes[i]) {
				return
			}
		}
	}
}
