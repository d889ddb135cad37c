package pipeline

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

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

// progress ends a sweep that makes none.
func (o *oneShotSweep) progress(now time.Time, inFlight int) {
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
