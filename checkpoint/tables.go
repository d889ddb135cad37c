package checkpoint

import "github.com/outbox-cdc/outbox-cdc/internal/outbox"

// tableSet is the stream's tables, and which of them are left to the sweeper.
type tableSet struct {
	byName    map[string]*outbox.Table
	stateless bool            // the tables keep no state: nothing can be parked
	broken    map[string]bool // the WAL's rows cannot be read as the mapping says
	// Of tables without state: before knows what was published before the connection. passedOver: rows were
	// not read, and nothing finds them again, so no more is read.
	before     publishedBefore
	passedOver bool
	lacking    map[string]bool // of the connection: the publication does not cover them, or they could not be read
}

func newTableSet(tables []*outbox.Table) tableSet {
	s := tableSet{byName: map[string]*outbox.Table{}, broken: map[string]bool{}, lacking: map[string]bool{}}
	for _, t := range tables {
		s.byName[t.String()] = t
		s.stateless = s.stateless || !t.Stateful()
	}
	return s
}

// carried says that the table's rows of the WAL can be published.
func (s *tableSet) carried(table string) bool { return !s.broken[table] && !s.lacking[table] }

func (c *Core) unusable(cluster string) bool {
	return c.down[cluster]
}

// clusters are the Kafka clusters that rows of the stream can go to.
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
