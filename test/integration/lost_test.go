package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// The server invalidates the slot that the program is reading from: the broker
// is away, so the slot holds back more than the server allows, which is far less
// than our budget. What waits in memory is swept in order with the rest.
func TestTheServerGivesUpTheSlotInUse(t *testing.T) {
	t.Parallel() // it mostly waits
	db := harness.PrivatePostgres(t, localpg.Options{Settings: map[string]string{"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}})
	k := harness.KfakeProxied(t)
	w := newWorld(t, surroundings{db: db, kafka: k})
	w.config["http"] = fields{"listen": "127.0.0.1:0", "page": true}
	w.sampled()
	p := w.run().streaming()
	load := w.write(steady())
	load.wrote(100, 30*time.Second)
	k.Cut()
	p.Await(20*time.Second, "the Kafka cluster cannot be used")
	harness.Eventually(t, 60*time.Second, func() error {
		w.pressure(8)
		if p.logged("parked", "is lost", "max_slot_wal_keep_size (1MB)") == 0 {
			return fmt.Errorf("the slot is not lost")
		}
		return nil
	})
	for _, line := range loud(p.Said()) {
		if strings.Contains(line, "is lost") && !strings.Contains(line, "the server gave the slot up") {
			t.Errorf("the loss is told twice: %s", line)
		}
	}
	p.Await(20*time.Second, `"level":"warn"`, "the server gave the slot up", "max_slot_wal_keep_size (1MB)")
	const limit = "its WAL exceeded max_slot_wal_keep_size (1MB)"
	p.shows("/api/v1/status", "slot lost", `"lost_because"`, limit, `"lost_since"`, "then the stream goes on from a new slot")
	p.Await(20*time.Second, "made the slot")
	load.wrote(100, 30*time.Second)
	k.Restore(t)
	w.recovered()
	p.Await(30*time.Second, "handed back to the stream", "stream")
	p.shows("/api/v1/status", "slot was lost", limit, `"lost_since"`, "the stream goes on from a new slot")
	p.shows("/", "had dropped what the stream needed", limit)
	p.readyz(http.StatusOK, "")
	address, _ := p.address()
	if out, _ := w.command("status", "--config", w.file(), "--address", address); !strings.Contains(out, "slot was lost") || !strings.Contains(out, limit) {
		t.Errorf("status: %s", out)
	}
	if n := p.metric("outbox_cdc_slots_lost_total"); n == 0 {
		t.Error("outbox_cdc_slots_lost_total is 0")
	}
	load.wrote(100, 30*time.Second)
	load.stop()
	w.settled(30 * time.Second)
	if n := p.metric("outbox_cdc_rows_swept_total", `cause="slot"`); n == 0 {
		t.Error("no swept row is counted for the slot")
	}
	p.stop()
	w.judge(history.Rules{})
}

// pressure writes some MiB into the WAL, in a segment of its own, and has the
// server look which of it slots still need.
func (w *world) pressure(mib int) {
	w.t.Helper()
	w.db.Exec(w.t, `SELECT pg_logical_emit_message(false, 'filler', repeat('x', $1))`, mib<<20)
	w.db.Exec(w.t, `SELECT pg_switch_wal()`)
	w.db.Exec(w.t, `CHECKPOINT`)
}

// Version 18 invalidates slots that nobody has used for a while
// (idle_replication_slot_timeout). The program starts under load after that: it
// sweeps, re-creates the slot and hands back, in order and each row once.
func TestAnIdleSlotTimesOut(t *testing.T) {
	t.Parallel() // it mostly waits
	atLeast(t, 18)
	db := harness.PrivatePostgres(t, localpg.Options{Settings: map[string]string{"idle_replication_slot_timeout": "1s"}})
	w := newWorld(t, surroundings{db: db, partitions: 2})
	w.runOnce()
	w.writeRows(steady(), 200)
	harness.Eventually(t, 60*time.Second, func() error {
		db.Exec(t, `CHECKPOINT`)
		why, err := harness.TryOne[string](t.Context(), db, `SELECT coalesce(invalidation_reason, 'none') FROM pg_replication_slots`)
		if err == nil && why != "idle_timeout" {
			err = fmt.Errorf("the reason of invalidation is %s", why)
		}
		return err
	})
	load := w.write(steady())
	p := w.run()
	w.recovered()
	p.Await(20*time.Second, "parked", "stream", "idle_timeout")
	p.Await(20*time.Second, "made the slot")
	p.Await(20*time.Second, "handed back to the stream", "stream")
	load.wrote(100, 30*time.Second)
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}

// The server waits for a standby that is away, or whose slot is gone: it is told as the server says it in /readyz,
// the status and the log, for as long as it lasts.
func TestTheServerWaitsForAStandby(t *testing.T) {
	t.Parallel() // it mostly waits
	atLeast(t, 17)
	db := harness.PrivatePostgres(t, localpg.Options{})
	w := newWorld(t, surroundings{db: db})
	w.stream["failover_slot"] = true
	w.stream["heartbeat_interval"] = "1s"
	w.dropSlot() // init made it without
	w.serve()
	p := w.run()
	p.Await(30*time.Second, "handed back to the stream", "stream")
	for _, statement := range []string{
		`SELECT pg_create_physical_replication_slot('away', true)`,
		`ALTER SYSTEM SET synchronized_standby_slots = 'away'`, `SELECT pg_reload_conf()`,
	} {
		db.Exec(t, statement)
	}
	waits := func(text string) {
		w.insertNow(w.topic, "k", 1, 10)
		p.readyz(http.StatusServiceUnavailable, text)
		p.shows("/api/v1/status", `"stalled_by"`, text, "held up by the server")
	}
	waits("active_pid")
	db.Exec(t, `SELECT pg_drop_replication_slot('away')`)
	waits("does not exist")
	out, _ := w.command("check", "--config", w.file())
	if !strings.Contains(out, "synchronized_standby_slots names away, and there is no such physical slot") {
		t.Errorf("check: %s", out)
	}
	db.Exec(t, `ALTER SYSTEM RESET synchronized_standby_slots`)
	db.Exec(t, `SELECT pg_reload_conf()`)
	w.recovered()
	p.Await(30*time.Second, "the server sends from the slot again")
	p.readyz(http.StatusOK, "")
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}

// Another database of the cluster writes a lot while the outbox is idle: the
// slot moves on and holds nothing back.
func TestAnIdleOutboxInABusyCluster(t *testing.T) {
	t.Parallel() // it mostly waits
	db := harness.PrivatePostgres(t, localpg.Options{})
	w := newWorld(t, surroundings{db: db})
	w.stream["heartbeat_interval"] = "1s"
	w.serve()
	p := w.run().streaming()
	w.insertNow(w.topic, "k", 1, 10)
	w.settled(10 * time.Second)
	other := harness.Database(t, db.Server)
	other.Exec(t, `CREATE TABLE busy (id bigint, text text)`)
	const mib, allowed = 96, 24 << 20
	for i := range 6 {
		other.Exec(t, `INSERT INTO busy SELECT i, repeat('x', 1024) FROM generate_series(1, $1) i`, mib/6<<10)
		if i%2 == 1 {
			other.Exec(t, `CHECKPOINT`)
		}
	}
	// The server lets the slot's log go when it writes down which transactions
	// run: every 15 seconds, and at each checkpoint.
	harness.Eventually(t, 60*time.Second, func() error {
		held, err := harness.TryOne[int64](t.Context(), db, `SELECT (pg_current_wal_lsn() - restart_lsn)::bigint FROM pg_replication_slots`)
		if err == nil && held > allowed {
			err = fmt.Errorf("the slot of an idle outbox holds %d MiB back", held>>20)
		}
		return err
	})
	harness.Eventually(t, 20*time.Second, func() error {
		if held := p.metric("outbox_cdc_retained_wal_bytes"); held > allowed {
			return fmt.Errorf("outbox_cdc_retained_wal_bytes is %.0f", held)
		}
		return nil
	})
	w.insertNow(w.topic, "k", 1, 10)
	w.settled(10 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}

// The stream is moved to another slot: stopped, its configuration changed, and
// started. What came in between is swept, and the old slot is nobody's.
func TestTheStreamIsMovedToAnotherSlot(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{partitions: 2})
	load := w.write(steady())
	p := w.run().streaming()
	load.wrote(100, 30*time.Second)
	p.stop()
	old := fmt.Sprint(w.stream["slot"])
	w.stream["slot"] = old[:min(len(old), 60)] + "_b"
	load.wrote(100, 30*time.Second)
	p = w.run()
	w.recovered()
	p.Await(20*time.Second, "made the slot")
	p.Await(20*time.Second, "handed back to the stream", "stream")
	w.db.Exec(t, `SELECT pg_drop_replication_slot($1)`, old)
	load.wrote(100, 30*time.Second)
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}

// Somebody leaves a transaction open in another database, and others write more than the budget: the stream goes
// on as it is, the log and status name who, and then the slot is given up. It is made again when the transaction is over.
func TestAnOpenTransactionHoldsTheSlot(t *testing.T) {
	t.Parallel() // it mostly waits
	db := harness.PrivatePostgres(t, localpg.Options{Settings: map[string]string{"max_wal_size": "64MB"}})
	w := newWorld(t, surroundings{db: db, partitions: 2})
	w.stream["wal_budget"] = "64MiB"
	w.serve()
	p := w.run().streaming()
	others := func(times int) {
		for range times { // the stream follows: only the transaction holds the slot
			w.pressure(14)
			harness.Eventually(t, 30*time.Second, func() error {
				behind, err := harness.TryOne[int64](t.Context(), w.db, `SELECT (pg_current_wal_lsn() - confirmed_flush_lsn)::bigint FROM pg_replication_slots`)
				if err == nil && behind > 1<<20 {
					err = fmt.Errorf("the slot is %d bytes behind", behind)
				}
				return err
			})
		}
	}
	holder := harness.Database(t, db.Server)
	conn := holder.Conn(t)
	for _, statement := range []string{`SET application_name = 'leaves it open'`, `BEGIN`, `CREATE TABLE left_open ()`} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	load := w.write(steady())
	others(6)
	p.Await(30*time.Second, "the slot holds back WAL because a transaction is open", "leaves it open")
	if n := p.metric("outbox_cdc_rows_swept_total", `cause="wal_budget"`); n != 0 {
		t.Errorf("%v rows are swept, which frees nothing", n)
	}
	others(4)
	p.Await(90*time.Second, "gave the slot up", "leaves it open")
	harness.Eventually(t, 30*time.Second, func() error {
		held, err := harness.TryOne[int64](t.Context(), w.db, `SELECT coalesce(max(pg_current_wal_lsn() - restart_lsn), 0)::bigint FROM pg_replication_slots`)
		if err == nil && held > 32<<20 {
			err = fmt.Errorf("slots hold back %d MiB", held>>20)
		}
		return err
	})
	if _, err := conn.Exec(t.Context(), `COMMIT`); err != nil {
		t.Fatal(err)
	}
	p.Await(60*time.Second, "made the slot")
	p.Await(60*time.Second, "handed back to the stream", "stream")
	load.wrote(100, 30*time.Second)
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}
