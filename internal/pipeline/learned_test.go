package pipeline

import (
	"maps"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// What a table was is remembered while it is gone, also by the next process.
func TestWhatATableWasIsRemembered(t *testing.T) {
	table := &outbox.Table{Schema: "public", Name: "outbox"}
	gone, there := []replication.TableState{{Table: table}}, []replication.TableState{{Table: table, Exists: true}}
	for _, before := range []map[string]uint32{{"public.outbox": 7}, {"public.outbox": 0, "was public.outbox": 7}} {
		var l learned
		l.sees(before, gone)
		l.sees(map[string]uint32{"public.outbox": 0}, gone) // as it is found now
		now := statestore.Identity{Relations: map[string]uint32{"public.outbox": 0}}
		if stored := l.stored(now).Relations; !maps.Equal(stored, map[string]uint32{"public.outbox": 0, "was public.outbox": 7}) || len(now.Relations) != 1 {
			t.Errorf("after %v: %v", before, stored)
		}
		if l.sees(before, there); len(l.stored(now).Relations) != 1 {
			t.Errorf("it is back, and was is kept: %v", l.gone)
		}
	}
}
