// Package statusupdater writes outcomes back into the user's own tables. It takes marks and gives answers. In
// between it sends batched UPDATEs (or DELETEs), which change a row only while the row is pending. Each mark
// gets exactly one answer, and only after the commit that the answer reports. Where another relay works on
// the same table, rows are claimed before they are published, by a lock that lasts until they are marked.
//
// The package does not interpret outcomes, and it does not give up. After a temporary error (a broken
// connection, a lock, a server that starts) it repeats the statement until the context ends. A mark is
// answered as refused in two cases: the database refuses the row, or the row's statement, run for this row
// alone, keeps failing with an error that is usually temporary. The pipeline's driver feeds the package.
package statusupdater

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/outbox-cdc/outbox-cdc/internal/mailbox"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// DefaultClaims is the default number of claims that may be open at a time.
const DefaultClaims = 4

// Config configures an Updater. Zero fields take their defaults.
type Config struct {
	// Stream is the stream's name in the log.
	Stream string
	// Pool provides the connections. Its role needs SELECT on the id and state columns, and UPDATE on the
	// state columns (or DELETE).
	Pool *pgxpool.Pool
	// Tables are the stream's tables. Marks of other tables are written too.
	Tables []*outbox.Table
	// Connections is how many statements may run at a time. More than 4 bring no gain. Default 3.
	Connections int
	// BatchRows is the largest number of rows in one statement, except that a statement marks at least one whole unit.
	// More than 1000 bring no gain. Default 1000.
	BatchRows int
	// Pace is the shortest time between two statements of one connection that are not full, so that marks
	// that trickle in share statements. The first mark after a pause never waits. Default 5 ms.
	Pace time.Duration
	// LockTimeout is how long a statement waits for a locked row. After that, locked rows are set aside and
	// tried again every LockedRetry, while other rows go on. LockTimeout is well below PostgreSQL's
	// deadlock_timeout (1 s): in a deadlock with a large statement of the application, our statement is the
	// one that gives way. Defaults: 500 ms and 1 s.
	LockTimeout, LockedRetry time.Duration
	// StatementTimeout is how long a connection may take to answer before it is given up. Default 12 s.
	StatementTimeout time.Duration
	// SlowTimeout bounds a statement for rows, or on a table, whose statements hung before. Default 1 s.
	SlowTimeout time.Duration
	// BackoffMin and BackoffMax bound the pause before a statement is repeated after a temporary error.
	// Defaults 50 ms and 5 s.
	BackoffMin, BackoffMax time.Duration
	// Claims is how many claims may be open at a time. Each has a connection of its own, in addition to
	// Connections. Default DefaultClaims.
	Claims int
	// ClaimRows is the largest number of rows in one claim. Default 1000.
	ClaimRows int
	// ClaimBytes is roughly how many bytes of a claim's rows are read at once. Default 16 MiB.
	ClaimBytes int
	// ClaimIdle is how long this process may be silent before the server ends a claim's session, and with it
	// the locks. It matters when the process is stopped or the network is cut. It is the
	// idle_in_transaction_session_timeout of the claim's transaction, whatever the server's own setting. The
	// session sends a query every third of it. Default 15 s.
	ClaimIdle time.Duration
	// ClaimWarn is the age at which an open claim is logged as a warning. Default 30 s.
	ClaimWarn time.Duration
	// OnBatch, if set, is called for every committed statement. It must not block.
	OnBatch func(Batch)
	// Explain, if set, adds detail to a table's refusal, such as the table's new name. It may query the
	// database.
	Explain func(context.Context, *outbox.Table, error) error
	// Once, if set, selects exactly-once delivery: marks of success are written in the transaction that notes
	// their unit. nil: at-least-once delivery.
	Once *Once
	Log  zerolog.Logger
}

// Batch describes one committed statement, for metrics.
type Batch struct {
	Table *outbox.Table
	Kind  outbox.MarkKind
	Rows  int // rows written
	Took  time.Duration
}

// Stats counts an Updater's work since New.
type Stats struct {
	Waiting int64 // marks without an answer
	Claimed int64 // claimed rows without a mark or an Unclaim

	Statements, Repeated, Locked int64 // statements sent; statements repeated after an error; rows set aside
}

// Updater writes marks back. New makes it, and it works while Run does.
type Updater struct {
	cfg     Config
	answers *mailbox.Mailbox[outbox.Marked]
	queue   *queue
	claims  claims
	prepare bool
	targets *tablesql.RelationCache[*target]

	stats struct {
		waiting, statements, repeated, locked atomic.Int64
	}
}

type target struct {
	relation *tablesql.Relation
	marking  tablesql.Marking
	naming   *naming                            // set with exactly-once delivery
	contents func() (*tablesql.Contents, error) // of claimed rows
}

// New returns an Updater that puts its answers into the mailbox. Config.Pool is required. Other fields that
// are zero or negative take their defaults.
func New(cfg Config, answers *mailbox.Mailbox[outbox.Marked]) *Updater {
	setDefault(&cfg.Connections, 3)
	setDefault(&cfg.BatchRows, 1000)
	setDefault(&cfg.Pace, 5*time.Millisecond)
	setDefault(&cfg.LockTimeout, 500*time.Millisecond)
	setDefault(&cfg.LockedRetry, time.Second)
	setDefault(&cfg.StatementTimeout, 12*time.Second)
	setDefault(&cfg.SlowTimeout, time.Second)
	setDefault(&cfg.BackoffMin, 50*time.Millisecond)
	setDefault(&cfg.BackoffMax, 5*time.Second)
	setDefault(&cfg.Claims, DefaultClaims)
	setDefault(&cfg.ClaimRows, 1000)
	setDefault(&cfg.ClaimBytes, 16<<20)
	setDefault(&cfg.ClaimIdle, 15*time.Second)
	setDefault(&cfg.ClaimWarn, 30*time.Second)
	if cfg.OnBatch == nil {
		cfg.OnBatch = func(Batch) {}
	}
	of := newTarget
	if cfg.Once != nil {
		of = newNamedTarget
	}
	return &Updater{
		cfg:     cfg,
		answers: answers,
		queue:   newQueue(cfg.BatchRows, cfg.Connections, len(cfg.Tables)),
		claims:  claims{requests: make(chan claimRequest), byRow: make(map[*outbox.Row]*claim)},
		prepare: tablesql.Prepares(cfg.Pool.Config().ConnConfig),
		targets: tablesql.NewRelationCache(cfg.Tables, of),
	}
}

func setDefault[T int | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}

// Do queues marks to be written back. Marks of claimed rows are written within their claim. Do never blocks:
// the caller bounds how many marks are in flight.
func (u *Updater) Do(marks ...outbox.Mark) {
	u.stats.waiting.Add(int64(len(marks)))
	if marks = u.claimed(marks); len(marks) > 0 {
		u.queue.put(marks)
	}
}

// Stats returns the counts so far. Any goroutine may call it.
func (u *Updater) Stats() Stats {
	u.claims.mu.Lock()
	claimed := len(u.claims.byRow)
	u.claims.mu.Unlock()
	s := &u.stats
	return Stats{
		Waiting: s.waiting.Load(), Claimed: int64(claimed),
		Statements: s.statements.Load(), Repeated: s.repeated.Load(), Locked: s.locked.Load(),
	}
}

// Run writes marks back until the context ends, and returns its error. A mark without an answer by then may
// or may not have been written.
func (u *Updater) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, u.queue.close)
	defer stop()
	for range u.cfg.Connections {
		group.Go(func() error { return u.work(ctx) })
	}
	for range u.cfg.Claims {
		k := &keeper{u}
		group.Go(func() error { return k.run(ctx) })
	}
	return group.Wait()
}

func (u *Updater) answer(answers []outbox.Marked) {
	if len(answers) == 0 {
		return
	}
	u.stats.waiting.Add(-int64(len(answers)))
	u.answers.Put(answers...)
}
