package exactlyonce

import (
	"fmt"
	"slices"
)

// A transaction takes what is queued when it begins, so its size follows the load: one row on an
// idle stream, thousands in a catch-up. The journal is written together with the rows that it
// names, and all is committed when all was acknowledged. If a named row is refused, which is rare,
// the transaction is ended. The next one is careful: it names only what was acknowledged.
type transaction struct {
	records  []*Record // in order of publishing
	out      map[*Record]bool
	portions []*portion // journal's last
	units    []Unit
	named    [][]*Record // of each unit
	placed   []Placed    // acknowledged units
	isNamed  bool        // its units are made
	why      Cause       // it is in doubt
}

// portion is a partition's part of a transaction: one batch in flight.
type portion struct {
	at       Partition
	todo     []*Record
	inFlight *Request
	most     int // rows of a batch, halved by refusals
	acked    []*Record
	last     int64 // offset of the last record, or -1
}

// Batch is sent unchanged until its outcome is known.
type Batch struct {
	At      Partition
	By      Producer
	Seq     int32
	Records []*Record
	Units   []Unit // of the journal
	open    bool   // a try may have been appended
}

func (b *Batch) count() int32 { return int32(len(b.Records) + len(b.Units)) }

// begin opens a transaction with the first rows of the queue; before that, partitions
// not seen before are sealed.
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

// remaining are the records of an aborted transaction, in their old order.
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

// out gives back the portion's records that were not appended.
func (m *Machine) out(l *portion) {
	for _, r := range l.todo {
		m.tx.out[r] = true
	}
	m.ready.Withdrawn = append(m.ready.Withdrawn, l.todo...)
	l.todo = nil
}

// send gives the portion's next batch out.
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

// produced takes the answer to a batch. Sending it again is safe as long as the
// transaction is open: its sequence is taken once.
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
			m.doubt(Unanswered) // where the units are is not known
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

// refuse takes the refused record out, once it is known which it is. Nothing of the
// batch was appended, so the transaction is sound.
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

// refuseRecord also withdraws what is behind the record in its key's order.
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

// next writes the journal, and commits when every row and the journal are acknowledged.
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

// open says that something is not acknowledged.
func (tx *transaction) open() bool {
	return slices.ContainsFunc(tx.portions, func(l *portion) bool { return l.inFlight != nil || len(l.todo) > 0 })
}

// name makes the units: each of one table, since one statement marks its rows. A
// transaction whose rows were all refused has none.
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

// fitting is how many of them, at least one, go together into so many bytes.
func fitting[T any](all []T, most int, size func(T) int) int {
	sum := 0
	for i := range all {
		if sum += size(all[i]); sum > most && i > 0 {
			return i
		}
	}
	return len(all)
}

// committed takes the answer to the commit. Anything but success is no answer.
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

// triesForEnds is how often the ends of a transaction are asked for before they are taken for missing:
// a quarter of a second.
const triesForEnds = 8

// proved takes whether the committed transaction's end is in each partition. A coordinator may say
// that it is committed, and give up the end of a partition that nobody led for a moment.
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
