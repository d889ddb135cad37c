package exactlyonce

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"math"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Unit is one journal record: the names of rows of one table that one transaction
// published. Units of committed transactions are numbered from 1 without gaps. The
// rows of a unit are marked in one transaction of the database.
type Unit struct {
	Number uint64
	Table  string
	// UpTo, for a table without state, is the last commit of its rows; else 0.
	UpTo outbox.LSN
	// Places are the partitions that its rows are in. Units of earlier versions have none.
	Places []Partition
	Names  []Name
}

// Placed is a unit and its offset in the journal.
type Placed struct {
	Unit
	Offset int64
}

// Name tells one published row from every other, also from a later one with its id.
type Name struct {
	ID   string // empty for tables without state
	Hash Hash
}

// Hash is the first half of a SHA-256, so that nobody can make two rows with one hash, and
// behind it which mapping made the record.
type Hash [recordHash + len(Mapping{})]byte

const recordHash = 16

// NameOf names a row of a table with state by its id and what was published. A row
// with the id of another has another name, unless its record is the same.
func NameOf(r *outbox.Row) Name {
	h := sha256.New()
	field(h, []byte(r.Topic))
	nullable(h, r.Key)
	nullable(h, r.Value)
	number(h, uint64(r.CreatedAt))
	return Name{ID: r.ID, Hash: half(h, r.Table)}
}

// NameInLog names a row of a table without state by its place in the WAL, its table and id, and what was
// published. Rows of one transaction that are alike in all of it share a name, and one of them is as good as
// another. A failover may give positions, transaction ids and row ids out again; the time of the commit tells
// these apart.
func NameInLog(r *outbox.Row) Name {
	h := sha256.New()
	for _, n := range []uint64{uint64(r.Commit), uint64(r.XID), uint64(r.CommitTime)} {
		number(h, n)
	}
	if r.Table != nil {
		field(h, []byte(r.Table.String()))
	}
	field(h, []byte(r.ID))
	field(h, []byte(r.Topic))
	nullable(h, r.Key)
	nullable(h, r.Value)
	return Name{Hash: half(h, r.Table)}
}

func half(h hash.Hash, t *outbox.Table) (out Hash) {
	copy(out[:recordHash], h.Sum(nil))
	mapping := MappingOf(t)
	copy(out[recordHash:], mapping[:])
	return out
}

func number(h hash.Hash, n uint64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	_, _ = h.Write(b[:]) // never fails
}

// field writes bytes behind their length, so that no two lists of fields are alike.
func field(h hash.Hash, b []byte) {
	number(h, uint64(len(b)))
	_, _ = h.Write(b) // never fails
}

func nullable(h hash.Hash, b []byte) {
	if b == nil {
		number(h, 1<<63)
		return
	}
	field(h, b)
}

// The first byte of an encoded unit. Earlier versions of this program wrote the first one, or
// the second if the unit has UpTo; neither has places.
const (
	unitVersion = 1
	unitOfLog   = 2
	unitPlaced  = 3
)

// Append appends the unit as a journal record holds it: version, number, table, commit or 0, count and
// places, count and of each name the id and the hash.
func (u *Unit) Append(b []byte) []byte {
	b = append(b, unitPlaced)
	b = binary.AppendUvarint(b, u.Number)
	b = appendText(b, u.Table)
	b = binary.AppendUvarint(b, uint64(u.UpTo))
	b = binary.AppendUvarint(b, uint64(len(u.Places)))
	for _, p := range u.Places {
		b = binary.AppendUvarint(appendText(b, p.Topic), uint64(p.Number))
	}
	b = binary.AppendUvarint(b, uint64(len(u.Names)))
	for i := range u.Names {
		b = appendText(b, u.Names[i].ID)
		b = append(b, u.Names[i].Hash[:]...)
	}
	return b
}

// size is about how many bytes Append appends.
func (u Unit) size() int {
	n := 32 + len(u.Table)
	if u.UpTo > 0 {
		n += binary.MaxVarintLen64
	}
	for _, p := range u.Places {
		n += p.size()
	}
	for i := range u.Names {
		n += u.Names[i].size()
	}
	return n
}

func (p Partition) size() int { return len(p.Topic) + 2 + binary.MaxVarintLen32 }

func (n Name) size() int { return len(n.ID) + len(Hash{}) + 4 }

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Errors of records that are no units.
var (
	errShort   = errors.New("the record ends too early")
	errLonger  = errors.New("the record goes on behind its last name")
	errPlace   = errors.New("the record names a partition that can be none")
	errVersion = errors.New("the record's version is not known: a later version of outbox-cdc may have written it")
)

// ParseUnit reads a journal record.
func ParseUnit(b []byte) (u Unit, err error) {
	p := parser{b: b}
	version := p.take(1)
	if p.err == nil && (version[0] < unitVersion || version[0] > unitPlaced) {
		return u, fmt.Errorf("%w (%d)", errVersion, version[0])
	}
	u.Number = p.uvarint()
	u.Table = p.text()
	if p.err == nil && version[0] >= unitOfLog {
		u.UpTo = outbox.LSN(p.uvarint())
	}
	if p.err == nil && version[0] >= unitPlaced {
		u.Places = p.places()
	}
	n := p.uvarint()
	if n > uint64(len(p.b))/(1+uint64(len(Hash{}))) {
		return u, errShort // before memory for a count that somebody made up
	}
	u.Names = make([]Name, n)
	for i := range u.Names {
		u.Names[i].ID = p.text()
		copy(u.Names[i].Hash[:], p.take(uint64(len(Hash{}))))
	}
	if p.err == nil && len(p.b) > 0 {
		return u, errLonger
	}
	return u, p.err
}

// parser reads fields until one is not there.
type parser struct {
	b   []byte
	err error
}

func (p *parser) take(n uint64) []byte {
	if p.err != nil || n > uint64(len(p.b)) {
		p.err = errShort
		return nil
	}
	out := p.b[:n]
	p.b = p.b[n:]
	return out
}

func (p *parser) uvarint() uint64 {
	if p.err != nil {
		return 0
	}
	n, size := binary.Uvarint(p.b)
	if size <= 0 {
		p.err = errShort
		return 0
	}
	p.b = p.b[size:]
	return n
}

func (p *parser) places() []Partition {
	n := p.uvarint()
	switch {
	case n > uint64(len(p.b))/2:
		p.err = errShort // before memory for a count that somebody made up
		return nil
	case n == 0:
		return nil
	}
	out := make([]Partition, n)
	for i := range out {
		out[i].Topic = p.text()
		number := p.uvarint()
		if out[i].Number = int32(number); number > math.MaxInt32 {
			p.err = errPlace
		}
	}
	return out
}

func (p *parser) text() string { return string(p.take(p.uvarint())) }
