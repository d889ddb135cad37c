package checkpoint

import (
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// pageRequest is what a page was asked for, and when. One is outstanding at a time (sweeps.page); rows
// in memory remember the one that brought them.
type pageRequest struct {
	parks   []*park   // one wide one, or any number of narrow ones, or of topics; none: only the snapshot is wanted
	askedAt uint64    // in generations: what the page says of a park that failed later is void
	hb      *handback // nil: an ordinary sweep
	scan    bool      // its rows only tell topics
	at      time.Time // of a scan
}

// sweeps is what is asked of the sweeper.
type sweeps struct {
	page *pageRequest // the outstanding one, or nil
	// scannedLast: the last page was a scan. Sweeps take turns with them.
	scannedLast bool
	more        bool // the last page of a sweep left rows behind
	// wholeCame is the generation in which a page of the whole stream came last.
	wholeCame uint64
}

func (c *Core) ask(parks []*park, hb *handback) {
	c.generation++
	c.sweeps.scannedLast = false
	c.sweeps.page = &pageRequest{parks: parks, askedAt: c.generation, hb: hb}
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

// excluded are the scopes whose rows may not be published now. A hand-back
// leaves out everything that stays parked, and nothing else: a row that it leaves
// out and that is not parked would never be published. A page of keys selects by key, so parks of other keys
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
// stream. The next page leaves it out, however short its back-off: a page comes whole or
// not at all, so tables that refuse in turn would let none come.
func (c *Core) refusedSince(p, wanted *park) bool {
	return wanted.Scope.Kind == outbox.ScopeStream && p.refusedAt > c.sweeps.wholeCame
}

// publishSwept publishes what the sweeper read, as far as it is still its to publish.
func (c *Core) publishSwept(rows []*outbox.Row, s *pageRequest) {
	for _, r := range rows {
		if !c.mayPublish(r, s) {
			continue
		}
		h := c.rows.add(r, noTx)
		c.rows.entries[h].page = s
		if s.hb != nil {
			c.rows.entries[h].awaitedBy(s.hb)
		}
		c.publish(h)
	}
}

// mayPublish says that a page's row is still the sweeper's to publish: one of the page's
// parks covers it, and no park that covers it has failed since the request or waits. A page
// of a row's park selects by id, so it may bring another row with that id, which the park does not
// cover: such a row may not be the first of its key.
func (c *Core) mayPublish(r *outbox.Row, s *pageRequest) bool {
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
