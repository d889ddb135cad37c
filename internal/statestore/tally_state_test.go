package statestore

import (
	"fmt"
	"testing"
)

// Left rows are counted up to a bound.
func TestTallyStates(t *testing.T) {
	t.Parallel()
	db, s := tallyDatabase(t)
	open(t, s, "main")
	open(t, s, "other")
	db.Exec(t, `UPDATE outbox_cdc.tally SET unit = 7, closed = cluster = 'other'`)
	db.Exec(t, `INSERT INTO outbox_cdc.tally_left SELECT 'orders', 'main', 8, n, 'public.outbox', '{a}', decode(repeat('07', 20), 'hex'), '9' FROM generate_series(1, 5) n`)
	states, err := s.TallyStates(t.Context(), 3)
	if got, want := fmt.Sprint(states), "[{main true 7 3 topic-1} {other false 7 0 topic-2}]"; err != nil || got != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	db.Exec(t, `DROP TABLE outbox_cdc.tally_left, outbox_cdc.tally_unit, outbox_cdc.tally`)
	if states, err := s.TallyStates(t.Context(), 3); len(states) > 0 || err != nil {
		t.Errorf("without tables: %v, %v", states, err)
	}
}
