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
	// Parks is what stays parked: whose rows wait for their next try.
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
	case s.stateless():
		return Swept{}, errors.New("the stream's tables keep no state (published: none): there is nothing to sweep by")
	}
	if err := s.unclaimed(ctx); err != nil {
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
	lead, err := s.take(ctx)
	if err != nil {
		return Swept{}, err
	}
	s.cfg.Metrics.Leading(lead.Epoch)
	s.tracker.leads(s.cfg.Replication.Name, lead.Epoch)
	d, err := s.newDriver(ctx, conn, lead)
	if err != nil {
		return Swept{}, err
	}
	stop, finish := context.WithCancel(ctx)
	defer finish()
	d.oneShot = &oneShotSweep{status: s.Status, giveUp: giveUp, finish: finish, progressed: time.Now()}
	err = d.run(stop, d.holdLead, d.watchPauses)
	st := s.Status()
	// Other than the stream, which is parked while nothing streams.
	parks := slices.DeleteFunc(d.core.Parks(), func(p outbox.Park) bool { return p.Scope.Kind == outbox.ScopeStream })
	swept := Swept{Published: st.Flow.Published, Refused: st.Flow.Refused, GivenUp: st.Flow.GivenUp, Parks: status.Summarize(parks)}
	if err == nil {
		err = errors.Join(ctx.Err(), d.oneShot.failed)
	}
	return swept, err
}

func (s *Stream) stateless() bool {
	return slices.ContainsFunc(s.cfg.Tables, func(t *outbox.Table) bool { return !t.Stateful() })
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
func (d *driver) holdLead(ctx context.Context) error {
	defer close(d.wal.finished)
	_ = d.recoverFirst(ctx)
	conn := d.wal.conn
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
	if connected.Parks, err = d.stream.store.Load(ctx); err != nil {
		return err
	}
	if connected.Failed, err = d.sweeper.Failed(ctx); err != nil {
		return err
	}
	paused, _, err := d.lookAtPauses(ctx)
	if err == nil {
		err = d.pausedError(paused.parks)
	}
	if err != nil {
		return err
	}
	if err := d.wal.tell(ctx, connEvent{connected: connected, paused: paused}); err != nil {
		return err
	}
	tick := time.Tick(d.wal.statusEvery)
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
			case <-d.wal.finishing: // which has woken the connection
			default:
				return err
			}
		}
	}
}

// oneShotSweep decides when a single sweep is over. Its methods are the driver's to
// call; those of nil do nothing.
type oneShotSweep struct {
	status func() status.Stream
	giveUp time.Duration
	finish context.CancelFunc

	empty      int // pages in a row that found nothing while nothing was in flight
	inFlight   int
	done       uint64
	progressed time.Time
	failed     error // why it ended before it was done
}

// emptyPages in a row end the sweep: the first one was asked for while rows may
// have been in flight that it left out.
const emptyPages = 2

func (o *oneShotSweep) page(rows int, more bool, inFlight int) {
	if o == nil {
		return
	}
	if rows > 0 || more || inFlight > 0 || o.unusable() != nil { // whose rows are left out
		o.empty = 0
		return
	}
	if o.empty++; o.empty == emptyPages {
		o.finish()
	}
}

// fail ends a sweep for an error, if there is one.
func (o *oneShotSweep) fail(err error) {
	if err == nil || o.over() {
		return
	}
	o.failed = err
	o.finish()
}

func (o *oneShotSweep) over() bool {
	return o == nil || o.empty >= emptyPages || o.failed != nil
}

// look ends a sweep that does not get on.
func (o *oneShotSweep) look(now time.Time, inFlight int) {
	if o.over() {
		return
	}
	flow := o.status().Flow
	done := flow.Published + flow.Refused + flow.GivenUp
	if done != o.done || inFlight != o.inFlight {
		o.done, o.inFlight, o.progressed = done, inFlight, now
	}
	if now.Sub(o.progressed) < o.giveUp {
		return
	}
	why := "the log says why"
	if c := o.unusable(); c != nil {
		why = "Kafka cluster " + c.Name + " cannot be used: " + c.Error
	}
	o.fail(fmt.Errorf("gave up after %s without progress: %s", o.giveUp, why))
}

// unusable is a cluster that is known to be unusable, or nil.
func (o *oneShotSweep) unusable() *status.Cluster {
	for _, c := range slices.Backward(o.status().Kafka) {
		if !c.Usable {
			return &c
		}
	}
	return nil
}
