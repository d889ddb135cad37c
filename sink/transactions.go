package sink

import (
	"context"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
)

// Transactions makes a Sink publish in Kafka transactions, each row exactly once. Every
// field is required. docs/exactly-once.md states the rules.
type Transactions struct {
	// Journal is the topic that names what was published: of this stream and cluster
	// alone, with one partition.
	Journal string
	// Tally is what the database knows of the journal, read before Run and as leader.
	Tally exactlyonce.Tally
	// Recover notes units in the database that it may not know, and marks their rows; journal
	// is the topic's id. It is called until there are no more, and nothing is published before
	// it returned. An error ends Run.
	Recover func(ctx context.Context, journal string, found *exactlyonce.Recovery) error
	// MaxRows is the most rows of one transaction.
	MaxRows int
	// Timeout is when brokers abort a transaction that nobody ends.
	Timeout time.Duration
}

const (
	// transactionBytes is about the most bytes of rows in one transaction, which has to be
	// over well within its timeout.
	transactionBytes = 16 << 20
	// stuckAfter is how long a transaction may go on without any acknowledgement. Then it is
	// aborted: while it is open, consumers see nothing behind it.
	stuckAfter = 5 * time.Second
	// unitRows are the most names of one journal record, whose rows one statement marks.
	unitRows = 1000
	// unitBytes are about the most bytes of a batch of the journal.
	unitBytes = 512 << 10
	// pageBytes are about the most bytes of units in memory at a recovery.
	pageBytes = 8 << 20
	// longestID is the longest id, in bytes, that the journal takes.
	longestID = 64 << 10
)

var (
	errLongID    = fmt.Errorf("its id is longer than %d bytes: the journal of published rows has no room for it", longestID)
	errIsJournal = fmt.Errorf("it is a journal of published rows, in which no row can be published: %w", sarama.ErrInvalidTopic)
)
