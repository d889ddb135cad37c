package slots

import (
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/sql"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

func TestJudge(t *testing.T) {
	yes := true
	const insert = outbox.LSN(10_000)
	at := func(s Slot, restart outbox.LSN) Slot {
		s.Type, s.restart = "logical", restart
		if s.Plugin == "" {
			s.Plugin = "pgoutput"
		}
		if s.Database == "" {
			s.Database = "app"
		}
		if restart > 0 {
			s.Retained = uint64(insert - restart)
		}
		return s
	}
	list := []Slot{
		at(Slot{Name: "outbox_cdc_orders"}, 3000),
		at(Slot{Name: "outbox_cdc_old"}, 1000),
		at(Slot{Name: "renamed"}, 5000),
		at(Slot{Name: "debezium", Active: true, Client: &Client{PID: 7, Application: "Debezium", User: "dbz", Address: "10.0.0.1"}}, 4000),
		at(Slot{Name: "outbox_cdc_lost", WALStatus: "lost"}, 0),
		at(Slot{Name: "outbox_cdc_kept", Synced: &yes}, 9000),
		at(Slot{Name: "outbox_cdc_none"}, 9500),
		at(Slot{Name: "outbox_cdc_busy"}, 9600),
		at(Slot{Name: "outbox_cdc_orders", Database: "elsewhere"}, 9700),
	}
	known := []Stream{
		{Name: "gone", Slot: "renamed", Database: "app"},
		{Name: "orders", Slot: "outbox_cdc_orders", Database: "app"},
		{Name: "orders", Slot: "outbox_cdc_orders", Database: "app", Configured: true},
		{Name: "none", Slot: "outbox_cdc_none", Database: "app", Configured: true, Stateless: true},
		{Name: "busy", Slot: "outbox_cdc_busy", Database: "app", Configured: true, Led: "outbox-cdc/busy@host"},
	}
	Judge(list, known)
	for i, want := range []struct {
		whose, stream     string
		frees             uint64
		dropping, refusal string
	}{
		{OfStream, "orders", 0, "run re-creates it", ""},
		{Orphan, "", 2000, "no stream of this configuration uses it", ""},
		{Orphan, "gone", 0, "no stream of this configuration uses it", ""},
		{Other, "", 0, "ask its operator", "in use by Debezium, role dbz, pid 7, from 10.0.0.1"},
		{Orphan, "", 0, "no stream", ""},
		{Orphan, "", 0, "drop it there", "standby"},
		{OfStream, "none", 0, "LOSES every row of stream none", ""},
		{OfStream, "busy", 0, "run re-creates it", "led by outbox-cdc/busy@host"},
		{Orphan, "", 0, "no stream", ""},
	} {
		s := list[i]
		if s.Whose != want.whose || s.Stream != want.stream || s.Frees != want.frees || !strings.Contains(s.Dropping, want.dropping) ||
			(want.refusal == "") != (s.Refusal == "") || !strings.Contains(s.Refusal, want.refusal) {
			t.Errorf("%s: %+v", s.Name, s)
		}
	}
	alone := []Slot{list[1]}
	Judge(alone, nil)
	if alone[0].Frees != 9000 {
		t.Errorf("alone it frees %d", alone[0].Frees)
	}
}

func TestListOnAServer(t *testing.T) {
	db := harness.Postgres(t)
	conn := db.Conn(t)
	if known, err := Remembered(t.Context(), postgres.On(conn), db.Name); err != nil || known != nil {
		t.Errorf("without a schema: %v, %v", known, err)
	}
	db.Exec(t, sql.Schema)
	db.Exec(t, "INSERT INTO outbox_cdc.leader (stream, slot, holder) VALUES ('old', 'oldie', 'somebody')")
	db.Exec(t, "SELECT pg_create_logical_replication_slot('oldie', 'pgoutput')")
	db.Exec(t, "SELECT pg_create_physical_replication_slot('physical_one')")
	defer db.Exec(t, "SELECT pg_drop_replication_slot('physical_one')")
	db.Exec(t, "SELECT pg_logical_emit_message(false, 'x', repeat('x', 100000))")
	known, err := Remembered(t.Context(), postgres.On(conn), db.Name)
	if err != nil || len(known) != 1 || known[0].Slot != "oldie" {
		t.Fatal(known, err)
	}
	list, err := List(t.Context(), postgres.On(conn))
	if err != nil {
		t.Fatal(err)
	}
	Judge(list, known)
	found := map[string]Slot{}
	for _, s := range list {
		found[s.Name] = s
	}
	if s := found["oldie"]; s.Whose != Orphan || s.Stream != "old" || s.Retained < 100000 || s.Active || s.WALStatus != "reserved" || s.Database != db.Name {
		t.Errorf("%+v", s)
	}
	if s := found["physical_one"]; s.Whose != Other || s.Type != "physical" || !strings.Contains(s.Dropping, "rebuilt") {
		t.Errorf("%+v", s)
	}
}
