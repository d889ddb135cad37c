package pipeline

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/internal/sweeper"
	"github.com/outbox-cdc/outbox-cdc/internal/wait"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// How often the stream looks after itself.
const (
	slotEvery      = 5 * time.Second // also how soon a lost lead is noticed, if the WAL reader does not notice it first
	retentionEvery = time.Minute
	recoveryEvery  = 15 * time.Second
)

// maintenance does the periodic work that is not part of the flow of rows. It is one goroutine.
type maintenance struct {
	*questions
	cfg       *Config
	core      *checkpoint.Core // used in the driver's loop only
	store     *store
	sweeper   *sweeper.Sweeper
	pauses    *pauses
	oneShot   *oneShotSweep
	stateless bool // the tables keep no state
	budget    walBudget
	stalled   bool // it was logged that the server holds the stream back
	// sweeping: the whole stream is parked.
	sweeping atomic.Bool
	// idle: there was no row in memory at the last look.
	idle atomic.Bool
	// usableAgain is the earliest time at which usable may query the database again.
	usableAgain time.Time
	// behindSince is since when every look has found rows in memory; zero: the last look found none. Only the
	// driver's loop uses behindSince and unconfirmed.
	behindSince time.Time
	unconfirmed unconfirmed
}

// maintain writes heartbeats, so that the slot of an idle database advances. It checks slot, publication and
// tables, and recovers rows that another relay left. A failure is logged, and the work is tried again.
func (m *maintenance) maintain(ctx context.Context) error {
	heartbeat, slot, recovery := time.Tick(m.cfg.HeartbeatInterval), time.Tick(slotEvery), time.Tick(recoveryEvery)
	if m.cfg.Shadow { // shadow mode changes no row
		recovery = nil
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-heartbeat:
			_, err := replication.Heartbeat(ctx, postgres.On(m.pool))
			m.retried(ctx, err, m.cfg.HeartbeatInterval, "could not write a heartbeat: the slot of an idle stream stays where it is")
		case <-slot:
			m.retried(ctx, m.checkSlot(ctx), slotEvery, "could not look at the slot and its publication")
		case <-recovery:
			m.retried(ctx, m.recover(ctx), recoveryEvery, "could not make rows pending again that another relay left")
		}
	}
}

// checkSlot asks what is paused, then how much WAL the slot retains. It watches publication and tables, and
// makes sure that this process still leads.
func (m *maintenance) checkSlot(ctx context.Context) error {
	before := m.wal.judged.Load()
	var watched replication.Observed
	var waiting []replication.Holder
	lost, err := m.watchLeader(ctx, replication.Observing(m.cfg.Replication, &watched), replication.Standbys(m.cfg.Replication.Slot, m.cfg.Replication.Name, &waiting))
	if err == nil {
		m.tracker.waiting(waiting)
		m.tellRetained(watched.Retained, m.keepBudget(ctx, watched.Retained))
		if before != nil {
			m.watch(ctx, before, &watched)
		}
		err = lost
	}
	if unkept(err) {
		m.end(err)
	}
	return err
}

// recover makes rows PENDING again that another relay took and did not finish.
func (m *maintenance) recover(ctx context.Context) error {
	var errs []error
	for _, t := range m.cfg.Tables {
		n, err := m.sweeper.Recover(ctx, t)
		errs = append(errs, err)
		if n > 0 {
			m.metrics.Recovered(t, n)
			m.log.Warn().Int("rows", n).Stringer("table", t).Stringer("after", t.Mapping.Status.RecoverAfter).
				Msg("another relay took rows and left them: they are pending again")
		}
	}
	return errors.Join(errs...)
}

func (m *maintenance) tellRetained(r replication.Retained, holder string) {
	conn := m.wal.streaming.Load()
	if conn != nil {
		conn.NoteInsert(r.Insert) // the distance to the end of the WAL decides how it is read
	}
	m.answers.Put(answer{0, func() {
		if conn != nil && conn == m.wal.streaming.Load() {
			m.core.Inserted(r.Insert)
		}
		m.core.Retained(freeable(r, m.cfg.Core.WALBudget))
		m.sweeping.Store(status.StreamPark(m.core.Parks()) != nil)
		var waiting time.Duration
		rows, _, _ := m.core.Memory()
		m.idle.Store(rows == 0)
		switch {
		case rows == 0:
			m.behindSince = time.Time{}
		case m.behindSince.IsZero():
			m.behindSince = time.Now()
		default:
			waiting = time.Since(m.behindSince)
		}
		waiting = max(waiting, m.unconfirmed.waits(r, time.Now(), m.cfg.HeartbeatInterval+2*slotEvery))
		m.metrics.Lag(r.Lag(), waiting)
		m.metrics.Slot(m.tracker.retained(m.cfg.Replication.Slot, m.cfg.Core.WALBudget, m.stateless, r, holder, waiting, time.Now()))
	}})
}

// watch ends the connection if rows may have been passed over, if a publication that lacked tables has
// changed, or if a table is usable again. The next connection then judges slot, publication and tables again.
func (m *maintenance) watch(ctx context.Context, before *outbox.Identity, watched *replication.Observed) {
	swapped := replication.Replaced(before.Relations, watched.Relations)
	damage := swapped
	if changed := replication.Damage(before.Publication, watched.Publication); damage == "" && changed != "" {
		damage = "publication " + m.cfg.Replication.Publication + " " + changed
	}
	switch {
	case damage != "":
		if err := m.notePassedOver(ctx, before); err != nil {
			m.retried(ctx, err, slotEvery, "could not look at the slot and its publication")
			return
		}
		m.metrics.PublicationChanged()
		message := "the publication or a table changed: rows may have been passed over, so the stream is swept"
		if m.stateless {
			message = "the publication or a table changed: rows may have been passed over, so the stream stops"
		}
		m.tracker.recordEvent("publication", message+": "+damage)
		// The next connection logs this as a warning, and says what can be done.
		m.log.Info().Str("publication", m.cfg.Replication.Publication).Str("what", damage).Msg(message)
		if swapped != "" {
			m.settle(ctx)
		}
	case m.wal.lacking.Load() && (watched.Publication != before.Publication || !maps.Equal(watched.Relations, before.Relations)):
		m.log.Info().Str("publication", m.cfg.Replication.Publication).Msg("the publication has more tables: the connection restarts")
	default:
		t := m.usable(ctx)
		if t == nil {
			return
		}
		m.log.Info().Stringer("table", t).Msg("the table can be read again: the connection restarts, and streams it")
	}
	m.wal.judged.Store(nil)
	m.answers.Put(answer{0, m.wal.restart})
}

// notePassedOver stores, for tables without state, that rows may have been passed over, until a person has
// checked. Damage that is repaired before the next connection leaves no other trace.
func (m *maintenance) notePassedOver(ctx context.Context, before *outbox.Identity) error {
	if !m.stateless {
		return nil
	}
	m.wal.passedOver.Store(true)
	damaged := *before
	damaged.Publication += replication.PassedOver
	return m.store.Identify(ctx, damaged)
}

// usable returns a table that can be read now but was locked, or refused to be read, when the connection
// began; nil: there is none. It also tries tables whose rows from the WAL did not fit, except in two cases:
// the publication may be the cause, or rows are in memory, which the next connection would read again. The
// longer an answer takes, the less often usable asks.
func (m *maintenance) usable(ctx context.Context) *outbox.Table {
	var asked []*outbox.Table
	if refused := m.wal.refused.Load(); refused != nil {
		asked = *refused
	}
	if unfit := m.wal.unfit.Load(); unfit != nil && m.idle.Load() && !m.stateless && !m.wal.lacking.Load() {
		asked = slices.Concat(asked, *unfit)
	}
	began := time.Now()
	if len(asked) == 0 || began.Before(m.usableAgain) {
		return nil
	}
	defer func() { m.usableAgain = time.Now().Add(10 * time.Since(began)) }()
	for _, t := range asked {
		if by, err := lockers(ctx, m.pool, t); err != nil || len(by) > 0 {
			continue
		}
		if usable, err := m.sweeper.Usable(ctx, t); err == nil && usable {
			return t
		}
	}
	return nil
}

// settle waits a moment until the rows that came through the WAL so far are published and marked. Rows of a
// table that was swapped out cannot be found in any other way.
func (m *maintenance) settle(ctx context.Context) {
	at, err := replication.Heartbeat(ctx, postgres.On(m.pool))
	if err != nil {
		return // the next connection reports the fault
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for outbox.LSN(m.wal.confirm.Load()) < at && wait.Sleep(ctx, 20*time.Millisecond) == nil {
	}
}

// watchLeader tells the Core what is paused now. A pause ends a single sweep. It returns what pauses.ask does.
func (m *maintenance) watchLeader(ctx context.Context, further ...postgres.Question) (lost, err error) {
	found, lost, err := m.pauses.ask(ctx, further...)
	if found.number > 0 {
		m.answers.Put(answer{0, func() {
			parks := m.pauses.newer(found)
			m.core.Pause(parks)
			m.oneShot.fail(m.pauses.refusal(parks))
		}})
	}
	return lost, err
}

// watchPauses calls watchLeader for a single sweep, which has no slot to look at.
func (m *maintenance) watchPauses(ctx context.Context) error {
	for wait.Sleep(ctx, slotEvery) == nil {
		_, err := m.watchLeader(ctx)
		m.retried(ctx, err, slotEvery, "could not ask what is paused")
	}
	return nil
}
