package checkpoint

import (
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// requestSweep requests a page of the scopes whose turn it is. During a hand-back nothing is swept.
func (c *Core) requestSweep() {
	c.hurry()
	if c.cfg.Shadow || c.paced() || c.sweeps.page != nil || c.hb != nil || c.rows.count+c.cfg.PageRows > c.cfg.MaxRows || c.rows.bytes >= c.cfg.MaxBytes {
		return
	}
	target := c.nextTarget()
	if parks := c.nextScan(); len(parks) > 0 && (len(target) == 0 || !c.sweeps.scannedLast) {
		c.askScan(parks)
		return
	}
	if len(target) > 0 {
		c.ask(target, nil)
	}
}

// requestSnapshot requests a page without rows if very many transactions with discarded rows are remembered.
// Their rows may not be swept, because they are paused, blocked or of an unusable cluster. The page's
// snapshot tells which of the transactions have ended, so that they can be forgotten.
func (c *Core) requestSnapshot() {
	if len(c.txs.discarded) <= c.cfg.MaxRows || c.sweeps.page != nil || c.txs.next.After(c.now) {
		return
	}
	c.txs.next = c.now.Add(sweepPause)
	c.sweeps.page = &pageRequest{askedAt: c.generation, scan: true, at: c.now}
	c.ready.Sweep = &outbox.SweepRequest{Limit: c.cfg.PageRows}
}

// nextTarget returns the parks to sweep next: the wide park, or the narrow ones, whose last sweep is longest
// ago.
func (c *Core) nextTarget() []*park {
	var best *park
	var narrow []*park
	for _, p := range c.parks.awake {
		if !c.due(p) {
			continue
		}
		if p.Scope.Kind >= outbox.ScopeKey {
			narrow = append(narrow, p)
		} else if best == nil || p.lastSweep < best.lastSweep {
			best = p
		}
	}
	slices.SortStableFunc(narrow, func(a, b *park) int { return int(int64(a.lastSweep) - int64(b.lastSweep)) })
	narrow = narrow[:min(len(narrow), maxKeysASweep)]
	if best == nil || len(narrow) > 0 && narrow[0].lastSweep < best.lastSweep {
		return narrow
	}
	return []*park{best}
}

// due reports whether the park may be swept by itself now.
func (c *Core) due(p *park) bool {
	return !p.nextSweep.After(c.now) && !c.withholds(p) && !c.tooManyRetrying(p) && !c.sweptByWider(p)
}

// sweptByWider reports whether the sweep of a wider park includes this park's rows, or a wider park forbids
// sweeping them.
func (c *Core) sweptByWider(p *park) bool {
	return slices.ContainsFunc(c.parks.wider(p), func(o *park) bool { return !c.retriesTooMany(p.Scope.Table) || c.blocksSweep(o) })
}

// Swept takes the answer to Ready.Sweep.
func (c *Core) Swept(page outbox.Page) {
	s := c.sweeps.page
	c.sweeps.page = nil
	if c.draining {
		return // the rows of the page stay PENDING
	}
	c.Inserted(page.Insert)
	c.headStart.sight(&page.Snapshot, c.now)
	ended := c.txs.observe(&page.Snapshot, s.askedAt)
	switch {
	case s.scan:
		c.scanned(s, &page, ended)
		return
	case s.hb != nil:
		c.handbackPage(s, &page)
		return
	}
	c.publishSwept(page.Rows, s)
	c.sweeps.more = page.More
	if s.parks[0].Scope.Kind == outbox.ScopeStream {
		c.sweeps.wholeCame = c.generation
	}
	small := !page.More && len(page.Rows) <= c.cfg.SmallRound
	for _, p := range s.parks {
		if c.parks.of(p.Scope) != p || p.failedAt > s.askedAt {
			continue
		}
		c.parks.wake(p)
		p.sweptOut = small && ended
		if small {
			p.nextSweep = c.now.Add(sweepPause)
		}
	}
	if small {
		c.absorbSwept(s)
		c.calm(s)
	}
}

// absorbSwept removes the parks of keys that the sweep found without trouble, while a wider park covers
// them. Otherwise a table that is parked for its many keys would wait for these keys, and they are handed
// back only after the table.
func (c *Core) absorbSwept(s *pageRequest) {
	busy := map[outbox.Scope]bool{}
	for e := range c.rows.flying() {
		busy[outbox.KeyScope(e.row)] = true
	}
	swept := s.parks // the narrow parks of the page; for a wide park, replaced by the parks that it contains
	if wide := s.parks[0].Scope; wide.Kind < outbox.ScopeKey {
		swept = nil
		for _, p := range c.parks.list {
			if wide.Kind == outbox.ScopeStream || wide.Kind == outbox.ScopeTable && wide.Table == p.Scope.Table {
				swept = append(swept, p)
			}
		}
	}
	for _, p := range swept {
		if p.Scope.Kind >= outbox.ScopeKey && p.failedAt <= s.askedAt && !busy[p.Scope] && !c.blocksSweep(p) {
			c.absorb(p)
		}
	}
}

// SweepRefused takes the answer to Ready.Sweep when the database refuses the statement for a table (missing
// column, missing privilege).
func (c *Core) SweepRefused(t *outbox.Table, err error) {
	s := c.sweeps.page
	c.sweeps.page = nil
	c.parkRefused(t, err)
	if s != nil && s.hb != nil {
		c.abandonHandback()
	}
}

// Causes groups rows that a sweep read by the cause of the narrowest park that covers them. It is used for
// metrics.
func (c *Core) Causes(rows []*outbox.Row) map[outbox.Cause][]*outbox.Row {
	causes := map[outbox.Cause][]*outbox.Row{}
	for _, r := range rows {
		var cause outbox.Cause
		c.parks.containing(r, func(p *park) bool { cause = p.Cause; return true })
		causes[cause] = append(causes[cause], r)
	}
	return causes
}
