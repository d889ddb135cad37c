// Package decoder reads pgoutput, the message format of PostgreSQL's logical replication. It appends the
// events that matter for the stream's outbox tables to a Batch: transactions, rows, and tables whose columns
// do not fit their mapping. The pipeline's WAL reader calls it with each frame (the WALData of an XLogData
// message) in the order received.
//
// The package is pure: no I/O, no clock, no goroutine. A message that it does not understand is never
// skipped. It is an *Error, and nothing more is decoded until Reset. No input makes the decoder panic, and it
// keeps no part of a frame.
//
// The format: https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html of protocol
// versions 1 and 2, without streaming of transactions in progress.
package decoder

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/internal/charset"
	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Bounds on how many relations and types one connection can make a Decoder remember.
const (
	maxRelations = 1 << 20
	maxTypes     = 1 << 20
)

// maxCommit is larger than any commit record in the WAL, in bytes: PostgreSQL writes no record of 1 GiB.
const maxCommit = 2 << 30

// Decoder is the state of one replication connection. It is not safe for
// concurrent use.
type Decoder struct {
	tables map[name]*outbox.Table   // as configured
	leaves map[string]*outbox.Table // partitions, by schema.name
	set    *charset.Set             // the encoding of text; nil: UTF-8
	enums  map[uint32]bool          // types that are enums, or domains over one

	arena  *mapping.Arena // kept from one connection to the next: rows point into it
	values []mapping.Value
	binary bool // some value of the present tuple is in binary form

	// The fields below belong to the present connection.

	relations map[uint32]*relation
	byName    map[name]uint32
	types     map[uint32]uint32
	states    map[*outbox.Table]*tableState
	// unmapped are the relations that an Unmapped event has reported on this connection.
	unmapped map[relationKey]bool

	// first and final hold the latest Begin and Commit message. These come with every transaction, so they
	// are reused.
	first pglogrepl.BeginMessage
	final pglogrepl.CommitMessage

	inside bool // a transaction is open: tx
	tx     outbox.Transaction
	// sent: the server has sent all transactions that commit below this position, so no later one may commit
	// there.
	sent outbox.LSN
	err  *Error // why nothing more is decoded
}

// name is a table's qualified name.
type name struct{ schema, table string }

// relation is a table as the latest Relation message described it.
type relation struct {
	id      uint32
	name    name
	columns int
	// state belongs to the outbox table that this relation is, or is a partition of. nil: the relation is not
	// ours.
	state *tableState
	plan  *mapping.Plan // nil: the relation is not ours, or its columns do not fit
}

// relationKey distinguishes a relation from earlier ones with the same OID or the same name.
type relationKey struct {
	id   uint32
	name name
}

// tableState is the state of an outbox table on this connection.
type tableState struct {
	table *outbox.Table
	// broken has an error for each relation of the table whose columns do not fit. While it is not empty, no
	// row of the table is decoded, not even from other partitions.
	broken map[uint32]error
	told   toldOf
	reason string // the error's text that was reported with toldBroken
}

type toldOf uint8

const (
	toldNothing toldOf = iota
	toldMapped
	toldBroken
)

// New returns a Decoder for the tables of a stream. Partitions that arrive under their own names have to be
// declared by SetPartitions.
func New(tables []*outbox.Table) *Decoder {
	d := &Decoder{tables: make(map[name]*outbox.Table, len(tables)), arena: new(mapping.Arena)}
	for _, t := range tables {
		d.tables[name{t.Schema, t.Name}] = t
	}
	d.Reset()
	return d
}

// SetPartitions declares which table each partition (by "schema.name") belongs to, for publications that do
// not publish via the root. It applies to relations described from then on, so call it before the first frame
// of a connection. A partition made later arrives as an Unmapped event. This connection cannot deliver its
// rows: reconnect before confirming further.
func (d *Decoder) SetPartitions(leaves map[string]*outbox.Table) {
	d.leaves = maps.Clone(leaves)
}

// SetCharset sets the encoding of text, where the server was asked to send text in the database's encoding.
// Call it before the first frame of a connection.
func (d *Decoder) SetCharset(set *charset.Set) { d.set = set }

// SetEnums declares the OIDs of the types that are enums or domains over one. The binary form of an enum
// value is its label. An enum made later is read as text. Call SetEnums before the first frame of a
// connection.
func (d *Decoder) SetEnums(enums map[uint32]bool) { d.enums = maps.Clone(enums) }

// Apart sets whether each later row gets memory of its own; see mapping.Arena.
func (d *Decoder) Apart(apart bool) { d.arena.Apart = apart }

// Reset discards the state of the connection. The next frame is the first of a new connection.
func (d *Decoder) Reset() {
	d.relations = make(map[uint32]*relation)
	d.byName = make(map[name]uint32)
	d.types = make(map[uint32]uint32)
	d.states = make(map[*outbox.Table]*tableState)
	d.unmapped = make(map[relationKey]bool)
	d.inside, d.sent = false, 0
	d.err = nil
}

// Sent tells the Decoder that the server has sent every transaction that commits below upTo. A later
// transaction that commits there is an *Error: its rows may have been confirmed as read.
func (d *Decoder) Sent(upTo outbox.LSN) { d.sent = max(d.sent, upTo) }

// Decode appends the events of one frame to b. The caller may reuse the frame's memory afterwards. An error
// is an *Error: the frame was not understood, and its transaction gets no Commit event. Decode returns the
// same error for every further frame until Reset.
func (d *Decoder) Decode(frame []byte, b *Batch) error {
	if d.err != nil {
		return d.err
	}
	err := d.message(frame, b)
	if err == nil {
		return nil
	}
	if len(frame) > 0 {
		err.Message = frame[0]
	}
	if d.inside {
		err.Transaction = d.tx
	}
	d.err = err
	return err
}

// Message types.
const (
	msgBegin    = 'B'
	msgCommit   = 'C'
	msgOrigin   = 'O'
	msgRelation = 'R'
	msgType     = 'Y'
	msgInsert   = 'I'
	msgUpdate   = 'U'
	msgDelete   = 'D'
	msgTruncate = 'T'
	msgMessage  = 'M'
)

// message decodes one message. Each function below reads its message to the end before it appends an event.
//
// pglogrepl reads the messages that carry no column values. Those with values are read here, in the frame's
// memory. pglogrepl copies each value byte by byte: for a row of 256 bytes it takes 1.8 µs and 29
// allocations, instead of 0.1 µs and none (BenchmarkTuple).
func (d *Decoder) message(frame []byte, b *Batch) *Error {
	if len(frame) == 0 {
		return &Error{What: "the message is empty"}
	}
	c := cursor{data: frame, at: 1}
	switch frame[0] {
	case msgInsert:
		return d.insert(&c, b)
	case msgBegin:
		return d.begin(frame, b)
	case msgCommit:
		return d.commit(frame, b)
	case msgUpdate:
		return d.update(&c, b)
	case msgDelete:
		return d.delete(&c, b)
	case msgMessage:
		return logicalMessage(&c, b)
	case msgRelation, msgType, msgOrigin, msgTruncate:
		return d.described(frame, b)
	}
	return refused(frame[0])
}

// described decodes a message that pglogrepl reads into memory of its own.
func (d *Decoder) described(frame []byte, b *Batch) *Error {
	message, err := parse(frame)
	if err != nil {
		return err
	}
	switch m := message.(type) {
	case *pglogrepl.RelationMessage:
		return d.relation(m, b)
	case *pglogrepl.TypeMessage:
		return d.typeName(m)
	case *pglogrepl.TruncateMessage:
		if !d.inside {
			return &Error{What: "is a change outside of a transaction"}
		}
		b.Ignored.Truncates++
	}
	return nil // an Origin message is ignored too
}

// refused returns the error for a message that START_REPLICATION does not ask for.
func refused(kind byte) *Error {
	switch kind {
	case 'S', 'E', 'c', 'A':
		return &Error{What: "streams a transaction in progress, which may still roll back: START_REPLICATION must not ask for streaming"}
	case 'b', 'P', 'K', 'r', 'p':
		return &Error{What: "is of a prepared transaction, which may still roll back: the slot and START_REPLICATION must have two_phase off"}
	}
	return &Error{What: "is of an unknown type: this version of outbox-cdc speaks pgoutput protocols 1 and 2"}
}

func (d *Decoder) begin(frame []byte, b *Batch) *Error {
	m := &d.first
	if err := read(m, m.Decode(frame[1:]), frame); err != nil {
		return err
	}
	if d.inside {
		return &Error{What: "begins a transaction inside another"}
	}
	if commit := outbox.LSN(m.FinalLSN); commit < d.sent {
		return &Error{What: fmt.Sprintf("begins a transaction that commits at %s, but the server said before that it had sent everything up to %s", commit, d.sent)}
	}
	// The time is not taken from pglogrepl, whose nanoseconds end in the year 2262.
	const since2000, at = 946_684_800_000_000, 1 + 8 // microseconds since 1970
	d.inside = true
	d.tx = outbox.Transaction{
		XID: m.Xid, Commit: outbox.LSN(m.FinalLSN),
		Time: int64(binary.BigEndian.Uint64(frame[at:])) + since2000, // #nosec G115 -- a timestamptz
	}
	b.events = append(b.events, event{kind: Begin, xid: d.tx.XID, commit: d.tx.Commit, time: d.tx.Time})
	return nil
}

func (d *Decoder) commit(frame []byte, b *Batch) *Error {
	m := &d.final
	if err := read(m, m.Decode(frame[1:]), frame); err != nil {
		return err
	}
	commit, end := outbox.LSN(m.CommitLSN), outbox.LSN(m.TransactionEndLSN)
	switch {
	case !d.inside:
		return &Error{What: "commits outside of a transaction"}
	case m.Flags != 0:
		return &Error{What: fmt.Sprintf("has the unknown flags %#x", m.Flags)}
	case commit != d.tx.Commit:
		return &Error{What: fmt.Sprintf("commits at %s, but the transaction began as committing at %s", commit, d.tx.Commit)}
	case end < commit || end-commit > maxCommit:
		return &Error{What: fmt.Sprintf("commits at %s, but ends at %s", commit, end)}
	}
	d.inside = false
	d.Sent(end)
	b.events = append(b.events, event{kind: Commit, xid: d.tx.XID, commit: commit, end: end, time: d.tx.Time})
	return nil
}

// insert decodes a row. Every row of the stream comes this way.
func (d *Decoder) insert(c *cursor, b *Batch) *Error {
	r, err := d.changed(c)
	if err != nil {
		return err
	}
	if c.byte() != 'N' {
		return &Error{What: "has no new tuple"}
	}
	if err := d.tuple(c, r); err != nil {
		return err
	}
	if err := c.end(); err != nil {
		return err
	}
	switch {
	case r.state == nil:
		d.ignore(r, b)
	case len(r.state.broken) > 0:
		b.passed(r.state.table)
	case d.binary && r.plan.Binary() != nil:
		// The row itself is fine, so it must not be treated as a bad row.
		return &Error{What: "has a value in binary form: " + r.plan.Binary().Error(), NeedsText: true}
	case !r.plan.Ours(d.values, d.arena):
		b.notOurs(r.state.table)
	default:
		row := r.plan.Row(d.values, d.arena)
		row.XID, row.Commit, row.CommitTime = d.tx.XID, d.tx.Commit, d.tx.Time
		b.row(row)
	}
	return nil
}

// ignore counts a row that is not ours. The first row of each such relation makes an Unmapped event, since
// the relation may be a partition that was not declared. The relation's description alone is no sign of that:
// with publish_via_partition_root a partition is described, and its rows come as the root's.
func (d *Decoder) ignore(r *relation, b *Batch) {
	if key := (relationKey{r.id, r.name}); !d.unmapped[key] {
		d.unmapped[key] = true
		b.note(Event{Kind: Unmapped, Name: r.name.String(), Relation: r.id})
	}
	b.Ignored.Inserts++
}

// changed reads the id of the relation that a change belongs to.
func (d *Decoder) changed(c *cursor) (*relation, *Error) {
	id := c.uint32()
	if !d.inside {
		return nil, &Error{What: "is a change outside of a transaction"}
	}
	r := d.relations[id]
	if r == nil {
		return nil, &Error{What: fmt.Sprintf("is a change of relation %d, which was never described", id)}
	}
	return r, nil
}

// tuple reads a tuple of r into d.values, as far as r's plan needs the values.
func (d *Decoder) tuple(c *cursor, r *relation) *Error {
	count := int(c.uint16())
	if count != r.columns {
		return &Error{What: fmt.Sprintf("has %d columns, but relation %s has %d", count, r.name, r.columns)}
	}
	var wanted []int
	if r.plan != nil {
		wanted = r.plan.Wanted()
	}
	d.values, d.binary = d.values[:0], false
	for i := range count {
		v := mapping.Value{Format: c.byte()}
		switch v.Format {
		case mapping.Text, mapping.Binary:
			v.Data = c.take(c.uint32())
		case mapping.LongText, mapping.LongBinary:
			v.Length = c.uint32()
		case mapping.Null, mapping.Unchanged:
		default:
			return &Error{What: fmt.Sprintf("has a column of unknown format %q", v.Format)}
		}
		if len(d.values) < len(wanted) && wanted[len(d.values)] == i {
			d.values = append(d.values, v)
			d.binary = d.binary || v.Format == mapping.Binary
		}
	}
	return nil
}

// update counts an UPDATE, which makes no row. The publication is not insert-only then; the UPDATE is the
// application's, or our own mark.
func (d *Decoder) update(c *cursor, b *Batch) *Error {
	r, err := d.changed(c)
	if err != nil {
		return err
	}
	kind := c.byte()
	if kind == 'K' || kind == 'O' {
		if err := d.tuple(c, r); err != nil {
			return err
		}
		kind = c.byte()
	}
	if kind != 'N' {
		return &Error{What: "has no new tuple"}
	}
	if err := d.tuple(c, r); err != nil {
		return err
	}
	b.Ignored.Updates++
	return c.end()
}

func (d *Decoder) delete(c *cursor, b *Batch) *Error {
	r, err := d.changed(c)
	if err != nil {
		return err
	}
	if kind := c.byte(); kind != 'K' && kind != 'O' {
		return &Error{What: "has no old tuple"}
	}
	if err := d.tuple(c, r); err != nil {
		return err
	}
	b.Ignored.Deletes++
	return c.end()
}

// logicalMessage counts a message of pg_logical_emit_message. It may come inside or outside of a transaction.
func logicalMessage(c *cursor, b *Batch) *Error {
	c.take(1 + 8)                                     // flags, LSN
	c.take(uint32(bytes.IndexByte(c.data[c.at:], 0))) // #nosec G115 -- -1, no end of the prefix, is more than there is
	c.byte()
	c.take(c.uint32())
	b.Ignored.Messages++
	return c.end()
}

// String returns the name as "schema.table".
func (n name) String() string { return n.schema + "." + n.table }
