package checkpoint

import (
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// watch is a search for rows that the stream missed. Each round has these steps: read PENDING candidates,
// and the position L; wait until everything up to L is settled; read again which of the candidates are
// still PENDING; park the keys of these.
type watch struct {
	step watchStep
	at   time.Time     // when the next round begins
	due  time.Time     // when the next scheduled row becomes due, if known
	rows []*outbox.Row // the candidates; none while the step is watchIdle or watchReading
	upTo outbox.LSN    // L
	more bool          // there may be further candidates
}

type watchStep uint8

const (
	watchIdle watchStep = iota
	watchReading
	watchWaiting
	watchReadingAgain
)

// expectAt notes when a scheduled row becomes due, or when the table may be asked about one.
func (w *watch) expectAt(t time.Time) {
	if w.due.IsZero() || t.Before(w.due) {
		w.due = t
	}
}

func (c *Core) progressWatch() {
	w := &c.watch
	if c.tables.stateless || !c.streaming || c.cfg.Shadow {
		return
	}
	if w.step == watchWaiting && c.ledger.settledTo(w.upTo) {
		c.rewatch() // or it ends the round, and the next one may be due
	}
	due := !w.at.After(c.now) || !w.due.IsZero() && !w.due.After(c.now)
	if w.step == watchIdle && due && c.parks.stream() == nil {
		c.requestWatch()
	}
}

func (c *Core) requestWatch() {
	req := &outbox.WatchRequest{Limit: c.cfg.PageRows}
	ids := c.rows.ids()
	var parked []outbox.Scope
	for _, p := range c.parks.list {
		if p.knownTopics == nil {
			parked = append(parked, p.Scope)
		}
	}
	for _, t := range c.cfg.Tables {
		if !slices.Contains(parked, outbox.TableScope(t)) {
			req.Parts = append(req.Parts, outbox.SweepPart{Table: t, Exclude: parked, ExcludeIDs: ids[t], Known: c.knownTopicsOf(t)})
		}
	}
	c.watch.at, c.watch.due = c.now.Add(c.cfg.WatchEvery), time.Time{}
	if len(req.Parts) == 0 {
		return
	}
	c.watch.step = watchReading
	c.ready.Watch = req
}

// Watched answers Watch.
func (c *Core) Watched(found outbox.Candidates) {
	w := &c.watch
	c.Inserted(found.Insert)
	w.step, w.rows, w.upTo = watchIdle, found.Rows, found.Insert
	if !found.NextDue.IsZero() {
		w.expectAt(found.NextDue)
	}
	if !w.due.IsZero() && !w.due.After(c.now) {
		w.due = c.now.Add(sweepPause) // the row is not due for the server yet: our clock is ahead
	}
	if len(found.Rows) == 0 {
		return
	}
	w.step = watchWaiting
	w.more = len(found.Rows) >= c.cfg.PageRows
}

// WatchRefused answers Watch or Rewatch: the database refuses the statement for a table. The round is over.
func (c *Core) WatchRefused(t *outbox.Table, err error) {
	c.watch.step, c.watch.rows = watchIdle, nil
	c.parkRefused(t, err)
}

// rewatch asks which candidates are still PENDING. By I6, the stream cannot be carrying such rows. Parked
// candidates are left out: their scopes may be handed back before the answer comes.
func (c *Core) rewatch() {
	w := &c.watch
	w.rows = c.notOurs(w.rows)
	if len(w.rows) == 0 {
		w.step = watchIdle
		return
	}
	w.step = watchReadingAgain
	c.ready.Rewatch = w.rows
}

// notOurs returns the rows that are not parked.
func (c *Core) notOurs(rows []*outbox.Row) []*outbox.Row {
	var rest []*outbox.Row
	for _, r := range rows {
		parked := false
		c.parks.containing(r, func(*park) bool { parked = true; return false })
		if !parked {
			rest = append(rest, r)
		}
	}
	return rest
}

const missedReason = "a PENDING row that the stream does not carry"

// Rewatched answers Rewatch with the rows that are still PENDING. Their keys are parked; sweep and
// hand-back do the rest.
func (c *Core) Rewatched(pending []*outbox.Row) {
	w := &c.watch
	w.step, w.rows = watchIdle, nil
	counts := map[outbox.Cause]int{}
	for _, r := range c.notOurs(pending) {
		cause, reason := outbox.CauseMissed, missedReason
		if r.AvailableAt != 0 {
			cause, reason = outbox.CauseScheduled, "a row whose time has come"
		}
		c.park(outbox.KeyScope(r), cause, reason, time.Time{})
		counts[cause]++
	}
	for _, cause := range []outbox.Cause{outbox.CauseMissed, outbox.CauseScheduled} {
		if counts[cause] > 0 {
			c.note(Note{Kind: NoteMissed, Cause: cause, N: counts[cause]})
		}
	}
	if w.more {
		w.at, w.more = c.now, false
	}
}
