package exactlyonce

import (
	"errors"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// This file is the process in the simulation: the least that a Machine needs around it. The process reads
// the WAL from the slot, looks at the rows up to the insert position of its start, sweeps PENDING rows
// after that, and marks what was delivered.

type phase uint8

const (
	waiting  phase = iota // it does not lead
	reading               // it reads the tally
	starting              // the Machine seals and reads the journal
	settling              // it marks units that the database does not know
	opening               // it reads where to begin
	running
)

type proc struct {
	w     *world
	name  string
	phase phase
	db    *database // the database that it is connected to
	m     *Machine
	tally Tally
	todo  []Placed // units that the database does not know yet
	more  bool     // more units of the journal follow

	left     []Left
	index    leftRows
	start    *opened
	cursor   int
	inFlight map[string]int // by content: position in the WAL, or 0
	unmarked []Delivery
	asking   int // number of outstanding queries
	early    []*Record
	back     []*Record // rows of partitions that were not sound
	// The next two are for tables without state.
	published Published
	positions Positions
}

// opened is the database's answer when everything is recovered.
type opened struct {
	left      []Left
	confirmed int
	insert    int
	running   map[string]bool // contents of rows that are not visible yet
	position  int
}

// leads reports whether a partition has a leader and can be added to a transaction.
func (w *world) leads(at Partition) bool { return !w.kafka.log(at).down && !w.missing[at] }

// lead begins a leadership. Everything known from an earlier one is void.
func (p *proc) lead() { p.leadOn(p.w.db) }

func (p *proc) leadOn(db *database) {
	if db == p.w.db {
		p.w.leader = p
	}
	*p = proc{w: p.w, name: p.name, phase: reading, db: db, inFlight: map[string]int{}}
	if p.w.off["looksVoid"] {
		p.early = p.pendingRows()
	}
	p.query(readTally, p.gotTally)
}

func (p *proc) gotTally(a any) {
	p.tally, _ = a.(Tally)
	p.phase = starting
	var known []Partition
	for _, l := range p.w.kafka.logs[1:] {
		if l.at.Number < int32(p.w.knownParts) {
			known = append(known, l.at)
		}
	}
	p.m = New(p.w.cfg, p.tally.Head, known)
	p.take()
}

// take carries out what the Machine decides.
func (p *proc) take() {
	for p.m != nil {
		out := p.m.Take()
		if out.Err != nil {
			p.ended(out.Err)
			return
		}
		for _, r := range out.Requests {
			p.send(r)
		}
		for _, r := range out.Refused {
			p.refused(r)
		}
		for _, r := range out.Withdrawn {
			if p.w.late[r.Key] = true; p.w.stateless { // they go back to the queue
				p.back = append(p.back, r)
				continue
			}
			delete(p.inFlight, string(r.Row.Value))
		}
		for _, d := range out.Delivered {
			p.delivered(d)
		}
		p.w.happened["units committed"] += len(out.Delivered)
		if out.Recover != nil {
			p.w.happened["recoveries"]++
			p.w.happened["pages of the journal"] += map[bool]int{true: 1}[out.Recover.More]
			p.more = out.Recover.More
			p.recover(out.Recover.Units)
		}
		if len(out.Requests)+len(out.Refused)+len(out.Withdrawn)+len(out.Delivered) == 0 {
			return
		}
	}
}

// ended ends a leadership. The database tells who leads now. A process that does not ask it endangers only
// progress, not what is promised.
func (p *proc) ended(err error) {
	p.w.happened["leaderships ended by Kafka"]++
	switch {
	case errors.Is(err, ErrJournal) && !p.w.damaged:
		p.w.fail("%s refuses a sound journal: %v", p.name, err)
	case errors.Is(err, ErrSuperseded) && !p.w.off["leadAgain"] && (p.w.leader == p || p.w.chance(4)) && p.reaches():
		p.w.note("%s leads again", p.name)
		p.leadOn(p.db)
		return
	}
	p.w.note("%s ends: %v", p.name, err)
	p.phase, p.m = waiting, nil
	p.w.refusedErr = err
	if p.w.leader == p {
		p.w.leader = nil
	}
}

// refused uses up a row's whole budget.
func (p *proc) refused(r *Record) {
	content := string(r.Row.Value)
	p.w.late[r.Key] = true
	p.query(func(d *database) any {
		for i := range d.rows {
			if d.rows[i].content == content && d.rows[i].status == pending {
				d.rows[i].status = failed
			}
		}
		return nil
	}, func(any) {
		delete(p.inFlight, content)
		p.m.Release(r.Key)
		p.take()
	})
}

func (p *proc) delivered(d Delivery) {
	if !p.w.stateless {
		p.unmarked = append(p.unmarked, d)
		return
	}
	for _, r := range d.Records {
		delete(p.inFlight, string(r.Row.Value))
	}
	p.positions.Add(d.Unit.Number, d.Unit.Offset, d.Unit.UpTo, len(d.Records))
}

// recover marks the units that the database does not know, one after the other.
func (p *proc) recover(units []Placed) {
	p.phase = settling
	if p.w.stateless {
		for _, u := range p.tally.Missing(units) {
			p.published.Add(&u.Unit)
			p.positions.Add(u.Number, u.Offset, u.UpTo, 0)
		}
		p.open()
		return
	}
	p.todo = p.tally.Missing(units)
	if p.w.off["recover"] {
		p.todo = nil
	}
	p.settleNext()
}

func (p *proc) settleNext() {
	if len(p.todo) == 0 {
		p.open()
		return
	}
	u := p.todo[0]
	p.w.happened["units marked by a recovery"]++
	p.query(p.w.markUnit(u, p.w.look), func(any) {
		p.todo = p.todo[1:]
		p.settleNext()
	})
}

func (p *proc) open() {
	if p.more {
		p.m.Recovered()
		p.take()
		return
	}
	p.phase = opening
	p.query(func(d *database) any {
		o := &opened{left: slices.Clone(d.tally.Left), confirmed: d.confirmed, insert: len(d.wal), running: map[string]bool{}, position: d.position}
		for _, r := range d.rows {
			if !r.visible {
				o.running[r.content] = true
			}
		}
		return o
	}, func(a any) {
		p.start, _ = a.(*opened)
		if !p.w.stateless {
			p.left = p.start.left
			p.w.happened["rows found left at a start"] += len(p.left)
		}
		p.index = indexOf(p.left)
		p.positions.Before(outbox.LSN(p.start.insert) + 1)
		if !p.w.off["position"] {
			p.published.Settled = outbox.LSN(p.start.position)
		}
		p.cursor = p.start.confirmed
		p.phase = running
		p.w.everSealed = true
		p.m.Recovered()
		for _, r := range p.early {
			p.publish(r, 0)
		}
		p.take()
	})
}

// work returns what the process can do by itself now, the most urgent first.
func (p *proc) work() []action {
	if p.phase != running {
		return nil
	}
	var out []action
	add := func(when bool, name string, do func()) {
		if when {
			out = append(out, action{p.name + " " + name, do})
		}
	}
	add(len(p.unmarked) > 0, "marks", p.mark)
	add(len(p.back) > 0 && p.m.Idle() && slices.ContainsFunc(p.back, func(r *Record) bool { return p.w.leads(r.At) }), "sends again", func() {
		back := p.back
		p.back = nil
		p.m.Publish(back...)
		p.take()
	})
	add(p.m.Idle() && p.m.Lacking(p.w.leads), "revisits", func() { p.m.Revisit(p.w.leads); p.take() })
	add(p.reaches() && p.cursor < len(p.db.wal) && p.mayRead(), "reads the WAL", p.read)
	add(p.reaches() && !p.w.stateless && p.cursor == len(p.db.wal) && len(p.sweepable()) > 0, "sweeps", p.sweep)
	add(p.reaches() && len(p.left) > 0 && p.asking == 0 && !p.w.stateless && p.w.leftMoves(p), "marks what is left", p.markLeft)
	add(p.reaches() && advanced(&p.db.tally).Number > p.db.tally.Head.Number, "advances the head", func() { p.query(advance, nil) })
	add(p.reaches() && p.w.stateless && p.asking == 0 && p.positions.Passed(p.settled()).Number > 0, "notes its position", p.notePosition)
	add(p.reaches() && p.w.leader == p && p.firstInFlight()-1 > p.db.confirmed, "confirms", p.confirm)
	return out
}

// mayRead reports whether the WAL may be read on. Where rows have to be looked at, one that is not visible
// yet holds it up.
func (p *proc) mayRead() bool {
	if p.w.stateless || p.cursor >= p.start.insert {
		return true
	}
	r := p.db.byContent(p.db.wal[p.cursor].content)
	return r == nil || r.visible
}

func (d *database) byContent(content string) *dbRow {
	for i := range d.rows {
		if d.rows[i].content == content {
			return &d.rows[i]
		}
	}
	return nil
}

// read takes the next row of the WAL.
func (p *proc) read() {
	p.cursor++
	row := p.db.wal[p.cursor-1]
	if p.w.stateless {
		if rec := row.record(true); !p.published.Take(rec.Row) {
			p.publish(rec, row.lsn)
		}
		return
	}
	if p.cursor <= p.start.insert && !p.w.off["lookAtStart"] {
		if now := p.db.byContent(row.content); now == nil || now.status != pending {
			return
		}
	}
	p.publish(row.record(false), row.lsn)
}

func (p *proc) publish(rec *Record, lsn int) {
	content := string(rec.Row.Value)
	if _, flying := p.inFlight[content]; flying {
		return
	}
	if p.index.has(rec.Table, rec.Name) && !p.w.off["leftUnpublished"] {
		return // the row was published, so it is only marked
	}
	p.inFlight[content] = lsn
	p.m.Publish(rec)
	p.take()
}

func (p *proc) pendingRows() []*Record {
	var out []*Record
	for i := range p.db.rows {
		if r := &p.db.rows[i]; r.status == pending && r.visible {
			out = append(out, r.record(false))
		}
	}
	return out
}

// sweepable returns the pending rows that are not in flight.
func (p *proc) sweepable() []*Record {
	return slices.DeleteFunc(p.pendingRows(), func(r *Record) bool {
		_, flying := p.inFlight[string(r.Row.Value)]
		return flying || p.index.has(r.Table, r.Name) && !p.w.off["leftUnpublished"]
	})
}

func (p *proc) sweep() {
	for _, r := range p.sweepable() {
		if p.m != nil {
			p.publish(r, 0)
		}
	}
}

// mark marks the rows of the next unit.
func (p *proc) mark() {
	d := p.unmarked[0]
	p.unmarked = p.unmarked[1:]
	same := func(db *database, n Name) (Seen, Name) {
		seen, _ := p.w.look(db, n)
		if seen != Pending {
			return seen, Name{}
		}
		for _, r := range d.Records {
			if r.Name == n && db.find(n.ID).created != r.Row.CreatedAt {
				return Pending, Name{}
			}
		}
		return Pending, n
	}
	p.query(p.w.markUnit(d.Unit, same), func(a any) {
		left, _ := a.([]Left)
		for _, r := range d.Records {
			delete(p.inFlight, string(r.Row.Value))
		}
		p.left = append(p.left, left...)
		p.index = indexOf(p.left)
	})
}

func (p *proc) markLeft() {
	as := *p // the process may lead again before the query runs
	p.query(p.w.markLeft(p.left, as.gone), func(a any) {
		now, _ := a.([]Left)
		p.left = now
		p.index = indexOf(p.left)
	})
}

// gone reports whether every transaction that was in progress at the start has ended. Then a row that is
// not there will not come. Rows that this process published itself were in the WAL.
func (p *proc) gone(l Left) bool {
	if p.w.off["absentStays"] {
		return true
	}
	for _, r := range p.db.rows {
		if !r.visible && (p.start.running[r.content] || r.lsn <= p.cursor) {
			return false
		}
	}
	return true
}

func (p *proc) firstInFlight() int {
	first := p.cursor + 1
	for _, lsn := range p.inFlight {
		if lsn > 0 {
			first = min(first, lsn)
		}
	}
	for _, l := range p.left { // a row that is left holds the position
		if r := p.db.find(l.Name.ID); r != nil && !p.w.stateless {
			first = min(first, r.lsn)
		}
	}
	return first
}

// notePosition stores in the tally up to where everything is settled.
func (p *proc) notePosition() {
	unit, lsn := p.positions.Passed(p.settled()), p.firstInFlight()-1
	p.query(func(d *database) any {
		if unit.Number > d.tally.Head.Number {
			d.tally.Head, d.position = unit, lsn
		}
		return nil
	}, func(any) { p.positions.Noted(unit.Number) })
}

func (p *proc) settled() outbox.LSN { return outbox.LSN(p.firstInFlight() - 1) }

func (p *proc) confirm() { p.db.confirmed = p.firstInFlight() - 1 }

// leftRows finds rows that were published and still have to be marked.
type leftRows map[leftKey]int

type leftKey struct {
	table string
	name  Name
}

// indexOf makes a leftRows of the tally's rows.
func indexOf(left []Left) leftRows {
	l := make(leftRows, len(left))
	for _, x := range left {
		l[leftKey{x.Table, x.Name}]++
	}
	return l
}

// has reports whether the row was published, so that it is only marked.
func (l leftRows) has(table string, name Name) bool { return l[leftKey{table, name}] > 0 }
