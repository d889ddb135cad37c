// Package pipeline is one stream's flow. A driver goroutine owns the
// checkpoint.Core, feeds it what happens and carries out what it decides; the WAL
// reader owns the replication connection; sinks, the status updater and the
// queries of the sweeper do the rest:
//
//	WAL → WAL reader → decoder → core → publish → sink → outcome → core → mark →
//	statusupdater → core → confirm → WAL reader
//
// The package decides nothing about rows (package checkpoint does) and speaks
// no protocol of its own. It is called by cmd, which hands in the parts.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/exactlyonce"
	"github.com/outbox-cdc/outbox-cdc/internal/failpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/loglimit"
	"github.com/outbox-cdc/outbox-cdc/internal/mailbox"
	"github.com/outbox-cdc/outbox-cdc/internal/metrics"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/secret"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/internal/sweeper"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/internal/tracing"
	"github.com/outbox-cdc/outbox-cdc/internal/wait"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/statusupdater"
)

// Config is one stream.
type Config struct {
	Name string
	// Tables of the stream, with their mappings.
	Tables []*outbox.Table
	// Pool is the database with the role that reads and marks rows.
	Pool *pgxpool.Pool
	// Password is that role's, where the pool's connection string does not have it.
	Password secret.Reader
	// TimelineGuard admits the Pool's connections (AfterConnect). nil: any.
	TimelineGuard *TimelineGuard
	// Replication is the replication connection, its slot and publication.
	Replication replication.Config
	// Sinks by Kafka cluster. The TransactionalID must be the stream's alone.
	Sinks map[string]sink.Config
	// Core bounds memory, pages and waits.
	Core checkpoint.Config
	// Once, if set, has each row delivered exactly once.
	Once *Once
	// Shadow: rows are read, mapped and counted, and nothing is published, swept,
	// marked or deleted. No sink is made.
	Shadow bool
	// Limits bound how fast rows are taken.
	Limits Limits
	// MarkConnections and MarkRows: see statusupdater.Config.
	MarkConnections, MarkRows int
	// HeartbeatInterval is how often WAL is written so that the slot of an idle
	// database moves on.
	HeartbeatInterval time.Duration
	// KeepSlot: the slot is not given up where others have it hold back more than the WAL budget.
	KeepSlot bool
	// DrainTimeout bounds a clean stop.
	DrainTimeout time.Duration
	// Silence is how long the replication connection of a leader may be quiet before that is a fault; 0: for ever.
	Silence time.Duration
	// Unproven is why the stream has not been seen to be able to do its work since the process started, or
	// empty; nil: nobody looks.
	Unproven func() string

	Metrics *metrics.Stream
	// Traces makes spans; nil: none.
	Traces *tracing.Stream
	Log    zerolog.Logger
}

// Waits between two tries to lead.
const (
	retryMin  = 250 * time.Millisecond
	retryMax  = 15 * time.Second
	goodAfter = 30 * time.Second // a term that lasted this long resets the wait
	// claimedPause: the other stream may be this one's earlier name, about to stop.
	claimedPause = 2 * time.Second
)

// Stream runs one stream.
type Stream struct {
	cfg   Config
	store *store
	// failed is the error that keeps the stream from working, logged once.
	failed atomic.Pointer[string]
	// unreachable: what failed is that the database could not be asked.
	unreachable atomic.Bool
	watchdog    watchdog
	tracker     statusTracker
	locks       locks
	// silence is the WAL reader's, and so is remake: why the slot must be re-created though it
	// looks sound. It outlives a term where a term ends with its connection.
	silence silence
	remake  checkpoint.Connected
	// relations are the tables' as last seen, for a schema that has no place for them.
	relations atomic.Pointer[map[string]uint32]
	// text: a column's binary form is not understood, the WAL has to be text.
	text atomic.Bool
	// judgedRights: the role's rights were looked at, by the goroutine of Run.
	judgedRights bool
	// recount asks for the failed rows to be counted.
	recount chan struct{}
}

// New prepares a stream. It connects nowhere.
func New(cfg Config) *Stream {
	cfg.Core.Shadow = cfg.Shadow
	if cfg.TimelineGuard == nil {
		cfg.TimelineGuard = &TimelineGuard{}
	}
	if cfg.Once != nil && !cfg.Shadow {
		cfg.Metrics.ExactlyOnce(slices.Collect(maps.Keys(cfg.Once.Journals)), exactlyonce.Causes())
	}
	return &Stream{
		cfg: cfg, store: &store{db: postgres.On(cfg.Pool), Store: statestore.New(statestore.Config{DB: cfg.Pool, Stream: cfg.Name})},
		recount: make(chan struct{}, 1), locks: newLocks(&cfg), watchdog: watchdog{since: time.Now()},
		tracker: statusTracker{
			tables: map[string]status.Table{}, kafka: map[string]status.Cluster{},
			tallies: map[string]status.Tally{}, transactions: map[string]status.Transactions{}, lastUnit: map[string]uint64{},
		},
	}
}

// Failing is what keeps the stream from working, for people, or empty.
func (s *Stream) Failing() string {
	if text := s.failed.Load(); text != nil {
		return *text
	}
	return ""
}

// errUnasked: a term has ended, and neither an error nor a stop is known that ended it.
var errUnasked = errors.New("its work ended without an error, though nobody had asked it to stop")

// Run leads whenever it can, until ctx ends: then it drains within the
// configured time and returns nil. Errors are logged and retried with growing
// waits; one that only a person can fix is retried at the slowest pace, and
// said once.
func (s *Stream) Run(ctx context.Context) error {
	waits := growing(retryMin, retryMax)
	for {
		began := time.Now()
		err := s.term(ctx)
		if errors.Is(err, exactlyonce.ErrJournal) { // it was deleted, truncated or replaced
			err = &postgres.Error{
				Permanent: true, What: "deliver exactly once", Err: err,
				Hint: "if its topic was deleted or truncated, stop the process and run outbox-cdc journal reset --stream " + s.cfg.Name + ", after which rows that are not marked yet are published once more",
			}
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // stopping: what a stop interrupts is no failure
		}
		if err == nil {
			err = errUnasked
		}
		if time.Since(began) > goodAfter {
			waits.Reset()
		}
		pause := waits.NextBackOff()
		switch {
		case errors.Is(err, statestore.ErrClaimed):
			pause = claimedPause
		case postgres.Permanent(err), errors.Is(err, errForeign):
			pause = retryMax
		}
		if errors.Is(err, errSuperseded) || errors.Is(err, errMoved) || errors.Is(err, errNewTerm) || errors.Is(err, exactlyonce.ErrSuperseded) { // as it should
			s.cfg.Log.Info().Msg(err.Error())
		} else {
			s.cfg.Metrics.Lost()
			s.tracker.lost()
			s.report(err, pause)
		}
		if wait.Sleep(ctx, pause) != nil {
			return nil //nolint:nilerr // stopping
		}
	}
}

// report says an error once, and again when it changes.
func (s *Stream) report(err error, pause time.Duration) {
	text := postgres.Text(err)
	s.tracker.recordError("the stream", text, "")
	s.unreachable.Store(postgres.Unreachable(err))
	if before := s.failed.Swap(&text); before != nil && *before == text {
		return
	}
	s.cfg.Log.Error().Ctx(loglimit.About(text)).Err(err).Dur("retry_in", pause).Bool("needs_a_person", postgres.Permanent(err)).Msg("the stream does not work")
}

// take makes this process the stream's leader, of an epoch of its own, and claims
// its tables. The leader of another stream of them is not disturbed.
func (s *Stream) take(ctx context.Context) (statestore.Leadership, error) {
	if err := s.unclaimed(ctx); err != nil {
		return statestore.Leadership{}, err
	}
	lead, err := s.store.lead(ctx, s.cfg.Replication.Name)
	if err != nil || s.cfg.Shadow {
		return lead, err
	}
	if err := s.refuseChange(ctx); err != nil {
		return lead, err
	}
	before, err := s.store.Claim(ctx, s.claim())
	for _, r := range before {
		s.cfg.Log.Info().Str("table", r.Table).Str("from", r.Stream).Str("slot", r.Slot).
			Msg("taking the table over from a stream that leads no longer; nothing uses its slot any more if it was renamed")
	}
	return lead, err
}

// How a claim says that rows are delivered.
const (
	atLeastOnce = "at_least_once"
	exactlyOnce = "exactly_once"
)

// claim is what this stream publishes.
func (s *Stream) claim() statestore.Claim {
	c := statestore.NewClaim(s.cfg.Replication.Slot, replication.LockKey(s.cfg.Replication.Slot), s.cfg.Tables)
	if c.Delivery = atLeastOnce; s.cfg.Once != nil {
		c.Delivery, c.IDs = exactlyOnce, map[string]string{}
		for cluster, sc := range s.cfg.Sinks {
			c.IDs[cluster] = sc.TransactionalID
		}
	}
	return c
}

// noteClean says that all that was published is marked, or confirmed where the tables keep no state. A
// change of delivery asks for it.
func (s *Stream) noteClean(ctx context.Context) {
	if s.cfg.Shadow {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, closeWithin)
	defer cancel()
	if err := s.store.Clean(ctx); err != nil {
		s.cfg.Log.Info().Err(err).Msg("the clean stop could not be noted: a change of delivery is refused until another is")
	}
}

// unclaimed says whose the stream's tables are, before anything is taken.
func (s *Stream) unclaimed(ctx context.Context) error {
	if s.cfg.Shadow {
		return nil
	}
	rivals, err := s.store.Rivals(ctx, s.claim())
	if err != nil {
		return nil //nolint:nilerr // whatever it is, the claim says it
	}
	return statestore.Refusal(s.cfg.Name, s.claim(), rivals)
}

// watchdog knows when a stream's driver last went round its loop. A driver at work
// goes round at least once a second, so one that does not is stuck.
type watchdog struct {
	since time.Time // monotonic: a clock that is set must not look like a halt
	last  atomic.Int64
}

func (t *watchdog) alive(now time.Time) { t.last.Store(max(1, int64(now.Sub(t.since)))) }
func (t *watchdog) idle()               { t.last.Store(0) }

// Halted is how long ago the driver last went round its loop. It is 0 while no
// driver is at work: another process leads, or the next try to connect waits.
func (s *Stream) Halted(now time.Time) time.Duration {
	last := s.watchdog.last.Load()
	if last == 0 {
		return 0
	}
	return max(0, now.Sub(s.watchdog.since)-time.Duration(last))
}

// store is the stream's parks. Writing parks and taking the lead again, on
// different goroutines, must not overlap: a write of the epoch before would be
// taken for another leader's victory.
type store struct {
	mu sync.Mutex
	db postgres.DB
	*statestore.Store
}

func (s *store) lead(ctx context.Context, holder string) (statestore.Leadership, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := replication.TrustSchema(ctx, s.db)
	if errors.Is(err, replication.ErrNoSchema) {
		err = &postgres.Error{
			Permanent: true, What: "take the lead", Hint: "run outbox-cdc init",
			Err: fmt.Errorf("%w: %w", statestore.ErrNoSchema, replication.ErrNoSchema),
		}
	}
	if err != nil {
		return statestore.Leadership{}, err
	}
	return s.Store.Lead(ctx, holder)
}

func (s *store) write(ctx context.Context, change outbox.ParkChange) (result outbox.ParkResult, err error) {
	if err := failpoint.Here(failpoint.BeforeParkWrite); err != nil {
		return result, err
	}
	s.mu.Lock()
	result, err = s.Store.Write(ctx, change)
	s.mu.Unlock()
	if err == nil {
		err = failpoint.Here(failpoint.AfterParkWrite)
	}
	return result, err
}

// tellStandby tells that another process leads.
func (s *Stream) tellStandby(h replication.Holder) {
	s.failed.Store(nil)
	s.cfg.Metrics.Standby()
	s.tracker.follows(h)
	if text := h.Intruder(); text != "" {
		s.cfg.Metrics.LockForeign()
		s.failed.Store(&text)
		s.cfg.Log.Error().Str("leader", h.String()).Str("role", h.Role).Msg(text)
		return
	}
	s.cfg.Log.Info().Str("leader", h.String()).Msg("waiting as a standby")
}

// remembers adds what only this process knows of where the stream stood.
func (s *Stream) remembers(known statestore.Identity) statestore.Identity {
	if last := s.relations.Load(); last != nil && len(known.Relations) == 0 {
		known.Relations = *last
	}
	return known
}

// term is one leadership, from waiting for it until it is lost or ctx ends.
func (s *Stream) term(ctx context.Context) error {
	cfg := s.cfg.Replication
	cfg.Binary = !s.text.Load()
	cfg.Standby = s.tellStandby
	if err := s.unclaimed(ctx); err != nil {
		return err
	}
	conn, err := replication.Lead(ctx, cfg)
	if err != nil {
		return err
	}
	defer conn.Kill()
	if err := s.awaitLocks(ctx, conn); err != nil {
		return err
	}
	if s.cfg.TimelineGuard.release() {
		s.cfg.Pool.Reset() // what leads the other way
	}
	lead, err := s.take(ctx)
	if err != nil {
		return err
	}
	s.cfg.Metrics.Leading(lead.Epoch)
	s.tracker.leads(cfg.Name, lead.Epoch)
	defer func() {
		s.cfg.Metrics.Stopped()
		s.tracker.reset()
		s.cfg.Traces.Abandon(time.Now())
	}()
	s.cfg.Log.Info().Int64("epoch", lead.Epoch).Str("before", lead.PreviousHolder).Msg("leading")
	if !s.judgedRights {
		excess, err := replication.Excess(ctx, s.store.db, s.cfg.Tables)
		s.judgedRights = err == nil
		if excess != "" {
			s.cfg.Log.Warn().Str("rights", excess).
				Msg("the stream reads and marks rows with more rights than it needs: let dsn name a role of its own, which outbox-cdc init makes")
		}
	}
	d, err := s.newDriver(ctx, conn, lead)
	if err != nil {
		return err
	}
	if lead.PreviousServer != "" && lead.PreviousServer != lead.Server {
		s.cfg.Log.Warn().Str("server", lead.Server).Str("before", lead.PreviousServer).
			Msg("the database is at another address than before: right after a failover, a move or a restore; if it is a copy of one in use, stop this process, or both publish to the same topics")
	}
	err = d.run(ctx, d.readWAL, d.maintain, d.retention, d.countBacklog, d.advanceTallies, d.tellTallies)
	// Who took our transactional id is no new leader: that one raises the epoch before it turns to Kafka.
	if errors.Is(err, sink.ErrFenced) && s.store.Holds(ctx) == nil {
		return fmt.Errorf("%w: %w", err, errForeign)
	}
	return err
}

// errForeign: somebody who does not lead in this database uses our transactional
// id, so not a successor.
var errForeign = errors.New("it does not lead in this database: one of the two databases is a copy (a clone, a restore, a snapshot), or two installations have " +
	"the same transactional_id_prefix; stop one, and give it a prefix and topics of its own")

// run runs the driver with the parts that every term has, and these, until the
// driver has drained, which begins with the end of stop, or one of them fails.
func (d *driver) run(stop context.Context, parts ...func(context.Context) error) error {
	parts = append(parts, d.updater.Run)
	for _, s := range d.sinks {
		parts = append(parts, s.Run)
	}
	keeping, stopKeeping := context.WithCancel(context.WithoutCancel(stop))
	defer stopKeeping()
	d.stopKeeping, d.kept = stopKeeping, make(chan struct{})
	parts = append(parts, func(ctx context.Context) error {
		defer close(d.kept)
		defer context.AfterFunc(ctx, stopKeeping)()
		return d.stream.locks.keep(keeping, ctx)
	})
	drive := func(ctx context.Context) error {
		d.ctx = ctx
		return d.drive(stop, ctx)
	}
	err := wait.While(context.WithoutCancel(stop), drive, parts...)
	d.queries.Wait()
	return err
}

func (s *Stream) newDriver(ctx context.Context, conn *replication.Conn, lead statestore.Leadership) (*driver, error) {
	cfg := s.cfg
	exactly, err := s.openOnce(ctx, conn)
	if err != nil {
		return nil, err
	}
	d := &driver{
		budget:   walBudget{limit: s.cfg.Core.WALBudget},
		stream:   s,
		once:     exactly,
		cfg:      cfg,
		limit:    limit{Limits: cfg.Limits},
		sinks:    map[string]*sink.Sink{},
		outcomes: mailbox.New[outbox.Outcome](),
		states:   mailbox.New[outbox.ClusterState](),
		marked:   mailbox.New[outbox.Marked](),
		answers:  mailbox.New[answer](),
		fatal:    make(chan error, 1),

		noSlotYet: lead.PreviousHolder == "",
	}
	var guard *tablesql.Guard // nil: rows are delivered at least once
	var marking *statusupdater.Once
	if exactly != nil {
		guard, marking = exactly.guard, &statusupdater.Once{Stream: cfg.Name, Guard: exactly.guard, Idle: cfg.Replication.SenderTimeout / 2}
	}
	if d.sweeper, err = sweeper.New(sweeper.Config{Pool: cfg.Pool, Tables: cfg.Tables, Guard: guard, Log: cfg.Log}); err != nil {
		return nil, err
	}
	for name, sc := range cfg.Sinks {
		if cfg.Shadow {
			break
		}
		sc.Observer, sc.Transactions = observer{s, name}, d.transactions(name)
		if len(s.locks) > 0 {
			sc.Until = s.locks.until
		}
		if d.sinks[name], err = sink.New(sc, d.outcomes, d.states); err != nil {
			return nil, fmt.Errorf("kafka cluster %s: %w", name, err)
		}
	}
	d.updater = statusupdater.New(statusupdater.Config{
		Pool: cfg.Pool, Tables: cfg.Tables, Connections: cfg.MarkConnections, BatchRows: cfg.MarkRows, Log: cfg.Log,
		Once:    marking,
		OnBatch: func(b statusupdater.Batch) { cfg.Metrics.MarkLatency(b.Took, b.Rows) },
	}, d.marked)
	d.core = checkpoint.New(cfg.Core)
	d.wal = newWALReader(s, d, conn, lead)
	return d, nil
}
