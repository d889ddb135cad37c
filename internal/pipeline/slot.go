package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/failpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/sweeper"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// This file is the log goroutine's care for slot and publication, before a
// connection streams.

const (
	mendEvery = 10 * time.Second      // between looks at a slot that only a person can fix
	parkPoll  = 10 * time.Millisecond // between looks whether the stream's park is durable
	// slotPatience is at most how long one attempt to make a slot waits for open
	// transactions: a leader that is stopped meanwhile keeps its lock that long.
	slotPatience = 10 * time.Second
)

// makeSound looks at server, slot and publication, and makes what has to be
// made while the stream is parked and swept. It returns when the slot is sound.
func (l *logReader) makeSound(ctx context.Context) (checkpoint.Connected, error) {
	for parked, added := false, false; ; {
		connected, verdict, err := l.inspect(ctx, parked)
		if err != nil {
			return connected, err
		}
		if err := l.lost(&verdict, added); err != nil {
			return connected, err
		}
		if verdict.Sound && (len(verdict.Add) == 0 || added) {
			return connected, l.identify(ctx)
		}
		if verdict.Sound {
			added = true // or not: then their rows are the sweeper's
		} else {
			connected.Cause, connected.Reason = verdict.Cause, verdict.Reason
			if !parked {
				l.cannotBeSwept(&verdict)
			}
			if err := l.park(ctx, connected); err != nil {
				return connected, err
			}
			parked = true
		}
		if err := l.mend(ctx, &verdict); err != nil {
			return connected, err
		}
	}
}

// lost says why a stream whose tables keep no state must not go on: rows were
// passed over, or are about to be.
func (l *logReader) lost(v *replication.Verdict, added bool) error {
	if v.Lost != nil {
		return fmt.Errorf("%w: %w", errLost, v.Lost)
	}
	if l.stream.stateless() && v.Sound && len(v.Tables) > 0 && (len(v.Add) == 0 || added) {
		t := v.Tables[0]
		return fmt.Errorf("%w: %w", errLost, &replication.Error{
			Permanent: true, What: "stream table " + t.Table.String(), Err: errors.New(t.Reason + ", and with published: none its rows have no other way"), Hint: t.Hint,
		})
	}
	return nil
}

// cannotBeSwept says what a lost or moved slot means for tables that keep no state.
func (l *logReader) cannotBeSwept(v *replication.Verdict) {
	if !l.stream.stateless() || l.known.SystemID == "" || v.Err != nil {
		return
	}
	const message = "rows may be lost: tables with published: none cannot be swept for what the slot does not bring; compare them with the topics"
	l.stream.board.happened("slot", message+": "+v.Reason)
	l.d.cfg.Log.Error().Str("cause", string(v.Cause)).Str("reason", v.Reason).Msg(message)
}

// identify remembers what the connection was judged sound with.
func (l *logReader) identify(ctx context.Context) error {
	l.stream.relations.Store(&l.known.Relations)
	err := l.stream.store.Identify(ctx, l.known)
	if err == nil && l.stream.store.Outdated() {
		l.d.cfg.Log.Warn().Msg("schema outbox_cdc is of an earlier version: a table that is swapped while no process runs is not noticed; run outbox-cdc init")
	}
	return err
}

// park has the stream parked, and waits until that is durable: from then on a
// slot may be made, since the sweeper covers whatever it does not bring.
func (l *logReader) park(ctx context.Context, connected checkpoint.Connected) error {
	if err := l.tell(ctx, turn{connected: connected}); err != nil {
		return err
	}
	for !l.mayMake.Load() {
		if err := l.beatFor(ctx, parkPoll); err != nil {
			return err
		}
	}
	return nil
}

// inspect reads everything that a connection begins with. While the stream is
// parked durably, the slot that is there is taken on as it is.
func (l *logReader) inspect(ctx context.Context, parked bool) (checkpoint.Connected, replication.Verdict, error) {
	cfg := l.d.cfg.Replication
	state, err := l.conn.Inspect(ctx)
	if err != nil {
		return checkpoint.Connected{}, replication.Verdict{}, err
	}
	if err := l.sameHistory(&state); err != nil {
		return checkpoint.Connected{}, replication.Verdict{}, err
	}
	if parked {
		l.known = replication.Identify(&state, &cfg)
	}
	l.leftBehind(ctx, l.known.Relations, &state)
	verdict := replication.Judge(&state, &cfg, l.known)
	connected := checkpoint.Connected{Insert: state.Insert, Snapshot: state.Snapshot}
	for _, t := range verdict.Tables {
		connected.Uncovered = append(connected.Uncovered, checkpoint.Uncovered{Table: t.Table, Reason: t.Reason})
	}
	for _, w := range verdict.Warnings {
		l.d.cfg.Log.Warn().Msg(w)
	}
	if l.remake.Cause != "" {
		verdict.Sound, verdict.Slot = false, max(verdict.Slot, replication.Remake)
		verdict.Cause, verdict.Reason = l.remake.Cause, l.remake.Reason
	}
	err = beside(ctx, l.conn, func(ctx context.Context) error { return l.lookAtTables(ctx, &connected) })
	if err == nil && verdict.Sound {
		l.known = replication.Identify(&state, &cfg)
	}
	return connected, verdict, err
}

// lookAtTables reads over the pool what a connection begins with, which takes a
// while where there are many tables.
func (l *logReader) lookAtTables(ctx context.Context, connected *checkpoint.Connected) (err error) {
	if connected.Parks, err = l.stream.store.Load(ctx); err != nil {
		return err
	}
	connected.Failed, err = l.d.sweeper.Failed(ctx)
	refused, other := refusals(err)
	if other != nil {
		return other
	}
	unusable, err := l.d.sweeper.Unusable(ctx)
	if err != nil {
		return err
	}
	for _, r := range append(refused, unusable...) { // that table's business, not the stream's
		connected.Uncovered = append(connected.Uncovered, checkpoint.Uncovered{Table: r.Table, Reason: r.Error()})
	}
	leaves, err := l.d.sweeper.Partitions(ctx)
	if err != nil {
		return err
	}
	enums, err := l.d.sweeper.Enums(ctx)
	l.decoder.SetPartitions(leaves)
	l.decoder.SetEnums(enums)
	l.decoder.SetCharset(l.conn.Charset())
	return err
}

func refusals(err error) ([]*sweeper.TableError, error) {
	var refusal *sweeper.TableError
	if errors.As(err, &refusal) {
		return []*sweeper.TableError{refusal}, nil
	}
	return nil, err
}

// leftBehind says which rows are PENDING in a table that was swapped out: nothing
// publishes them any more.
func (l *logReader) leftBehind(ctx context.Context, before map[string]uint32, s *replication.State) {
	for i := range s.Tables {
		t := &s.Tables[i]
		was := before[t.Table.String()]
		if was == 0 || was == t.OID || !t.Table.Stateful() {
			continue
		}
		old, rows, err := l.d.sweeper.PendingIn(ctx, t.Table, was)
		switch {
		case err != nil:
			l.d.cfg.Log.Warn().Err(err).Stringer("table", t.Table).Uint32("relation", was).Msg("could not count the rows that are PENDING in the table that was swapped out")
		case rows > 0:
			l.d.cfg.Log.Error().Stringer("table", t.Table).Str("swapped_out", old).Int64("pending", rows).
				Msg("rows are PENDING in the table that was swapped out, and nothing publishes them: move into the new table what is not in the topic yet")
		}
	}
}

// sameHistory remembers the database's history at the term's first connection,
// and says whether a later one goes on with it. A failover or a restored backup
// may have taken transactions back, and sequences then give their numbers out
// again: rows in memory must not be taken for others of the same id.
// https://www.postgresql.org/docs/current/continuous-archiving.html#BACKUP-TIMELINES
func (l *logReader) sameHistory(s *replication.State) error {
	now := history{system: s.SystemID, timeline: s.Timeline}
	if l.history == (history{}) {
		l.history = now
		l.stream.cfg.Lineage.hold(s.Timeline)
	}
	if now != l.history || s.Insert < l.received {
		return fmt.Errorf("%w: timeline %d at %v after timeline %d at %v", errMoved, s.Timeline, s.Insert, l.history.timeline, l.received)
	}
	return nil
}

// fix makes publication and slot beside the connection, which is kept alive.
func (l *logReader) mend(ctx context.Context, v *replication.Verdict) error {
	if v.Err != nil {
		l.stream.report(v.Err, mendEvery)
		return l.beatFor(ctx, mendEvery)
	}
	if v.Publication != replication.Keep || len(v.Add) > 0 {
		err := l.makePublication(ctx)
		if err != nil {
			l.stream.report(err, mendEvery)
		}
		if err != nil && !v.Sound {
			return l.beatFor(ctx, mendEvery)
		}
	}
	if err := failpoint.Here(failpoint.BeforeSlot); err != nil {
		return err
	}
	return l.makeSlot(ctx, v.Slot)
}

// makePublication makes it over the pool: it takes the owner of the tables.
func (l *logReader) makePublication(ctx context.Context) error {
	conn, err := l.d.cfg.Pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("make publication %s: %w", l.d.cfg.Replication.Publication, err)
	}
	defer conn.Release()
	return replication.MakePublication(ctx, conn.Conn().PgConn(), l.d.cfg.Replication)
}

// makeSlot makes the slot, with growing patience for open transactions, which
// it has to wait for.
func (l *logReader) makeSlot(ctx context.Context, action replication.Action) error {
	if action == replication.Keep {
		return nil
	}
	for patience := time.Second; ; patience = min(2*patience, slotPatience) {
		at, err := l.conn.MakeSlot(ctx, action, patience)
		var blocked *replication.Blocked
		if err == nil {
			l.d.cfg.Log.Info().Str("slot", l.d.cfg.Replication.Slot).Stringer("at", at).Msg("made the slot")
			l.stream.board.happened("slot", "made slot "+l.d.cfg.Replication.Slot+" at "+at.String())
			l.remake = checkpoint.Connected{}
			return failpoint.Here(failpoint.AfterSlot)
		}
		if !errors.As(err, &blocked) {
			l.stream.report(err, mendEvery)
			return l.beatFor(ctx, mendEvery)
		}
		l.stream.report(err, 0)
		action = replication.Make // what was to be dropped is
		if err := l.beatFor(ctx, 0); err != nil {
			return err
		}
	}
}

// beatFor keeps the connection alive while it does not stream.
func (l *logReader) beatFor(ctx context.Context, d time.Duration) error {
	end := time.Now().Add(d)
	for {
		if err := l.conn.Beat(ctx); err != nil {
			return err
		}
		select {
		case <-time.After(min(time.Until(end), l.statusEvery)):
		case <-l.finishing:
			return fmt.Errorf("stopped before slot %s was sound", l.d.cfg.Replication.Slot)
		case <-ctx.Done():
			return ctx.Err()
		}
		if !time.Now().Before(end) {
			return nil
		}
	}
}
