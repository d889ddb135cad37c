package checkpoint

import (
	"maps"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// Cluster takes the sink's word on a cluster.
func (c *Core) Cluster(s outbox.ClusterState) {
	if s.Usable {
		delete(c.down, s.Cluster)
		return
	}
	c.down[s.Cluster] = true
}

// parkClusters lets the rows of usable clusters pass those of an unusable one,
// once its rows use up the memory that the others wait for. Where rows are
// claimed it does not wait: they would stay locked for as long as the outage lasts.
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
