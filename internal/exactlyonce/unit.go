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

// Unit is one record of the journal. It names rows of one table that one transaction published. The units
// of committed transactions are numbered from 1 without gaps. One transaction of the database marks all
// rows of a unit.
type Unit struct {
	Number uint64
	Table  string
	// UpTo is the latest commit position of its rows if the table has no state; otherwise 0.
	UpTo outbox.LSN
	// Places are the partitions that its rows are in. Earlier versions wrote units without them.
	Places []Partition
	Names  []Name
}

// Placed is a unit and its offset in the journal.
type Placed struct {
	Unit
	Offset int64
}

// Name identifies a published row. A later row with the same id has another name, see NameOf.
type Name struct {
	ID   string // empty if the table has no state
	Hash Hash
}

// Hash is the first half of a SHA-256, followed by the fingerprint of the mapping that made the record.
// Half is enough: nobody can construct two rows with the same hash.
type Hash [recordHash + len(Mapping{})]byte

const recordHash = 16

// NameOf returns the name of a row whose table has state: its id, and the hash of its topic, key, value and
// time of creation. A later row with the same id has the same name only if all of these are equal, too.
func NameOf(r *outbox.Row) Name {
	h := sha256.New()
	field(h, []byte(r.Topic))
	nullable(h, r.Key)
	nullable(h, r.Value)
	number(h, uint64(r.CreatedAt))
	return Name{ID: r.ID, Hash: half(h, r.Table)}
}

// NameInLog returns the name of a row whose table has no state: the hash of its place in the WAL, its table
// and id, and its topic, key and value. Rows of one transaction that are alike in all of this share a name,
// and can stand in for each other. After a failover the server may use positions, transaction ids and row
// ids again; the time of the commit distinguishes such rows.
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

// field writes b after its length, so that two different lists of fields never write the same bytes.
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

// The version is the first byte of an encoded unit. Earlier versions of this program wrote unitVersion, or
// unitOfLog for a unit with UpTo; these hold no places. This one writes unitPlaced.
const (
	unitVersion = 1
	unitOfLog   = 2
	unitPlaced  = 3
)

// Append appends the unit in the encoding of a journal record: version, number, table, UpTo, the number of
// places and the places, the number of names and of each name the id and the hash.
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

// size is the approximate number of bytes that Append appends.
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

// Errors of records that are not units.
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
		return u, errShort // before memory is allocated for an invented count
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

// parser reads fields one by one. After the first missing field it has an error and returns zeros.
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
		p.err = errShort // before memory is allocated for an invented count
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
