package exactlyonce

import (
	"bytes"
	"slices"
	"sort"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// A table without state has no marks. What was published of it is known by a position, up to which every
// row of the WAL is settled, and by the names of rows behind it:
//
//	Every row that was published commits at or before the tally's position, or is named by a unit behind
//	the tally's head. Every row that commits at or before the position is settled.
//
// So the head passes a unit only together with a position that its rows are not behind.

// Published are the rows that earlier leaders published and the WAL may bring again.
type Published struct {
	Settled outbox.LSN // the tally's position
	// names can be millions, so they are a plain slice, sorted before the first one is
	// taken.
	names []Hash
	taken []bool
	left  int
}

// Add takes the names of a unit behind the tally's head, before any is taken.
func (p *Published) Add(u *Unit) {
	for i := range u.Names {
		p.names = append(p.names, u.Names[i].Hash)
	}
	p.left = len(p.names)
}

// Take says whether a row of the WAL was published. Each name stands for one row.
func (p *Published) Take(r *outbox.Row) bool {
	switch {
	case r.Commit <= p.Settled:
		return true
	case p.left == 0:
		return false
	case p.taken == nil:
		slices.SortFunc(p.names, compareHashes)
		p.taken = make([]bool, len(p.names))
	}
	name := NameInLog(r).Hash
	i, _ := slices.BinarySearchFunc(p.names, name, compareHashes)
	for ; i < len(p.names) && p.names[i] == name; i++ {
		if !p.taken[i] {
			p.taken[i] = true
			p.left--
			return true
		}
	}
	return false
}

func compareHashes(a, b Hash) int { return bytes.Compare(a[:], b[:]) }

// Positions are the units of a cluster's journal behind the tally's head, each with the last commit of
// its rows.
type Positions struct {
	// ends[i].upTo is the last commit of its rows and of all before, so it grows.
	ends []unitsEnd
	rows int
}

// unitsEnd is the last of units that the head passes at the same position.
type unitsEnd struct {
	number uint64
	offset int64
	upTo   outbox.LSN
	rows   int
}

// Add takes the next unit. rows are those that count, see Rows.
func (p *Positions) Add(number uint64, offset int64, upTo outbox.LSN, rows int) {
	p.rows += rows
	if last := len(p.ends) - 1; last >= 0 && p.ends[last].upTo >= upTo {
		e := &p.ends[last]
		e.number, e.offset, e.rows = number, offset, e.rows+rows
		return
	}
	p.ends = append(p.ends, unitsEnd{number, offset, upTo, rows})
}

// Before says that all rows so far commit before a position, and returns the last commit that they may
// have: units of a server that is gone may name later ones.
func (p *Positions) Before(insert outbox.LSN) (last outbox.LSN) {
	for i := range p.ends {
		p.ends[i].upTo = min(p.ends[i].upTo, max(insert, 1)-1)
		last = p.ends[i].upTo
	}
	return last
}

// Passed is the last unit that the head may pass when everything up to a position is settled; Number 0:
// none.
func (p *Positions) Passed(settled outbox.LSN) (last Placed) {
	n := sort.Search(len(p.ends), func(i int) bool { return p.ends[i].upTo > settled })
	if n == 0 {
		return last
	}
	return Placed{Unit: Unit{Number: p.ends[n-1].number}, Offset: p.ends[n-1].offset}
}

// Noted says that the head has passed a unit.
func (p *Positions) Noted(number uint64) {
	n := sort.Search(len(p.ends), func(i int) bool { return p.ends[i].number > number })
	for _, e := range p.ends[:n] {
		p.rows -= e.rows
	}
	p.ends = slices.Delete(p.ends, 0, n)
}

// Rows counts the rows whose names the next leader would have in memory.
func (p *Positions) Rows() int { return p.rows }

// Empty says that the head has passed every unit.
func (p *Positions) Empty() bool { return len(p.ends) == 0 }
