package exactlyonce

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Unit is one journal record: the names of rows of one table that one transaction
// published. Units of committed transactions are numbered from 1 without gaps. The
// rows of a unit are marked in one transaction of the database.
type Unit struct {
	Number uint64
	Table  string // empty: rows of tables without state
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

// NameInLog names a row of a table without state by its place in the WAL: commit
// position, transaction id, commit time and the row's number in its transaction.
// Positions and ids are given out again after a failover, together with a time less likely.
func NameInLog(commit outbox.LSN, xid uint32, time int64, ordinal uint64, r *outbox.Row) Name {
	h := sha256.New()
	for _, n := range []uint64{uint64(commit), uint64(xid), uint64(time), ordinal} {
		number(h, n)
	}
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

// Mapping is the mapping that made the record.
func (h *Hash) Mapping() Mapping { return Mapping(h[recordHash:]) }

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

// unitVersion is the first byte of an encoded unit.
const unitVersion = 1

// Append appends the unit as a journal record holds it:
// version, number, table, count, and of each name the id and the hash.
func (u *Unit) Append(b []byte) []byte {
	b = append(b, unitVersion)
	b = binary.AppendUvarint(b, u.Number)
	b = appendText(b, u.Table)
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
	for i := range u.Names {
		n += u.Names[i].size()
	}
	return n
}

func (n Name) size() int { return len(n.ID) + len(Hash{}) + 4 }

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Errors of records that are no units.
var (
	errShort   = errors.New("the record ends too early")
	errLonger  = errors.New("the record goes on behind its last name")
	errVersion = errors.New("the record's version is not known: a later version of outbox-cdc may have written it")
)

// ParseUnit reads a journal record.
func ParseUnit(b []byte) (u Unit, err error) {
	p := parser{b: b}
	if version := p.take(1); p.err == nil && version[0] != unitVersion {
		return u, fmt.Errorf("%w (%d)", errVersion, version[0])
	}
	u.Number = p.uvarint()
	u.Table = p.text()
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

func (p *parser) text() string { return string(p.take(p.uvarint())) }
