package checkpoint

import (
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Config bounds a Core. Every field is required.
type Config struct {
	Tables []*outbox.Table

	// MaxRows and MaxBytes bound the rows in memory: queued, sent, acked and
	// unmarked, and kept. At the bound the WAL is not read.
	MaxRows  int
	MaxBytes int
	// PageRows is the most rows that one statement reads: of a sweep's page, a look, a watch.
	PageRows int
	// SmallRound is the size of a sweep round, in rows, after which a hand-back
	// may begin.
	SmallRound int
	// MaxKeys is how many keys of a table may be parked before the table is.
	MaxKeys int
	// MaxTopics is how many topics that cannot be used are parked one by one.
	MaxTopics int
	// MaxRetryingKeys is how many keys of a parked table may wait for a retry while it
	// is swept. With more a sweep would only find more of them, without end.
	MaxRetryingKeys int
	// BackoffMin and BackoffMax bound the wait before a parked scope's next
	// try; it doubles from one to the other.
	BackoffMin, BackoffMax time.Duration
	// HeldFor is how long after its commit a row of the WAL may go out as it was inserted.
	HeldFor time.Duration
	// WALBudget is how many bytes of WAL the slot may retain; 0: no limit.
	WALBudget uint64
	// WatchEvery is how often rows that the stream missed are looked for, and FAILED rows of blocked keys.
	WatchEvery time.Duration
	// Shadow: nothing is published, swept or marked. The stream is parked, so that
	// its rows are confirmed past, and stays so until a start without Shadow.
	Shadow bool
}

// Waits of the core's own, short against anything a person sets.
const (
	invisibleWait = 50 * time.Millisecond  // before asking again for a row that is not visible yet
	takenWait     = 250 * time.Millisecond // before asking again for a row that another relay has
	lookPause     = 5 * time.Millisecond   // between looks at rows after their head start
	askSoon       = 500 * time.Millisecond // before the watch asks when a row becomes due, where the WAL does not show it
	sweepPause    = 250 * time.Millisecond // between sweeps of a scope that found nothing to do
	handbackLimit = 10 * time.Second       // after this and twice the longest head start a hand-back gives up and is tried again
	ledgerFactor  = 8                      // unsettled transactions and holds, per row of MaxRows
	maxKeysASweep = 500                    // parked keys in one sweep or hand-back
)
