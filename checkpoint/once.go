package checkpoint

import (
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// For exactly-once delivery, it is known what was published before any row is looked at: the journals are
// read, and the rows that they name are marked, before Connect. Each connection has a Core of its own,
// since rows that an earlier one had in memory may be in a journal by now. docs/exactly-once.md has the
// rules.

// unrecovered is the reason why a cluster cannot be used yet. Its rows are left to the sweeper, which reads
// them after the journal was read. Rows that the WAL brings before that may have been published already.
const unrecovered = "its journal was not read yet: which rows were published there is not known"

// Unmarked takes rows that were published and could not be marked, because somebody else had them locked or
// because they were not visible yet. The tally has them. Like rows whose mark is refused, they are parked,
// marked again until it succeeds, and never published.
func (c *Core) Unmarked(rows []*outbox.Row) {
	for _, r := range rows {
		p := c.parks.of(outbox.RowScope(r))
		switch {
		case p == nil || !p.Unmarked():
			p = c.park(outbox.RowScope(r), outbox.CauseWriteBack, "it was published, and could not be marked yet", time.Time{})
			c.rememberCreated(p, r.CreatedAt)
		case p.created != r.CreatedAt && !slices.Contains(p.othersInTally, r.CreatedAt):
			p.othersInTally = append(p.othersInTally, r.CreatedAt)
		}
		p.tallied()
	}
}

// publishedBefore is Connected.Published. It is dropped when the WAL has passed PublishedTo.
type publishedBefore struct {
	published func(*outbox.Row) bool
	to        outbox.LSN
}

// Settled returns the position up to which every transaction of the WAL was received and is settled.
func (c *Core) Settled() outbox.LSN { return c.ledger.settled() }

// Received returns the position below which everything was received.
func (c *Core) Received() outbox.LSN { return c.ledger.received }

// OneTransaction reports whether a transaction is open and all earlier ones are settled.
func (c *Core) OneTransaction() bool { return c.ledger.inTx && c.ledger.len() == 1 }
