package checkpoint

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// An outage of a cluster that lasts longer than heldFor makes what was read of its rows old: the
// application may have changed, cancelled or deleted them. What was never sent is taken back from
// the sink, and kept behind a gate, with what comes meanwhile. When the cluster can be used again, these rows, and those that
// were in the WAL by then, are looked at, and go out in their order as they are now. A cluster that is parked has no
// such gate: the sweeper reads its rows as they are.

// outageSet is the clusters that cannot be used.
type outageSet struct {
	down map[string]time.Time // since when
	// gates keep rows, by cluster: of one that is down, or was and whose rows are still looked at.
	gates map[string]*gate
	// inserted is the WAL's insert position as last told: rows up to it may have waited in the WAL.
	inserted outbox.LSN
}

// beginOutages takes back what waits for clusters that have been unusable for long.
func (c *Core) beginOutages() {
	if len(c.outages.down) == 0 || c.tables.stateless || c.cfg.Shadow || !c.streaming || c.hb != nil {
		return // a hand-back awaits rows that the sink has; it gives up soon
	}
	for _, name := range slices.Sorted(maps.Keys(c.outages.down)) {
		g, scope := c.outages.gates[name], outbox.ClusterScope(name)
		if g != nil && g.keeping || c.outages.down[name].Add(heldFor).After(c.now) || c.parks.of(scope) != nil {
			continue
		}
		if g == nil {
			g = &gate{}
			c.outages.gates[name] = g
		}
		g.keeping = true
		for e := range c.rows.flying() {
			if e.state == inSink && e.outage == nil && e.row.Cluster == name {
				e.outage = g
				g.inSink++
			}
		}
		c.ready.Commands = append(c.ready.Commands, outbox.Command{Withdraw: new(scope)})
	}
}

// endOutages lets the rows of clusters go that can be used again, once the sink has none that come
// before them. What is parked meanwhile is left to the sweeper.
func (c *Core) endOutages() {
	if len(c.outages.gates) == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(c.outages.gates)) {
		g := c.outages.gates[name]
		if !g.keeping {
			continue
		}
		if g.parks != c.parks.changes {
			c.discardKept(g)
			g.parks = c.parks.changes
		}
		if parked := c.parks.of(outbox.ClusterScope(name)) != nil; !parked && (g.inSink > 0 || c.unusable(name)) {
			continue
		}
		slices.SortFunc(g.queue, func(a, b uint32) int {
			return cmp.Compare(c.rows.entries[a].arrival, c.rows.entries[b].arrival)
		})
		g.keeping, g.check = false, max(c.outages.inserted, c.ledger.received)
	}
}
