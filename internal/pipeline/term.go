package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/mailbox"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
	"github.com/outbox-cdc/outbox-cdc/internal/sweeper"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/internal/wait"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/statusupdater"
)

// term is one leadership: it waits for the lead, and returns when the lead is lost or ctx ends.
func (s *Stream) term(ctx context.Context) error {
	cfg := s.cfg.Replication
	cfg.Binary = !s.learned.text.Load()
	cfg.Standby = s.tellStandby
	if err := s.lead.unclaimed(ctx); err != nil {
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
		s.cfg.Pool.Reset() // closes connections that may lead to another server
	}
	lead, err := s.lead.take(ctx)
	if err != nil {
		return err
	}
	s.metrics.Leading(lead.Epoch)
	s.tracker.leads(cfg.Name, lead.Epoch)
	defer func() {
		s.metrics.Stopped()
		s.tracker.reset()
		s.traces.Abandon(time.Now())
	}()
	s.log.Info().Int64("epoch", lead.Epoch).Str("before", lead.PreviousHolder).Msg("leading")
	if !s.judgedRights {
		excess, err := replication.Excess(ctx, s.store.db, s.cfg.Tables)
		s.judgedRights = err == nil
		if excess != "" {
			s.log.Warn().Str("rights", excess).
				Msg("the stream reads and marks rows with more rights than it needs: let dsn name a role of its own, which outbox-cdc init makes")
		}
	}
	d, err := s.newDriver(ctx, conn, lead)
	if err != nil {
		return err
	}
	if lead.PreviousServer != "" && lead.PreviousServer != lead.Server {
		s.log.Warn().Str("server", lead.Server).Str("before", lead.PreviousServer).
			Msg("the database is at another address than before: right after a failover, a move or a restore; if it is a copy of one in use, stop this process, or both publish to the same topics")
	}
	wal, maintenance := s.newWALReader(d, conn, lead), s.newMaintenance(d)
	retention := &retention{questions: d.questions, cfg: &s.cfg, core: d.core, sweeper: d.sweeper}
	backlog := &backlog{questions: d.questions, tables: s.cfg.Tables, sweeper: d.sweeper, recount: s.recount}
	err = d.run(ctx, wal.begin, maintenance.maintain, retention.run, backlog.count, d.once.advanceTallies, d.once.tellTallies)
	// A new leader raises the epoch before it turns to Kafka. So while our epoch holds, no new leader has
	// taken our transactional id.
	if errors.Is(err, sink.ErrFenced) {
		switch lost := s.store.Leads(ctx); {
		case lost == nil:
			return fmt.Errorf("%w: %w", err, errForeign)
		case errors.Is(lost, statestore.ErrFenced):
			return fmt.Errorf("%w: %w", lost, err)
		}
	}
	return err
}

// errForeign: a process that does not lead in this database uses our transactional id, so it is no successor.
var errForeign = errors.New("it does not lead in this database: one of the two databases is a copy (a clone, a restore, a snapshot), or two installations have " +
	"the same transactional_id_prefix; stop one, and give it a prefix and topics of its own")

// awaitLocks waits for the locks of the application's relays, as a standby waits for the lead. It fails when
// conn, which holds the leadership, is lost.
func (s *Stream) awaitLocks(ctx context.Context, conn *replication.Conn) error {
	if len(s.locks) == 0 {
		return nil
	}
	s.works()
	s.metrics.Standby()
	return whileBeating(ctx, conn, s.locks.acquire)
}

// run runs the driver, the parts of every term, and the given parts. It returns when one of them fails, or
// when the driver has drained. The end of stop starts the draining.
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
		return d.locks.keep(keeping, ctx)
	})
	drive := func(ctx context.Context) error {
		d.ctx = ctx
		return d.drive(stop, ctx)
	}
	err := wait.While(context.WithoutCancel(stop), drive, parts...)
	d.running.Wait()
	return err
}

// newDriver makes the driver of a leadership with its sinks and its updater. Nothing runs yet.
func (s *Stream) newDriver(ctx context.Context, conn *replication.Conn, lead statestore.Leadership) (d *driver, err error) {
	cfg := &s.cfg
	d = &driver{
		questions: newQuestions(s.telling, cfg.Name, newLink(), cfg.Pool), cfg: s.cfg, core: checkpoint.New(cfg.Core),
		store: s.store, lead: s.lead, learned: &s.learned, watchdog: &s.watchdog, locks: s.locks,
		pauses: &pauses{cfg: cfg, store: s.store}, limit: limit{Limits: cfg.Limits}, noSlotYet: lead.PreviousHolder == "", told: map[parkedFor]string{},
		outcomes: mailbox.New[outbox.Outcome](), states: mailbox.New[outbox.ClusterState](), marked: mailbox.New[outbox.Marked](),
	}
	if d.once, err = d.openOnce(ctx, conn); err != nil {
		return nil, err
	}
	var guard *tablesql.Guard // nil: at-least-once delivery
	var marking *statusupdater.Once
	if d.once != nil {
		guard, marking = d.once.guard, &statusupdater.Once{Stream: cfg.Name, Guard: d.once.guard, Idle: cfg.Replication.SenderTimeout / 2}
	}
	if d.sweeper, err = sweeper.New(sweeper.Config{Pool: cfg.Pool, Tables: cfg.Tables, Guard: guard, Log: cfg.Log, PageBytes: min(cfg.Core.MaxBytes, lookBytes)}); err != nil {
		return nil, err
	}
	d.updater = statusupdater.New(statusupdater.Config{
		Stream: cfg.Name, Pool: cfg.Pool, Tables: cfg.Tables, Connections: cfg.MarkConnections, BatchRows: cfg.MarkRows, Log: cfg.Log, ClaimBytes: min(cfg.Core.MaxBytes, lookBytes),
		Once:    marking,
		OnBatch: func(b statusupdater.Batch) { cfg.Metrics.MarkLatency(b.Took, b.Rows) },
		Explain: func(ctx context.Context, t *outbox.Table, err error) error {
			return d.explained(ctx, cfg.Pool, cfg.Name, t, err)
		},
	}, d.marked)
	if d.once != nil {
		d.once.updater = d.updater
	}
	d.sinks, err = s.newSinks(d, lead.Fences)
	return d, err
}

// lookBytes is roughly the largest number of bytes that one lookup reads.
const lookBytes = 16 << 20

// heldFor: a row that has waited longer than this, in the WAL or for Kafka, is looked up again before it is
// published.
const heldFor = 5 * time.Second

// newSinks makes a sink for each Kafka cluster.
func (s *Stream) newSinks(d *driver, before map[string]*outbox.Fences) (map[string]*sink.Sink, error) {
	sinks := map[string]*sink.Sink{}
	if s.cfg.Shadow {
		return sinks, nil
	}
	for name, sc := range s.cfg.Sinks {
		sc.Observer, sc.Transactions, sc.Before, sc.HeldFor = observer{s.telling, name}, d.once.transactions(name), before[name], heldFor
		if len(s.locks) > 0 {
			sc.Until = s.locks.until
		}
		one, err := sink.New(sc, d.outcomes, d.states)
		if err != nil {
			return nil, fmt.Errorf("kafka cluster %s: %w", name, err)
		}
		sinks[name] = one
	}
	return sinks, nil
}

// newWALReader makes the WAL reader for a driver.
func (s *Stream) newWALReader(d *driver, conn *replication.Conn, lead statestore.Leadership) *walReader {
	if s.cfg.Once == nil { // with exactly-once delivery, a term ends with its connection
		s.learned.remake = checkpoint.Connected{}
	}
	return &walReader{
		link: d.wal, telling: s.telling, cfg: s.cfg.Replication, pool: s.cfg.Pool, guard: s.cfg.TimelineGuard, stateless: s.cfg.stateless(),
		lead: s.lead, store: s.store, sweeper: d.sweeper, pauses: d.pauses, once: d.once, learned: &s.learned,
		conn: conn, decoder: decoder.New(s.cfg.Tables), remembered: s.learned.remembers(lead.Known), statusEvery: beats(&s.cfg.Replication),
		batchRows: batchRowsOf(s.cfg.Core.MaxRows),
	}
}

// newMaintenance makes the maintenance for a driver.
func (s *Stream) newMaintenance(d *driver) *maintenance {
	return &maintenance{
		questions: d.questions, cfg: &s.cfg, core: d.core, store: s.store, sweeper: d.sweeper, pauses: d.pauses, oneShot: d.oneShot,
		stateless: s.cfg.stateless(), budget: walBudget{limit: s.cfg.Core.WALBudget},
	}
}
