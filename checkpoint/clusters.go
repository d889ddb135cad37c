package checkpoint

import (
	"maps"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Cluster takes a sink's report that its cluster can or cannot be used.
func (c *Core) Cluster(s outbox.ClusterState) {
	if s.Usable {
		delete(c.down, s.Cluster)
		return
	}
	c.down[s.Cluster] = true
}

// parkClusters parks unusable clusters whose rows hold up the rows of usable ones, because they fill the
// memory or the stream is parked. If rows of any table are claimed, it parks unusable clusters at once,
// because claimed rows would otherwise stay locked for as long as the outage lasts.
func (c *Core) parkClusters() {
	if len(c.down) == 0 || c.tables.stateless {
		return
	}
	othersWait := len(c.clusters()) > 1 && (c.full() || c.parks.stream() != nil)
	for _, name := range slices.Sorted(maps.Keys(c.down)) {
		if (othersWait || c.looks.locksRows()) && c.parks.of(outbox.ClusterScope(name)) == nil {
			p := c.park(outbox.ClusterScope(name), outbox.CauseCluster, "the Kafka cluster is unusable", time.Time{})
			c.withdraw(p)
		}
	}
}
