package pipeline

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

// oneShotSweep decides when a sweep by command is over. The driver calls its methods. Those of a nil
// oneShotSweep do nothing.
type oneShotSweep struct {
	status func() status.Stream
	giveUp time.Duration
	finish context.CancelFunc

	empty      int // how many pages in a row were empty while nothing was in flight
	inFlight   int
	done       uint64
	progressed time.Time
	failed     error // the error that ended the sweep early
}

// emptyPages empty pages in a row end the sweep. One is not enough: the first page may have left out rows
// that were in flight when it was requested.
const emptyPages = 2

func (o *oneShotSweep) page(rows int, more bool, inFlight int) {
	if o == nil {
		return
	}
	if rows > 0 || more || inFlight > 0 || o.unusable() != nil { // rows of an unusable cluster are left out of the page
		o.empty = 0
		return
	}
	if o.empty++; o.empty == emptyPages {
		o.finish()
	}
}

// fail ends the sweep with an error. It does nothing if err is nil or the sweep is over.
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

// progress ends a sweep that has made no progress for too long.
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

// unusable returns a cluster that is known to be unusable, or nil.
func (o *oneShotSweep) unusable() *status.Cluster {
	for _, c := range slices.Backward(o.status().Kafka) {
		if !c.Usable {
			return &c
		}
	}
	return nil
}
