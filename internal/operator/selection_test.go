package operator

import (
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
)

func TestMoments(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"2h": "2026-01-02T10:00:00Z", "2026-01-01": "2026-01-01T00:00:00Z", "2026-01-01 10:30": "2026-01-01T10:30:00Z",
		"2026-01-01T10:30:00+02:00": "2026-01-01T08:30:00Z", "": "0001-01-01T00:00:00Z",
	} {
		if got, err := ParseMoment(text, now); err != nil || got.UTC().Format(time.RFC3339) != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}

func TestASelectionNamesWhatIsNoTime(t *testing.T) {
	now, topic := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC), ""
	f, err := (&Selection{Topic: &topic, IDs: []string{"7"}, Since: "2h", Until: "1h"}).Filter(tablesql.RowsSent, now)
	if err != nil || f.State != tablesql.RowsSent || f.Topic != &topic || len(f.IDs) != 1 || f.Until.Sub(f.Since) != time.Hour {
		t.Errorf("%+v, %v", f, err)
	}
	for _, s := range []Selection{{Since: "soon"}, {Until: "soon"}} {
		if _, err := s.Filter(tablesql.RowsSent, now); err == nil || !strings.Contains(err.Error(), `"soon" is not a time`) {
			t.Error(err)
		}
	}
}

func TestIDs(t *testing.T) {
	for text, want := range map[string]string{"a,b": outbox.JoinID("a", "b"), `["a,x","b"]`: outbox.JoinID("a,x", "b"), "a": "a"} {
		if got := ParseID(text, 2); got != want {
			t.Errorf("%s: %q", text, got)
		}
	}
	if got := ParseID("a,b", 1); got != "a,b" {
		t.Errorf("%q", got)
	}
}
