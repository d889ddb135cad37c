package exactlyonce

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Producer is a producer id and its epoch.
type Producer struct {
	PID   int64
	Epoch int16
}

// Nobody stands for no producer.
var Nobody = Producer{PID: -1, Epoch: -1}

// Control is what a batch of a partition log is.
type Control uint8

// Batches hold records, or the end of a transaction.
const (
	Data Control = iota
	CommitMarker
	AbortMarker
)

// LogBatch is a batch as a Fetch returns it, also one of an aborted transaction.
type LogBatch struct {
	Offset        int64 // of its first record
	By            Producer
	Transactional bool
	Control       Control
	Records       [][]byte
}

// Reader reads the journal up to a marker of our own. The seal writes that marker last,
// so all that earlier epochs committed stands before it. So no broker is asked for the
// end offset, which it may not know yet.
type Reader struct {
	until Producer
	most  int // bytes of units; 0: any number
	size  int // of those found
	more  bool
	open  map[int64][]Placed // by producer id: of the transaction that is not ended yet
	units []Placed
	from  int64
	next  int64
	of    Producer // of reading to the end: whose transaction is meant
	undid bool     // its last marker is an abort
}

// NewReader returns a Reader for a request: from an offset until the abort marker of a producer id.
func NewReader(r *Request) *Reader {
	return &Reader{from: r.From, until: r.Until, of: r.Of, most: r.Most, open: map[int64][]Placed{}, next: r.From}
}

// ToTheEnd says that no marker is waited for: the log is read up to its end, for the last transaction.
func (r *Reader) ToTheEnd() bool { return r.until == Nobody }

// Last has the units of the last committed transaction, and of what is open; or it says that the last
// one of the epoch was aborted after all.
func (r *Reader) Last() Answer {
	if r.undid {
		return Answer{Class: OK, Outcome: Undone}
	}
	units := r.units
	for _, pid := range slices.Sorted(maps.Keys(r.open)) {
		units = append(units, r.open[pid]...)
	}
	return Answer{Class: OK, Units: units}
}

// Next is the offset to fetch from.
func (r *Reader) Next() int64 { return r.next }

// Answer has the units of committed transactions, in order.
func (r *Reader) Answer() Answer { return Answer{Class: OK, Units: r.units, More: r.more} }

// ErrForeign says that the journal has records of others.
var ErrForeign = errors.New("somebody else writes to the journal: it holds records outside of transactions")

// Feed takes the next batch. A Fetch returns whole batches, also one that begins before
// the offset asked for. It says whether the marker was reached, or enough was read.
func (r *Reader) Feed(b *LogBatch) (done bool, err error) {
	end, from := b.Offset+int64(max(len(b.Records), 1)), r.next
	if end <= from {
		return false, nil
	}
	r.next = end
	if b.Control != Data && b.By == r.of {
		r.undid = b.Control == AbortMarker
	}
	switch {
	case !b.Transactional:
		return false, fmt.Errorf("journal, offset %d: %w", b.Offset, ErrForeign)
	case b.Control == CommitMarker:
		if r.ToTheEnd() && len(r.open[b.By.PID]) > 0 {
			r.units = nil
		}
		for _, u := range r.open[b.By.PID] {
			r.units = append(r.units, u)
			if u.Offset > r.from { // the first one is known: a page needs one more
				r.size += u.size()
			}
		}
		delete(r.open, b.By.PID)
		r.more = r.most > 0 && r.size >= r.most
		return r.more, nil
	case b.Control == AbortMarker:
		delete(r.open, b.By.PID)
		return b.By.PID == r.until.PID && b.By.Epoch >= r.until.Epoch, nil
	}
	for i, record := range b.Records {
		offset := b.Offset + int64(i)
		if offset < from {
			continue
		}
		u, err := ParseUnit(record)
		if err != nil {
			return false, fmt.Errorf("journal, offset %d: %w", offset, err)
		}
		r.open[b.By.PID] = append(r.open[b.By.PID], Placed{Unit: u, Offset: offset})
	}
	return false, nil
}

// ErrJournal says that the journal is not the one known to the database, or has
// lost records: nobody can tell which rows were published.
var ErrJournal = errors.New("the journal does not fit the tally")

// Beyond returns the units behind the last one known. The journal is read from that
// one on, so it must be there, and the others must follow it without a gap.
func Beyond(last Placed, units []Placed) ([]Placed, error) {
	if last.Number > 0 {
		if len(units) == 0 || units[0].Number != last.Number || units[0].Offset != last.Offset {
			return nil, fmt.Errorf("%w: unit %d is not at offset %d", ErrJournal, last.Number, last.Offset)
		}
		units = units[1:]
	}
	for i, u := range units {
		if u.Number != last.Number+uint64(i)+1 {
			return nil, fmt.Errorf("%w: unit %d follows unit %d", ErrJournal, u.Number, last.Number+uint64(i))
		}
	}
	return units, nil
}
