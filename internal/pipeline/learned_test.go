package pipeline

import (
	"maps"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/statestore"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// The former OID of a table that is gone is remembered, also by the next process.
func TestWhatATableWasIsRemembered(t *testing.T) {
	table := &outbox.Table{Schema: "public", Name: "outbox"}
	gone, there := []replication.TableState{{Table: table}}, []replication.TableState{{Table: table, Exists: true}}
	for _, before := range []map[string]uint32{{"public.outbox": 7}, {"public.outbox": 0, "was public.outbox": 7}} {
		var l learned
		l.sees(before, gone)
		l.sees(map[string]uint32{"public.outbox": 0}, gone) // the present state
		now := statestore.Identity{Relations: map[string]uint32{"public.outbox": 0}}
		if stored := l.stored(now).Relations; !maps.Equal(stored, map[string]uint32{"public.outbox": 0, "was public.outbox": 7}) || len(now.Relations) != 1 {
			t.Errorf("after %v: %v", before, stored)
		}
		if l.sees(before, there); len(l.stored(now).Relations) != 1 {
			t.Errorf("it is back, and was is kept: %v", l.gone)
		}
	}
}

// A column's number is remembered while the column has another name, also by the next process; but not for
// another relation.
func TestWhichNumberAColumnHadIsRemembered(t *testing.T) {
	table := &outbox.Table{Schema: "public", Name: "outbox"}
	key := statestore.NumberOf("public.outbox", "sent_at")
	at := func(oid, number uint32) []replication.TableState {
		return []replication.TableState{{Table: table, Exists: true, OID: oid, Numbers: map[string]uint32{"sent_at": number}}}
	}
	remembers := func(l *learned, want uint32) {
		t.Helper()
		if got, stored := l.stored(statestore.Identity{}).Relations[key]; got != want || stored != (want != 0) {
			t.Errorf("number %d, stored %v, want %d", got, stored, want)
		}
	}
	before := map[string]uint32{"public.outbox": 7}
	var l, next learned
	l.sees(before, at(7, 3))
	remembers(&l, 3)
	l.sees(before, at(7, 0))
	remembers(&l, 3)
	next.sees(l.stored(statestore.Identity{Relations: before}).Relations, at(7, 0))
	remembers(&next, 3)
	next.sees(before, at(8, 0))
	remembers(&next, 0)
	old := map[string]uint32{"public.outbox": 7, key: 3}
	next.sees(old, at(7, 4)) // dropped, and added again
	remembers(&next, 4)
	next.sees(old, at(7, 0))
	remembers(&next, 4)
}

// What the process saw last counts only where the database remembers nothing.
func TestWhatOnlyTheProcessRemembers(t *testing.T) {
	var l learned
	stored, seen := map[string]uint32{"public.outbox": 7}, map[string]uint32{"public.outbox": 8}
	l.relations.Store(&seen)
	for _, known := range []map[string]uint32{nil, stored} {
		want := seen
		if known != nil {
			want = known
		}
		if got := l.remembers(statestore.Identity{Relations: known}).Relations; !maps.Equal(got, want) {
			t.Errorf("the database has %v: %v", known, got)
		}
	}
}
