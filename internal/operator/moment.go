package operator

import (
	"fmt"
	"time"
)

// ParseMoment reads a time as people write it: RFC 3339, a date, a date and a
// time of UTC, or a duration before now. Empty is the zero time.
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
