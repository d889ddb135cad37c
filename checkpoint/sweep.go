package checkpoint

import (
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// sweep is the outstanding page: what it was asked for, and when.
type sweep struct {
	parks   []*park
	askedAt uint64
	hb      *handback // nil: an ordinary sweep
	look    bool      // its rows only tell topics
	at      time.Time // of a look
}

// sweeps is what is asked of the sweeper.
type sweeps struct {
	page *sweep // outstanding
	// lookedLast: the last page was a look. Sweeps take turns with them.
	lookedLast bool
	more       bool // the last page of a sweep left rows behind
	// wholeCame is the generation in which a page of the whole stream came last.
	wholeCame uint64
}

// requestSweep asks for the next page of the scopes whose turn it is. While a
// hand-back is before its gate's opening, nothing is swept.
func (c *Core) requestSweep() {
	if c.cfg.Shadow || c.paced() || c.sweeps.page != nil || c.hb != nil || c.rows.count+c.cfg.PageRows > c.cfg.MaxRows || c.rows.bytes >= c.cfg.MaxBytes {
		return
	}
	c.hurry()
	target := c.nextTarget()
	if parks := c.nextLook(); len(parks) > 0 && (len(target) == 0 || !c.sweeps.lookedLast) {
		c.askLook(parks)
		return
	}
	if len(target) > 0 {
		c.ask(target, nil)
	}
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

// tooManyRetrying says that so many keys of a table are parked that it is not swept:
// those that are due go first. It bounds the number of parks.
func (c *Core) tooManyRetrying(p *park) bool {
	return p.Scope.Kind == outbox.ScopeTable && c.retriesTooMany(p.Scope.Table)
}

// retriesTooMany does not count keys that wait for the operator: the others would
// wait with them. When many rows could not be marked, a sweep would only find more.
func (c *Core) retriesTooMany(table string) bool {
	return c.crowded(table) || c.parks.unmarked[table] > c.cfg.MaxKeys
}

func (c *Core) crowded(table string) bool {
	return c.parks.keys[table]-c.parks.blocked[table] > c.cfg.MaxRetryingKeys
}

// hurries says that so many keys of a table wait for a retry that its other rows wait for them.
// Then none waits for its time: their budgets end, however long the back-off, and others get room.
// Where there is no budget, nothing would end.
func (c *Core) hurries(table string) bool {
	t := c.tables.byName[table]
	return t != nil && t.Mapping.Status.MaxAttempts > 0 && c.crowded(table)
}

// hurry ends the back-off of a table's keys when it begins to hurry. Keys that fail meanwhile get
// none, see nextTry.
func (c *Core) hurry() {
	for _, p := range c.parks.awake {
		if p.Scope.Kind != outbox.ScopeTable || p.hurried == c.hurries(p.Scope.Table) {
			continue
		}
		if p.hurried = !p.hurried; !p.hurried {
			continue
		}
		for _, o := range c.parks.list {
			if o.Scope.Kind >= outbox.ScopeKey && o.Scope.Table == p.Scope.Table && o.Cause == outbox.CauseRowError && o.Next.After(c.now) {
				c.parks.tryAt(o, c.now)
			}
		}
		return // awake is another list now
	}
}

// sweptByWider says that a wider park's sweep includes this one's rows, or
// that a wider park forbids sweeping them.
func (c *Core) sweptByWider(p *park) bool {
	return slices.ContainsFunc(c.parks.wider(p), func(o *park) bool { return !c.retriesTooMany(p.Scope.Table) || c.blocksSweep(o) })
}

func (c *Core) ask(parks []*park, hb *handback) {
	c.generation++
	c.sweeps.lookedLast = false
	c.sweeps.page = &sweep{parks: parks, askedAt: c.generation, hb: hb}
	for _, p := range parks {
		p.lastSweep = c.generation
	}
	c.ready.Sweep = &outbox.SweepRequest{
		Parts:       c.parts(parks),
		Limit:       c.pageRows(hb),
		MaxBytes:    c.cfg.MaxBytes,
		ForHandback: hb != nil,
		WriteWAL:    hb != nil,
	}
}

// parts spreads the parks over the tables, which take turns at being first.
func (c *Core) parts(parks []*park) []outbox.SweepPart {
	var parts []outbox.SweepPart
	exclude := c.excluded(parks)
	ids := c.rows.ids()
	if p := parks[0]; p.knownTopics != nil {
		part := c.unknownPart(p, c.tables.byName[p.Scope.Table])
		part.Exclude, part.ExcludeIDs = append(part.Exclude, exclude...), ids[part.Table]
		if slices.Contains(exclude, outbox.TableScope(part.Table)) {
			return nil
		}
		return []outbox.SweepPart{part}
	}
	for i := range c.cfg.Tables {
		t := c.cfg.Tables[(i+int(c.generation))%len(c.cfg.Tables)]
		part := outbox.SweepPart{Table: t, Exclude: exclude, ExcludeIDs: ids[t], Known: c.knownTopicsOf(t), Horizon: c.headStart.horizonOf(t, c.now)}
		for _, p := range parks {
			if p.Scope.Table == "" || p.Scope.Table == t.String() {
				part.Include = append(part.Include, p.Scope)
			}
		}
		if len(part.Include) > 0 && !slices.Contains(exclude, outbox.TableScope(t)) {
			parts = append(parts, part)
		}
	}
	return parts
}

// excluded are the scopes of which nothing may be published now. A hand-back
// leaves out everything that stays parked, and nothing else: what it does not
// see would be left to nobody. A page of keys selects by key, so parks of other keys
// need no exclusion.
func (c *Core) excluded(wanted []*park) []outbox.Scope {
	var scopes []outbox.Scope
	for _, p := range c.parks.list {
		if p.Scope.Kind == outbox.ScopeKey && wanted[0].Scope.Kind >= outbox.ScopeKey {
			continue
		}
		tooMany := wanted[0].Scope.Kind < outbox.ScopeKey && c.tooManyRetrying(p)
		if p.knownTopics == nil && !slices.Contains(wanted, p) && (c.blocksSweep(p) || wanted[0].phase == keeping || tooMany || c.refusedSince(p, wanted[0])) {
			scopes = append(scopes, p.Scope)
		}
	}
	for name := range c.clusters() {
		if wanted[0].phase != keeping && c.unusable(name) && !slices.Contains(scopes, outbox.ClusterScope(name)) {
			scopes = append(scopes, outbox.ClusterScope(name))
		}
	}
	return scopes
}

// refusedSince says that the table refused a statement after the last page of the whole
// stream. However short its back-off is, the next one is without it: a page comes
// whole or not at all, so tables that refuse in turn would let none come.
func (c *Core) refusedSince(p, wanted *park) bool {
	return wanted.Scope.Kind == outbox.ScopeStream && p.refusedAt > c.sweeps.wholeCame
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
	case s.look:
		c.looked(s, &page, ended)
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
	}
}

// absorbSwept removes the parks of keys that the sweep found in order while a
// wider park covers them. Without it a table parked for its many keys would wait
// for keys that are not handed back before the table is.
func (c *Core) absorbSwept(s *sweep) {
	busy := map[outbox.Scope]bool{}
	for e := range c.rows.flying() {
		busy[outbox.KeyScope(e.row)] = true
	}
	for _, p := range c.parks.list {
		swept := slices.ContainsFunc(s.parks, func(o *park) bool {
			return o == p || o.Scope.Kind == outbox.ScopeStream || o.Scope.Kind == outbox.ScopeTable && o.Scope.Table == p.Scope.Table
		})
		if swept && p.Scope.Kind >= outbox.ScopeKey && p.failedAt <= s.askedAt && !busy[p.Scope] && !c.blocksSweep(p) {
			c.absorb(p)
		}
	}
}

// publishSwept publishes what the sweeper read, as far as it is still its to publish.
func (c *Core) publishSwept(rows []*outbox.Row, s *sweep) {
	for _, r := range rows {
		if !c.mayPublish(r, s) {
			continue
		}
		h := c.rows.add(r, noTx)
		c.rows.entries[h].page = s
		if s.hb != nil {
			s.hb.await(&c.rows.entries[h])
		}
		c.publish(h)
	}
}

// mayPublish says that the row of a page is still the sweeper's to publish: a park
// that the page is of covers it, and none that covers it has failed since the request or
// waits. A page of a row's park may bring another row, which got the id later: in that
// one's key it may not be first.
func (c *Core) mayPublish(r *outbox.Row, s *sweep) bool {
	covered, ok := false, true
	c.parks.containing(r, func(p *park) bool {
		asked := slices.Contains(s.parks, p)
		covered = covered || asked
		ours := asked && p.phase == keeping
		if !ours && (c.withholds(p) || p.failedAt > s.askedAt) {
			ok = false
		}
		return true
	})
	return covered && ok
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

// parkRefused leaves a table that refuses our statements to later tries.
func (c *Core) parkRefused(t *outbox.Table, err error) {
	scope := outbox.TableScope(t)
	tries := 1
	if p := c.parks.of(scope); p != nil {
		tries = p.tries + 1
	}
	p := c.park(scope, outbox.CauseWriteBack, err.Error(), c.backoff(tries))
	p.tries, p.refusedAt = tries, c.generation
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
