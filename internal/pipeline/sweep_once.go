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

// This file sweeps a stream once, without slot and replication connection: the
// driver runs with the stream parked until a sweep finds nothing more.

// Swept is what one sweep did.
type Swept struct {
	Published uint64 // rows that Kafka acknowledged
	Refused   uint64 // attempts that were charged
	GivenUp   uint64 // rows that became FAILED
	// Parks stay: their rows wait for their next try.
	Parks status.Parks
}

// ErrLed says that a process leads the stream, so that it cannot be swept.
var ErrLed = errors.New("a process leads the stream and sweeps it itself")

// SweepOnce publishes the rows that are PENDING and due, each table's in table
// order, marks them, and returns when a sweep finds nothing more. It takes the
// leadership over an ordinary connection of the pool's role, fences former
// leaders, and keeps to the parks. Without any progress for giveUp it ends with
// an error that says why; what was done until then is in Swept.
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
	// Other than the stream, which is parked while nothing streams.
	parks := slices.DeleteFunc(d.core.Parks(), func(p outbox.Park) bool { return p.Scope.Kind == outbox.ScopeStream })
	swept := Swept{Published: st.Flow.Published, Refused: st.Flow.Refused, GivenUp: st.Flow.GivenUp, Parks: status.Summarize(parks)}
	if err == nil {
		err = errors.Join(ctx.Err(), d.oneShot.failed)
	}
	return swept, err
}

// leadNow takes the leadership or says who has it.
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

// holdLead takes the WAL reader's place in a sweep: it tells the driver that
// nothing streams, and keeps the leadership.
func (d *driver) holdLead(ctx context.Context, conn *replication.Conn) error {
	defer close(d.wal.finished)
	_ = d.once.recoverFirst(ctx, conn, d.wal.finishing)
	state, err := conn.Inspect(ctx)
	if err != nil {
		return err
	}
	// The stream's park that this leads to stays in our table: should run stream again, it begins
	// with a sweep and a hand-back.
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
			case <-d.wal.finishing: // it is given back anyway
			default:
				return err
			}
		}
	}
}
