package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/failpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
	"github.com/outbox-cdc/outbox-cdc/internal/sweeper"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sql"
)

// This file is the WAL reader's work before a connection streams: it checks the database's history, the slot
// and the publication.

const (
	fixEvery = 10 * time.Second      // between two looks at a slot that only a person can repair
	parkPoll = 10 * time.Millisecond // between two looks whether the stream's park is durable
	// slotTimeout is the longest time that one attempt to make a slot waits for open transactions. A leader
	// that is stopped meanwhile keeps the lock for that long.
	slotTimeout = 10 * time.Second
)

// makeSound inspects server, slot and publication. If the slot is not sound, the stream is parked and swept,
// and makeSound makes what is missing. It returns when the slot is sound.
func (w *walReader) makeSound(ctx context.Context) (checkpoint.Connected, error) {
	w.following.Store(nil)
	for parked, added := false, false; ; {
		connected, verdict, err := w.inspect(ctx, parked)
		if err != nil {
			return connected, err
		}
		if err := w.passedRowsOver(&verdict, added); err != nil {
			return connected, err
		}
		if verdict.Sound && (len(verdict.Add) == 0 || added) {
			w.learned.relations.Store(&w.remembered.Relations)
			err := w.store.Identify(ctx, w.learned.stored(w.remembered))
			if err == nil && w.store.Outdated() {
				w.log.Warn().Msg("schema outbox_cdc is of an earlier version: a table that is swapped while no process runs is not noticed; run outbox-cdc init")
			}
			return connected, err
		}
		unmade := w.makePublication(ctx, &verdict)
		if !verdict.Sound {
			connected.Cause, connected.Reason = verdict.Cause, verdict.Reason
			if !parked {
				w.cannotBeSwept(&verdict)
				w.tellUnsound(&verdict, connected.Uncovered, unmade)
			}
			if err := w.park(ctx, connected); err != nil {
				return connected, err
			}
			parked = true
		}
		if err := w.fix(ctx, &verdict, unmade, connected.Uncovered, added); err != nil {
			return connected, err
		}
		added = true // or could not be added; then the sweeper publishes their rows
	}
}

// passedRowsOver returns why a stream without state must not go on: rows were passed over, or would be.
func (w *walReader) passedRowsOver(v *replication.Verdict, added bool) error {
	if v.Lost != nil {
		return fmt.Errorf("%w: %w", errLost, v.Lost)
	}
	if w.stateless && v.Sound && len(v.Tables) > 0 && (len(v.Add) == 0 || added) {
		t := v.Tables[0]
		return fmt.Errorf("%w: %w", errLost, &postgres.Error{
			Permanent: true, What: "stream table " + t.Table.String(), Err: errors.New(t.Reason + ", and with published: none its rows have no other way"), Hint: t.Hint,
		})
	}
	return nil
}

// tellSlotLost logs that the server has invalidated the slot. If the stream is parked for that, the park is
// not logged again.
func (w *walReader) tellSlotLost(v *replication.Verdict) {
	w.metrics.SlotLost()
	if w.stateless { // for these tables the loss is reported by itself
		return
	}
	w.lossTold.Store(&v.Reason)
	w.log.Warn().Str("slot", w.cfg.Slot).Str("reason", v.Reason).Msg("the server gave the slot up: rows are read from the table, and the slot is made again")
}

// tellUnsound reports faults that only a person can fix, before the parks that follow from them are
// reported. A fault of the publication is reported once, here or by the stream's park, and not for each
// table.
func (w *walReader) tellUnsound(v *replication.Verdict, uncovered []checkpoint.Uncovered, unmade error) {
	if v.Cause == outbox.CausePublication || unmade != nil {
		for _, u := range uncovered {
			if !u.Refused || slices.ContainsFunc(v.Tables, func(t replication.TableVerdict) bool { return t.Table == u.Table }) {
				w.follow(outbox.TableScope(u.Table), u.Reason)
			}
		}
	}
	err := unmade
	if v.Err != nil {
		err = v.Err
	}
	if err != nil {
		w.report(err, fixEvery)
	}
	if err != nil || v.Cause == outbox.CauseWALBudget { // the log line about giving the slot up has the reason
		w.follow(outbox.StreamScope(), v.Reason)
	}
}

// cannotBeSwept reports what a lost or moved slot means for tables without state.
func (w *walReader) cannotBeSwept(v *replication.Verdict) {
	if !w.stateless || w.remembered.SystemID == "" || v.Err != nil {
		return
	}
	const message = "rows may be lost: the slot may lack some, and tables with published: none cannot be swept; compare these tables with the topics"
	w.tracker.recordEvent("slot", message+": "+v.Reason)
	w.log.Error().Str("cause", string(v.Cause)).Str("reason", v.Reason).Msg(message)
}

// park makes the driver park the stream, and waits until the park is durable. From then on the slot may be
// made: the sweeper covers rows that the slot does not bring.
func (w *walReader) park(ctx context.Context, connected checkpoint.Connected) error {
	if err := w.tellConnected(ctx, connected, settledOn{}); err != nil {
		return err
	}
	for !w.mayMake.Load() {
		if err := w.beatFor(ctx, parkPoll); err != nil {
			return err
		}
	}
	return nil
}

// inspect reads everything that a connection begins with. While the stream is durably parked, it accepts the
// existing slot as it is.
func (w *walReader) inspect(ctx context.Context, parked bool) (checkpoint.Connected, replication.Verdict, error) {
	cfg := w.cfg
	state, err := w.conn.Inspect(ctx)
	if err != nil {
		return checkpoint.Connected{}, replication.Verdict{}, err
	}
	if err := w.sameHistory(&state); err != nil {
		return checkpoint.Connected{}, replication.Verdict{}, err
	}
	w.learned.sees(w.remembered.Relations, state.Tables)
	if parked && len(state.Lacking) == 0 {
		w.remembered = replication.Identify(&state, &cfg)
	}
	w.leftBehind(ctx, w.remembered.Relations, &state)
	verdict := replication.Judge(&state, &cfg, w.remembered)
	if state.Slot.Lost() && w.tracker.slotLost(state.Slot.LostBecause(), time.Now()) {
		w.tellSlotLost(&verdict)
	}
	connected := checkpoint.Connected{Insert: state.Insert, Snapshot: state.Snapshot, Uncovered: w.uncovered(ctx, &verdict)}
	for _, warning := range verdict.Warnings {
		if !slices.Contains(w.learned.warned, warning) {
			w.log.Warn().Msg(warning)
		}
	}
	w.learned.warned = verdict.Warnings
	if w.learned.remake.Cause != "" {
		verdict.Sound, verdict.Slot = false, max(verdict.Slot, replication.Remake)
		verdict.Cause, verdict.Reason = w.learned.remake.Cause, w.learned.remake.Reason
	}
	if refused := w.learned.refused; refused != nil && verdict.Sound {
		verdict.Sound, verdict.Cause, verdict.Reason, verdict.Err = false, outbox.CauseSlot, refused.Error(), refused
	}
	w.learned.refused = nil
	err = whileBeating(ctx, w.conn, func(ctx context.Context) error { return w.lookAtTables(ctx, &connected) })
	if err == nil && verdict.Sound {
		before := w.remembered
		w.remembered = replication.Identify(&state, &cfg)
		// A restart of the server may have moved the slot back to the position that was saved last.
		w.remembered.SlotPoint = max(w.remembered.SlotPoint, confirmedBefore(before, &state))
	}
	return connected, verdict, err
}

// uncovered returns the tables whose rows do not come through the WAL according to the verdict, each with the
// reason.
func (w *walReader) uncovered(ctx context.Context, v *replication.Verdict) (uncovered []checkpoint.Uncovered) {
	for _, t := range v.Tables {
		reason := t.Reason
		if called := w.called(ctx, w.pool, w.lead.cfg.Name, t.Table); called != nil {
			reason = called.Error()
		} else if w.learned.unadded != nil && slices.Contains(v.Add, t.Table) {
			reason += ": " + postgres.Text(w.learned.unadded)
		}
		uncovered = append(uncovered, checkpoint.Uncovered{Table: t.Table, Reason: reason})
	}
	w.learned.unadded = nil
	return uncovered
}

// confirmedBefore returns the position to which the slot was confirmed before, as far as this server shares
// that history. During a failover, the remembered position may come from another server.
func confirmedBefore(remembered statestore.Identity, s *replication.State) outbox.LSN {
	point := max(remembered.SlotPoint, remembered.Stopped)
	if remembered.Timeline == s.Timeline {
		return point
	}
	return min(point, s.Ended[remembered.Timeline]) // 0 if the timeline is not part of this server's history
}

// lookAtTables reads, over the pool, what a connection needs to know of the tables. That takes a while if
// there are many.
func (w *walReader) lookAtTables(ctx context.Context, connected *checkpoint.Connected) (err error) {
	if connected.Parks, err = w.store.Load(ctx); err != nil {
		return err
	}
	connected.Failed, err = w.sweeper.Failed(ctx)
	refused, other := refusals(err)
	if other != nil {
		return other
	}
	unusable, err := w.sweeper.Unusable(ctx, refused)
	if err != nil {
		return err
	}
	var tables []*outbox.Table
	for _, r := range append(refused, unusable...) { // a fault of that table only, not of the stream
		w.explain(ctx, w.pool, w.lead.cfg.Name, r)
		for _, u := range connected.Uncovered {
			if u.Table == r.Table && !u.Refused { // the refusal is more precise
				w.follow(outbox.TableScope(u.Table), u.Reason)
			}
		}
		connected.Uncovered = append(connected.Uncovered, checkpoint.Uncovered{Table: r.Table, Reason: r.Error(), Refused: true})
		tables = append(tables, r.Table)
	}
	w.refused.Store(&tables)
	w.unfit.Store(nil)
	leaves, err := w.sweeper.Partitions(ctx)
	if err != nil {
		return err
	}
	enums, err := w.sweeper.Enums(ctx)
	w.decoder.SetPartitions(leaves)
	w.decoder.SetEnums(enums)
	w.decoder.SetCharset(w.conn.Charset())
	return err
}

// refusals separates the refusals of tables from other errors in a joined error.
func refusals(err error) (refused []*sweeper.TableError, other error) {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, err := range all {
		if refusal := refusalOf(err); refusal != nil {
			refused = append(refused, refusal)
		} else if err != nil {
			return nil, err
		}
	}
	return refused, nil
}

// leftBehind logs which rows are PENDING in a table that was swapped out: nothing publishes them any more.
func (w *walReader) leftBehind(ctx context.Context, before map[string]uint32, s *replication.State) {
	for i := range s.Tables {
		t := &s.Tables[i]
		was := before[t.Table.String()]
		if t.Exists {
			w.renamed.Delete(t.Table.String())
		}
		if was == 0 || was == t.OID || !t.Table.Stateful() {
			continue
		}
		old, rows, err := w.sweeper.PendingIn(ctx, t.Table, was)
		switch {
		case old != "" && !t.Exists:
			w.tellRenamed(t.Table, old)
		case err != nil:
			w.log.Warn().Err(err).Stringer("table", t.Table).Uint32("relation", was).Msg("could not count the rows that are PENDING in the table that was swapped out")
		case rows > 0:
			w.log.Error().Stringer("table", t.Table).Str("swapped_out", old).Int64("pending", rows).
				Msg("rows are PENDING in the table that was swapped out, and nothing publishes them: move into the new table what is not in the topic yet")
		}
	}
}

// sameHistory remembers the database's history at the term's first connection, and returns errMoved if a
// later connection meets another history. A failover or a restored backup may have undone transactions.
// Sequences then give out the same numbers again, so a row in memory could be taken for another row with the
// same id. https://www.postgresql.org/docs/current/continuous-archiving.html#BACKUP-TIMELINES
func (w *walReader) sameHistory(s *replication.State) error {
	now := history{system: s.SystemID, timeline: s.Timeline}
	if w.history == (history{}) {
		w.history = now
		w.guard.hold(s.Timeline)
	}
	if now != w.history || s.Insert < w.received {
		return fmt.Errorf("%w: timeline %d at %v after timeline %d at %v", errMoved, s.Timeline, s.Insert, w.history.timeline, w.received)
	}
	return nil
}

// errMoved: the rows in memory come from another database than the present one.
var errMoved = errors.New("a failover or a restored backup has replaced the database, or the server named a position that its WAL does not have: what is in memory is left to the table")

// TimelineGuard restricts a stream's connections to one timeline during a leadership. On another timeline, an
// outstanding mark could be written to another row with the same id. The zero value admits every timeline.
type TimelineGuard struct {
	timeline atomic.Pointer[string] // eight hexadecimal digits; nil: every timeline is admitted
}

// Admit returns an error for a new connection to a server on another timeline, or to a standby. It is meant
// for pgxpool.Config.AfterConnect.
func (l *TimelineGuard) Admit(ctx context.Context, conn *pgx.Conn) error {
	want := l.timeline.Load()
	if want == nil {
		return nil
	}
	var now string
	if err := postgres.On(conn).QueryRow(ctx, sql.Timeline).Scan(&now); err != nil {
		return fmt.Errorf("ask for the database's timeline: %w", err)
	}
	switch now {
	case *want:
		return nil
	case "":
		return errors.New("the server is a standby: point the dsn to the primary, for example with target_session_attrs=read-write")
	}
	return fmt.Errorf("%w: timeline %s after %s", errMoved, now, *want)
}

// hold restricts connections to this timeline from now on.
func (l *TimelineGuard) hold(timeline uint32) {
	l.timeline.Store(new(fmt.Sprintf("%08X", timeline)))
}

// release admits every timeline again. It reports whether one was held.
func (l *TimelineGuard) release() bool { return l.timeline.Swap(nil) != nil }

// fix makes the slot while the connection is kept alive. unmade is why the publication could not be made;
// nil: it was. A slot retains WAL from its first moment, so a stream makes its first slot only if at least
// one table can come through it.
func (w *walReader) fix(ctx context.Context, v *replication.Verdict, unmade error, uncovered []checkpoint.Uncovered, added bool) error {
	switch {
	case v.Err != nil:
		return w.awaitPerson(ctx, v.Err)
	case unmade != nil && !v.Sound:
		return w.awaitPerson(ctx, unmade)
	case unmade != nil:
		w.learned.unadded = unmade // the tables' parks tell it
	case lacksTables(v) && v.Slot == replication.Make && !added:
		return nil // inspect first which tables come through the publication
	}
	if v.Slot == replication.Make && w.noneComesThrough(uncovered) {
		return w.awaitPerson(ctx, &postgres.Error{
			Permanent: true, What: "make slot " + w.cfg.Slot, Err: fmt.Errorf("no table could come through it: %s", uncovered[0].Reason),
			Hint: "put the tables right (outbox-cdc check names each); the slot is made then",
		})
	}
	if err := failpoint.Here(failpoint.BeforeSlot); err != nil {
		return err
	}
	return w.makeSlot(ctx, v.Slot)
}

// awaitPerson reports a fault that only a person can fix, and waits until the next look.
func (w *walReader) awaitPerson(ctx context.Context, err error) error {
	w.report(err, fixEvery)
	return w.beatFor(ctx, fixEvery)
}

// noneComesThrough reports whether every table of the stream is uncovered.
func (w *walReader) noneComesThrough(uncovered []checkpoint.Uncovered) bool {
	return !slices.ContainsFunc(w.cfg.Tables, func(t *outbox.Table) bool {
		return !slices.ContainsFunc(uncovered, func(u checkpoint.Uncovered) bool { return u.Table == t })
	})
}

// lacksTables reports whether the publication has to be made, or lacks tables that can be added.
func lacksTables(v *replication.Verdict) bool {
	return v.Err == nil && (v.Publication != replication.Keep || len(v.Add) > 0)
}

// makePublication makes the publication or adds the missing tables. It uses the pool's role, because only the
// tables' owner may add them.
func (w *walReader) makePublication(ctx context.Context, v *replication.Verdict) error {
	if !lacksTables(v) {
		return nil
	}
	conn, err := w.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("make publication %s: %w", w.cfg.Publication, err)
	}
	defer postgres.Release(conn)
	return replication.MakePublication(ctx, conn.Conn().PgConn(), w.cfg)
}

// makeSlot makes the slot. That has to wait for open transactions, so it is tried with growing timeouts.
func (w *walReader) makeSlot(ctx context.Context, action replication.Action) error {
	if action == replication.Keep {
		return nil
	}
	for timeout := time.Second; ; timeout = min(2*timeout, slotTimeout) {
		at, err := w.conn.MakeSlot(ctx, action, timeout)
		if err == nil {
			w.log.Info().Str("slot", w.cfg.Slot).Stringer("at", at).Msg("made the slot")
			w.tracker.slotMade("made slot " + w.cfg.Slot + " at " + at.String())
			w.learned.remake = checkpoint.Connected{}
			return failpoint.Here(failpoint.AfterSlot)
		}
		if _, blocked := errors.AsType[*replication.Blocked](err); !blocked {
			return w.awaitPerson(ctx, err)
		}
		w.report(err, 0)
		action = replication.Make // the old slot is dropped by now
		if err := w.beatFor(ctx, 0); err != nil {
			return err
		}
	}
}

// beatFor keeps the connection alive for d while it does not stream.
func (w *walReader) beatFor(ctx context.Context, d time.Duration) error {
	end := time.Now().Add(d)
	for {
		if err := w.conn.Beat(ctx); err != nil {
			return err
		}
		select {
		case <-time.After(min(time.Until(end), w.statusEvery)):
		case <-w.finishing:
			return fmt.Errorf("stopped before slot %s was sound", w.cfg.Slot)
		case <-ctx.Done():
			return ctx.Err()
		}
		if !time.Now().Before(end) {
			return nil
		}
	}
}

// tellConnected tells the driver that a connection began. It first asks again what is paused, since the
// inspection may have taken long.
func (w *walReader) tellConnected(ctx context.Context, connected checkpoint.Connected, settled settledOn) error {
	return whileBeating(ctx, w.conn, func(ctx context.Context) error {
		paused, _, err := w.pauses.ask(ctx)
		if err != nil {
			return err
		}
		return w.tell(ctx, connEvent{connected: connected, settled: settled, paused: paused})
	})
}
