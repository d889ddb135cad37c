package checkpoint

import (
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Where delivery is exactly once, what was published is known before anything is
// looked at: the journals are read, and the rows that they name are marked, before
// Connect. Each connection has a Core of its own, since what an earlier one had in
// memory may be in a journal by now. docs/exactly-once.md has the rules.

// unrecovered is why a cluster cannot be used yet. Its rows are left to the sweeper, which reads
// them when the journal was read. What the WAL brings before may be published already.
const unrecovered = "its journal was not read yet: which rows were published there is not known"

// Unmarked takes rows that were published and could not be marked, since somebody had them
// locked or they were not visible yet. The tally has them. Like rows whose mark is refused, they are
// parked, marked again and again, and never published.
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

// publishedBefore is Connected.Published, until the WAL has passed PublishedTo.
type publishedBefore struct {
	published func(*outbox.Row) bool
	to        outbox.LSN
}

// Settled is the position up to which every transaction that the WAL brings was received and is settled.
func (c *Core) Settled() outbox.LSN { return c.ledger.settled() }

// Received is the position before which everything was received.
func (c *Core) Received() outbox.LSN { return c.ledger.received }

// OneTransaction says whether the open transaction is the first unsettled one.
func (c *Core) OneTransaction() bool { return c.ledger.inTx && c.ledger.len() == 1 }
