package pipeline

import (
	"testing"

	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/metrics"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
)

// A park that somebody has to know of is a warning. Parks that come and go, or are expected, are not.
func TestHowLoudAParkIs(t *testing.T) {
	for name, c := range map[string]struct {
		kind  outbox.ScopeKind
		cause outbox.Cause
		first bool
		want  zerolog.Level
	}{
		"a key waits for its next try":      {outbox.ScopeKey, outbox.CauseRowError, false, zerolog.DebugLevel},
		"a row cannot be marked":            {outbox.ScopeRow, outbox.CauseWriteBack, false, zerolog.WarnLevel},
		"a key cannot be charged":           {outbox.ScopeKey, outbox.CauseWriteBack, false, zerolog.WarnLevel},
		"a topic is missing, as is told":    {outbox.ScopeTopic, outbox.CauseTopic, true, zerolog.InfoLevel},
		"there is no slot at the first run": {outbox.ScopeStream, outbox.CauseSlot, true, zerolog.InfoLevel},
		"there is no slot later":            {outbox.ScopeStream, outbox.CauseSlot, false, zerolog.WarnLevel},
		"the publication at the first run":  {outbox.ScopeStream, outbox.CausePublication, true, zerolog.WarnLevel},
	} {
		if got := parkLevel(&outbox.Park{Scope: outbox.Scope{Kind: c.kind}, Cause: c.cause}, c.first); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// The mode does not say who leads: the connection that leads again may exist before the driver hears of the
// end of the last one. A slot that disappears after the stream has streamed is lost, also in the first
// leadership.
func TestNotesOfTheMode(t *testing.T) {
	m := metrics.New("1", "a").Stream("orders", nil, 0)
	s := New(Config{Name: "orders", Metrics: m, Log: zerolog.Nop()})
	d := &driver{questions: newQuestions(s.telling, "s", newLink(), nil), noSlotYet: true}
	m.Leading(8)
	s.tracker.leads("here", 8)
	d.note(checkpoint.Note{Kind: checkpoint.NoteMode, Mode: outbox.ModeStandby})
	if st := s.Status(); st.Leader == nil || !m.Status().Leader || st.Mode != status.ModeStarting || !d.noSlotYet {
		t.Errorf("%+v, %+v, no slot yet: %v", st, m.Status(), d.noSlotYet)
	}
	d.note(checkpoint.Note{Kind: checkpoint.NoteMode, Mode: outbox.ModeSweep})
	if !d.noSlotYet {
		t.Error("the slot that is made at the first start counts as lost")
	}
	d.note(checkpoint.Note{Kind: checkpoint.NoteMode, Mode: outbox.ModeStream})
	if d.noSlotYet {
		t.Error("a slot that is lost later is no warning")
	}
}
