package status_test

import (
	"os"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
)

// Every trouble is told, alone and next to every other: in the headline, the level, the findings and readiness.
func TestEveryTroubleIsTold(t *testing.T) {
	all := fixture.Troubles()
	for x := range fixture.Situations {
		for _, one := range x.Troubles {
			tell(t, x.Name, &x.Stream, &one)
		}
		if x.Stream.Level != x.Worst() {
			t.Errorf("%s: level %s, want %s", x.Name, x.Stream.Level, x.Worst())
		}
		if blocked(&x.Stream) != x.Unready() {
			t.Errorf("%s: blocked %v", x.Name, blocked(&x.Stream))
		}
	}
	alerts, err := os.ReadFile("../../deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		if one.Alert != "" && !strings.Contains(string(alerts), "alert: "+one.Alert+"\n") {
			t.Errorf("there is no alert %s", one.Alert)
		}
	}
	s := status.Stream{Name: "orders", Mode: status.ModeStream}
	if status.Judge(&s); s.Level != status.Good || s.ModeText != "streaming" || s.Findings != nil {
		t.Errorf("nothing is wrong: %+v", s)
	}
	fixture.Parked("table", "mapping", 1)(&s)
	fixture.Parked("table", "write_back", 2)(&s)
	if status.Judge(&s); s.ModeText != "streaming, 3 tables stuck" {
		t.Error(s.ModeText)
	}
}

// The loss of a slot is said once, although the stream is parked for it.
func TestALostSlotIsSaidOnce(t *testing.T) {
	s := status.Stream{Name: "orders", Mode: status.ModeSweep, Slot: &status.Slot{Name: "s", WALStatus: "reserved", Lost: "too much WAL", LostSince: fixture.Noon}}
	s.Parks = status.Parks{Total: 1, Top: []status.ParkGroup{{Kind: "stream", Cause: "slot", Count: 1, Reason: "slot s is lost: too much WAL", Since: fixture.Noon}}}
	if status.Judge(&s); len(s.Findings) != 1 || s.Findings[0].Alert != "OutboxSlotLost" || !strings.HasSuffix(s.Findings[0].Text, s.Parks.Top[0].Reason) {
		t.Errorf("%+v", s.Findings)
	}
	if !strings.HasSuffix(s.ModeText, ", slot lost") {
		t.Error(s.ModeText)
	}
}

func blocked(s *status.Stream) bool {
	for i := range s.Findings {
		if s.Findings[i].Blocks {
			return true
		}
	}
	return false
}

func tell(t *testing.T, name string, s *status.Stream, one *fixture.Trouble) {
	t.Helper()
	found := false
	for i := 1; i < len(s.Findings); i++ {
		if status.Worse(s.Findings[i-1].Level, s.Findings[i].Level) > 0 {
			t.Errorf("%s: not the worst first: %+v", name, s.Findings)
		}
	}
	for _, f := range s.Findings {
		if f.Level == status.Bad && f.Since.IsZero() && (s.Error != "" && strings.Contains(f.Text, s.Error) || f.Parked || f.Alert == "OutboxKafkaUnusable") {
			t.Errorf("%s: since when? %+v", name, f)
		}
		found = found || f.Alert == one.Alert && f.Level == one.Level
		if f.Hint == "" || f.Text == "" || f.Level == status.Bad && f.Alert == "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
	if !found {
		t.Errorf("%s: %s is not told: %+v", name, one.Name, s.Findings)
	}
	if !strings.Contains(s.ModeText, one.Short) {
		t.Errorf("%s: the headline %q lacks %q", name, s.ModeText, one.Short)
	}
}
