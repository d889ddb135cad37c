package survey

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/status"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

func TestModeThatTheDatabaseShows(t *testing.T) {
	leader := &status.Leader{Name: "outbox-cdc/orders@there"}
	parked := []outbox.Park{{Scope: outbox.TopicScope("main", "t"), Reason: "no such topic"}, {Scope: outbox.StreamScope(), Reason: "the slot is lost"}}
	for _, c := range []struct {
		leader       *status.Leader
		held         []outbox.Park
		active       bool
		mode, reason string
	}{
		{nil, parked, false, status.ModeStopped, "last led by x"},
		{&status.Leader{Intruder: "role reader holds it"}, parked, true, status.ModeStopped, "role reader holds it"},
		{leader, parked, true, status.ModeSweep, "the slot is lost"},
		{leader, parked[:1], true, status.ModeStream, ""},
		{leader, nil, false, status.ModeStarting, "the leader does not stream from the slot yet"},
	} {
		if mode, reason := mode(c.leader, c.held, c.active, "last led by x"); mode != c.mode || reason != c.reason {
			t.Errorf("%+v: %s, %s", c, mode, reason)
		}
	}
}

func TestSlotOf(t *testing.T) {
	s := SlotOf("slot", replication.Retained{Insert: 500, Restart: 100, Confirmed: 400, Status: "reserved", Safe: -1, Active: true}, 1000, false)
	if !s.Exists || !s.Active || s.Retained != 400 || s.Lag != 100 || s.Safe != nil || s.Budget != 1000 {
		t.Errorf("%+v", s)
	}
	if s := SlotOf("slot", replication.Retained{Insert: 500, Safe: -1}, 1000, false); s.Exists || s.Retained != 0 || s.Lag != 0 {
		t.Errorf("no slot: %+v", s)
	}
	if s := SlotOf("slot", replication.Retained{Insert: 500, Status: "extended", Safe: 7}, 0, false); *s.Safe != 7 {
		t.Errorf("%+v", s)
	}
}

// A table that is too large to read for its FAILED rows has its pending rows told all the same.
func TestFailedRowsThatNoIndexFinds(t *testing.T) {
	var table status.Table
	tooLong := fmt.Errorf("counting the failed rows: %w", &pgconn.PgError{Code: pgerrcode.QueryCanceled})
	if err := failed(tablesql.FailedCount{}, tooLong, &table); err != nil || !table.FailedUnknown || table.Failed != nil {
		t.Errorf("%v, %+v", err, table)
	}
	table = status.Table{}
	if err := failed(tablesql.FailedCount{Kept: true, Rows: 3}, nil, &table); err != nil || table.FailedUnknown || *table.Failed != 3 {
		t.Errorf("%v, %+v", err, table)
	}
	if err := failed(tablesql.FailedCount{}, errors.New("no such table"), &table); err == nil {
		t.Error("another error is not told")
	}
}
