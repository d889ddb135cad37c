// Package statusupdater writes outcomes back into the user's own tables: marks
// in, answers out, in batched UPDATEs (or DELETEs) that change a row only while
// it is pending. Each mark gets exactly one answer, and only after the commit
// that it is about. Where another relay works on the same table, rows are claimed
// before they are published, by a lock that lasts until they are marked.
//
// It never decides what an outcome means, and never gives up: whatever passes (a broken
// connection, a lock, a server that starts) is repeated until the context ends. What the
// database refuses is answered as refused, and so is a row whose statement, with it
// alone, keeps failing in ways that usually pass. The pipeline's driver feeds it.
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

// DefaultClaims is how many claims may be open at a time.
const DefaultClaims = 4

// Config of an Updater. Zero fields take their defaults.
type Config struct {
	// Stream is whose marks they are, for the log.
	Stream string
	// Pool gives the connections. Its role needs SELECT on the columns of id
	// and state, and UPDATE on those of state (or DELETE).
	Pool *pgxpool.Pool
	// Tables are the stream's; marks of others are written too.
	Tables []*outbox.Table
	// Connections is how many statements may run at a time. 2 to 4 pay. Default 3.
	Connections int
	// BatchRows is the most rows of one statement. More than 1000 do not pay.
	// Default 1000.
	BatchRows int
	// Pace is the least time between two statements of one connection that are
	// not full, so that a trickle of marks does not become a statement each.
	// The first mark after a pause never waits. Default 5 ms.
	Pace time.Duration
	// LockTimeout is how long a statement waits for a row that somebody else
	// has locked. Then the locked rows are set aside, tried again each
	// LockedRetry, and hold nobody up. Defaults 500 ms, well below PostgreSQL's
	// deadlock_timeout (1 s), so that in a deadlock with an application's
	// statement over many rows it is we who give way; and 1 s.
	LockTimeout, LockedRetry time.Duration
	// StatementTimeout is after how long without an answer a connection is
	// given up. Default 12 s.
	StatementTimeout time.Duration
	// SlowTimeout is how long a statement may take with rows, or on a table, whose
	// statements hung before. Default 1 s.
	SlowTimeout time.Duration
	// BackoffMin and BackoffMax bound the wait before a statement is repeated
	// after an error that passes. Defaults 50 ms and 5 s.
	BackoffMin, BackoffMax time.Duration
	// Claims is how many claims may be open at a time, each with a connection of
	// its own besides Connections. Default DefaultClaims.
	Claims int
	// ClaimRows is the most rows of one claim. Default 1000.
	ClaimRows int
	// ClaimBytes is about how many bytes of a claim's rows are read at once. Default 16
	// MiB.
	ClaimBytes int
	// ClaimIdle is after how long without a word from us the server ends a
	// claim's session, and with it its locks: when this process was stopped, or
	// the network cut. It is set as idle_in_transaction_session_timeout of the
	// claim's transaction, whatever the server's own value; the session says
	// something every third of it. Default 15 s.
	ClaimIdle time.Duration
	// ClaimWarn is the age at which a claim is logged as a warning. Default 30 s.
	ClaimWarn time.Duration
	// OnBatch, where set, is told of every statement that was committed. It
	// must not block.
	OnBatch func(Batch)
	// Explain, where set, says more of a table's refusal, such as the table's new name. It may ask the database.
	Explain func(context.Context, *outbox.Table, error) error
	// Once, where delivery is exactly once, has marks of success written in the
	// transaction that notes their unit. nil: at least once.
	Once *Once
	Log  zerolog.Logger
}

// Batch is one committed statement, for metrics.
type Batch struct {
	Table *outbox.Table
	Kind  outbox.MarkKind
	Rows  int // written
	Took  time.Duration
}

// Stats counts what an Updater did since it was made.
type Stats struct {
	Waiting int64 // marks without an answer
	Claimed int64 // rows claimed that have neither a mark nor an Unclaim

	Statements, Repeated, Locked int64 // statements; those repeated after an error; rows set aside
}

// Updater is made by New and works while Run does.
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
	naming   *naming                            // where delivery is exactly once
	contents func() (*tablesql.Contents, error) // of rows that are claimed
}

// New returns an Updater that puts its answers into the mailbox. Config.Pool is
// required; what else is not positive takes its default.
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

// Do takes marks to be written back; those of claimed rows in their claim. It never blocks: what is in flight is
// bounded by the caller.
func (u *Updater) Do(marks ...outbox.Mark) {
	u.stats.waiting.Add(int64(len(marks)))
	if marks = u.claimed(marks); len(marks) > 0 {
		u.queue.put(marks)
	}
}

// Stats may be called by any goroutine.
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

// Run writes marks back until the context ends, and returns its error. Marks
// that have no answer by then may or may not have been written.
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
