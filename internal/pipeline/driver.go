package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/failpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/mailbox"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/sweeper"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/statusupdater"
)

// driver owns the Core during one leadership.
type driver struct {
	*questions
	cfg      Config
	ctx      context.Context //nolint:containedctx // of the leadership
	core     *checkpoint.Core
	sinks    map[string]*sink.Sink
	updater  *statusupdater.Updater
	sweeper  *sweeper.Sweeper
	store    *store
	lead     *leadership
	learned  *learned
	watchdog *watchdog
	locks    locks
	pauses   *pauses
	once     *once         // nil: at-least-once delivery
	oneShot  *oneShotSweep // ends a sweep by command; nil: this is a stream

	outcomes *mailbox.Mailbox[outbox.Outcome]
	states   *mailbox.Mailbox[outbox.ClusterState]
	marked   *mailbox.Mailbox[outbox.Marked]
	// outcomesTaken and marksTaken are buffers, used again each time.
	outcomesTaken []outbox.Outcome
	marksTaken    []outbox.Marked

	xid       uint32 // of the open transaction in the WAL
	noSlotYet bool   // no process led the stream before, and this one has not streamed yet, so no slot was ever made
	// stopKeeping stops extending the application's locks. When that has ended, kept is closed.
	stopKeeping context.CancelFunc
	kept        chan struct{}
	// limit paces the rows that come into the Core.
	limit   limit
	samples samples
	// told has, for each park of the stream or of a table, the reason that was logged last. Under a table
	// without a cause it has the reason why rows of that table could not be read from the WAL.
	told map[parkedFor]string
	// gauged is when the gauges were set last. parksShown is the value of Core.ParkChanges when the parks
	// were shown last. topicEvents counts the events about single topics since gauged.
	gauged      time.Time
	parksShown  uint64
	topicEvents int
}

// drive is the stream's only loop. It feeds the Core one event at a time and carries out the Core's
// decisions.
func (d *driver) drive(stop, ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	drainUntil := make(<-chan time.Time)
	stopping := stop.Done()
	d.forget(ctx)
	defer func() { d.endAsking() }()
	defer d.watchdog.idle()
	for {
		d.advance(time.Now())
		if d.core.Drained() {
			d.giveLocksBack(ctx)
			clean := d.once.closeTallies(ctx)
			fences := d.leave(ctx)
			if clean && !d.cfg.stateless() { // without state, this is noted once the slot has the position
				d.lead.noteClean(ctx, fences)
			}
			return d.wal.finish(ctx, clean, fences)
		}
		pause := time.Second // the longest pause: see watchdog
		if next := d.core.NextTick(); !next.IsZero() {
			pause = min(pause, max(time.Until(next), 0))
		}
		timer.Reset(pause)
		batches := d.wal.batches
		if !d.core.Reading() || d.once.full(d.core) {
			batches = nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-stopping:
			stopping = nil
			drainUntil = time.After(d.cfg.DrainTimeout)
			d.log.Info().Msg("draining")
			d.tick()
			d.core.Drain()
		case <-drainUntil:
			d.log.Warn().Dur("after", d.cfg.DrainTimeout).Str("next_start", d.once.nextStart()).
				Msg("stopped before everything sent was acknowledged and marked")
			return d.wal.finish(ctx, false, nil)
		case err := <-d.fatal:
			return err
		case e := <-d.wal.connEvents:
			d.tick()
			d.connChanged(e)
		case b := <-batches:
			d.tick()
			d.feed(b)
		case <-d.outcomes.Ready():
			d.takeOutcomes()
		case <-d.states.Ready():
			d.takeStates()
		case <-d.marked.Ready():
			d.takeMarks()
		case <-d.answers.Ready():
			d.takeAnswers()
		case <-timer.C:
		}
	}
}

// advance tells the Core the time, carries out the Core's decisions, and passes on what the WAL reader needs
// to know.
func (d *driver) advance(now time.Time) {
	d.watchdog.alive(now)
	d.core.Tick(now)
	d.pace(now)
	d.carryOut(d.core.Take())
	d.wal.confirm.Store(uint64(d.core.Confirm()))
	d.wal.mayMake.Store(d.core.SlotMayBeMade())
	scattered := d.core.Scattered()
	d.wal.apart.Store(scattered)
	d.sweeper.Apart(scattered)
	d.gauges(now)
}

func (d *driver) takeOutcomes() {
	d.tick()
	if taken := d.outcomes.Take(d.outcomesTaken); taken != nil {
		for _, o := range taken {
			d.outcome(o)
		}
		d.outcomesTaken = taken
	}
}

func (d *driver) takeStates() {
	d.tick()
	for _, s := range d.states.Take(nil) {
		d.clusterState(s)
	}
}

func (d *driver) takeMarks() {
	d.tick()
	taken := d.marked.Take(d.marksTaken)
	if taken == nil {
		return
	}
	if d.once != nil {
		d.once.moved.Store(true)
	}
	d.metrics.Marked(taken)
	d.traces.Marked(taken, time.Now())
	d.core.Marked(taken)
	d.marksTaken = taken
}

func (d *driver) takeAnswers() {
	d.tick()
	for _, a := range d.answers.Take(nil) {
		if a.connection == 0 || a.connection == d.connection {
			a.apply()
		}
	}
}

// tick tells the Core the time before each input. Otherwise the Core's time may be up to a second old, and it
// would cut head starts by as much.
func (d *driver) tick() { d.core.Tick(time.Now()) }

// connChanged handles the beginning or the loss of a replication connection.
func (d *driver) connChanged(e connEvent) {
	switch {
	case e.lost && d.once != nil:
		d.end(errNewTerm)
	case e.lost:
		d.forget(d.ctx)
		d.core.Disconnect()
	default:
		d.once.tell(&e.connected, e.settled)
		e.connected.Paused = d.pauses.newer(e.paused)
		d.wal.lacking.Store(len(e.connected.Uncovered) > 0)
		d.core.Connect(e.connected)
		if e.connected.Streaming { // otherwise the fault of the slot is still there
			d.works()
		}
	}
	close(e.done)
}

func (d *driver) feed(b *batch) {
	if b.Rows() > 0 {
		if failpoint.Here(failpoint.AfterDecode) != nil {
			d.wal.kill()
		}
		d.traces.Decoded(b.Rows(), b.began, time.Now())
	}
	for _, n := range b.NotOurs {
		d.metrics.Left(n.Table, n.Rows)
	}
	d.core.ServerTime(b.clock.now(time.Now()))
	for e := range b.All() {
		switch e.Kind {
		case decoder.Begin:
			d.xid = e.Transaction.XID
			d.core.Begin(e.Transaction)
		case decoder.Rows:
			d.core.Rows(e.Rows)
			if d.cfg.Shadow {
				d.metrics.Shadowed(e.Rows)
			}
			d.metrics.Decoded(e.Rows)
		case decoder.Commit:
			d.core.Commit(e.Transaction.End)
		case decoder.TableBroken:
			level, scope := zerolog.ErrorLevel, outbox.TableScope(e.Table).String()
			for about, reason := range d.told {
				if about.scope == scope && reason == e.Err.Error() { // already logged with the table's park
					level = zerolog.InfoLevel
				}
			}
			d.log.WithLevel(level).Err(e.Err).Stringer("table", e.Table).Msg("the table's rows cannot be read from the WAL")
			d.told[parkedFor{scope: scope}] = e.Err.Error()
			d.wal.setUnfit(e.Table, true)
			d.core.TableBroken(e.Table, e.Err)
		case decoder.TableMapped:
			d.wal.setUnfit(e.Table, false)
			d.core.TableMapped(e.Table)
		case decoder.Passed:
			d.core.Passed(d.xid)
			d.waitsFor(e.Table)
		case decoder.Unmapped:
			d.unmapped(e.Name, e.Relation)
		}
	}
	if b.walEnd > 0 {
		d.core.Keepalive(b.walEnd)
	}
	d.wal.giveBack(b)
}

// unmapped handles a row of a relation in the publication that is no table of the stream. If the relation is
// a new partition, the connection restarts, so that the decoder learns of it. The watch finds the partition's
// earlier rows.
func (d *driver) unmapped(name string, oid uint32) {
	if table := d.learned.tableOf(oid); table != "" && d.cfg.stateless() { // without state, nothing finds these rows again
		const message = "rows were written while their table had another name: the stream passed them over, and nothing publishes them"
		d.metrics.PublicationChanged()
		d.tracker.recordEvent("publication", message+": table "+table+", then "+name)
		d.log.Error().Str("table", table).Str("relation", name).Msg(message)
		return
	}
	d.log.Warn().Str("relation", name).Msg("the publication holds a relation that no table of the stream maps: its rows are ignored")
	d.ask("look for new partitions", func(ctx context.Context) (func(), error) {
		leaves, err := d.sweeper.Partitions(ctx)
		return func() {
			if leaves[name] != nil {
				d.wal.kill()
			}
		}, err
	})
}

// waitsFor reports why the stream waits: rows of a table without state were passed over, and nothing can find
// them again.
func (d *driver) waitsFor(t *outbox.Table) {
	if t.Stateful() || d.cfg.Shadow {
		return
	}
	d.report(fmt.Errorf("%w: %w", errLost, &postgres.Error{
		Permanent: true, What: "read table " + t.String() + " from the WAL",
		Err:  errors.New("its columns did not fit its mapping when rows were written, and with published: none those have no other way"),
		Hint: "fix the mapping (outbox-cdc check) and restart; or, if those rows are not needed, move slot " + d.cfg.Replication.Slot + " past them by hand",
	}), 0)
}
