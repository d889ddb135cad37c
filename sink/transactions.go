package sink

import (
	"context"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
)

// Transactions makes a Sink publish in Kafka transactions, so that each row is published exactly once.
// Every field is required. docs/exactly-once.md states the rules.
type Transactions struct {
	// Journal is the topic for the names of published rows. It has one partition, and serves only this
	// stream and cluster.
	Journal string
	// Tally is what the database knows of the journal, read by the leader before Run.
	Tally exactlyonce.Tally
	// Recover notes units in the database that it may not know, and marks their rows. journal is the
	// topic's id. Recover is called until no units are left, and nothing is published before the last call
	// has returned. An error ends Run.
	Recover func(ctx context.Context, journal string, found *exactlyonce.Recovery) error
	// MaxRows is the maximum number of rows of one transaction.
	MaxRows int
	// Timeout is the time after which brokers abort a transaction that has not ended.
	Timeout time.Duration
}

const (
	// transactionBytes is the approximate maximum size in bytes of the rows of one transaction. A
	// transaction has to end well within its timeout.
	transactionBytes = 16 << 20
	// stuckAfter is how long a transaction may go without any acknowledgement. Then it is aborted, because
	// consumers see nothing behind an open transaction.
	stuckAfter = 5 * time.Second
	// unitRows is the maximum number of names in one journal record. One statement marks the rows of a
	// record.
	unitRows = 1000
	// unitBytes is the approximate maximum size in bytes of a batch of the journal.
	unitBytes = 512 << 10
	// pageBytes is the approximate maximum size in bytes of the units in memory during a recovery.
	pageBytes = 8 << 20
	// longestID is the maximum size in bytes of an id in the journal.
	longestID = 64 << 10
)

var (
	errLongID    = fmt.Errorf("its id is longer than %d bytes: the journal of published rows has no room for it", longestID)
	errIsJournal = fmt.Errorf("it is a journal of published rows, in which no row can be published: %w", sarama.ErrInvalidTopic)
)
