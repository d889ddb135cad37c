package checkpoint

import (
	"time"

	"github.com/outbox-cdc/outbox-cdc/outbox"
)

// Core is one stream's decisions. Inputs are methods; what they lead to is
// collected until Take.
type Core struct{}

// New returns a Core that has no connection yet.
func New(cfg Config) *Core { panic("stub") }

// Tick tells the time. Every other input happens at the last time told.
func (c *Core) Tick(now time.Time) {}

// NextTick is when Tick should be called at the latest even if nothing
// happens, or zero.
func (c *Core) NextTick() time.Time { return time.Time{} }

// Connect begins a replication connection (or makes one streaming, see
// Connected). Rows still in flight from an earlier connection stay in flight.
func (c *Core) Connect(conn Connected) {}

// Disconnect ends the connection: the log's ledger, checks, kept rows, rounds
// and hand-backs of it are void. Outstanding Check, Sweep, Watch and Rewatch
// requests are void too: their answers must not be delivered any more. Parks
// stays outstanding.
func (c *Core) Disconnect() {}

// SlotMayBeMade says that the stream's park is durable, so that a slot, whose
// making confirms a position, may be made.
func (c *Core) SlotMayBeMade() bool { return false }

// Begin, Rows and Commit feed one transaction of the log, Rows any number of
// times. Rows carry XID and Commit of their transaction.
func (c *Core) Begin(tx outbox.Transaction) {}

// Rows feeds rows of the open transaction in the order of the log.
func (c *Core) Rows(rows []*outbox.Row) {}

// Commit ends the open transaction; end is the position behind it.
func (c *Core) Commit(end outbox.LSN) {}

// Keepalive says that everything below walEnd was received.
func (c *Core) Keepalive(walEnd outbox.LSN) {}

// TableBroken says that from here on the log's rows of the table cannot be
// read as its mapping says; no row of it will be fed until TableMapped.
// Since its rows are then passed over unread, the log must not be confirmed
// past this point until the table's park is durable; the Core sees to that.
func (c *Core) TableBroken(t *outbox.Table, err error) {}

// TableMapped says that rows of the table can be read again.
func (c *Core) TableMapped(t *outbox.Table) {}

// ParkStream parks the whole stream (unreadable WAL, publication changed).
func (c *Core) ParkStream(cause outbox.Cause, reason string) {}

// Retained tells how many bytes of WAL the slot retains.
func (c *Core) Retained(bytes uint64) {}

// Outcome takes the sink's word on rows.
func (c *Core) Outcome(o outbox.Outcome) {}

// Cluster takes the sink's word on a cluster.
func (c *Core) Cluster(s outbox.ClusterState) {}

// Marked takes answers to Marks.
func (c *Core) Marked(answers []outbox.Marked) {}

// Checked answers Check, every row of it, read in one snapshot.
func (c *Core) Checked(answers []outbox.Checked) {}

// Swept answers Sweep.
func (c *Core) Swept(page outbox.Page) {}

// SweepRefused answers Sweep: the database refuses the statement for a table
// (missing column, missing privilege).
func (c *Core) SweepRefused(t *outbox.Table, err error) {}

// Watched answers Watch.
func (c *Core) Watched(found outbox.Candidates) {}

// Rewatched answers Rewatch: those that are still PENDING.
func (c *Core) Rewatched(pending []*outbox.Row) {}

// ParksWritten answers Parks.
func (c *Core) ParksWritten(r outbox.ParkResult) {}

// Drain begins a clean stop: nothing new is read, swept, watched or checked;
// what was never sent is withdrawn; what was sent is awaited and marked.
func (c *Core) Drain() {}

// Drained says that nothing is in flight any more.
func (c *Core) Drained() bool { return false }

// Take returns what is to be done and forgets it.
func (c *Core) Take() Ready { return Ready{} }

// Reading says whether the log may be read further.
func (c *Core) Reading() bool { return false }

// Confirm is the position that may be confirmed on this connection; it never
// goes back within one. Zero: none yet.
func (c *Core) Confirm() outbox.LSN { return 0 }
