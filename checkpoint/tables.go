package checkpoint

import "github.com/outbox-cdc/outbox-cdc/internal/outbox"

// tableSet has the stream's tables, and says which of them are left to the sweeper.
type tableSet struct {
	byName    map[string]*outbox.Table
	stateless bool            // the tables have no state, so nothing can be parked
	broken    map[string]bool // tables whose rows in the WAL do not fit the mapping
	// The next two are for tables without state. before tells which rows were published before the
	// connection. passedOver says that rows were not read; nothing finds them again, so nothing more is
	// read.
	before     publishedBefore
	passedOver bool
	lacking    map[string]bool // of this connection: tables that the publication does not cover, or that could not be read
}

func newTableSet(tables []*outbox.Table) tableSet {
	s := tableSet{byName: map[string]*outbox.Table{}, broken: map[string]bool{}, lacking: map[string]bool{}}
	for _, t := range tables {
		s.byName[t.String()] = t
		s.stateless = s.stateless || !t.Stateful()
	}
	return s
}

// carried reports whether the table's rows of the WAL can be published.
func (s *tableSet) carried(table string) bool { return !s.broken[table] && !s.lacking[table] }

func (c *Core) unusable(cluster string) bool {
	return c.down[cluster]
}

// clusters returns the Kafka clusters that the stream's rows can go to.
func (c *Core) clusters() map[string]bool {
	all := map[string]bool{}
	for _, t := range c.cfg.Tables {
		if m := t.Mapping.Cluster; m.Column == "" {
			all[m.Default] = true
		} else {
			for _, name := range m.Known {
				all[name] = true
			}
		}
	}
	return all
}
