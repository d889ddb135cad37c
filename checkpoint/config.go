package checkpoint

import (
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Config holds the bounds of a Core. Every bound is required, unless its field says what 0 means.
type Config struct {
	Tables []*outbox.Table

	// MaxRows and MaxBytes bound the rows in memory, in every state from kept to sent and not marked yet.
	// At the bound the WAL is not read.
	MaxRows  int
	MaxBytes int
	// PageRows is the maximum number of rows that one statement reads: a sweep's page, a look, a watch.
	PageRows int
	// SmallRound is the maximum size of a sweep's page, in rows, after which a hand-back may begin.
	SmallRound int
	// MaxKeys is how many keys of a table may be parked. With more, the table is parked.
	MaxKeys int
	// MaxTopics is how many unusable topics are parked one by one.
	MaxTopics int
	// MaxRetryingKeys is how many keys of a parked table may wait for a retry while the table is swept.
	// Beyond that a sweep would only find more such keys, without end.
	MaxRetryingKeys int
	// BackoffMin and BackoffMax bound the wait before the next try of a parked scope. The wait doubles with
	// each try.
	BackoffMin, BackoffMax time.Duration
	// HeldFor is how long after its commit a row of the WAL may still be published as it was inserted.
	HeldFor time.Duration
	// WALBudget is how much WAL the slot may retain, in bytes; 0: no limit.
	WALBudget uint64
	// WatchEvery is the interval of two searches: for rows that the stream missed, and for FAILED rows of
	// blocked keys.
	WatchEvery time.Duration
	// Shadow says that nothing is published, swept or marked. The stream is parked, so that the position is
	// confirmed past its rows, and stays parked until a start without Shadow.
	Shadow bool
}

// Waits that nobody configures. They are short compared with any configured wait.
const (
	invisibleWait = 50 * time.Millisecond  // before a row that is not visible yet is asked for again
	takenWait     = 250 * time.Millisecond // before a row that another relay has is asked for again
	lookPause     = 5 * time.Millisecond   // between looks at rows after their head start
	askSoon       = 500 * time.Millisecond // before the watch asks when a row becomes due, if the WAL does not show it
	sweepPause    = 250 * time.Millisecond // before a scope is swept again after a small page
	handbackLimit = 10 * time.Second       // a hand-back that takes longer than this and twice the longest head start gives up and is tried again
	ledgerFactor  = 8                      // bound on unsettled transactions and holds, as a multiple of MaxRows
	maxKeysASweep = 500                    // maximum number of parked keys in one sweep or hand-back
)
