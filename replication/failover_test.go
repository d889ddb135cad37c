package replication

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// withStandby returns a bench and a hot standby of its server. The standby streams from the server.
func withStandby(t *testing.T, primarySettings, standbySettings map[string]string) (*bench, *harness.DB) {
	t.Helper()
	primary := harness.PrivatePostgres(t, localpg.Options{Settings: primarySettings})
	b := onBench(t, primary)
	primary.Exec(t, `SELECT pg_create_physical_replication_slot('sb1', true)`)
	if err := primary.Server.Stop(t.Context(), localpg.Fast); err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{
		"primary_conninfo":             primary.Server.DSN("app"),
		"primary_slot_name":            "sb1",
		"hot_standby_feedback":         "on",
		"wal_receiver_status_interval": "1s",
	}
	for name, value := range standbySettings {
		settings[name] = value
	}
	server, err := localpg.Start(t.Context(), localpg.Options{Version: os.Getenv(harness.EnvPostgres), CopyOf: primary.Server, Standby: true, Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := primary.Server.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	standby := &harness.DB{Server: server, Name: "app", DSN: server.DSN("app")}
	caughtUp(t, b, standby)
	return b, standby
}

// caughtUp waits until the standby has replayed everything that the primary has now.
func caughtUp(t *testing.T, b *bench, standby *harness.DB) {
	t.Helper()
	at := harness.One[string](t, b.DB, `SELECT pg_current_wal_flush_lsn()::text`)
	harness.Eventually(t, patience, func() error {
		there, err := harness.TryOne[bool](t.Context(), standby, `SELECT coalesce(pg_last_wal_replay_lsn() >= $1::text::pg_lsn, false)`, at)
		if err == nil && !there {
			err = errors.New("the standby is behind")
		}
		return err
	})
}

func promote(t *testing.T, standby *harness.DB) {
	t.Helper()
	if !harness.One[bool](t, standby, `SELECT pg_promote(true, 20)`) {
		t.Fatal("not promoted")
	}
}

func TestFailoverWithoutTheSlot(t *testing.T) {
	t.Parallel()
	b, standby := withStandby(t, nil, nil)
	b.init(t)
	c := b.lead(t)
	s, _ := b.judge(t, c, Identity{})
	known := Identify(&s, &b.cfg)
	caughtUp(t, b, standby)

	b.cfg.DSN = standby.DSN
	onStandby := b.lead(t)
	if _, v := b.judge(t, onStandby, known); v.Sound || v.Err == nil || v.Err.Permanent || !strings.Contains(v.Err.Error(), "target_session_attrs") {
		t.Errorf("on the standby: %+v", v)
	}
	onStandby.Close(t.Context())
	b.Server.Kill()
	promote(t, standby)

	successor := b.lead(t)
	s, v := b.judge(t, successor, known)
	if v.Sound || v.Slot != Make || s.Timeline != 2 || s.Ended[1] == 0 || s.SystemID != known.SystemID {
		t.Fatalf("after the failover: %+v of %+v", v, s)
	}
	if _, err := successor.MakeSlot(t.Context(), v.Slot, patience); err != nil {
		t.Fatal(err)
	}
	// The new slot stands beyond the switch. A stream that only knows the old timeline must assume that the
	// slot skipped rows.
	after, v := b.judge(t, successor, known)
	if v.Sound || !strings.Contains(v.Reason, "was left at "+after.Ended[1].String()) {
		t.Errorf("a slot beyond the switch: %+v", v)
	}
	if _, v := b.judge(t, successor, Identify(&after, &b.cfg)); !v.Sound {
		t.Errorf("taken on: %s", v.Reason)
	}
	if err := successor.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func failoverSlots(t *testing.T) {
	t.Helper()
	s := harness.Postgres(t).Server
	if strings.Split(s.Version(), ".")[0] < "17" {
		t.Skip("failover slots came with version 17: set OUTBOX_TEST_POSTGRES")
	}
}

func TestFailoverSlotIsCarriedAlong(t *testing.T) {
	t.Parallel()
	failoverSlots(t)
	b, standby := withStandby(t, nil, map[string]string{"sync_replication_slots": "on"})
	b.cfg.Failover = true
	b.setup.Failover = true
	b.init(t)
	c := b.stream(t)
	b.insert(t, 3)
	receive(t, c, 3)
	carriedAlong(t, b, c, standby)
	state, err := Inspect(t.Context(), b.Conn(t).PgConn(), b.cfg)
	if err != nil || !state.Slot.Failover {
		t.Fatalf("%+v, %v", state.Slot, err)
	}
	other := b.lead2(t)
	known := Identify(&other, &b.cfg)
	b.insert(t, 5)
	caughtUp(t, b, standby)
	b.Server.Kill()
	promote(t, standby)

	b.cfg.DSN = standby.DSN
	successor := b.lead(t)
	s, v := b.judge(t, successor, known)
	if !v.Sound || s.Timeline != 2 {
		t.Fatalf("verdict %+v of %+v", v, s)
	}
	if err := successor.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	receive(t, successor, 5)
}

// carriedAlong waits until the standby has a copy of the stream's slot.
func carriedAlong(t *testing.T, b *bench, c *Conn, standby *harness.DB) {
	t.Helper()
	harness.Eventually(t, patience, func() error {
		ready, err := harness.TryOne[bool](t.Context(), standby,
			`SELECT coalesce(bool_or(synced AND NOT temporary), false) FROM pg_replication_slots WHERE slot_name = $1`, b.cfg.Slot)
		if err == nil && !ready {
			err = errors.New("the slot is not carried along yet")
		}
		// A copied slot becomes ready as its consumer confirms further.
		b.Exec(t, `SELECT pg_log_standby_snapshot()`)
		confirmAll(t, c)
		return err
	})
}

// A former primary that returns as a standby still has the slot that it made itself. Its server copies no
// slot of that name from the new primary until the old one is dropped, as docs/platforms.md says.
func TestAFormerPrimaryKeepsItsSlot(t *testing.T) {
	t.Parallel()
	failoverSlots(t)
	b, standby := withStandby(t, nil, map[string]string{"sync_replication_slots": "on"})
	b.cfg.Failover, b.setup.Failover = true, true
	b.init(t)
	c := b.stream(t)
	carriedAlong(t, b, c, standby)
	c.Close(t.Context())
	former := b.DB
	if err := former.Server.Stop(t.Context(), localpg.Fast); err != nil { // the standby has all of its WAL
		t.Fatal(err)
	}
	promote(t, standby)
	standby.Exec(t, `SELECT pg_create_physical_replication_slot('sb2', true)`)
	follow(t, former.Server, map[string]string{
		"primary_conninfo": standby.DSN, "primary_slot_name": "sb2", "hot_standby_feedback": "on", "sync_replication_slots": "on",
	})

	b.DB, b.cfg.DSN = standby, standby.DSN
	successor := b.stream(t)
	harness.Eventually(t, patience, func() error {
		if !strings.Contains(former.Server.Log(), "already exists on the standby") {
			return errors.New("the former primary says nothing of its slot")
		}
		return nil
	})
	if harness.One[bool](t, former, `SELECT synced FROM pg_replication_slots WHERE slot_name = $1`, b.cfg.Slot) {
		t.Error("the former primary's own slot is taken for a synchronised one")
	}
	former.Exec(t, `SELECT pg_drop_replication_slot($1)`, b.cfg.Slot)
	carriedAlong(t, b, successor, former)
}

// follow starts a stopped server again, now as a standby.
func follow(t *testing.T, s *localpg.Server, settings map[string]string) {
	t.Helper()
	conf, err := os.OpenFile(filepath.Join(s.DataDir(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range settings {
		if _, err := fmt.Fprintf(conf, "%s = '%s'\n", name, value); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(conf.Close(), os.WriteFile(filepath.Join(s.DataDir(), "standby.signal"), nil, 0o600), s.Resume(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// confirmAll confirms everything that arrives within a moment.
func confirmAll(t *testing.T, c *Conn) {
	t.Helper()
	var at outbox.LSN
	for {
		m, err := c.Receive(time.Now().Add(100 * time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		if m.Kind == Idle {
			break
		}
		at = max(at, m.WALEnd)
	}
	if err := c.SendStatus(at); err != nil {
		t.Fatal(err)
	}
}

// lead2 inspects the server over a replication connection of its own.
func (b *bench) lead2(t *testing.T) State {
	t.Helper()
	c, err := connect(t.Context(), b.cfg.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Kill()
	s, err := c.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A failover slot stalls while its standby is away. The server reports that within the stream.
func TestMissingStandbyIsNoticed(t *testing.T) {
	t.Parallel()
	failoverSlots(t)
	db := harness.PrivatePostgres(t, localpg.Options{})
	b := onBench(t, db)
	b.cfg.Failover, b.setup.Failover = true, true
	b.init(t)
	db.Exec(t, `SELECT pg_create_physical_replication_slot('sb1', true)`)
	db.Exec(t, `ALTER SYSTEM SET synchronized_standby_slots = 'sb1'`)
	db.Exec(t, `SELECT pg_reload_conf()`)
	c := b.stream(t)
	b.insert(t, 1)
	for end := time.Now().Add(patience); ; {
		m := next(t, c, end)
		if m.Kind == Data {
			t.Fatal("the row overtook the standby")
		}
		if m.Kind == Notice {
			if m.Code != "55000" || !strings.Contains(m.Warning, "sb1") {
				t.Errorf("%+v", m)
			}
			break
		}
	}
	db.Exec(t, `ALTER SYSTEM RESET synchronized_standby_slots`)
	db.Exec(t, `SELECT pg_reload_conf()`)
	receive(t, c, 1)
}

// An idle slot times out at a checkpoint (version 18).
func TestIdleSlotTimesOut(t *testing.T) {
	t.Parallel()
	if strings.Split(harness.Postgres(t).Server.Version(), ".")[0] < "18" {
		t.Skip("idle_replication_slot_timeout came with version 18: set OUTBOX_TEST_POSTGRES")
	}
	db := harness.PrivatePostgres(t, localpg.Options{Settings: map[string]string{"idle_replication_slot_timeout": "1s"}})
	b := onBench(t, db).init(t)
	c := b.lead(t)
	harness.Eventually(t, patience, func() error {
		loseSlots(t, db)
		s, err := c.Inspect(t.Context())
		if err == nil && !s.Slot.Lost() {
			err = errors.New("not lost yet")
		}
		return err
	})
	if err := c.Start(t.Context()); !errors.Is(err, ErrSlotUnusable) {
		t.Fatalf("%v", err)
	}
	_, v := b.judge(t, c, Identity{})
	if v.Slot != Remake || v.Cause != outbox.CauseSlot || !strings.Contains(v.Reason, "idle_timeout") {
		t.Errorf("%+v", v)
	}
	if _, err := c.MakeSlot(t.Context(), v.Slot, patience); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}
