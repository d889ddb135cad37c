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
	once     *once         // nil: rows are delivered at least once
	oneShot  *oneShotSweep // ends a single sweep; nil: the stream goes on

	outcomes *mailbox.Mailbox[outbox.Outcome]
	states   *mailbox.Mailbox[outbox.ClusterState]
	marked   *mailbox.Mailbox[outbox.Marked]
	// outcomesTaken and marksTaken are the memory of what was taken last.
	outcomesTaken []outbox.Outcome
	marksTaken    []outbox.Marked

	xid       uint32 // of the WAL's open transaction
	noSlotYet bool   // nobody led the stream before, and it has not streamed: its slot was never made
	// stopKeeping ends the extending of the application's locks; kept is closed then.
	stopKeeping context.CancelFunc
	kept        chan struct{}
	// limit is how fast rows may come into the Core.
	limit   limit
	samples samples
	// told has the last logged reason of each park of the stream or a table, and, without a cause, that of each table
	// whose rows could not be read from the WAL.
	told map[parkedFor]string
	// gauged is when the gauges were set last, parksShown is Core.ParkChanges as of the parks shown last,
	// and topicEvents counts the events of single topics since gauged.
	gauged      time.Time
	parksShown  uint64
	topicEvents int
}

// drive is the stream's only loop: it feeds the Core one event at a time, and carries out what the Core decides.
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
			if clean && !d.cfg.stateless() { // else when the slot has the position
				d.lead.noteClean(ctx, fences)
			}
			return d.wal.finish(ctx, clean, fences)
		}
		pause := time.Second // the longest, see watchdog
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

// advance tells the Core the time, carries out what it decided, and passes on what
// the WAL reader is to know.
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

// tick tells the Core the time before each input: otherwise its time may be a second old, and a head start too short by that.
func (d *driver) tick() { d.core.Tick(time.Now()) }

// connChanged takes a change of the replication connection.
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
		if e.connected.Streaming { // else what is wrong with the slot is still wrong
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
				if about.scope == scope && reason == e.Err.Error() { // the table's park told it
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

// unmapped: the publication holds a relation that is no table of the stream. If
// it is a partition that came later, the connection restarts to know it; its
// rows so far are found by the watch.
func (d *driver) unmapped(name string, oid uint32) {
	if table := d.learned.tableOf(oid); table != "" && d.cfg.stateless() { // no state in the table finds them again
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

// waitsFor tells why the stream waits: rows of a table without state were passed over, and nothing finds them again.
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
