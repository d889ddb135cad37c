package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// roles makes the configuration use two roles with the least privileges, made
// by init in an administrator's name.
func (w *world) roles() (writer, streamer string) {
	w.t.Helper()
	writer, streamer = "writer_"+w.db.Name, "streamer_"+w.db.Name
	w.stream["postgres"] = fields{
		"dsn":                w.db.Server.DSNAs(w.db.Name, writer, "secret"),
		"replication_dsn":    w.db.Server.DSNAs(w.db.Name, streamer, "secret"),
		"wal_sender_timeout": "3s",
	}
	w.init("OUTBOX_CDC_ADMIN_DSN=" + w.db.DSN)
	for _, role := range []string{writer, streamer} {
		w.db.Exec(w.t, fmt.Sprintf(`ALTER ROLE %q PASSWORD 'secret'`, role))
	}
	w.db.Exec(w.t, fmt.Sprintf(`GRANT INSERT ON rewrites TO %q`, writer)) // the suite's own trigger
	w.t.Cleanup(func() {
		for _, role := range []string{writer, streamer} {
			_ = w.cleanUp(fmt.Sprintf(`DROP OWNED BY %q CASCADE; DROP ROLE %q`, role, role))
		}
	})
	return writer, streamer
}

// cleanUp runs statements when the test's context has ended.
func (w *world) cleanUp(sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, w.db.Own())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

// The privilege to write statuses is revoked under load, and granted again.
// Meanwhile nothing is SENT, nothing is lost, and the log says which GRANT fixes it.
func TestUpdateIsRevokedAndGranted(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{noInit: true})
	writer, _ := w.roles()
	p := w.run().streaming()
	load := w.write(steady())
	load.wrote(100, 30*time.Second)
	w.db.Exec(t, fmt.Sprintf(`REVOKE UPDATE ON outbox FROM %q; REVOKE UPDATE (status, sent_at, attempts, last_error) ON outbox FROM %q`, writer, writer))
	line := p.Await(20*time.Second, "parked", "public.outbox", "permission denied")
	if !strings.Contains(line, "GRANT") {
		t.Errorf("the fix is not in %s", line)
	}
	load.wrote(200, 30*time.Second)
	w.db.Exec(t, fmt.Sprintf(`GRANT UPDATE ON outbox TO %q`, writer))
	w.recovered()
	load.wrote(100, 30*time.Second)
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}

// The server is stopped (pg_ctl stop -m fast) under load while the broker is away
// and the stream holds. A fast shutdown waits for the clients of its walsenders, so
// we must leave: it ends within seconds, and when both are back everything is
// delivered once, in order.
func TestTheServerStopsFastWhileTheBrokerIsDown(t *testing.T) {
	t.Parallel() // it mostly waits
	db := harness.PrivatePostgres(t, localpg.Options{})
	k := harness.KfakeProxied(t)
	w := newWorld(t, surroundings{db: db, kafka: k})
	p := w.run().streaming()
	load := w.write(patient())
	load.wrote(100, 30*time.Second)
	k.Cut()
	p.Await(20*time.Second, "the Kafka cluster cannot be used")
	load.wrote(100, 30*time.Second)
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := db.Server.Stop(ctx, localpg.Fast); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the server's fast shutdown took %v", took)
	} else {
		t.Logf("the server's fast shutdown took %v", took.Round(time.Millisecond))
	}
	if err := db.Server.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	k.Restore(t)
	w.recovered()
	load.wrote(100, 30*time.Second)
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}

// The server crashes (an immediate stop, as after kill -9) under load and comes
// back, and is restarted in an orderly way. The slot may then be older than what
// was confirmed: rows that are SENT or in memory are not published again, the
// rest is delivered in order.
func TestTheServerCrashes(t *testing.T) {
	t.Parallel() // it mostly waits
	db := harness.PrivatePostgres(t, localpg.Options{})
	w := newWorld(t, surroundings{db: db, partitions: 2})
	p := w.run().streaming()
	writers := w.write(patient())
	for _, mode := range []localpg.Mode{localpg.Immediate, localpg.Fast} {
		writers.wrote(200, 30*time.Second)
		if err := db.Server.Restart(t.Context(), mode); err != nil {
			t.Fatal(err)
		}
		w.recovered()
		p.streaming()
	}
	writers.wrote(200, 30*time.Second)
	writers.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}

// The walsender is terminated again and again under load (pg_terminate_backend).
// Each time the server sends again what was not confirmed: what is in flight
// stands in the new ledger and is not published twice, in order as before.
func TestTheReplicationConnectionIsTerminated(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{partitions: 3})
	p := w.run().streaming()
	load := w.write(steady())
	for range scaled(4, 40) {
		load.wrote(100, 30*time.Second)
		w.db.Exec(t, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = current_database()`)
		w.recovered()
		p.streaming()
	}
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}

// The publication is dropped and made again under load: rows in between never
// come through the WAL, and are swept.
func TestThePublicationIsMadeAgain(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{partitions: 3})
	p := w.run().streaming()
	load := w.write(steady())
	load.wrote(100, 30*time.Second)
	w.db.Exec(t, `DROP PUBLICATION outbox`)
	w.recovered()
	load.wrote(100, 30*time.Second)
	p.Await(30*time.Second, "publication", "outbox")
	p.Await(60*time.Second, "handed back to the stream", "stream")
	load.wrote(100, 30*time.Second)
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}
