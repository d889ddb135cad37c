package status

import (
	"os"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// trouble is one situation: what makes it, and what has to be said of it.
type trouble struct {
	name    string
	make    func(*Stream)
	level   string
	short   string // part of the headline
	alert   string
	unready bool
	part    string // of which a stream has one: its mode, its slot
}

func parked(kind, cause string, count int) func(*Stream) {
	return func(s *Stream) {
		s.Parks.Top = append(s.Parks.Top, ParkGroup{Kind: kind, Cause: cause, Count: count, Reason: "because", Since: noon, Example: kind + " x"})
	}
}

func troubles() []trouble {
	one, many := int64(1), int64(1500)
	mode := func(mode string) func(*Stream) { return func(s *Stream) { s.Mode = mode } }
	return []trouble{
		{"unreachable", func(s *Stream) {
			s.Mode, s.Unreachable, s.Error, s.Leader = ModeUnknown, true, "refused", nil
			s.ErrorSince = noon
		}, Bad, "cannot connect; who leads is unknown", "OutboxNoLeader", true, "mode"},
		{"broken", func(s *Stream) { s.Mode, s.Error, s.ErrorSince = ModeStarting, "no such publication", noon }, Bad, "does not work", "OutboxStreamFails", true, "mode"},
		{"nobody leads", mode(ModeStopped), Bad, "stopped: no process leads", "OutboxNoLeader", true, "mode"},
		{"silent", func(s *Stream) { s.Silence = 31 * time.Second }, Bad, "nothing heard for 31 s", "OutboxSilent", true, ""},
		{"Kafka is away", func(s *Stream) { s.Kafka = []Cluster{{Name: "main", Error: "refused", Since: noon}} }, Bad, "Kafka cluster main cannot be used", "OutboxKafkaUnusable", true, ""},
		{"a table is stuck", parked("table", "mapping", 1), Bad, "stuck", "OutboxParked", true, ""},
		{"another table is stuck", parked("table", "write_back", 1), Bad, "stuck", "OutboxParked", true, ""},
		{"the slot is lost", func(s *Stream) { s.Slot = &Slot{Name: "s", WALStatus: "lost"} }, Bad, "slot lost", "OutboxSlotLost", false, "slot"},
		{"the slot ends", func(s *Stream) { s.Slot = &Slot{Name: "s", Loss: &Loss{Seconds: 60, By: LossByServer}} }, Bad, "slot ends soon", "OutboxSlotEndsSoon", false, "slot"},
		{"the budget ends", func(s *Stream) { s.Slot = &Slot{Name: "s", Loss: &Loss{Seconds: 60, By: LossByBudget}} }, Warn, "WAL budget used up soon", "OutboxSlotEndsSoon", false, "slot"},
		{"a transaction holds the slot", func(s *Stream) { s.Slot = &Slot{Name: "s", HeldBy: "process 7"} }, Warn, "WAL held back", "OutboxSlotFillsDisk", false, "slot"},
		{"the server waits for a standby", func(s *Stream) { s.Slot = &Slot{Name: "s", StalledBy: "no such slot"} }, Bad, "held up by the server", "OutboxNoProgress", true, "slot"},
		{"paused", func(s *Stream) { mode(ModePaused)(s); parked("stream", "paused", 1)(s) }, Warn, "paused", "OutboxPaused", false, "mode"},
		{"swept", func(s *Stream) { mode(ModeSweep)(s); parked("stream", "slot", 1)(s) }, Warn, "sweeping", "OutboxParked", false, "mode"},
		{"tables are swept", parked("table", "publication", 2), Warn, "2 tables swept", "OutboxParked", false, ""},
		{"a table is paused", parked("table", "paused", 1), Warn, "1 table paused", "OutboxPaused", false, ""},
		{"topics are missing", parked("topic", "topic", 3), Warn, "3 topics waiting", "OutboxParked", false, ""},
		{"too many topics", parked("topics", "topic", 1), Warn, "1 table with unknown topics waiting", "OutboxParked", false, ""},
		{"a key is blocked", parked("key", "blocked", 1), Warn, "1 key blocked", "OutboxRowsGivenUp", false, ""},
		{"rows cannot be marked", parked("row", "write_back", 2), Warn, "2 rows published and not marked", "OutboxWriteBackRefused", false, ""},
		{"one row failed", func(s *Stream) { s.Tables = append(s.Tables, Table{Name: "a", Failed: &one}) }, Warn, "FAILED", "OutboxRowsGivenUp", false, ""},
		{"rows failed", func(s *Stream) { s.Tables = append(s.Tables, Table{Name: "b", Failed: &many, FailedCapped: true}) }, Warn, "FAILED", "OutboxRowsGivenUp", false, ""},
		{"rows wait", func(s *Stream) { s.Tables = append(s.Tables, Table{Name: "c", Oldest: 700}) }, Warn, "rows wait for 11 min", "OutboxRowsWait", false, ""},
		{"no count", func(s *Stream) { s.Tables = append(s.Tables, Table{Name: "d", Error: "permission denied"}) }, Warn, "rows not counted", "", false, ""},
		{"a key waits for its next try", parked("key", "row_error", 4), Note, "", "", false, ""},
	}
}

// Every trouble is told, alone and next to every other: in the headline, the level, the findings and readiness.
func TestEveryTroubleIsTold(t *testing.T) {
	all := troubles()
	for i, a := range all {
		for j, b := range all {
			if i != j && a.part != "" && a.part == b.part {
				continue
			}
			s := Stream{Name: "orders", Mode: ModeStream, Leader: &Leader{Here: true}}
			a.make(&s)
			if i != j {
				b.make(&s)
			}
			Judge(&s)
			worst := a.level
			if Worse(b.level, worst) < 0 {
				worst = b.level
			}
			if s.Mode == ModePaused && (a.name == "rows wait" || b.name == "rows wait") { // as they should
				continue
			}
			if s.Unreachable && (a.part == "slot" || b.part == "slot") { // which is old, and says nothing
				continue
			}
			name := a.name + " and " + b.name
			tell(t, name, &s, &a)
			tell(t, name, &s, &b)
			if s.Level != worst {
				t.Errorf("%s: level %s, want %s", name, s.Level, worst)
			}
			blocks := func(one *trouble) bool { // a table that is swept does not wait for the server
				return one.unready && (one.name != "the server waits for a standby" || s.Mode == ModeStream)
			}
			if blocked(&s) != (blocks(&a) || blocks(&b)) {
				t.Errorf("%s: blocked %v", name, blocked(&s))
			}
		}
	}
	alerts, err := os.ReadFile("../../deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		if one.alert != "" && !strings.Contains(string(alerts), "alert: "+one.alert+"\n") {
			t.Errorf("there is no alert %s", one.alert)
		}
	}
	s := Stream{Name: "orders", Mode: ModeStream}
	if Judge(&s); s.Level != Good || s.ModeText != "streaming" || s.Findings != nil {
		t.Errorf("nothing is wrong: %+v", s)
	}
	parked("table", "mapping", 1)(&s)
	parked("table", "write_back", 2)(&s)
	if Judge(&s); s.ModeText != "streaming, 3 tables stuck" {
		t.Error(s.ModeText)
	}
}

func blocked(s *Stream) bool {
	for i := range s.Findings {
		if s.Findings[i].Blocks {
			return true
		}
	}
	return false
}

func tell(t *testing.T, name string, s *Stream, one *trouble) {
	t.Helper()
	found := false
	for i := 1; i < len(s.Findings); i++ {
		if Worse(s.Findings[i-1].Level, s.Findings[i].Level) > 0 {
			t.Errorf("%s: not the worst first: %+v", name, s.Findings)
		}
	}
	for _, f := range s.Findings {
		if f.Level == Bad && f.Since.IsZero() && (s.Error != "" && strings.Contains(f.Text, s.Error) || f.Parked || f.Alert == "OutboxKafkaUnusable") {
			t.Errorf("%s: since when? %+v", name, f)
		}
		found = found || f.Alert == one.alert && f.Level == one.level
		if f.Hint == "" || f.Text == "" || f.Level == Bad && f.Alert == "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
	if !found {
		t.Errorf("%s: %s is not told: %+v", name, one.name, s.Findings)
	}
	if !strings.Contains(s.ModeText, one.short) {
		t.Errorf("%s: the headline %q lacks %q", name, s.ModeText, one.short)
	}
}
