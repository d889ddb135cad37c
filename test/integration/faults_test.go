package integration

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// A commit that waits for a synchronous standby is in the WAL, and so in the
// stream, before anybody can see its rows. They are published, cannot be marked
// yet, hold the confirmed position, and hold nobody up; a restart in between
// loses nothing.
func TestRowsThatAreDecodedBeforeTheyAreVisible(t *testing.T) {
	t.Parallel() // it mostly waits
	db := harness.PrivatePostgres(t, localpg.Options{})
	w := newWorld(t, surroundings{db: db})
	w.small()
	db.Exec(t, `ALTER DATABASE app SET synchronous_commit = 'local'`)
	db.Exec(t, `ALTER SYSTEM SET synchronous_standby_names = 'ghost'`)
	db.Exec(t, `SELECT pg_reload_conf()`)
	p := w.run().streaming()
	load := w.write(steady())
	load.wrote(100, 30*time.Second)

	conn := db.Conn(t)
	if _, err := conn.Exec(t.Context(), `SET synchronous_commit = 'on'`); err != nil {
		t.Fatal(err)
	}
	committed := make(chan error, 1)
	var rows []history.Insert
	go func() {
		key := "ghost"
		var err error
		rows, err = w.insert(context.WithoutCancel(t.Context()), conn, w.topic, &key, 5, 10)
		committed <- err
	}()
	harness.Eventually(t, 10*time.Second, func() error {
		n, err := harness.TryOne[int](t.Context(), db, `SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
		if err == nil && n == 0 {
			err = fmt.Errorf("the commit does not wait yet")
		}
		return err
	})
	before := p.cpu()
	load.wrote(300, 30*time.Second)
	w.becomes(w.insertNow(w.topic, "other", 1, 10)[0], history.Sent, 10*time.Second)
	waitUntil(t, time.Now().Add(2*time.Second))
	if used := p.cpu() - before; used > 3*time.Second {
		t.Errorf("the process used %v of CPU while it waited", used)
	}
	p.Kill()
	p = w.run()
	w.recovered()
	select {
	case err := <-committed:
		t.Fatalf("the commit did not wait: %v", err)
	default:
	}
	db.Exec(t, `ALTER SYSTEM RESET synchronous_standby_names`)
	db.Exec(t, `SELECT pg_reload_conf()`)
	if err := <-committed; err != nil {
		t.Fatal(err)
	}
	w.conclude(rows, history.Committed)
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{Duplicates: window})
}

// The server gives the slot up, since it holds back too much WAL while nobody
// reads it (max_slot_wal_keep_size). The program starts under load and finds it
// lost: it sweeps what the slot will never bring, re-creates the slot and hands
// back, in order and each row once.
func TestTheServerGivesTheSlotUp(t *testing.T) {
	t.Parallel() // it mostly waits
	db := harness.PrivatePostgres(t, localpg.Options{Settings: map[string]string{"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}})
	w := newWorld(t, surroundings{db: db, partitions: 2})
	w.runOnce()
	load := steady()
	load.rate = 100
	w.writeRows(load, 500)
	harness.Eventually(t, 60*time.Second, func() error {
		db.Exec(t, `SELECT pg_logical_emit_message(false, 'filler', repeat('x', 8000000))`)
		db.Exec(t, `SELECT pg_switch_wal()`)
		db.Exec(t, `CHECKPOINT`)
		status, err := harness.TryOne[string](t.Context(), db, `SELECT wal_status FROM pg_replication_slots`)
		if err == nil && status != "lost" {
			err = fmt.Errorf("wal_status is %s", status)
		}
		return err
	})
	writers := w.write(steady())
	p := w.run()
	w.recovered()
	p.Await(20*time.Second, "parked", "stream", "is lost")
	p.Await(20*time.Second, "made the slot")
	p.Await(20*time.Second, "handed back to the stream", "stream")
	writers.wrote(100, 30*time.Second)
	writers.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}

// While the broker is away the slot holds WAL back, but never more than the
// budget: the stream is parked, the slot moves on, and everything is swept
// when the broker is back.
func TestTheWALBudgetHolds(t *testing.T) {
	t.Parallel() // it mostly waits
	const budget = 64 << 20
	k := harness.KfakeProxied(t)
	// Its own server: the WAL of other tests would count.
	w := newWorld(t, surroundings{kafka: k, db: harness.PrivatePostgres(t, localpg.Options{})})
	w.stream["wal_budget"] = "64MiB"
	w.serve()
	w.sampled()
	p := w.run().streaming()
	load := w.write(steady())
	load.wrote(100, 30*time.Second)
	k.Cut()
	p.Await(20*time.Second, "the Kafka cluster cannot be used")
	// Near the budget at once, then several times the budget, as fast as the
	// slot moves on.
	write := func(mib int) {
		w.db.Exec(t, `SELECT pg_logical_emit_message(false, 'filler', repeat('x', 1048576)) FROM generate_series(1, $1)`, mib)
	}
	write(50)
	p.Await(20*time.Second, "parked", "stream", "retains nearly as much WAL as its budget allows")
	for range scaled(3, 20) {
		harness.Eventually(t, 20*time.Second, func() error {
			n, err := harness.TryOne[int64](t.Context(), w.db, `SELECT (pg_current_wal_lsn() - confirmed_flush_lsn)::bigint FROM pg_replication_slots WHERE database = current_database()`)
			if n > budget {
				t.Fatalf("the slot retains %d MiB", n>>20)
			}
			if err == nil && n > budget/2 {
				err = fmt.Errorf("the slot retains %d MiB", n>>20)
			}
			return err
		})
		write(10)
	}
	load.wrote(50, 30*time.Second)
	k.Restore(t)
	w.recovered()
	p.Await(60*time.Second, "handed back to the stream", "stream")
	load.wrote(50, 30*time.Second)
	load.stop()
	w.settled(60 * time.Second)
	if n := p.metric("outbox_cdc_rows_swept_total", `cause="wal_budget"`); n == 0 {
		t.Error("no swept row is counted for the budget")
	}
	p.stop()
	w.judge(history.Rules{})
}

// Partitions are added under load: keys move, and in each partition their
// records are in order.
func TestPartitionsAreAdded(t *testing.T) {
	onlyLong(t)
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{partitions: 2})
	p := w.run().streaming()
	load := w.write(steady())
	load.wrote(300, 30*time.Second)
	w.kafka.AddPartitions(t, w.topic, 5)
	harness.Eventually(t, 90*time.Second, func() error {
		for _, r := range w.kafka.Records(t, w.topic) {
			if r.Partition > 1 {
				return nil
			}
		}
		return fmt.Errorf("nothing lies in the new partitions")
	})
	w.recovered()
	load.wrote(300, 30*time.Second)
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{Repartitioned: true})
}

// The topic is deleted and made again, which operators do, while applications
// write to it and to another one: what its old log held is gone, what comes is
// delivered, nothing FAILED; of the other topic nothing is delayed for long, lost,
// or out of order.
func TestATopicIsDeletedAndMadeAgain(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{partitions: 2})
	p := w.run().streaming()
	elsewhere := steady()
	elsewhere.topic = w.kafka.Topic(t, 2)
	both := []*writers{w.write(steady()), w.write(elsewhere)}
	both[0].wrote(200, 30*time.Second)
	w.kafka.DeleteTopic(t, w.topic)
	rows := w.insertNow(w.topic, "between", 5, 10)
	w.kafka.CreateTopic(t, w.topic, 2, nil)
	w.recovered()
	w.insertNow(w.topic, "between", 5, 10)
	for _, load := range both {
		load.stop()
	}
	w.settled(60 * time.Second)
	w.becomes(rows[0], history.Sent, time.Second)
	p.stop()
	refs := map[string]bool{}
	for _, r := range w.history().Records {
		refs[r.Ref] = true
	}
	for _, in := range w.log.Inserts() {
		if in.Key == "between" && !refs[in.Ref] {
			t.Errorf("row %s is not in the new topic", in.Ref)
		}
	}
	if n := harness.One[int](t, w.db, `SELECT count(*) FROM outbox WHERE attempts > 0 OR status = 'FAILED'`); n > 0 {
		t.Errorf("it was charged to %d rows", n)
	}
	w.judgeTopic(elsewhere.topic)
}

// judgeTopic judges one topic of several, and the rows that belong to it.
func (w *world) judgeTopic(topic string) {
	w.t.Helper()
	h := w.history(topic)
	theirs := map[string]bool{}
	h.Inserts = slices.DeleteFunc(h.Inserts, func(in history.Insert) bool {
		theirs[in.Ref] = in.Topic == topic
		return in.Topic != topic
	})
	h.States = slices.DeleteFunc(h.States, func(s history.State) bool { return !theirs[s.Ref] })
	w.check(h, history.Rules{})
}

// Applications write, delete rows that are on their way, and truncate the table,
// while the broker is away and again when it is back. What is deleted may be in
// the topic or not; what is left is delivered in order, and nothing that is gone
// holds the slot.
func TestRowsAreDeletedInFlight(t *testing.T) {
	t.Parallel() // it mostly waits
	k := harness.KfakeProxied(t)
	w := newWorld(t, surroundings{kafka: k})
	// Passing over what is being marked: two who lock many rows can wait for each other.
	const some = `DELETE FROM outbox WHERE id IN (SELECT id FROM outbox WHERE status = 'PENDING' AND id % 2 = 0 FOR UPDATE SKIP LOCKED)`
	p := w.run().streaming()
	load := w.write(steady())
	load.wrote(100, 30*time.Second)
	k.Cut()
	load.wrote(100, 30*time.Second)
	p.Await(20*time.Second, "the Kafka cluster cannot be used")
	w.db.Exec(t, some)
	load.wrote(50, 30*time.Second)
	w.db.Exec(t, `TRUNCATE outbox`)
	load.wrote(50, 30*time.Second)
	k.Restore(t)
	w.recovered()
	w.db.Exec(t, some)
	load.wrote(100, 30*time.Second)
	load.stop()
	w.settled(30 * time.Second)
	// Nothing holds the slot: it gets where the WAL is now.
	target := harness.One[string](t, w.db, `SELECT pg_current_wal_lsn()::text`)
	w.db.Exec(t, `SELECT pg_logical_emit_message(true, 'filler', 'x')`)
	harness.Eventually(t, 20*time.Second, func() error {
		there, err := harness.TryOne[bool](t.Context(), w.db, `SELECT confirmed_flush_lsn >= $1::pg_lsn FROM pg_replication_slots WHERE database = current_database()`, target)
		if err == nil && !there {
			err = fmt.Errorf("the slot stands before %s", target)
		}
		return err
	})
	p.stop()
	if w.takeBack(0) == 0 {
		t.Error("nothing was deleted: the test is void")
	}
	w.judge(history.Rules{})
}

// The network between us and the database swallows everything for a while,
// without closing a connection.
func TestAHalfOpenDatabaseConnection(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{partitions: 2})
	w.small()
	through, proxy := w.db.Proxied(t)
	w.stream["postgres"] = fields{"dsn": through.DSN, "wal_sender_timeout": "3s"}
	p := w.run().streaming()
	load := w.write(steady())
	for range scaled(1, 5) {
		load.wrote(100, 30*time.Second)
		proxy.Silence(harness.Requests, harness.Replies)
		p.Await(20*time.Second, "the replication connection ended")
		proxy.Speak()
		w.recovered()
		p.streaming()
	}
	load.wrote(100, 30*time.Second)
	load.stop()
	w.settled(60 * time.Second)
	p.stop()
	w.judge(history.Rules{Duplicates: scaled(1, 5) * window})
}

// A broker answers each request two seconds late, under load, for longer than
// wal_sender_timeout. The WAL is read no faster than the broker takes rows, and
// feedback goes on all the same: no replication connection is lost, nothing is
// published twice.
func TestASlowBroker(t *testing.T) {
	t.Parallel() // it mostly waits
	k := harness.KfakeProxied(t)
	w := newWorld(t, surroundings{kafka: k})
	p := w.run().streaming()
	k.Proxies[0].Slow(harness.Replies, 2*time.Second)
	load := w.write(steady())
	load.wrote(scaled(500, 5000), 60*time.Second)
	waitUntil(t, time.Now().Add(8*time.Second)) // longer than wal_sender_timeout
	k.Proxies[0].Speak()
	w.recovered()
	load.stop()
	w.settled(60 * time.Second)
	p.stop()
	w.judge(history.Rules{})
	if n := p.logged("the replication connection ended"); n > 0 {
		t.Errorf("the replication connection ended %d times", n)
	}
}

// A session holds the lock of a row that is to be marked, under load: the row is
// delivered once and marked when the lock is gone, and others are not held up.
func TestRowsAreLocked(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	p := w.run().streaming()
	tx, err := w.db.Conn(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rows := w.insertNow(w.topic, "locked", 3, 10)
	w.becomes(rows[0], history.Sent, 10*time.Second)
	// A row that is published later only, so that it can be locked before.
	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload, available_after) VALUES ($1, 'due', $2, clock_timestamp() + interval '2 seconds')`,
		w.topic, history.Value("due.1", 0, "due", 4))
	w.log.Add(history.Insert{Ref: "due.1", Table: w.tableName(), Topic: w.topic, Key: "due", Keyed: true, Outcome: history.Committed})
	if _, err := tx.Exec(t.Context(), `SELECT id FROM outbox WHERE key = 'due' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	load := w.write(steady())
	load.wrote(300, 30*time.Second)
	waitUntil(t, time.Now().Add(3*time.Second))
	w.becomes(w.insertNow(w.topic, "other", 1, 10)[0], history.Sent, 20*time.Second)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.recovered()
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}
