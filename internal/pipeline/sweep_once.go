package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// This file sweeps a stream once, without a slot or a replication connection. The driver runs with the stream
// parked, until a sweep finds no more rows.

// Swept is the result of one sweep.
type Swept struct {
	Published uint64 // rows that Kafka acknowledged
	Refused   uint64 // attempts that were charged
	GivenUp   uint64 // rows that became FAILED
	// Parks are the parks that remain. Their rows wait for their next try.
	Parks status.Parks
}

// ErrLed says that a process leads the stream, so the stream cannot be swept by command.
var ErrLed = errors.New("a process leads the stream and sweeps it itself")

// SweepOnce publishes the PENDING rows that are due, each table's rows in table order, and marks them. It
// returns when a sweep finds no more rows. It takes the leadership over an ordinary connection of the pool's
// role, fences former leaders, and respects the parks. If there is no progress for giveUp, it returns an
// error that says why; Swept then has what was done until then.
func (s *Stream) SweepOnce(ctx context.Context, giveUp time.Duration) (Swept, error) {
	switch {
	case s.cfg.Shadow:
		return Swept{}, errors.New("the stream is in shadow: it publishes nothing")
	case s.cfg.stateless():
		return Swept{}, errors.New("the stream's tables keep no state (published: none): there is nothing to sweep by")
	}
	if err := s.lead.unclaimed(ctx); err != nil {
		return Swept{}, err
	}
	conn, err := s.leadNow(ctx)
	if err != nil {
		return Swept{}, err
	}
	defer conn.Kill()
	if err := s.awaitLocks(ctx, conn); err != nil {
		return Swept{}, err
	}
	lead, err := s.lead.take(ctx)
	if err != nil {
		return Swept{}, err
	}
	s.metrics.Leading(lead.Epoch)
	s.tracker.leads(s.cfg.Replication.Name, lead.Epoch)
	d, err := s.newDriver(ctx, conn, lead)
	if err != nil {
		return Swept{}, err
	}
	stop, finish := context.WithCancel(ctx)
	defer finish()
	d.oneShot = &oneShotSweep{status: s.Status, giveUp: giveUp, finish: finish, progressed: time.Now()}
	hold := func(ctx context.Context) error { return d.holdLead(ctx, conn) }
	err = d.run(stop, hold, s.newMaintenance(d).watchPauses)
	st := s.Status()
	// The stream's own park is left out: the stream is always parked while nothing streams.
	parks := slices.DeleteFunc(d.core.Parks(), func(p outbox.Park) bool { return p.Scope.Kind == outbox.ScopeStream })
	swept := Swept{Published: st.Flow.Published, Refused: st.Flow.Refused, GivenUp: st.Flow.GivenUp, Parks: status.Summarize(parks)}
	if err == nil {
		err = errors.Join(ctx.Err(), d.oneShot.failed)
	}
	return swept, err
}

// leadNow takes the leadership, or returns an error that names the leader.
func (s *Stream) leadNow(ctx context.Context) (*replication.Conn, error) {
	trying, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	cfg := s.cfg.Replication
	cfg.DSN, cfg.Password, cfg.Ordinary = s.cfg.Pool.Config().ConnString(), s.cfg.Password, true
	cfg.Standby = func(h replication.Holder) { giveUp(fmt.Errorf("%w: %s", ErrLed, h)) }
	conn, err := replication.Lead(trying, cfg)
	if cause := context.Cause(trying); err != nil && errors.Is(cause, ErrLed) {
		return nil, cause
	}
	return conn, err
}

// holdLead takes the place of the WAL reader during a sweep: it tells the driver that nothing streams, and
// keeps the leadership.
func (d *driver) holdLead(ctx context.Context, conn *replication.Conn) error {
	defer close(d.wal.finished)
	_ = d.once.recoverFirst(ctx, conn, d.wal.finishing)
	state, err := conn.Inspect(ctx)
	if err != nil {
		return err
	}
	// This parks the stream, and the park stays in our table. If the stream runs again, it begins with a
	// sweep and a hand-back.
	connected := checkpoint.Connected{
		Insert: state.Insert, Snapshot: state.Snapshot,
		Cause: outbox.CauseSlot, Reason: "swept by command, without a slot",
	}
	if connected.Parks, err = d.store.Load(ctx); err != nil {
		return err
	}
	if connected.Failed, err = d.sweeper.Failed(ctx); err != nil {
		return err
	}
	paused, _, err := d.pauses.ask(ctx)
	if err == nil {
		err = d.pauses.refusal(paused.parks)
	}
	if err != nil {
		return err
	}
	if err := d.wal.tell(ctx, connEvent{connected: connected, paused: paused}); err != nil {
		return err
	}
	tick := time.Tick(beats(&d.cfg.Replication))
	for {
		select {
		case <-d.wal.finishing:
			conn.Close(ctx)
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-tick:
		}
		if err := conn.Beat(ctx); err != nil {
			select {
			case <-d.wal.finishing: // the lead is given back anyway
			default:
				return err
			}
		}
	}
}
