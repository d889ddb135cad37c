package checkpoint

// keptForOutage keeps a row of the WAL from the sink: the cluster has an outage, or earlier rows are
// still looked at after one. from is the outage that the row comes from, if any.
func (c *Core) keptForOutage(h uint32, from *gate) bool {
	e := &c.rows.entries[h]
	g := c.outages.gates[e.row.Cluster]
	if g == nil || g == from || e.page != nil || !g.keeping && e.state != kept {
		return false
	}
	if e.state != kept {
		c.rows.land(h)
	}
	g.keep(h, e)
	return true
}

// backToOutage keeps a row that the sink has given back unsent.
func (c *Core) backToOutage(h uint32) bool {
	e := &c.rows.entries[h]
	g := c.outages.gates[e.row.Cluster]
	if g == nil || !g.keeping || e.page != nil || e.claim != nil {
		return false
	}
	c.answered(e)
	c.answeredOutage(e)
	if e.carried && e.tx == noTx {
		c.drop(h) // never sent: the WAL brings it again
		return true
	}
	c.rows.land(h)
	g.keep(h, e)
	return true
}

func (g *gate) keep(h uint32, e *entry) {
	e.outage, e.row.Aged = g, true
	g.queue = append(g.queue, h)
}
