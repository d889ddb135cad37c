package outbox

import "time"

// This file holds what the stages of a stream say to one another.

// Class is what became of rows handed to the sink.
type Class uint8

// The classes of outcomes.
const (
	// Delivered: acknowledged by Kafka with acks=all.
	Delivered Class = iota + 1
	// Refused: the record failed alone, for a reason of its own. The sink has
	// blocked the row's key (NULL key: nothing) and gives back its later rows.
	Refused
	// Withdrawn: handed back unsent. It is not in the topic, and no outstanding request can
	// put it there. Scope says why: it is blocked, or was asked to be withdrawn.
	Withdrawn
	// TakenOut: it has left the sink unsent, as a Looked said. Another outcome of its key may come later.
	TakenOut
	// Stale is a question, not an outcome: these rows have waited in the sink for long, and stay where they are until
	// a Looked says what they are now.
	Stale
)

// Outcome is the sink's final word on rows, but for the class Stale. Each published row gets
// exactly one. Per key, outcomes come in the order of publishing, and Delivered rows
// form a prefix: after a Refused or Withdrawn row of a key come only Withdrawn
// ones until the scope is released.
type Outcome struct {
	Rows  []*Row
	Class Class
	Scope Scope // of Refused: the row's KeyScope; of Withdrawn: why
	// Blocked says that with this outcome the sink began to block Scope: the
	// first outcome of a topic's error, and every Refused of a row with a key.
	// Exactly one Release is owed for it.
	Blocked bool
	Err     error // of Refused, and of Withdrawn by a topic's error
	// Uncharged, of Refused: by the table's mapping the error is a passing one. The
	// row is retried for ever, and no attempt is charged.
	Uncharged bool
	// Sent is when the try that succeeded was sent, of Delivered. For measuring
	// only; zero: not known.
	Sent time.Time
	// Unit is, of Delivered exactly once, the journal record that names these rows
	// and no others, so an outcome has all rows of its unit. Else nil.
	Unit *Unit
}

// Unit is a record in the journal of a cluster where delivery is exactly once
// (docs/exactly-once.md). One transaction of the database marks its rows and notes it.
type Unit struct {
	Cluster string
	Number  uint64 // from 1, without gaps
	Place   int64  // its offset
	Rows    int    // how many it names
	// UpTo, of a table without state, is the last commit among its rows; else 0.
	UpTo LSN
}

// Command is one instruction to a sink: exactly one field is set. A sink
// carries commands out in order, so a Release comes before the rows behind it.
type Command struct {
	Publish []*Row
	// Release unblocks a scope that the sink blocked on an error.
	Release *Scope
	// Withdraw gives back, as Withdrawn, every row of the scope that was never
	// sent. It blocks nothing.
	Withdraw *Scope
	// Looked answers Stale: each Row goes out as Now, from its place, or not at all where Now is nil. A row that
	// has left the sink meanwhile counts for nothing.
	Looked []Checked
	// List asks which topics there are; the answer is a ClusterState.
	List bool
}

// ClusterState is the sink's word on a whole Kafka cluster.
type ClusterState struct {
	Cluster string
	Usable  bool
	Err     error // why not
	// Topics, where it is not nil, are those of the cluster that exist, that we may
	// see and that are not Kafka's own. Then nothing else is said.
	Topics map[string]bool
}

// MarkKind is what is to be written back.
type MarkKind uint8

// The kinds of marks.
const (
	MarkSent    MarkKind = iota + 1 // PENDING → SENT (or DELETE)
	MarkAttempt                     // one attempt charged; FAILED when the budget is used up
)

// Mark asks for one row's state to be written back.
type Mark struct {
	Row    *Row
	Reason string // of MarkAttempt: the error's text
	// Unit of MarkSent, where delivery is exactly once: the unit's rows are marked in
	// the transaction that notes it in the tally, and those that cannot be are put into the tally.
	Unit *Unit
	Kind MarkKind
	// Uncharged, of MarkAttempt: nothing is to be written. The answer is
	// MarkedRetry while the row is PENDING.
	Uncharged bool
	// Spends, of MarkAttempt: this attempt uses up the row's budget, since each further one would come
	// at once and end the same way.
	Spends bool
	// Refused says that the row was refused before, alone: it is tried apart from
	// rows that were not.
	Refused bool
	// InTally: the row could not be marked when its unit was noted, so the tally has it. The transaction
	// that marks it removes it there; a row that is not there is not marked.
	InTally bool
}

// MarkState is what the database says after a mark.
type MarkState uint8

// The states after a mark.
const (
	MarkedSent      MarkState = iota + 1 // written and committed
	MarkedRetry                          // attempt recorded, still PENDING
	MarkedFailed                         // attempt recorded, FAILED
	MarkedSettled                        // terminal already, or gone
	MarkedInvisible                      // not visible yet: ask again
	MarkedRefused                        // the database refuses the statement
)

// Marked is the answer to a Mark. Each mark gets exactly one.
type Marked struct {
	Row      *Row
	Attempts int   // of MarkedRetry and MarkedFailed: the stored count
	Err      error // of MarkedRefused
	Kind     MarkKind
	State    MarkState
	// Alone says of MarkedRefused that the row was refused by itself: rows next to
	// it may well be marked. Otherwise the table refuses them all.
	Alone bool
}

// CheckState is what the database says of a row that may already be settled.
type CheckState uint8

// The states of a checked row.
const (
	CheckPending   CheckState = iota + 1 // PENDING: publish
	CheckSettled                         // terminal or gone
	CheckInvisible                       // not visible yet: ask again
	CheckFailed                          // terminal, and it is FAILED
	CheckTaken                           // another relay has it: ask again
	CheckWaits                           // PENDING, and not due: for the watch to find
	CheckAgain                           // not read, since it is too long with those before it: ask again
)

// Checked is the answer for one row that was to be looked at.
type Checked struct {
	Row   *Row
	State CheckState
	// Now is the row as the look saw it, to be published in place of Row. It is set with CheckPending, if the table's rows
	// are looked at before they are published (Mapping.NeedsLook), the row is Stale, or it is Late and has changed; else nil.
	Now *Row
}

// Latest is the row as it is known now.
func (c *Checked) Latest() *Row {
	if c.Now != nil {
		return c.Now
	}
	return c.Row
}

// SweepRequest asks for one page of due PENDING rows, each table's in table
// order, all tables read from one fresh snapshot. The lists of the request are
// taken before that snapshot is.
type SweepRequest struct {
	Parts []SweepPart
	// Limit is the most rows wanted over all parts, the first parts first.
	Limit int
	// MaxBytes cuts the page (More) when the rows' sizes add up to it.
	MaxBytes int
	// ForHandback: the page is a hand-back's. It has rows of every age, also those
	// within the head start of the application's own relay.
	ForHandback bool
	// WriteWAL asks for WAL behind Page.Insert once the page was read, so that the
	// stream gets there on an idle server.
	WriteWAL bool
}

// SweepPart is one table's share of a SweepRequest.
type SweepPart struct {
	Table *Table
	// Include: rows of any of these scopes are wanted: one wide scope (stream,
	// cluster or table), any number of topics, or any number of key and row scopes.
	Include []Scope
	// Known, if not nil: only rows of these topics are wanted, whatever their scope.
	Known []Scope
	// Exclude: rows of these scopes are not wanted though included.
	Exclude []Scope
	// ExcludeIDs are in flight.
	ExcludeIDs []string
	// Horizon: transactions with smaller 64-bit ids ended so long ago that their
	// rows are Aged. 0: no such transaction is known.
	Horizon uint64
}

// Page answers a SweepRequest.
type Page struct {
	Rows []*Row
	// More says that the limit cut the page.
	More bool
	// Snapshot that the page was read in, and Insert, the WAL insert position
	// read after that snapshot was taken.
	Snapshot Snapshot
	Insert   LSN
}

// WatchRequest asks for PENDING rows, due and past their grace, that the
// stream may have missed. In flight and parked ones are left out.
type WatchRequest struct {
	Parts []SweepPart // Include is empty: every scope
	Limit int
}

// Candidates answers a WatchRequest.
type Candidates struct {
	Rows []*Row
	// Insert is the WAL insert position read with or after the rows. The edge
	// makes sure that WAL is written behind it, so that the stream gets there.
	Insert LSN
	// NextDue is when the next scheduled row becomes due, or zero.
	NextDue time.Time
}

// ParkChange is written in one transaction guarded by the leader epoch.
type ParkChange struct {
	Put    []Park
	Delete []Scope
}

// ParkResult is what became of a ParkChange.
type ParkResult uint8

// The results of a ParkChange. An unknown one (the connection broke during
// COMMIT) is written again as a whole. Losing the epoch is no result: it ends
// the leadership.
const (
	ParksCommitted ParkResult = iota + 1
	ParksUnknown
)

// Transaction is what the WAL says of one commit.
type Transaction struct {
	XID    uint32
	Commit LSN // position of the commit record
	End    LSN // position behind it: what is confirmed
	// Time of the commit by the server's clock, in microseconds since 1970.
	Time int64
}
