package exactlyonce

import (
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Tally is what the database knows of a journal. A transaction that marks the rows of
// a unit also notes the unit, once, and the rows that it could not mark: so marks and
// the knowledge of them are kept together, or lost together.
type Tally struct {
	Journal string // the topic's id; empty: nothing was ever noted
	// Closed by a clean stop, or by a leader that delivers at least once.
	Closed bool
	// Head: every unit up to this one is noted. Its offset is where the journal is read from.
	Head Placed
	// Marked are the units behind the head that are noted, by number.
	Marked map[uint64]int64
	// Left are published rows that are not marked: locked, not visible, or refused.
	Left []Left
	// LSN: rows of tables without state are settled up to there.
	LSN outbox.LSN
}

// Left is a row that was published and is still to be marked.
type Left struct {
	Unit  uint64
	Table string
	Name  Name
}

// Missing are the units that the database knows nothing of.
func (t *Tally) Missing(units []Placed) []Placed {
	return slices.DeleteFunc(slices.Clone(units), func(u Placed) bool {
		_, noted := t.Marked[u.Number]
		return noted || u.Number <= t.Head.Number
	})
}

// Seen is what a look found of a named row.
type Seen uint8

// What can be found.
const (
	Pending Seen = iota + 1 // and its lock is ours
	Locked                  // somebody else's lock: nothing is known
	Absent                  // may still become visible
	Settled                 // terminal, or gone for good
)

// Settle says what a marking transaction does to a row that was published under a name,
// and now has this state and name.
func Settle(published Name, seen Seen, now Name) (mark, leave bool) {
	switch seen {
	case Pending:
		return now == published, false // another name: another row, which was not published
	case Locked, Absent:
		return false, true
	default:
		return false, false
	}
}
