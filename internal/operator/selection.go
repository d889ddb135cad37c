package operator

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

// Selection is a filter of rows as people write it, in flags or in an address.
type Selection struct {
	IDs        []string // in the form of outbox.Row.ID
	Topic, Key *string
	// Error is a regular expression.
	Error string
	// Since and Until are times as ParseMoment reads them.
	Since, Until string
}

// WrongField says which field of a Selection is wrong, and why.
type WrongField struct {
	Field string // since or until
	Err   error
}

func (e *WrongField) Error() string { return e.Err.Error() }

// Filter returns the filter for rows in a state. The error is a *WrongField.
func (s *Selection) Filter(state tablesql.RowState, now time.Time) (tablesql.Filter, error) {
	f := tablesql.Filter{State: state, IDs: s.IDs, Topic: s.Topic, Key: s.Key, Error: s.Error}
	var err error
	if f.Since, err = ParseMoment(s.Since, now); err != nil {
		return f, &WrongField{"since", err}
	}
	if f.Until, err = ParseMoment(s.Until, now); err != nil {
		return f, &WrongField{"until", err}
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		return f, &WrongField{"until", fmt.Errorf("%q is not after %q: no row is between them", s.Until, s.Since)}
	}
	return f, nil
}

// ParseMoment parses a time that people write: RFC 3339, a date, a date with a time in UTC, or a duration
// before now. An empty text gives the zero time.
func ParseMoment(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05", "2006-01-02T15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is not a time: write 2026-01-31T10:00:00Z, 2026-01-31 10:00 (UTC), 2026-01-31, or 2h for two hours ago", text)
}

// ParseID parses an id of the given number of columns that people write: A,B or a JSON list. Package tablesql
// checks whether it can be an id of the table.
func ParseID(text string, columns int) string {
	var parts []string
	if strings.HasPrefix(text, "[") && json.Unmarshal([]byte(text), &parts) == nil {
		return outbox.JoinID(parts...)
	}
	if columns == 1 {
		return text
	}
	return outbox.JoinID(strings.Split(text, ",")...)
}
