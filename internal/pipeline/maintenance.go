package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/shedlock"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/internal/sweeper"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/internal/wait"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// How often the stream looks after itself.
const (
	retainedEvery  = 5 * time.Second
	retentionEvery = time.Minute
	recoveryEvery  = 15 * time.Second
)

// maintain does what has to be done now and then besides the flow: write WAL so that
// the slot of an idle database moves on, look at slot, publication and tables,
// recover rows that another relay left. What fails is logged and done again.
func (d *driver) maintain(ctx context.Context) error {
	heartbeat, slot, recovery := time.Tick(d.cfg.HeartbeatInterval), time.Tick(retainedEvery), time.Tick(recoveryEvery)
	if d.cfg.Shadow { // changes no row
		recovery = nil
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-heartbeat:
			_, err := replication.Heartbeat(ctx, postgres.On(d.cfg.Pool))
			d.retried(ctx, err, d.cfg.HeartbeatInterval, "could not write a heartbeat: the slot of an idle stream stays where it is")
		case <-slot:
			d.retried(ctx, d.checkSlot(ctx), retainedEvery, "could not look at the slot and its publication")
		case <-recovery:
			d.retried(ctx, d.recover(ctx), recoveryEvery, "could not make rows pending again that another relay left")
		}
	}
}

// retried logs that a task failed which is done again after a while.
func (d *driver) retried(ctx context.Context, err error, after time.Duration, what string) {
	if err == nil || ctx.Err() != nil {
		return
	}
	d.closeOnShutdown(err)
	d.cfg.Log.Warn().Err(err).Dur("retry_in", after).Msg(what)
}

// checkSlot asks what is paused and then how much WAL the slot retains, watches publication and
// tables, and makes sure that this process still leads.
func (d *driver) checkSlot(ctx context.Context) error {
	before := d.wal.judged.Load()
	var watched replication.Watched
	held, err := d.askPaused(ctx, replication.Watching(d.cfg.Replication, &watched))
	if err == nil {
		d.tellRetained(watched.Retained, d.keepBudget(ctx, watched.Retained))
		if before != nil {
			d.watch(ctx, before, &watched)
		}
		err = held
	}
	if unkept(err) {
		d.end(err)
	}
	return err
}

// retention deletes rows past their retention, which may take long, so nothing
// else waits for it. To find them may take reading whole tables: that is done
// for no more than a twentieth of the time.
func (d *driver) retention(ctx context.Context) error {
	if d.cfg.Shadow || !slices.ContainsFunc(d.cfg.Tables, (*outbox.Table).Retains) {
		return nil
	}
	for next := retentionEvery; wait.Sleep(ctx, next) == nil; {
		var finding time.Duration
		var errs []error
		for _, t := range d.cfg.Tables {
			if t.Retains() {
				took, err := d.retainUnderLock(ctx, t)
				finding += took
				errs = append(errs, err)
			}
		}
		next = max(retentionEvery, 20*finding)
		d.retried(ctx, errors.Join(errs...), next, "could not delete rows past their retention")
	}
	return nil
}

// retainUnderLock deletes a table's rows past their retention, and says how long it took to
// find them. It holds the lock of the application's own housekeeping meanwhile, where there
// is one; if the application has it, the next round tries again.
func (d *driver) retainUnderLock(ctx context.Context, t *outbox.Table) (finding time.Duration, err error) {
	if t.Mapping.RetentionLock.Name == "" {
		return d.retainTable(ctx, t)
	}
	lock := shedlock.New(shedlock.Config{Pool: d.cfg.Pool, Lock: t.Mapping.RetentionLock, Holder: "outbox-cdc " + d.cfg.Name, Log: d.cfg.Log})
	_, err = lock.While(ctx, func(ctx context.Context) (err error) {
		finding, err = d.retainTable(ctx, t)
		return err
	})
	return finding, err
}

func (d *driver) retainTable(ctx context.Context, t *outbox.Table) (finding time.Duration, err error) {
	var keepsUnsent bool  // retention leaves all rows alone that were not sent,
	var inFlight []string // or those with the ids
	if t.Mapping.RetentionUnsent > 0 {
		err = d.inLoop(ctx, func() { keepsUnsent, inFlight = d.core.KeepsUnsent(t), d.core.InFlight(t) })
		if err != nil {
			return 0, err
		}
	}
	n := 0
	if keepsUnsent {
		n, finding, err = d.sweeper.RetainSent(ctx, t)
	} else {
		n, finding, err = d.sweeper.Retain(ctx, t, inFlight)
	}
	if n > 0 {
		d.cfg.Log.Info().Int("rows", n).Stringer("table", t).Msg("deleted rows past their retention")
	}
	return finding, err
}

// recover makes rows pending again that another relay took and left.
func (d *driver) recover(ctx context.Context) error {
	var errs []error
	for _, t := range d.cfg.Tables {
		n, err := d.sweeper.Recover(ctx, t)
		errs = append(errs, err)
		if n > 0 {
			d.cfg.Metrics.Recovered(t, n)
			d.cfg.Log.Warn().Int("rows", n).Stringer("table", t).Stringer("after", t.Mapping.Status.RecoverAfter).
				Msg("another relay took rows and left them: they are pending again")
		}
	}
	return errors.Join(errs...)
}

// closeOnShutdown closes the replication connection when an error of any other connection
// tells that the server ends sessions. A fast shutdown waits until the clients
// of walsenders have received and confirmed everything; a stream that holds
// would keep it waiting for ever.
// https://www.postgresql.org/docs/current/server-shutdown.html
func (d *driver) closeOnShutdown(err error) {
	if postgres.HasCode(err, pgerrcode.AdminShutdown, pgerrcode.CannotConnectNow) && !tablesql.Raised(err) { // a trigger's word is none of the server's
		d.wal.kill()
	}
}

func (d *driver) tellRetained(r replication.Retained, holder string) {
	conn := d.wal.streaming.Load()
	if conn != nil {
		conn.NoteInsert(r.Insert) // how far behind reading is decides how it reads
	}
	d.answers.Put(answer{0, func() {
		if conn != nil && conn == d.wal.streaming.Load() {
			d.core.Inserted(r.Insert)
		}
		d.core.Retained(freeable(r, d.cfg.Core.WALBudget))
		d.sweeping.Store(status.StreamPark(d.core.Parks()) != nil)
		var waiting time.Duration
		switch rows, _, _ := d.core.Memory(); {
		case rows == 0:
			d.behindSince = time.Time{}
		case d.behindSince.IsZero():
			d.behindSince = time.Now()
		default:
			waiting = time.Since(d.behindSince)
		}
		waiting = max(waiting, d.unconfirmed.look(r, time.Now(), d.cfg.HeartbeatInterval+2*retainedEvery))
		d.cfg.Metrics.Lag(r.Lag(), waiting)
		d.cfg.Metrics.Slot(d.stream.tracker.retained(d.cfg.Replication.Slot, d.cfg.Core.WALBudget, d.stream.stateless(), r, holder, waiting, time.Now()))
	}})
}

// watch ends the connection when rows may have been passed over, or when the
// publication has more tables and lacked some of ours, so that the next one
// judges slot, publication and tables again.
func (d *driver) watch(ctx context.Context, before *outbox.Identity, watched *replication.Watched) {
	swapped := replication.Replaced(before.Relations, watched.Relations)
	damage := swapped
	if changed := replication.Damage(before.Publication, watched.Publication); damage == "" && changed != "" {
		damage = "publication " + d.cfg.Replication.Publication + " " + changed
	}
	switch {
	case damage != "":
		if err := d.notePassedOver(ctx, before); err != nil {
			d.retried(ctx, err, retainedEvery, "could not look at the slot and its publication")
			return
		}
		d.cfg.Metrics.PublicationChanged()
		message := "the publication or a table changed: rows may have been passed over, so the stream is swept"
		if d.stream.stateless() {
			message = "the publication or a table changed: rows may have been passed over, so the stream stops"
		}
		d.stream.tracker.recordEvent("publication", message+": "+damage)
		d.cfg.Log.Error().Str("publication", d.cfg.Replication.Publication).Str("what", damage).Msg(message)
		if swapped != "" {
			d.settle(ctx)
		}
	case d.lacking.Load() && (watched.Publication != before.Publication || !maps.Equal(watched.Relations, before.Relations)):
		d.cfg.Log.Info().Str("publication", d.cfg.Replication.Publication).Msg("the publication has more tables: the connection restarts")
	case d.usable(ctx):
		d.cfg.Log.Info().Msg("every table can be read again: the connection restarts")
	default:
		return
	}
	d.wal.judged.Store(nil)
	d.answers.Put(answer{0, func() { d.wal.kill() }})
}

// notePassedOver remembers damage of a stream whose tables keep no state until a person has looked:
// what is put right before the next connection looks leaves no other trace.
func (d *driver) notePassedOver(ctx context.Context, before *outbox.Identity) error {
	if !d.stream.stateless() {
		return nil
	}
	damaged := *before
	damaged.Publication += replication.PassedOver
	return d.stream.store.Identify(ctx, damaged)
}

// usable says that a table which could not be read when the connection began, because it was
// locked or refused it, can be now. The longer it takes to find out, the less often it is asked.
func (d *driver) usable(ctx context.Context) bool {
	refused, began := d.wal.refused.Load(), time.Now()
	if refused == nil || began.Before(d.usableAgain) {
		return false
	}
	defer func() { d.usableAgain = time.Now().Add(10 * time.Since(began)) }()
	return slices.ContainsFunc(*refused, func(t *outbox.Table) bool {
		by, err := d.lockers(ctx, t)
		if err != nil || len(by) > 0 {
			return false
		}
		usable, err := d.sweeper.Usable(ctx, t)
		return err == nil && usable
	})
}

// lockers looks who has a table locked. It only explains, so it may not take long.
func (d *driver) lockers(ctx context.Context, t *outbox.Table) (by []replication.Blocker, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	err = postgres.Acquire(ctx, d.cfg.Pool, func(conn *pgx.Conn) error {
		found, err := replication.LockersOf(ctx, conn.PgConn(), [2]string{t.Schema, t.Name})
		if err == nil {
			by = found[0]
		}
		return err
	})
	return by, err
}

// tellLockers has the refusal of a locked table say who has locked it.
func (d *driver) tellLockers(ctx context.Context, r *sweeper.TableError) {
	if !r.Locked() {
		return
	}
	if by, err := d.lockers(ctx, r.Table); err == nil && len(by) > 0 { // else it ended meanwhile
		for i := range by {
			by[i] = by[i].Lasting()
		}
		r.Err = fmt.Errorf("%s: %w", replication.LockedBy(by), r.Err)
	}
}

// settle gives what came through the WAL so far a moment to be published and
// marked: rows of a table that was swapped out are found nowhere else.
func (d *driver) settle(ctx context.Context) {
	at, err := replication.Heartbeat(ctx, postgres.On(d.cfg.Pool))
	if err != nil {
		return // the next connection says what is wrong
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for outbox.LSN(d.wal.confirm.Load()) < at && wait.Sleep(ctx, 20*time.Millisecond) == nil {
	}
}

// pausedLook is what was paused at one look. Looks are numbered in the order in which they
// were made: a connection that begins and the regular look come to the driver in any order,
// and an older one must not end a pause that a later one saw.
type pausedLook struct {
	number uint64
	parks  []outbox.Park
}

// pausesTimeout bounds a look at what is paused.
const pausesTimeout = 5 * time.Second

// lookAtPauses makes one look after the other, asks further questions with it, and says
// whether this process still leads. The look's number is 0 where it got no answer. A
// connection that begins waits for the regular look, which may have asked over a connection
// that became silent.
func (d *driver) lookAtPauses(ctx context.Context, further ...postgres.Question) (look pausedLook, held, err error) {
	d.looking.Lock()
	defer d.looking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, pausesTimeout)
	defer cancel()
	d.looks++
	w, err := d.stream.store.Watch(ctx, further...)
	if w.Told {
		look = pausedLook{d.looks, w.Paused}
	}
	return look, w.Held, err
}

// newer is what is paused by the last look that was told.
func (d *driver) newer(look pausedLook) []outbox.Park {
	if look.number > d.paused.number {
		d.paused = look
	}
	return d.paused.parks
}

// askPaused tells the Core what is paused now. A single sweep ends where anything is. It
// returns what lookAtPauses does.
func (d *driver) askPaused(ctx context.Context, further ...postgres.Question) (held, err error) {
	look, held, err := d.lookAtPauses(ctx, further...)
	if look.number > 0 {
		d.answers.Put(answer{0, func() {
			paused := d.newer(look)
			d.core.Pause(paused)
			d.oneShot.fail(d.pausedError(paused))
		}})
	}
	return held, err
}

// watchPauses does so for a single sweep, which has no slot to look at.
func (d *driver) watchPauses(ctx context.Context) error {
	for wait.Sleep(ctx, retainedEvery) == nil {
		_, err := d.askPaused(ctx)
		d.retried(ctx, err, retainedEvery, "could not ask what is paused")
	}
	return nil
}

// pausedError is why nothing is swept by a command; nil: nothing of this configuration is paused.
func (d *driver) pausedError(paused []outbox.Park) error {
	for _, p := range paused {
		ours := func(t *outbox.Table) bool { return p.Scope == outbox.TableScope(t) }
		if p.Scope == outbox.StreamScope() || slices.ContainsFunc(d.cfg.Tables, ours) {
			return &postgres.Error{Permanent: true, What: "sweep", Err: fmt.Errorf("%s is %s", p.Scope, p.Reason), Hint: "outbox-cdc resume --stream " + d.cfg.Name}
		}
	}
	return nil
}
