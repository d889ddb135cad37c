package exactlyonce

import (
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Tally is what the database knows of a journal. The transaction that marks the rows of a unit also notes
// the unit, once, and the rows that it could not mark. So marks and the knowledge of them are committed
// together, and lost together.
type Tally struct {
	Journal string // the topic's id; empty: no unit was ever noted
	// Closed says that the tally was closed: by a clean stop, or by a leader that delivers at least once.
	Closed bool
	// Head is the last unit before the first gap: every unit up to it is noted. The journal is read from
	// its offset on.
	Head Placed
	// Marked are the noted units behind the head: offsets by number.
	Marked map[uint64]int64
	// Left are published rows that could not be marked: locked, not visible, or refused by the database.
	Left []Left
	// LSN is the position up to which all rows of tables without state are settled.
	LSN outbox.LSN
}

// Left is a row that was published and still has to be marked.
type Left struct {
	Unit  uint64
	Table string
	Name  Name
}

// Missing returns the units that the database has not noted.
func (t *Tally) Missing(units []Placed) []Placed {
	return slices.DeleteFunc(slices.Clone(units), func(u Placed) bool {
		_, noted := t.Marked[u.Number]
		return noted || u.Number <= t.Head.Number
	})
}

// Seen is the state in which a look found a named row.
type Seen uint8

// The states.
const (
	Pending Seen = iota + 1 // PENDING, and we hold its lock
	Locked                  // somebody else holds its lock, so its state is not known
	Absent                  // not visible; it may still become visible
	Settled                 // terminal, or gone for good
)

// Settle says what a marking transaction does to a row that was published under a name, and now has this
// state and name: mark it SENT, keep it in Tally.Left, or neither.
func Settle(published Name, seen Seen, now Name) (mark, leave bool) {
	switch seen {
	case Pending:
		return now == published, false // under another name it is another row, which was not published
	case Locked, Absent:
		return false, true
	default:
		return false, false
	}
}
