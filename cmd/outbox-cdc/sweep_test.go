package main

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// sweeping returns a database without logical decoding, with a role that may only read and mark rows, and a
// Kafka cluster.
func sweeping(t *testing.T) (*harness.DB, *harness.Cluster, string) {
	t.Helper()
	db := harness.PrivatePostgres(t, localpg.Options{Settings: map[string]string{"wal_level": "replica", "max_wal_senders": "0", "max_replication_slots": "0"}})
	kafka := harness.Kfake(t)
	kafka.CreateTopic(t, "orders", 1, nil)
	writer := db.Server.DSNAs(db.Name, "writer", "hunter2")
	c := file(t, writer, writer, `http: {listen: "off"}`)
	rewrite(t, c, `"127.0.0.1:1"`, strconv.Quote(kafka.Addrs[0]))
	t.Setenv(adminVariable, db.DSN)
	command(t, 0, "init", "-c", c, "--native-table", "--no-slot")
	t.Setenv(adminVariable, "")
	db.Exec(t, "ALTER ROLE writer PASSWORD 'hunter2'")
	return db, kafka, c
}

// All due rows are published in order, once. Other rows stay.
func TestSweepOnce(t *testing.T) {
	db, kafka, c := sweeping(t)
	db.Exec(t, `INSERT INTO outbox (topic, key, payload) SELECT 'orders', (i % 7)::text, convert_to(i::text, 'UTF8') FROM generate_series(1, 12000) i`)
	db.Exec(t, `INSERT INTO outbox (topic, payload, available_after) VALUES ('orders', 'later', now() + interval '1 hour')`)
	db.Exec(t, `INSERT INTO outbox (topic, key, payload) VALUES ('missing', 'k', 'x')`)
	r := decoded[struct{ Streams []swept }](t, "sweep", "--once", "-c", c).Streams[0]
	if r.Published != 12000 || r.Refused != 0 || *r.Left[0].Pending != 2 || r.Parks.Scopes["topic"] != 1 || r.Parks.Total != 1 {
		t.Errorf("%+v", r)
	}
	records := kafka.AwaitRecords(t, "orders", 12000, patience)
	last := map[string]int{}
	for _, rec := range records {
		n, err := strconv.Atoi(string(rec.Value))
		if err != nil || n <= last[string(rec.Key)] {
			t.Fatalf("%q after %d of key %s", rec.Value, last[string(rec.Key)], rec.Key)
		}
		last[string(rec.Key)] = n
	}
	out, _ := command(t, 0, "sweep", "--once", "-c", c, "--log-level", "error")
	mustHave(t, out, "orders: 0 published", "left in public.outbox: 2 pending", "parked: topic missing on cluster main (topic)")
	if n := kafka.Count(t, "orders"); n != 12000 {
		t.Errorf("%d records after a second sweep", n)
	}
}

func TestSweepOnceRefuses(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a program")
	}
	db, kafka, c := sweeping(t)
	_, e := command(t, exitUsage, "sweep", "-c", c)
	mustHave(t, e, "needs --once")
	_, e = command(t, exitUsage, "sweep", "--once", "--stream", "x", "-c", c)
	mustHave(t, e, `there is no stream "x"`)
	conn, err := replication.Lead(t.Context(), replication.Config{DSN: db.DSN, Name: "outbox-cdc/orders@there", Slot: "outbox_cdc_orders", Ordinary: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Kill()
	out, e := command(t, exitPermanent, "sweep", "--once", "-c", c, "--log-level", "error")
	mustHave(t, e, "stream orders: a process leads the stream", "outbox-cdc/orders@there")
	if out != "" {
		t.Errorf("it counts what it did not do: %s", out)
	}
	conn.Close(t.Context())
	harness.Eventually(t, patience, func() error {
		if n := harness.One[int](t, db, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"); n > 0 {
			return fmt.Errorf("%d locks", n)
		}
		return nil
	})
	// Without Kafka, rows stay as they were, and the command says so.
	rewrite(t, c, kafka.Addrs[0], "127.0.0.1:1")
	db.Exec(t, `INSERT INTO outbox (topic, key, payload) VALUES ('orders', 'k', 'x')`)
	began := time.Now()
	out, e = command(t, exitFailure, "sweep", "--once", "-c", c, "--give-up-after", "2s", "--log-level", "error")
	mustHave(t, e, "gave up after 2s without progress: Kafka cluster main cannot be used")
	mustHave(t, out, "0 published", "left in public.outbox: 1 pending")
	if attempts := harness.One[int](t, db, "SELECT max(attempts) FROM outbox"); attempts != 0 || time.Since(began) > patience {
		t.Errorf("%d attempts, %s", attempts, time.Since(began))
	}
}

// A paused scope is not swept, even if it is paused during the sweep. A pause of a table that is no longer
// configured does not affect the sweep, and can be ended.
func TestSweepOncePaused(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a program")
	}
	db, kafka, c := sweeping(t)
	rewrite(t, c, kafka.Addrs[0], "127.0.0.1:1") // so that it lasts
	db.Exec(t, `INSERT INTO outbox (topic, key, payload) VALUES ('orders', 'k', 'x')`)
	const paused = `INSERT INTO outbox_cdc.leader AS l (stream, paused) VALUES ('orders', jsonb_build_object('%s', '{"since": "2026-01-01T00:00:00Z", "by": "somebody"}'::jsonb))
		ON CONFLICT (stream) DO UPDATE SET paused = excluded.paused`
	db.Exec(t, fmt.Sprintf(paused, "public.gone"))
	_, e := command(t, exitFailure, "sweep", "--once", "-c", c, "--give-up-after", "1s", "--log-level", "error")
	mustHave(t, e, "gave up after 1s without progress")
	_, e = command(t, exitUsage, "resume", "-c", c, "--table", "public.typo")
	mustHave(t, e, "table public.typo is not paused by itself")
	out, _ := command(t, 0, "resume", "-c", c, "--table", "public.gone")
	mustHave(t, out, "orders: nothing is paused")
	db.Exec(t, `DELETE FROM outbox_cdc.park`)
	conn, done := db.Conn(t), make(chan struct{})
	go func() {
		defer close(done)
		for t.Context().Err() == nil { // until the sweep has begun
			changed, err := conn.Exec(t.Context(), `UPDATE outbox_cdc.leader SET paused = '{"": {"since": "2026-01-01T00:00:00Z", "by": "somebody"}}' WHERE EXISTS (SELECT FROM outbox_cdc.park)`)
			if err != nil || changed.RowsAffected() > 0 {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	_, e = command(t, exitPermanent, "sweep", "--once", "-c", c, "--give-up-after", "1m", "--log-level", "error")
	mustHave(t, e, "paused by somebody", "outbox-cdc resume --stream orders")
	<-done
}
