package integration

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// Tables that another relay works on, too.

// insertRefs inserts rows in transactions of their own, and gives their keys.
func (w *world) insertRefs(prefix string, n int) []string {
	w.t.Helper()
	var refs []string
	for i := range n {
		ref := fmt.Sprintf("%s-%d", prefix, i)
		w.db.Exec(w.t, `INSERT INTO outbox (topic, key, payload) VALUES ($1, $2, convert_to($2, 'UTF8'))`, w.topic, ref)
		refs = append(refs, ref)
	}
	return refs
}

// published returns the records' values, sorted.
func (w *world) published() []string {
	w.t.Helper()
	var values []string
	for _, r := range w.kafka.Records(w.t, w.topic) {
		values = append(values, string(r.Value))
	}
	slices.Sort(values)
	return values
}

// rival returns a poller that takes pending rows by SKIP LOCKED and marks them in the
// same transaction. It gives the rows that it took: the last poll is not cut off,
// else it could have taken rows that it does not know of.
func (w *world) rival(ctx context.Context, pause time.Duration) func() []string {
	var taken []string
	done := make(chan struct{})
	conn := w.db.Conn(w.t)
	poll := func() error {
		rows, err := conn.Query(context.WithoutCancel(ctx), `WITH taken AS (
				SELECT id FROM outbox WHERE status = 'PENDING' ORDER BY id LIMIT 5 FOR UPDATE SKIP LOCKED)
			UPDATE outbox SET status = 'SENT', sent_at = now() FROM taken WHERE outbox.id = taken.id RETURNING convert_from(payload, 'UTF8')`)
		if err != nil {
			return err
		}
		values, err := pgx.CollectRows(rows, pgx.RowTo[string])
		taken = append(taken, values...)
		return err
	}
	go func() {
		defer close(done)
		ticker := time.NewTicker(pause)
		defer ticker.Stop()
		for poll() == nil {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	}()
	return func() []string { <-done; return taken }
}

// once fails the test unless each row was published by us or taken, once.
func once(t *testing.T, all, published, taken []string) {
	t.Helper()
	both := append(slices.Clone(published), taken...)
	slices.Sort(both)
	slices.Sort(all)
	if !slices.Equal(both, all) {
		t.Errorf("%d rows, %d published, %d taken by the rival: some twice or never", len(all), len(published), len(taken))
	}
}

// Claims: a poller with SKIP LOCKED and outbox-cdc share a table, through stops,
// starts and kills, and no row is published twice but those of the kill.
func TestRowsAreClaimed(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	w.table["claim"] = "row_lock"
	ctx, cancel := context.WithCancel(t.Context())
	taken := w.rival(ctx, 3*time.Millisecond)
	var all []string
	for round := range 3 {
		p := w.run().streaming()
		all = append(all, w.insertRefs(fmt.Sprint("r", round), scaled(150, 2000))...)
		p.stop()
		all = append(all, w.insertRefs(fmt.Sprint("s", round), 20)...)
	}
	cancel()
	others := taken()
	p := w.run().streaming()
	w.settled(20 * time.Second)
	p.stop()
	ours := w.published()
	if len(ours) == 0 || len(others) == 0 {
		t.Errorf("%d rows published, %d taken: one of both had nothing to do", len(ours), len(others))
	}
	once(t, all, ours, others)
}

// A row that comes while nothing else happens has its whole head start, whenever
// the process last looked at its clock.
func TestTheHeadStartIsWhole(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	w.table["head_start"] = "600ms"
	p := w.run().streaming()
	for range 8 {
		w.db.Exec(t, `SELECT pg_sleep(random() * 0.5)`)
		w.insertRefs("r", 1)
		w.settled(20 * time.Second)
	}
	p.stop()
	least := harness.One[float64](t, w.db, `SELECT min(extract(epoch FROM sent_at - created_at))::float8 FROM outbox`)
	if least < 0.6 {
		t.Errorf("a row was SENT %.3f s after its INSERT", least)
	}
}

// A killed process leaves no row locked.
func TestKilledClaimsAreFree(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	w.table["claim"] = "row_lock"
	p := w.run().streaming()
	w.insertRefs("a", 50)
	p.Kill()
	ctx, cancel := context.WithCancel(t.Context())
	taken := w.rival(ctx, time.Millisecond)
	w.settled(20 * time.Second)
	cancel()
	taken()
}

// Within their head start rows are the application's: what it marks is not
// published, what it leaves is.
func TestHeadStart(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	w.table["head_start"], w.table["grace"] = "4s", "4s"
	p := w.run().streaming()
	var all []string
	for i := range 40 {
		all = append(all, fmt.Sprintf("a-%d", i))
	}
	w.db.Exec(t, fmt.Sprintf(`BEGIN; INSERT INTO outbox (topic, key, payload) SELECT '%s', 'a-' || n, convert_to('a-' || n, 'UTF8') FROM generate_series(0, %d) n; COMMIT;
		UPDATE outbox SET status = 'SENT' WHERE id %% 2 = 0`, w.topic, len(all)-1)) // at once, whatever the machine has to do
	w.settled(20 * time.Second)
	p.stop()
	if least := harness.One[float64](t, w.db, `SELECT min(extract(epoch FROM sent_at - created_at))::float8 FROM outbox`); least < 4 {
		t.Errorf("a row was SENT %.3f s after its INSERT, within its head start", least)
	}
	var left []string
	for i, ref := range all {
		if (i+1)%2 != 0 {
			left = append(left, ref)
		}
	}
	once(t, left, w.published(), nil)
}

// In shadow nothing is published or marked and the slot moves on. A start without
// shadow publishes what was left over.
func TestShadow(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	w.stream["mode"] = "shadow"
	p := w.run().streaming()
	all := w.insertRefs("a", 30)
	var last string
	if err := w.query(`SELECT pg_current_wal_insert_lsn()::text`, func(r pgx.Rows) error { return r.Scan(&last) }); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, 20*time.Second, func() error {
		var passed bool
		err := w.query(`SELECT confirmed_flush_lsn >= '`+last+`' FROM pg_replication_slots WHERE database = current_database()`,
			func(r pgx.Rows) error { return r.Scan(&passed) })
		if err == nil && !passed {
			err = fmt.Errorf("the slot is not confirmed up to %s", last)
		}
		return err
	})
	w.db.Exec(t, `UPDATE outbox SET status = 'SENT' WHERE id % 3 = 0`) // the application's relay
	if got := w.published(); len(got) > 0 {
		t.Errorf("%d rows were published in shadow", len(got))
	}
	p.stop()
	w.stream["mode"] = "stream"
	p = w.run().streaming()
	w.settled(20 * time.Second)
	all = append(all, w.insertRefs("b", 10)...)
	w.settled(20 * time.Second)
	p.stop()
	left := slices.DeleteFunc(all, func(ref string) bool {
		var n int
		_, err := fmt.Sscanf(ref, "a-%d", &n)
		return err == nil && (n+1)%3 == 0
	})
	once(t, left, w.published(), nil)
}

// The application's lock is waited for, held, and given back at the stop.
func TestApplicationsLock(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	w.db.Exec(t, `CREATE TABLE shedlock (name varchar(64) PRIMARY KEY, lock_until timestamp NOT NULL, locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL)`)
	w.db.Exec(t, `INSERT INTO shedlock VALUES ('relay', timezone('utc', now()) + interval '1 h', timezone('utc', now()), 'pod-1')`)
	w.table["shedlock"] = fields{"name": "relay"}
	p := w.run()
	refs := w.insertRefs("a", 5)
	p.Await(10*time.Second, `pod-1`)
	if got := w.published(); len(got) > 0 {
		t.Errorf("%d rows were published while the application held its lock", len(got))
	}
	w.db.Exec(t, `UPDATE shedlock SET lock_until = timezone('utc', now())`)
	p.streaming()
	w.settled(20 * time.Second)
	w.lock(true)
	p.stop()
	w.lock(false)
	once(t, refs, w.published(), nil)
}

// lock fails the test unless the lock is held, or free.
func (w *world) lock(held bool) {
	w.t.Helper()
	var is bool
	err := w.query(`SELECT lock_until > timezone('utc', now()) FROM shedlock`, func(r pgx.Rows) error { return r.Scan(&is) })
	if err != nil || is != held {
		w.t.Errorf("the application's lock is held: %v (%v), want %v", is, err, held)
	}
}

// A row that its application changes before it is published goes out as it was committed last, or
// not at all; marked rows do not come back.
func TestRowsThatChangeGoOutAsTheyAre(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	w.table["look_first"] = true
	w.db.Exec(t, `ALTER TABLE outbox DROP CONSTRAINT outbox_status_check;
		CREATE FUNCTION complete() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN UPDATE outbox SET payload = payload || '-completed' WHERE id = NEW.id; RETURN NULL; END $$;
		CREATE TRIGGER complete AFTER INSERT ON outbox FOR EACH ROW WHEN (NEW.key = 'trigger') EXECUTE FUNCTION complete()`)
	p := w.run().streaming()
	insert := func(change string) {
		t.Helper()
		key, _, _ := strings.Cut(change, ":")
		sql := fmt.Sprintf(`INSERT INTO outbox (topic, key, payload) VALUES (%s, %s, 'v1');`, literal(w.topic), literal(key))
		if _, update, ok := strings.Cut(change, ":"); ok {
			sql += strings.ReplaceAll(update, "$this", "key = "+literal(key))
		}
		w.db.Exec(t, "BEGIN;"+sql+"COMMIT")
	}
	for _, change := range []string{
		"plain", "trigger",
		"updated:UPDATE outbox SET payload = 'v2' WHERE $this;",
		"renamed:UPDATE outbox SET payload = 'v2', key = 'other' WHERE $this;",
		"nested:SAVEPOINT s; UPDATE outbox SET payload = 'v2' WHERE $this; RELEASE s; SAVEPOINT s; UPDATE outbox SET payload = 'v3' WHERE $this; ROLLBACK TO s;",
		"cancelled:UPDATE outbox SET status = 'CANCELLED' WHERE $this;",
		"sent:UPDATE outbox SET status = 'SENT' WHERE $this;",
		"deleted:DELETE FROM outbox WHERE $this;",
		"last",
	} {
		insert(change)
	}
	w.settled(30 * time.Second)
	p.stop()
	var got []string
	for _, r := range w.kafka.Records(t, w.topic) {
		got = append(got, string(r.Key)+"="+string(r.Value))
	}
	slices.Sort(got)
	want := []string{"last=v1", "nested=v2", "other=v2", "plain=v1", "trigger=v1-completed", "updated=v2"}
	if !slices.Equal(got, want) {
		t.Errorf("published %v, want %v", got, want)
	}
}

func literal(text string) string { return "'" + text + "'" }

// What waits while Kafka is away goes out as it is when Kafka is back, in its order, or not at all, without look_first, too.
func TestWhatWaitedInAnOutageGoesOutAsItIs(t *testing.T) {
	t.Parallel() // it mostly waits
	k := harness.PrivateKafka(t, harness.KafkaOptions{})
	w := newWorld(t, surroundings{kafka: k})
	w.db.Exec(t, `ALTER TABLE outbox DROP CONSTRAINT outbox_status_check`)
	p := w.run().streaming()
	insert := func(key string, payloads ...string) {
		for _, payload := range payloads {
			w.db.Exec(t, `INSERT INTO outbox (topic, key, payload) VALUES ($1, $2, $3)`, w.topic, key, payload)
		}
	}
	insert("k", "before")
	w.settled(30 * time.Second)
	k.Nodes[0].Stop()
	insert("k", "first") // it may be on its way, so it is sent as it was
	p.Await(60*time.Second, "the Kafka cluster cannot be used")
	insert("k", "plain", "update", "cancel", "delete", "rename", "last")
	waitUntil(t, time.Now().Add(6*time.Second)) // shorter outages are none
	w.db.Exec(t, `UPDATE outbox SET payload = 'updated' WHERE payload = 'update'`)
	w.db.Exec(t, `UPDATE outbox SET status = 'CANCELLED' WHERE payload = 'cancel'`)
	w.db.Exec(t, `DELETE FROM outbox WHERE payload = 'delete'`)
	w.db.Exec(t, `UPDATE outbox SET key = 'j', payload = 'renamed' WHERE payload = 'rename'`)
	k.Nodes[0].Start(t)
	w.settled(60 * time.Second)
	p.stop()
	got := map[string][]string{}
	for _, r := range k.Records(t, w.topic) {
		got[string(r.Key)] = append(got[string(r.Key)], string(r.Value))
	}
	if want := map[string][]string{"k": {"before", "first", "plain", "updated", "last"}, "j": {"renamed"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("published %v, want %v", got, want)
	}
	if n := p.logged("parked: left to the sweeper", `"scope":"cluster`) + p.logged("parked: left to the sweeper", `"scope":"key`); n > 0 {
		t.Errorf("something was parked %d times", n)
	}
}

// A limit keeps rows waiting in the WAL, for longer than a blip. They go out as they are when they are read, in order.
func TestWhatWaitedInTheWALGoesOutAsItIs(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	w.db.Exec(t, `ALTER TABLE outbox DROP CONSTRAINT outbox_status_check`)
	const rate, before = 10, 80
	w.stream["limits"] = fields{"rows_per_second": rate}
	p := w.run().streaming()
	p.Await(30*time.Second, "handed back to the stream") // what is swept is as it is
	var want []string
	for i := range before {
		want = append(want, fmt.Sprint(i))
	}
	w.db.Exec(t, `INSERT INTO outbox (topic, key, payload) SELECT $1, 'k', convert_to(n::text, 'UTF8') FROM generate_series(0, $2::int - 1) n`, w.topic, before)
	for _, payload := range []string{"plain", "update", "cancel", "delete", "last"} {
		w.db.Exec(t, `INSERT INTO outbox (topic, key, payload) VALUES ($1, 'k', $2)`, w.topic, payload)
	}
	w.db.Exec(t, `UPDATE outbox SET payload = 'updated' WHERE payload = 'update'`)
	w.db.Exec(t, `UPDATE outbox SET status = 'CANCELLED' WHERE payload = 'cancel'`)
	w.db.Exec(t, `DELETE FROM outbox WHERE payload = 'delete'`)
	w.settled(60 * time.Second)
	p.stop()
	var got []string
	for _, r := range w.kafka.Records(t, w.topic) {
		got = append(got, string(r.Value))
	}
	if !slices.Equal(got, append(want, "plain", "updated", "last")) {
		t.Errorf("published %v", got)
	}
	if n := p.logged("parked: left to the sweeper"); n != 1 {
		t.Errorf("something was parked %d times, with the new slot", n)
	}
}

// Without look_first a changed row goes out as it was inserted, and a warning says so. The
// table is locked against marks, not reads, when the row becomes visible.
func TestAChangedRowIsTold(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	p := w.run().streaming()
	p.Await(30*time.Second, "handed back to the stream") // what is swept is as it is
	writer, locker := w.db.Conn(t), w.db.Conn(t)
	exec := func(conn *pgx.Conn, sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(writer, "BEGIN; INSERT INTO outbox (topic, key, payload) VALUES ("+literal(w.topic)+", 'k', 'v1'); UPDATE outbox SET payload = 'v2' WHERE key = 'k'")
	locked := make(chan error, 1)
	go func() {
		_, err := locker.Exec(t.Context(), "BEGIN; LOCK TABLE outbox IN EXCLUSIVE MODE")
		locked <- err
	}()
	harness.Eventually(t, 20*time.Second, func() error {
		if n := harness.One[int](t, w.db, "SELECT count(*) FROM pg_locks WHERE relation = 'outbox'::regclass AND NOT granted"); n != 1 {
			return fmt.Errorf("%d sessions wait for the table", n)
		}
		return nil
	})
	exec(writer, "COMMIT")
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	p.Await(20*time.Second, "a row was changed while it waited")
	exec(locker, "ROLLBACK")
	w.settled(30 * time.Second)
	p.stop()
	if got := w.published(); !slices.Equal(got, []string{"v1"}) {
		t.Errorf("published %v", got)
	}
}
