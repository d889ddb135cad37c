package exactlyonce

import (
	"bytes"
	"slices"
	"sort"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// A table without state has no marks. A position and names tell which of its rows were published. Every row
// of the WAL up to the position is settled; rows behind it are named:
//
//	Every row that was published commits at or before the tally's position, or is named by a unit behind
//	the tally's head. Every row that commits at or before the position is settled.
//
// So the head passes a unit only together with a position at or behind the commits of all of its rows.

// Published are the rows that earlier leaders published and that the WAL may bring again.
type Published struct {
	Settled outbox.LSN // the tally's position
	// names holds hashes, perhaps millions. It is a plain slice to save memory, and sorted before the first
	// name is taken.
	names []Hash
	taken []bool
	left  int
}

// Add adds the names of a unit behind the tally's head. All calls come before the first Take.
func (p *Published) Add(u *Unit) {
	for i := range u.Names {
		p.names = append(p.names, u.Names[i].Hash)
	}
	p.left = len(p.names)
}

// Take reports whether a row of the WAL was published. It uses up the row's name: each name stands for one
// row.
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

// Positions are the units of a cluster's journal behind the tally's head, each with the latest commit
// position of its rows.
type Positions struct {
	// ends[i].upTo is the latest commit of the rows of this and all earlier units, so it only grows.
	ends []unitsEnd
	rows int
}

// unitsEnd is the last of several units that the head may pass at the same position.
type unitsEnd struct {
	number uint64
	offset int64
	upTo   outbox.LSN
	rows   int
}

// Add adds the next unit. rows is the number of its rows that Rows counts.
func (p *Positions) Add(number uint64, offset int64, upTo outbox.LSN, rows int) {
	p.rows += rows
	if last := len(p.ends) - 1; last >= 0 && p.ends[last].upTo >= upTo {
		e := &p.ends[last]
		e.number, e.offset, e.rows = number, offset, e.rows+rows
		return
	}
	p.ends = append(p.ends, unitsEnd{number, offset, upTo, rows})
}

// Before says that all rows added so far commit before a position, even if their units name later commits:
// such units come from a server that is gone. It returns the latest commit that these rows may have.
func (p *Positions) Before(insert outbox.LSN) (last outbox.LSN) {
	for i := range p.ends {
		p.ends[i].upTo = min(p.ends[i].upTo, max(insert, 1)-1)
		last = p.ends[i].upTo
	}
	return last
}

// Passed returns the last unit that the head may pass once everything up to a position is settled. Number
// is 0 if there is none.
func (p *Positions) Passed(settled outbox.LSN) (last Placed) {
	n := sort.Search(len(p.ends), func(i int) bool { return p.ends[i].upTo > settled })
	if n == 0 {
		return last
	}
	return Placed{Unit: Unit{Number: p.ends[n-1].number}, Offset: p.ends[n-1].offset}
}

// Noted says that the head has passed the unit with this number, and all before it.
func (p *Positions) Noted(number uint64) {
	n := sort.Search(len(p.ends), func(i int) bool { return p.ends[i].number > number })
	for _, e := range p.ends[:n] {
		p.rows -= e.rows
	}
	p.ends = slices.Delete(p.ends, 0, n)
}

// Rows is the number of rows whose names the next leader would hold in memory.
func (p *Positions) Rows() int { return p.rows }

// Empty reports whether the head has passed every unit.
func (p *Positions) Empty() bool { return len(p.ends) == 0 }
