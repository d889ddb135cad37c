package page

import (
	"cmp"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

// waiting is one thing that a row waits for.
type waiting struct {
	// What keeps the row: a park's scope, a Kafka cluster, or the row's own time.
	What   string    `json:"what"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since,omitzero"`
	Next   time.Time `json:"next_try,omitzero"`
	// Row is the FAILED row that blocks the key.
	Row []string `json:"row,omitempty"`
	// Paused: the row waits until somebody resumes the stream or the table.
	Paused bool `json:"-"`
}

// waitsFor returns what keeps a row, widest first: parks, a Kafka cluster that cannot be used, a time that
// has not come. It is a pure function.
func waitsFor(row *outbox.Row, parks []outbox.Park, s *status.Stream, now time.Time) []waiting {
	list := []waiting{}
	parks = slices.DeleteFunc(slices.Clone(parks), func(p outbox.Park) bool { return !p.Scope.Contains(row) })
	slices.SortStableFunc(parks, func(a, b outbox.Park) int { return cmp.Compare(a.Scope.Kind, b.Scope.Kind) })
	for i := range parks {
		p := &parks[i]
		if p.Scope.Kind == outbox.ScopeTopics && len(parks) > 1 { // the park of a known topic is more precise
			continue
		}
		w := waiting{What: p.Scope.String(), Reason: p.Reason, Since: p.Since, Next: p.Next, Paused: p.Cause == outbox.CausePaused}
		switch {
		case p.Unmarked():
			w.Reason = "published, cannot be marked: " + p.Reason
		case p.RowID != "":
			w.Row = outbox.SplitID(p.RowID)
		}
		list = append(list, w)
	}
	if !row.Pending { // its key may wait, but the row itself does not
		return list
	}
	for i := range s.Kafka {
		if c := &s.Kafka[i]; !c.Usable && c.Name == row.Cluster {
			list = append(list, waiting{What: "Kafka cluster " + c.Name, Reason: "it cannot be used: " + c.Error})
		}
	}
	switch due := time.UnixMicro(row.AvailableAt); {
	case row.AvailableAt == outbox.Never:
		list = append(list, waiting{What: "its writer", Reason: "the row does not say from when on it may be published"})
	case row.AvailableAt > 0 && due.After(now):
		list = append(list, waiting{What: "its own time", Reason: "it may not be published before", Next: due.UTC()})
	}
	return list
}
