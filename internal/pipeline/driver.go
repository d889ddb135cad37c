package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/failpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/mailbox"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
	"github.com/outbox-cdc/outbox-cdc/internal/sweeper"
	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/statusupdater"
)

// driver owns the Core during one leadership.
type driver struct {
	stream *Stream
	cfg    Config
	ctx    context.Context //nolint:containedctx // of the leadership

	core    *checkpoint.Core
	wal     *walReader
	sinks   map[string]*sink.Sink
	updater *statusupdater.Updater
	sweeper *sweeper.Sweeper
	once    *once // nil: rows are delivered at least once

	outcomes *mailbox.Mailbox[outbox.Outcome]
	states   *mailbox.Mailbox[outbox.ClusterState]
	marked   *mailbox.Mailbox[outbox.Marked]
	answers  *mailbox.Mailbox[answer]
	// outcomesTaken and marksTaken are the memory of what was taken last.
	outcomesTaken []outbox.Outcome
	marksTaken    []outbox.Marked

	// connection counts replication connections. Answers to questions of an
	// earlier one are dropped, and asking is ended with asking.cancel.
	connection int
	asking     context.Context //nolint:containedctx // ends with the replication connection, not with a call
	endAsking  context.CancelFunc
	queries    sync.WaitGroup
	xid        uint32 // of the WAL's open transaction
	noSlotYet  bool   // nobody led the stream before, and it has not streamed: its slot was never made
	// lacking: the connection began with tables that the publication does not cover.
	lacking atomic.Bool
	// paused is the last look at what is paused that was told the Core.
	paused pausedLook
	// looks counts the looks at what is paused; looking is held during one.
	looking sync.Mutex
	looks   uint64
	// usableAgain is until when it is not asked whether refused tables can be read; see usable.
	usableAgain time.Time
	// stopKeeping ends the extending of the application's locks; kept is closed then.
	stopKeeping context.CancelFunc
	kept        chan struct{}
	// clean: what was published is marked. Known when the WAL reader is told to finish.
	clean bool
	// oneShot ends a single sweep; nil: the stream goes on.
	oneShot *oneShotSweep
	// limit is how fast rows may come into the Core.
	limit   limit
	samples samples
	// fatal takes the error that ends the leadership.
	fatal chan error
	// behindSince is when rows came into memory that have not all left it, or
	// zero; gauged is when the gauges were set last.
	behindSince, gauged time.Time
	unconfirmed         unconfirmed
	// budget is the regular look's. sweeping: the whole stream is parked.
	budget   walBudget
	sweeping atomic.Bool
	// parksShown is Core.ParkChanges as of the parks shown last, and topicEvents how
	// many events of single topics were shown since the last second.
	parksShown  uint64
	topicEvents int
}

// answer is what a query found out, applied by the driver.
type answer struct {
	connection int // 0: whichever
	apply      func()
}

// drive is the stream's only loop: one event at a time into the Core, and what
// it decides out of it.
func (d *driver) drive(stop, ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	drainUntil := make(<-chan time.Time)
	stopping := stop.Done()
	d.forgetQuestions()
	defer func() { d.endAsking() }()
	defer d.stream.watchdog.idle()
	for {
		d.advance(time.Now())
		if d.core.Drained() {
			d.giveLocksBack(ctx)
			d.clean = d.closeTallies(ctx)
			if d.clean && !d.stream.stateless() { // else when the slot has the position
				d.stream.noteClean(ctx)
			}
			return d.wal.finish(ctx)
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
			d.cfg.Log.Info().Msg("draining")
			d.tick()
			d.core.Drain()
		case <-drainUntil:
			d.cfg.Log.Warn().Dur("after", d.cfg.DrainTimeout).Str("next_start", d.once.nextStart()).
				Msg("stopped before everything sent was acknowledged and marked")
			return d.wal.finish(ctx)
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
	d.stream.watchdog.alive(now)
	d.core.Tick(now)
	d.pace(now)
	d.carryOut(d.core.Take())
	d.wal.confirm.Store(uint64(d.core.Confirm()))
	d.wal.mayMake.Store(d.core.SlotMayBeMade())
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
	d.cfg.Metrics.Marked(taken)
	d.stream.tracker.marked(taken)
	d.cfg.Traces.Marked(taken, time.Now())
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

// tick tells the Core the time at which input comes: since it was last told, up
// to a second went by in waiting for it, by which a head start would be shorter.
func (d *driver) tick() { d.core.Tick(time.Now()) }

// connChanged takes a change of the replication connection.
func (d *driver) connChanged(e connEvent) {
	switch {
	case e.lost && d.once != nil:
		d.end(errNewTerm)
	case e.lost:
		d.forgetQuestions()
		d.core.Disconnect()
	default:
		d.once.tell(&e.connected, e.settled)
		e.connected.Paused = d.newer(e.paused)
		d.lacking.Store(len(e.connected.Uncovered) > 0)
		d.core.Connect(e.connected)
		if e.connected.Streaming { // else what is wrong with the slot is still wrong
			d.stream.failed.Store(nil)
		}
	}
	close(e.done)
}

// forgetQuestions voids those of the connection before.
func (d *driver) forgetQuestions() {
	if d.endAsking != nil {
		d.endAsking()
	}
	d.connection++
	d.asking, d.endAsking = context.WithCancel(d.ctx)
}

func (d *driver) feed(b *batch) {
	if b.Rows() > 0 {
		if failpoint.Here(failpoint.AfterDecode) != nil {
			d.wal.kill()
		}
		d.cfg.Traces.Decoded(b.Rows(), b.began, time.Now())
	}
	for _, l := range b.Left {
		d.cfg.Metrics.Left(l.Table, l.Rows)
		d.stream.tracker.left(l.Rows)
	}
	for e := range b.All() {
		switch e.Kind {
		case decoder.Begin:
			d.xid = e.Transaction.XID
			d.core.Begin(e.Transaction)
		case decoder.Rows:
			d.core.Rows(e.Rows)
			if d.cfg.Shadow {
				d.cfg.Metrics.Shadowed(e.Rows)
			}
			d.cfg.Metrics.Decoded(e.Rows)
		case decoder.Commit:
			d.core.Commit(e.Transaction.End)
		case decoder.TableBroken:
			d.cfg.Log.Error().Err(e.Err).Stringer("table", e.Table).Msg("the table's rows cannot be read from the WAL")
			d.core.TableBroken(e.Table, e.Err)
		case decoder.TableMapped:
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
	if table := d.stream.tableOf(oid); table != "" && d.stream.stateless() { // no state in the table finds them again
		const message = "rows were written while their table had another name: the stream passed them over, and nothing publishes them"
		d.cfg.Metrics.PublicationChanged()
		d.stream.tracker.recordEvent("publication", message+": table "+table+", then "+name)
		d.cfg.Log.Error().Str("table", table).Str("relation", name).Msg(message)
		return
	}
	d.cfg.Log.Warn().Str("relation", name).Msg("the publication holds a relation that no table of the stream maps: its rows are ignored")
	d.ask("look for new partitions", func(ctx context.Context) (func(), error) {
		leaves, err := d.sweeper.Partitions(ctx)
		return func() {
			if leaves[name] != nil {
				d.wal.kill()
			}
		}, err
	})
}

// waitsFor tells why a stream waits of whose table rows were passed over that no state in the table finds again.
func (d *driver) waitsFor(t *outbox.Table) {
	if t.Stateful() || d.cfg.Shadow {
		return
	}
	d.stream.report(fmt.Errorf("%w: %w", errLost, &postgres.Error{
		Permanent: true, What: "read table " + t.String() + " from the WAL",
		Err:  errors.New("its columns did not fit its mapping when rows were written, and with published: none those have no other way"),
		Hint: "fix the mapping (outbox-cdc check) and restart; or, if those rows are not needed, move slot " + d.cfg.Replication.Slot + " past them by hand",
	}), 0)
}

// tableOf is the stream's table that the relation was when the connection began; empty: none.
func (s *Stream) tableOf(oid uint32) string {
	if relations := s.relations.Load(); relations != nil {
		for table, of := range *relations {
			if of == oid {
				return table
			}
		}
	}
	return ""
}

// carryOut does what the Core decided.
func (d *driver) carryOut(r checkpoint.Ready) {
	d.command(r.Commands)
	if len(r.Marks) > 0 {
		d.compareOne(r.Marks, time.Now())
		d.updater.Do(r.Marks...)
	}
	d.updater.Unclaim(r.Unclaim...)
	if len(r.Claim) > 0 {
		d.claim(r.Claim)
	}
	if len(r.Check) > 0 {
		askTables(d, "look at rows", r.Check, d.sweeper.Check, d.core.Checked, d.core.CheckRefused)
	}
	if r.Sweep != nil {
		askTables(d, "read a page of pending rows", *r.Sweep, d.sweep, d.swept, d.core.SweepRefused)
	}
	if r.Watch != nil {
		askTables(d, "look for missed rows", *r.Watch, d.sweeper.Watch, d.core.Watched, d.core.WatchRefused)
	}
	if len(r.Rewatch) > 0 {
		askTables(d, "look for missed rows again", r.Rewatch, d.sweeper.Check, d.rewatched, d.core.WatchRefused)
	}
	if r.Failed {
		failed := func(ctx context.Context, _ struct{}) ([]*outbox.Row, error) { return d.sweeper.Failed(ctx) }
		askTables(d, "look for failed rows", struct{}{}, failed, d.core.FailedRows, d.core.FailedRefused)
	}
	if r.Parks != nil {
		d.writeParks(*r.Parks)
	}
	for _, n := range r.Notes {
		d.note(n)
	}
}

// command hands commands to the sinks, each row to its cluster's.
func (d *driver) command(cmds []outbox.Command) {
	if len(d.sinks) == 1 {
		for _, s := range d.sinks {
			s.Do(cmds...)
		}
		return
	}
	for _, cmd := range cmds {
		if cmd.Publish == nil {
			for _, s := range d.sinks {
				s.Do(cmd)
			}
			continue
		}
		parts := map[string][]*outbox.Row{}
		for _, r := range cmd.Publish {
			parts[r.Cluster] = append(parts[r.Cluster], r)
		}
		for name, rows := range parts {
			d.sinks[name].Do(outbox.Command{Publish: rows})
		}
	}
}

// claim locks rows. What was locked is told the Core even when the connection
// has ended meanwhile: it gives the locks up.
func (d *driver) claim(rows []*outbox.Row) {
	connection, ctx := d.connection, d.asking
	d.queries.Go(func() {
		a, err := retry(ctx, d, "claim rows", func(ctx context.Context) (answer, error) {
			checked, err := d.updater.Claim(ctx, rows)
			if refusal := refusalOf(err); refusal != nil {
				return answer{connection, func() { d.core.ClaimRefused(refusal.Table, refusal) }}, nil //nolint:nilerr // an answer, too
			}
			return answer{0, func() { d.core.Claimed(checked) }}, err
		})
		if err == nil {
			d.answers.Put(a)
		}
	})
}

// ask puts a question to the database, and what its answer leads to into the driver's
// queue. A passing error is tried again until the connection ends.
func (d *driver) ask(what string, query func(context.Context) (apply func(), err error)) {
	connection, ctx := d.connection, d.asking
	d.queries.Go(func() {
		if apply, err := retry(ctx, d, what, query); err == nil {
			d.answers.Put(answer{connection, apply})
		}
	})
}

// retry tries a query until ctx ends or an error is permanent, up to every five seconds, each
// error logged.
func retry[A any](ctx context.Context, d *driver, what string, query func(context.Context) (A, error)) (A, error) {
	failed := func(err error, wait time.Duration) {
		if !errors.Is(err, context.Canceled) {
			d.closeOnShutdown(err)
			d.cfg.Log.Warn().Err(err).Str("query", what).Dur("retry_in", wait).Msg("the database query failed")
		}
	}
	return backoff.Retry(ctx, func() (A, error) { return query(ctx) },
		backoff.WithBackOff(growing(50*time.Millisecond, 5*time.Second)), backoff.WithMaxElapsedTime(0), backoff.WithNotify(failed))
}

// growing are waits that grow from one to the other.
func growing(first, most time.Duration) *backoff.ExponentialBackOff {
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval, waits.MaxInterval = first, most
	return waits
}

// refusalOf is a table's refusal of a query; nil: the error is none.
func refusalOf(err error) *sweeper.TableError {
	refusal, _ := errors.AsType[*sweeper.TableError](err)
	return refusal
}

// askTables asks a question that a table may refuse (a column or a privilege is
// missing): that is an answer, too, and the Core's business.
func askTables[Q, A any](d *driver, what string, question Q, query func(context.Context, Q) (A, error), apply func(A), refused func(*outbox.Table, error)) {
	d.ask(what, func(ctx context.Context) (func(), error) {
		a, err := query(ctx, question)
		if refusal := refusalOf(err); refusal != nil {
			d.tellLockers(ctx, refusal)
			return func() { refused(refusal.Table, refusal) }, nil //nolint:nilerr // an answer, too
		}
		return func() { apply(a) }, err
	})
}

// sweep reads a page.
func (d *driver) sweep(ctx context.Context, req outbox.SweepRequest) (outbox.Page, error) {
	page, err := d.sweeper.Sweep(ctx, req)
	if err == nil && req.ForHandback {
		err = failpoint.Here(failpoint.InHandback)
	}
	return page, err
}

func (d *driver) rewatched(answers []outbox.Checked) {
	var pending []*outbox.Row
	for _, a := range answers {
		if a.State == outbox.CheckPending {
			pending = append(pending, a.Row)
		}
	}
	d.core.Rewatched(pending)
}

// writeParks writes until it is known that the change was committed, or the
// connection ends. Then the next leadership raises the epoch, so that no try can
// take effect any more, and reads what our table holds.
func (d *driver) writeParks(change outbox.ParkChange) {
	d.ask("write parks", func(ctx context.Context) (func(), error) {
		result, err := d.stream.store.write(ctx, change)
		if unkept(err) {
			return func() { d.end(err) }, nil
		}
		return func() { d.core.ParksWritten(result) }, err
	})
}

// unkept says of an error that what the stream must not forget is not kept any
// more: another process leads, or our schema is gone.
func unkept(err error) bool {
	return errors.Is(err, statestore.ErrFenced) || errors.Is(err, statestore.ErrNoSchema)
}

// inLoop has the driver's loop do something, and waits until it is done.
func (d *driver) inLoop(ctx context.Context, do func()) error {
	done := make(chan struct{})
	d.answers.Put(answer{0, func() {
		do()
		close(done)
	}})
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end ends the leadership.
func (d *driver) end(err error) {
	select {
	case d.fatal <- err:
	default: // another error ends it
	}
}
