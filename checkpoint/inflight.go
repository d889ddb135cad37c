package checkpoint

import "github.com/outbox-cdc/outbox-cdc/internal/outbox"

// InFlight are the ids of the table's rows that are in memory, which retention
// must leave alone.
func (c *Core) InFlight(t *outbox.Table) []string { return c.idsInFlight()[t] }
