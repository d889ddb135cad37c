package operator

import (
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// Selection is a filter of rows as people write it, in flags or an address.
type Selection struct {
	IDs        []string // as outbox.Row has them
	Topic, Key *string
	// Error is a regular expression.
	Error string
	// Since and Until are times as ParseMoment reads them.
	Since, Until string
}

// Filter is the selection of rows in a state. Its error is the writer's.
func (s *Selection) Filter(state tablesql.RowState, now time.Time) (tablesql.Filter, error) {
	f := tablesql.Filter{State: state, IDs: s.IDs, Topic: s.Topic, Key: s.Key, Error: s.Error}
	var err error
	if f.Since, err = ParseMoment(s.Since, now); err == nil {
		f.Until, err = ParseMoment(s.Until, now)
	}
	return f, err
}
