package pipeline

import (
	"context"
	"time"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/failpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// leaveWithin bounds, at a stop, the wait for the answer to a sink's last request. Without the answer the
// next leader inherits no fences.
const leaveWithin = time.Second

// carryOut carries out the Core's decisions.
func (d *driver) carryOut(r checkpoint.Ready) {
	d.command(r.Commands)
	if len(r.Marks) > 0 {
		d.compareOne(r.Marks, time.Now())
		d.updater.Do(r.Marks...)
	}
	d.updater.Unclaim(r.Unclaim...)
	if len(r.Claim) > 0 {
		d.claim(r.Claim)
	}
	if len(r.Check) > 0 {
		askTables(d.questions, "look at rows", r.Check, d.sweeper.Check, d.core.Checked, d.core.CheckRefused)
	}
	if r.Sweep != nil {
		askTables(d.questions, "read a page of pending rows", *r.Sweep, d.sweep, d.swept, d.core.SweepRefused)
	}
	if r.Watch != nil {
		askTables(d.questions, "look for missed rows", *r.Watch, d.sweeper.Watch, d.core.Watched, d.core.WatchRefused)
	}
	if len(r.Rewatch) > 0 {
		askTables(d.questions, "look for missed rows again", r.Rewatch, d.sweeper.States, d.rewatched, d.core.WatchRefused)
	}
	if r.Failed {
		failed := func(ctx context.Context, _ struct{}) ([]*outbox.Row, error) { return d.sweeper.Failed(ctx) }
		askTables(d.questions, "look for failed rows", struct{}{}, failed, d.core.FailedRows, d.core.FailedRefused)
	}
	if r.Parks != nil {
		d.writeParks(*r.Parks)
	}
	for _, n := range r.Notes {
		d.note(n)
	}
}

// leave stops the sinks and returns the fences that the next leader inherits.
func (d *driver) leave(ctx context.Context) map[string]*outbox.Fences {
	ctx, cancel := context.WithTimeout(ctx, leaveWithin)
	defer cancel()
	fences := map[string]*outbox.Fences{}
	for cluster, s := range d.sinks {
		fences[cluster] = s.Leave(ctx)
	}
	return fences
}

// command sends commands to the sinks, each row to its cluster's sink.
func (d *driver) command(cmds []outbox.Command) {
	if len(d.sinks) == 1 {
		for _, s := range d.sinks {
			s.Do(cmds...)
		}
		return
	}
	for _, cmd := range cmds {
		if cmd.Publish == nil {
			for _, s := range d.sinks {
				s.Do(cmd)
			}
			continue
		}
		parts := map[string][]*outbox.Row{}
		for _, r := range cmd.Publish {
			parts[r.Cluster] = append(parts[r.Cluster], r)
		}
		for name, rows := range parts {
			d.sinks[name].Do(outbox.Command{Publish: rows})
		}
	}
}

// claim locks rows. Even if the replication connection ends meanwhile, the Core is told which rows were
// locked, so that it can release them.
func (d *driver) claim(rows []*outbox.Row) {
	connection, ctx := d.connection, d.asking
	d.running.Go(func() {
		a, err := retry(ctx, d.questions, "claim rows", func(ctx context.Context) (answer, error) {
			checked, err := d.updater.Claim(ctx, rows)
			if refusal := refusalOf(err); refusal != nil {
				d.explain(ctx, d.pool, d.stream, refusal)
				return answer{connection, func() { d.core.ClaimRefused(refusal.Table, refusal) }}, nil //nolint:nilerr // a refusal is an answer
			}
			return answer{0, func() { d.core.Claimed(checked) }}, err
		})
		if err == nil {
			d.answers.Put(a)
		}
	})
}

// sweep reads one page.
func (d *driver) sweep(ctx context.Context, req outbox.SweepRequest) (outbox.Page, error) {
	page, err := d.sweeper.Sweep(ctx, req)
	if err == nil && req.ForHandback {
		err = failpoint.Here(failpoint.InHandback)
	}
	return page, err
}

func (d *driver) rewatched(answers []outbox.Checked) {
	var pending []*outbox.Row
	for _, a := range answers {
		if a.State == outbox.CheckPending {
			pending = append(pending, a.Row)
		}
	}
	d.core.Rewatched(pending)
}

// writeParks writes the change until it is known to be committed, or until the connection ends. After that,
// the next leadership raises the epoch, so that no earlier try can take effect, and then reads the parks from
// our table.
func (d *driver) writeParks(change outbox.ParkChange) {
	d.ask("write parks", func(ctx context.Context) (func(), error) {
		result, err := d.store.write(ctx, change)
		if unkept(err) {
			return func() { d.end(err) }, nil
		}
		return func() { d.core.ParksWritten(result) }, err
	})
}
