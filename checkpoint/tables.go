package checkpoint

import "github.com/outbox-cdc/outbox-cdc/internal/outbox"

// tableSet is the stream's tables, and which of them the log does not carry.
type tableSet struct {
	byName    map[string]*outbox.Table
	stateless bool            // the tables keep no state: nothing can be parked
	broken    map[string]bool // the log's rows cannot be read as the mapping says
	lacking   map[string]bool // the publication does not cover them
}

func newTableSet(tables []*outbox.Table) tableSet {
	s := tableSet{byName: map[string]*outbox.Table{}, broken: map[string]bool{}, lacking: map[string]bool{}}
	for _, t := range tables {
		s.byName[t.String()] = t
		s.stateless = s.stateless || !t.Stateful()
	}
	return s
}

// carried says that the log brings the table's rows.
func (s *tableSet) carried(table string) bool { return !s.broken[table] && !s.lacking[table] }
