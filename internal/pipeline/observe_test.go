package pipeline

import (
	"testing"

	"github.com/rs/zerolog"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// A park that somebody has to know of is a warning; what comes and goes, or is as it should be, is none.
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
		"a topic is missing":                {outbox.ScopeTopic, outbox.CauseTopic, true, zerolog.WarnLevel},
		"there is no slot at the first run": {outbox.ScopeStream, outbox.CauseSlot, true, zerolog.InfoLevel},
		"there is no slot later":            {outbox.ScopeStream, outbox.CauseSlot, false, zerolog.WarnLevel},
		"the publication at the first run":  {outbox.ScopeStream, outbox.CausePublication, true, zerolog.WarnLevel},
	} {
		if got := parkLevel(&outbox.Park{Scope: outbox.Scope{Kind: c.kind}, Cause: c.cause}, c.first); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
