package checkpoint

import (
	"slices"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// requestSweep asks for the next page of the scopes whose turn it is. Nothing is swept
// from the start of a hand-back until its gate opens.
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

// requestSnapshot asks for a page of nothing while what was discarded is not swept, since it is paused, blocked or of an
// unusable cluster: the page's snapshot tells which of very many transactions have ended.
func (c *Core) requestSnapshot() {
	if len(c.txs.discarded) <= c.cfg.MaxRows || c.sweeps.page != nil || c.txs.next.After(c.now) {
		return
	}
	c.txs.next = c.now.Add(sweepPause)
	c.sweeps.page = &pageRequest{askedAt: c.generation, scan: true, at: c.now}
	c.ready.Sweep = &outbox.SweepRequest{Limit: c.cfg.PageRows}
}

// nextTarget is the wide park, or the narrow ones, that were swept longest ago.
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

// due says that the park may be swept by itself now.
func (c *Core) due(p *park) bool {
	return !p.nextSweep.After(c.now) && !c.withholds(p) && !c.tooManyRetrying(p) && !c.sweptByWider(p)
}

// sweptByWider says that a wider park's sweep includes this one's rows, or
// that a wider park forbids sweeping them.
func (c *Core) sweptByWider(p *park) bool {
	return slices.ContainsFunc(c.parks.wider(p), func(o *park) bool { return !c.retriesTooMany(p.Scope.Table) || c.blocksSweep(o) })
}

// Swept answers Sweep.
func (c *Core) Swept(page outbox.Page) {
	s := c.sweeps.page
	c.sweeps.page = nil
	if c.draining {
		return // what the page brings was never sent
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
		p.ready = small && ended
		if small {
			p.nextSweep = c.now.Add(sweepPause)
		}
	}
	if small {
		c.absorbSwept(s)
		c.calm(s)
	}
}

// absorbSwept removes the parks of keys that the sweep found in order while a wider park
// covers them. Without it a table parked for its many keys would wait for keys that are
// handed back only after the table.
func (c *Core) absorbSwept(s *pageRequest) {
	busy := map[outbox.Scope]bool{}
	for e := range c.rows.flying() {
		busy[outbox.KeyScope(e.row)] = true
	}
	swept := s.parks // of keys; else those that the wide one contains
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

// SweepRefused answers Sweep: the database refuses the statement for a table
// (missing column, missing privilege).
func (c *Core) SweepRefused(t *outbox.Table, err error) {
	s := c.sweeps.page
	c.sweeps.page = nil
	c.parkRefused(t, err)
	if s != nil && s.hb != nil {
		c.abandonHandback()
	}
}

// Causes sorts rows that a sweep read by the cause of the park that covers them
// most narrowly. For metrics.
func (c *Core) Causes(rows []*outbox.Row) map[outbox.Cause][]*outbox.Row {
	causes := map[outbox.Cause][]*outbox.Row{}
	for _, r := range rows {
		var cause outbox.Cause
		c.parks.containing(r, func(p *park) bool { cause = p.Cause; return true })
		causes[cause] = append(causes[cause], r)
	}
	return causes
}
