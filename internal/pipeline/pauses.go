package pipeline

import (
	"context"
	"fmt"
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/internal/wait"
)

// This file asks what operators have paused.

// pausedLook is what was paused at one look. Looks are numbered in the order in which they
// were made: a connection that begins and the regular look come to the driver in any order,
// and an older one must not end a pause that a later one saw.
type pausedLook struct {
	number uint64
	parks  []outbox.Park
}

// lookAtPauses makes one look after the other.
func (d *driver) lookAtPauses(ctx context.Context) (pausedLook, error) {
	d.looking.Lock()
	defer d.looking.Unlock()
	d.looks++
	parks, err := d.stream.store.Paused(ctx)
	return pausedLook{d.looks, parks}, err
}

// newer is what is paused by the last look that was told.
func (d *driver) newer(look pausedLook) []outbox.Park {
	if look.number > d.paused.number {
		d.paused = look
	}
	return d.paused.parks
}

// askPaused tells the Core what is paused now. A single sweep ends where anything is.
func (d *driver) askPaused(ctx context.Context) error {
	look, err := d.lookAtPauses(ctx)
	if err == nil {
		d.answers.Put(answer{0, func() {
			paused := d.newer(look)
			d.core.Pause(paused)
			d.oneShot.refuse(d.pausedError(paused))
		}})
	}
	return err
}

// watchPauses does so for a single sweep, which has no slot to look at.
func (d *driver) watchPauses(ctx context.Context) error {
	for wait.Sleep(ctx, retainedEvery) == nil {
		d.retried(ctx, d.askPaused(ctx), retainedEvery, "could not ask what is paused")
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
