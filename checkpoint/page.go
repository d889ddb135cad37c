package checkpoint

import (
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// pageRequest says what a page was requested for, and when. At most one page is outstanding (sweeps.page).
// Rows in memory point to the request whose page brought them.
type pageRequest struct {
	parks   []*park   // one wide park, or any number of narrow ones or of topics; none: only the snapshot is wanted
	askedAt uint64    // generation of the request; the page tells nothing about a park that failed later
	hb      *handback // the hand-back that needs the page; nil: the page is a sweep's
	scan    bool      // the rows are not published, and only tell which topics they name
	at      time.Time // for a scan: when it was requested
}

// sweeps is the state of the requests for pages.
type sweeps struct {
	page *pageRequest // the outstanding request, or nil
	// scannedLast says that the last page was a scan. Scans and sweeps take turns.
	scannedLast bool
	more        bool // the last page of a sweep left rows unread
	// wholeCame is the generation in which the last page of the whole stream came.
	wholeCame uint64
}

// ask requests a page of the parks' rows. hb is the hand-back that needs it, or nil for a sweep.
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

// parts returns the parts of a page, one for each table with rows of the parks. The tables take turns at
// being first.
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

// excluded returns the scopes that a page leaves out, because their rows may not be published now. A
// hand-back's page leaves out every scope that stays parked, and no other: a row that it left out without a
// park would never be published. A page of keys selects by key, so it need not leave out the parks of other
// keys.
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

// refusedSince reports whether the table refused a statement after the last page of the whole stream came.
// Then the next page of the whole stream leaves the table out, however short its backoff is. Such a page
// comes whole or not at all, so tables that refuse in turn would keep all pages from coming.
func (c *Core) refusedSince(p, wanted *park) bool {
	return wanted.Scope.Kind == outbox.ScopeStream && p.refusedAt > c.sweeps.wholeCame
}

// publishSwept publishes those rows of a page that the sweeper may still publish.
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

// mayPublish reports whether the sweeper may still publish a row of a page. One of the page's parks must
// cover the row. No park that covers the row may have failed since the request, or make its rows wait. A
// page for the park of one row selects by id, so it may bring another row with the same id. The park does
// not cover that row, which must not be published, because earlier rows of its key may be waiting.
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
