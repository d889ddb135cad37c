package outbox

import "time"

// This file has the messages that the stages of a stream exchange.

// Class is the kind of outcome of rows that the sink was given.
type Class uint8

// The classes of outcomes.
const (
	// Delivered: Kafka acknowledged the records with acks=all.
	Delivered Class = iota + 1
	// Refused: the record itself was refused. The sink now blocks the row's key and returns later rows of the
	// key. A row with a NULL key blocks nothing.
	Refused
	// Withdrawn: the rows are returned unsent. They are not in the topic, and no outstanding request can put
	// them there. Scope is the reason: a scope that is blocked, or one that was withdrawn by a Command.
	Withdrawn
	// TakenOut: a Looked took the row out of the sink before it was sent. Later outcomes of its key may
	// follow.
	TakenOut
	// Stale is a question and no outcome. These rows have waited long in the sink. They stay there until a
	// Looked says what they are now.
	Stale
)

// Outcome is the sink's final answer about rows, except for class Stale. Each published row gets exactly one.
// Outcomes of one key come in the order of publishing. The Delivered rows of a key come first: after a
// Refused or Withdrawn row, all further rows of the key are Withdrawn until the scope is released.
type Outcome struct {
	Rows  []*Row
	Class Class
	Scope Scope // for Refused: the row's KeyScope; for Withdrawn: the reason
	// Blocked says that the sink began to block Scope with this outcome: it is the first outcome of a topic's
	// error, or a Refused row with a key. The sink then expects exactly one Release of the scope.
	Blocked bool
	Err     error // set for Refused, and for a Withdrawn by a topic's error
	// Uncharged, for Refused: the table's mapping counts the error as temporary. No attempt is charged, and
	// the row is retried without end.
	Uncharged bool
	// Sent, for Delivered, is when the successful request was sent; zero: unknown. It is used for
	// measurements only.
	Sent time.Time
	// Unit, for Delivered with exactly-once delivery, is the journal record that names exactly these rows. So
	// one outcome has all rows of the unit. Otherwise nil.
	Unit *Unit
}

// Unit is a record in a cluster's journal, with exactly-once delivery (docs/exactly-once.md). One database
// transaction marks its rows and notes the unit.
type Unit struct {
	Cluster string
	Number  uint64 // counts from 1, without gaps
	Place   int64  // offset in the journal
	Rows    int    // how many rows it names
	// UpTo is the commit position of its last row, for tables without state; otherwise 0.
	UpTo LSN
}

// Command is one instruction to a sink. Exactly one field is set. A sink carries commands out in order, so a
// Release takes effect before rows that are published after it.
type Command struct {
	Publish []*Row
	// Release unblocks a scope that the sink blocked after an error.
	Release *Scope
	// Withdraw returns, as Withdrawn, every row of the scope that was never sent. It does not block the
	// scope.
	Withdraw *Scope
	// Looked answers Stale. Each Row is replaced by Now in the same place, or taken out if Now is nil. A Row
	// that is no longer in the sink is ignored.
	Looked []Checked
	// List asks for the names of the existing topics. The answer is a ClusterState.
	List bool
}

// ClusterState is a sink's report about its whole Kafka cluster.
type ClusterState struct {
	Cluster string
	Usable  bool
	Err     error // why the cluster cannot be used
	// Topics, if not nil, are the existing topics of the cluster that we may see, without Kafka's own. Such a
	// report says nothing else.
	Topics map[string]bool
}

// MarkKind is the kind of state that is written back.
type MarkKind uint8

// The kinds of marks.
const (
	MarkSent    MarkKind = iota + 1 // PENDING → SENT (or the row is deleted)
	MarkAttempt                     // charges one attempt; the row becomes FAILED when its budget is used up
)

// Mark asks to write back the state of one row.
type Mark struct {
	Row    *Row
	Reason string // for MarkAttempt: the error's text
	// Unit, for MarkSent with exactly-once delivery: the unit's rows are marked in the transaction that notes
	// the unit in the tally. Rows that cannot be marked are listed in the tally instead.
	Unit *Unit
	Kind MarkKind
	// Uncharged, for MarkAttempt: nothing is written. The answer is MarkedRetry while the row is PENDING.
	Uncharged bool
	// Spends, for MarkAttempt: this attempt uses up the row's whole budget. Further attempts would follow at
	// once and end the same way.
	Spends bool
	// Refused says that the row was refused before, by itself. It is tried apart from other rows.
	Refused bool
	// InTally: the row is listed in the tally, since it could not be marked when its unit was noted. The
	// transaction that marks the row also removes it from the list. A row that is not listed is not marked.
	InTally bool
}

// MarkState is the database's answer to a mark.
type MarkState uint8

// The states after a mark.
const (
	MarkedSent      MarkState = iota + 1 // written and committed
	MarkedRetry                          // attempt charged, still PENDING
	MarkedFailed                         // attempt charged, now FAILED
	MarkedSettled                        // in a terminal state before, or gone
	MarkedInvisible                      // the row is not visible yet: ask again
	MarkedRefused                        // the database refuses the statement
)

// Marked is the answer to a Mark. Each mark gets exactly one.
type Marked struct {
	Row      *Row
	Attempts int   // for MarkedRetry and MarkedFailed: the stored count
	Err      error // for MarkedRefused
	Kind     MarkKind
	State    MarkState
	// Alone, for MarkedRefused: this row was refused by itself, so other rows may well be marked. Otherwise
	// the table refuses all rows.
	Alone bool
}

// CheckState is the state of a row that was looked up.
type CheckState uint8

// The states of a checked row.
const (
	CheckPending   CheckState = iota + 1 // PENDING: publish
	CheckSettled                         // in a terminal state, or gone
	CheckInvisible                       // the row is not visible yet: ask again
	CheckFailed                          // in the terminal state FAILED
	CheckTaken                           // another relay has it: ask again
	CheckWaits                           // PENDING but not due: the watch will find it
	CheckAgain                           // not read, since the lookup's limit of bytes was reached: ask again
)

// Checked is the answer for one row that was looked up.
type Checked struct {
	Row   *Row
	State CheckState
	// Now is the row as the lookup read it, to be published in place of Row; otherwise nil. It is set with
	// CheckPending in three cases: the table's rows are looked up before they are published
	// (Mapping.NeedsLook), the row is Stale, or the row is Late and has changed.
	Now *Row
}

// Latest returns Now, or Row where Now is nil.
func (c *Checked) Latest() *Row {
	if c.Now != nil {
		return c.Now
	}
	return c.Row
}

// SweepRequest asks for one page of PENDING rows that are due. The rows of each table come in table order,
// and all tables are read in one new snapshot. The lists in the request were made before that snapshot.
type SweepRequest struct {
	Parts []SweepPart
	// Limit is the largest number of rows wanted from all parts. Earlier parts come first.
	Limit int
	// MaxBytes ends the page (with More) when the sizes of its rows add up to it.
	MaxBytes int
	// ForHandback: the page is for a hand-back. It has rows of every age, including those within the head
	// start of the application's own relay.
	ForHandback bool
	// WriteWAL asks for a WAL record after Page.Insert, once the page is read, so that the stream reaches
	// that position even on an idle server.
	WriteWAL bool
}

// SweepPart is what a SweepRequest wants of one table.
type SweepPart struct {
	Table *Table
	// Include are the wanted scopes: one wide scope (stream, cluster or table), any number of topics, or any
	// number of key and row scopes.
	Include []Scope
	// Known, if not nil, restricts the rows to these topics, in addition to Include.
	Known []Scope
	// Exclude are scopes within Include that are not wanted.
	Exclude []Scope
	// ExcludeIDs are the ids of rows in flight, which are not wanted.
	ExcludeIDs []string
	// Horizon: rows written by transactions with smaller 64-bit ids are Aged, because these transactions
	// ended long enough ago. 0: no such id is known.
	Horizon uint64
}

// Page is the answer to a SweepRequest.
type Page struct {
	Rows []*Row
	// More says that a limit ended the page, so further rows may follow.
	More bool
	// Snapshot is the snapshot that the page was read in. Insert is the WAL insert position, read after the
	// snapshot was taken.
	Snapshot Snapshot
	Insert   LSN
}

// WatchRequest asks for PENDING rows, due and older than their grace, that the stream may have missed. Rows
// in flight and parked rows are left out.
type WatchRequest struct {
	Parts []SweepPart // Include is empty: every scope is wanted
	Limit int
}

// Candidates is the answer to a WatchRequest.
type Candidates struct {
	Rows []*Row
	// Insert is the WAL insert position, read with the rows or after them. The reader also writes a WAL
	// record behind it, so that the stream reaches that position.
	Insert LSN
	// NextDue is when the next scheduled row becomes due; zero: none is scheduled.
	NextDue time.Time
}

// ParkChange is a change of the parks. It is written in one transaction, guarded by the leader epoch.
type ParkChange struct {
	Put    []Park
	Delete []Scope
}

// ParkResult is the result of writing a ParkChange.
type ParkResult uint8

// The results of a ParkChange. After an unknown result (the connection broke during COMMIT) the whole change
// is written again. Losing the epoch is not among the results, because it ends the leadership.
const (
	ParksCommitted ParkResult = iota + 1
	ParksUnknown
)

// Transaction describes one commit in the WAL.
type Transaction struct {
	XID    uint32
	Commit LSN // position of the commit record
	End    LSN // position after the commit record, which is confirmed
	// Time is the server's clock at the commit, in microseconds since 1970.
	Time int64
}
