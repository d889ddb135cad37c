package exactlyonce

import (
	"fmt"
	"slices"
)

// transaction is one Kafka transaction. It takes the records that are queued when it begins, up to
// Config.MaxRows. So its size follows the load: one row on an idle stream, thousands in a catch-up. The
// journal's units are written together with the rows that they name, and the transaction is committed when
// all of them are acknowledged. It is rare that Kafka refuses a named row. Then the transaction is aborted,
// and the next one is careful: it writes the journal last, and names only acknowledged rows.
type transaction struct {
	records  []*Record // in order of publishing
	out      map[*Record]bool
	portions []*portion // the journal's is the last one
	units    []Unit
	named    [][]*Record // the records of each unit
	placed   []Placed    // acknowledged units, with their offsets
	isNamed  bool        // the units are made
	why      Cause       // the cause, if the transaction is in doubt
}

// portion is the part of a transaction that goes to one partition. At most one batch of it is in flight.
type portion struct {
	at       Partition
	todo     []*Record
	inFlight *Request
	most     int // maximum rows of a batch; halved while it is not known which record is refused
	acked    []*Record
	last     int64 // offset of the last acknowledged record, or -1 if it is not known
}

// Batch is a batch of records for one partition. It is resent unchanged until its outcome is known.
type Batch struct {
	At      Partition
	By      Producer
	Seq     int32
	Records []*Record
	Units   []Unit // instead of Records, in the journal's batches
	open    bool   // an earlier try may have been appended
}

func (b *Batch) count() int32 { return int32(len(b.Records) + len(b.Units)) }

// begin opens a transaction with the first records of the queue. If some of their partitions are not sound
// yet, it begins a seal of these instead.
func (m *Machine) begin() {
	n := min(len(m.queue), m.cfg.MaxRows)
	tx := &transaction{records: slices.Clone(m.queue[:n]), out: map[*Record]bool{}}
	for _, r := range tx.records {
		l := tx.portion(r.At, m.cfg.BatchRows)
		l.todo = append(l.todo, r)
	}
	var unsound []Partition
	for _, l := range tx.portions {
		if !m.sound[l.at] {
			unsound = append(unsound, l.at)
		}
	}
	if len(unsound) > 0 {
		m.beginSeal(sealInit, unsound)
		return
	}
	m.queue = m.queue[n:]
	m.tx, m.state = tx, adding
	m.ask(&Request{Kind: Add, As: m.id, Partitions: append(tx.partitions(), m.cfg.Journal)})
}

func (tx *transaction) portion(at Partition, most int) *portion {
	for _, l := range slices.Backward(tx.portions) { // rows of one partition mostly come together
		if l.at == at {
			return l
		}
	}
	l := &portion{at: at, most: most, last: -1}
	tx.portions = append(tx.portions, l)
	return l
}

func (tx *transaction) partitions() []Partition {
	out := make([]Partition, 0, len(tx.portions)+1)
	for _, l := range tx.portions {
		out = append(out, l.at)
	}
	return out
}

// remaining returns the records of an aborted transaction that are still to be published, in their old
// order.
func (tx *transaction) remaining() []*Record {
	return slices.DeleteFunc(slices.Clone(tx.records), func(r *Record) bool { return tx.out[r] })
}

// added takes the answer to Add.
func (m *Machine) added(r *Request, a Answer) {
	switch a.Class {
	case OK:
		m.state = producing
		for _, l := range m.tx.portions {
			m.send(l)
		}
		m.next()
	case Busy, Again:
		m.again(r)
	case Refused:
		for _, l := range m.tx.portions {
			if slices.Contains(a.Refused, l.at) {
				delete(m.sound, l.at)
				m.out(l)
			}
		}
		r.Partitions = slices.DeleteFunc(slices.Clone(r.Partitions), func(p Partition) bool {
			return p != m.cfg.Journal && slices.Contains(a.Refused, p)
		})
		m.again(r)
	default: // a lost Add may open a transaction at any time
		m.doubt(causeOf(a.Class))
	}
}

// out withdraws the portion's records that are not acknowledged. None of them was appended.
func (m *Machine) out(l *portion) {
	for _, r := range l.todo {
		m.tx.out[r] = true
	}
	m.ready.Withdrawn = append(m.ready.Withdrawn, l.todo...)
	l.todo = nil
}

// send sends the portion's next batch, if there is one and none is in flight.
func (m *Machine) send(l *portion) {
	if l.inFlight != nil || len(l.todo) == 0 {
		return
	}
	n := fitting(l.todo[:min(len(l.todo), l.most)], m.cfg.BatchBytes(l.at.Topic), func(r *Record) int { return r.Size })
	m.put(l, &Batch{At: l.at, By: m.id, Seq: m.seqs[l.at], Records: slices.Clone(l.todo[:n])})
}

func (m *Machine) put(l *portion, b *Batch) {
	l.inFlight = &Request{Kind: Produce, As: m.id, Batch: b}
	m.ready.Requests = append(m.ready.Requests, l.inFlight)
}

// produced takes the answer to a batch. It is safe to resend a batch while its transaction is open: the
// broker appends each sequence number once.
func (m *Machine) produced(r *Request, a Answer) {
	if m.state != producing {
		return
	}
	i := slices.IndexFunc(m.tx.portions, func(l *portion) bool { return l.inFlight == r })
	if i < 0 {
		return
	}
	l := m.tx.portions[i]
	switch a.Class {
	case OK:
		switch {
		case len(r.Batch.Units) == 0:
		case a.Offset < 0:
			m.doubt(Unanswered) // the offsets of the units are not known
			return
		case m.last.Number > 0 && a.Offset <= m.last.Offset:
			m.stop(fmt.Errorf("%w: unit %d was written at offset %d, behind unit %d at offset %d: the topic was deleted and created again, or lost records",
				ErrJournal, r.Batch.Units[0].Number, a.Offset, m.last.Number, m.last.Offset))
			return
		}
		m.ack(l, r.Batch, a.Offset)
	case Silence, Again:
		r.Batch.open = r.Batch.open || a.Class == Silence
		again := *r
		again.Try++
		l.inFlight = &again
		m.ready.Requests = append(m.ready.Requests, l.inFlight)
		return
	case Refused, Forbidden:
		if r.Batch.open || m.tx.isNamed {
			m.careful = true
			m.doubt(RowRefused) // an unanswered try may have appended it, or the row is named
			return
		}
		l.inFlight = nil
		if a.Class == Forbidden {
			m.out(l)
		} else {
			m.refuse(l, r.Batch, a.Bad)
		}
	default:
		m.doubt(causeOf(a.Class))
		return
	}
	m.next()
}

func (m *Machine) ack(l *portion, b *Batch, offset int64) {
	l.inFlight = nil
	m.seqs[l.at] += b.count()
	if l.last = -1; offset >= 0 {
		l.last = offset + int64(b.count()) - 1
	}
	l.acked = append(l.acked, b.Records...)
	l.todo = l.todo[len(b.Records):]
	for i, u := range b.Units {
		m.tx.placed = append(m.tx.placed, Placed{Unit: u, Offset: offset + int64(i)})
	}
	m.send(l)
}

// refuse removes the refused record from the portion, once it is known which one that is. None of the
// batch's records was appended, so the transaction goes on.
func (m *Machine) refuse(l *portion, b *Batch, bad []int) {
	switch {
	case len(b.Records) == 1:
		m.refuseRecord(l, b.Records[0])
		l.most = m.cfg.BatchRows
	case len(bad) > 0:
		for _, i := range bad {
			m.refuseRecord(l, b.Records[i])
		}
	default:
		l.most = (len(b.Records) + 1) / 2
	}
	m.send(l)
}

// refuseRecord refuses one record, and withdraws the later records of its key.
func (m *Machine) refuseRecord(l *portion, bad *Record) {
	behind := false
	l.todo = slices.DeleteFunc(l.todo, func(r *Record) bool {
		behind = behind || r == bad
		switch {
		case r == bad && !m.tx.out[r]:
			m.ready.Refused = append(m.ready.Refused, r)
		case r != bad && behind && bad.Key != "" && r.Key == bad.Key:
			m.ready.Withdrawn = append(m.ready.Withdrawn, r)
		default:
			return false
		}
		m.tx.out[r] = true
		return true
	})
	if bad.Key != "" {
		m.blocked[bad.Key] = true
		m.withdraw(func(r *Record) bool { return r.Key == bad.Key })
	}
}

// next writes the journal, and commits once all rows and units are acknowledged.
func (m *Machine) next() {
	if m.state != producing || m.careful && m.tx.open() {
		return
	}
	if !m.tx.isNamed {
		m.tx.name(m.last.Number, m.cfg)
	}
	if left := m.tx.units[len(m.tx.placed):]; len(left) > 0 {
		l := m.tx.portion(m.cfg.Journal, m.cfg.BatchRows)
		if l.inFlight == nil {
			m.put(l, &Batch{At: l.at, By: m.id, Seq: m.seqs[l.at], Units: left[:fitting(left, m.cfg.UnitBytes, Unit.size)]})
		}
	}
	if !m.tx.open() {
		m.state = committing
		m.ask(&Request{Kind: Commit, As: m.id})
	}
}

// open reports whether some record or unit is not acknowledged yet.
func (tx *transaction) open() bool {
	return slices.ContainsFunc(tx.portions, func(l *portion) bool { return l.inFlight != nil || len(l.todo) > 0 })
}

// name makes the units. Each has rows of one table only, since one statement marks its rows. A transaction
// whose rows were all refused has no units.
func (tx *transaction) name(number uint64, cfg Config) {
	tx.isNamed = true
	var tables []string
	rows := map[string][]*Record{}
	for _, l := range tx.portions {
		for _, r := range slices.Concat(l.acked, l.todo) {
			if rows[r.Table] == nil {
				tables = append(tables, r.Table)
			}
			rows[r.Table] = append(rows[r.Table], r)
		}
	}
	for _, table := range tables {
		for left := rows[table]; len(left) > 0; {
			var at Partition
			n := fitting(left[:min(len(left), cfg.UnitRows)], cfg.UnitBytes, func(r *Record) int {
				if r.At == at {
					return r.Name.size()
				}
				at = r.At
				return r.Name.size() + at.size()
			})
			part := left[:n:n]
			left = left[n:]
			number++
			u := Unit{Number: number, Table: table}
			for _, r := range part {
				u.Names, u.UpTo = append(u.Names, r.Name), max(u.UpTo, r.Commit)
				if last := len(u.Places) - 1; last < 0 || u.Places[last] != r.At { // portion by portion
					u.Places = append(u.Places, r.At)
				}
			}
			tx.units, tx.named = append(tx.units, u), append(tx.named, part)
		}
	}
}

// fitting returns how many of the elements, but at least one, fit into most bytes.
func fitting[T any](all []T, most int, size func(T) int) int {
	sum := 0
	for i := range all {
		if sum += size(all[i]); sum > most && i > 0 {
			return i
		}
	}
	return len(all)
}

// committed takes the answer to the commit. Any class but OK leaves the outcome open.
func (m *Machine) committed(a Answer) {
	if a.Class != OK {
		m.doubt(causeOf(a.Class))
		return
	}
	m.state = proving
	r := &Request{Kind: Ends, As: m.id, Of: m.id}
	for _, l := range m.tx.portions {
		r.Partitions, r.Behind = append(r.Partitions, l.at), append(r.Behind, l.last)
	}
	m.ask(r)
}

// triesForEnds is how many times the ends of a transaction are asked for again before they count as
// missing. All tries take about a quarter of a second.
const triesForEnds = 8

// proved takes the answer whether the end of the committed transaction is in each partition. A coordinator
// may report the commit although it has given up the end in a partition that had no leader for a moment.
func (m *Machine) proved(r *Request, a Answer) {
	switch {
	case a.Class == OK:
		tx := m.tx
		m.tx, m.state, m.doubts, m.careful = nil, idle, 0, false
		m.deliver(tx, tx.placed)
	case len(a.Open) > 0 && r.Try >= triesForEnds:
		m.beginSeal(sealLast, m.tx.partitions())
	default:
		m.again(r)
	}
}
