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

// Nobody stands for the absence of a producer.
var Nobody = Producer{PID: -1, Epoch: -1}

// Control says what a batch of a partition's log is.
type Control uint8

// A batch holds records, or the end of a transaction.
const (
	Data Control = iota
	CommitMarker
	AbortMarker
)

// LogBatch is a batch as Fetch returns it. Batches of aborted transactions are included.
type LogBatch struct {
	Offset        int64 // of its first record
	By            Producer
	Transactional bool
	Control       Control
	Records       [][]byte
}

// Reader reads the journal up to a marker of our own. The seal writes that marker last, so everything that
// earlier epochs committed comes before it. For this reason the Reader does not rely on the end offset,
// which a broker may not know yet. It reads to the end only for the last transaction, see ToTheEnd.
type Reader struct {
	until Producer
	most  int // end after so many bytes of units; 0: no limit
	size  int // bytes of the units found so far
	more  bool
	open  map[int64][]Placed // by producer id: units of the transaction that has not ended yet
	units []Placed
	from  int64
	next  int64
	of    Producer // when reading to the end: whose transaction is meant
	undid bool     // the last marker of that producer is an abort
}

// NewReader returns a Reader for a request of kind Read.
func NewReader(r *Request) *Reader {
	return &Reader{from: r.From, until: r.Until, of: r.Of, most: r.Most, open: map[int64][]Placed{}, next: r.From}
}

// ToTheEnd reports whether the log is read up to its end, for the last transaction, and not up to a marker.
func (r *Reader) ToTheEnd() bool { return r.until == Nobody }

// Last returns the answer after reading to the end: the units of the last committed transaction, and those
// of open ones. If the last marker of the producer in question is an abort, it returns Undone instead.
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

// Answer returns the units of committed transactions, in order.
func (r *Reader) Answer() Answer { return Answer{Class: OK, Units: r.units, More: r.more} }

// ErrForeign says that the journal has records that are not ours.
var ErrForeign = errors.New("somebody else writes to the journal: it holds records outside of transactions")

// Feed takes the next batch. Fetch returns whole batches, so the first one may begin before the offset
// asked for. Feed reports whether the marker was reached, or enough was read.
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
			if u.Offset > r.from { // the unit at from is known already, so it does not count
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

// ErrJournal says that the journal is not the one that the database knows, or has lost records. So it is
// not known which rows were published.
var ErrJournal = errors.New("the journal does not fit the tally")

// Beyond returns the units behind the last known one. The journal is read from that one on. So it must be
// the first of the units, and the others must follow it without a gap.
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
