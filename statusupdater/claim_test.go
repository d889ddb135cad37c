package statusupdater

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/tablesql"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// The other relay's own statements. It claims rows by status and skips locked ones (advert-market's
// JooqOutboxRepository.findPendingBatch).
const (
	pollerClaims = `UPDATE notification_outbox SET status = 'PROCESSING' WHERE id IN (
		SELECT id FROM notification_outbox WHERE status = 'PENDING' AND created_at < now() - interval '1 second'
		ORDER BY created_at LIMIT 50 FOR UPDATE SKIP LOCKED) RETURNING id::text`
	pollerDelivered = `UPDATE notification_outbox SET status = 'DELIVERED', processed_at = now() WHERE status = 'PROCESSING'`
)

func poll(t *testing.T, conn *pgx.Conn) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), pollerClaims)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// notifications adds n rows that the poller may take.
func (b *bench) notifications(n int) []*outbox.Row {
	return b.insert(fmt.Sprintf(`INSERT INTO notification_outbox (deal_id, idempotency_key, topic, partition_key, payload, created_at)
		SELECT gen_random_uuid(), gen_random_uuid()::text, 'notifications', 'k', '{"a": 1}', now() - interval '10 s'
		FROM generate_series(1, %d) RETURNING id::text`, n))
}

// claim claims rows and checks the answers, in the rows' order. It replaces the given rows by the claimed
// ones.
func (b *bench) claim(rows []*outbox.Row, want ...outbox.CheckState) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	got, err := b.updater.Claim(ctx, rows)
	if err != nil {
		b.t.Fatal(err)
	}
	for i := range got {
		if got[i].Row != rows[i] || got[i].State != want[i%len(want)] {
			b.t.Fatalf("row %q is in state %d, want %d", got[i].Row.ID, got[i].State, want[i%len(want)])
		}
		rows[i] = got[i].Latest()
	}
}

func (b *bench) silent() {
	b.t.Helper()
	if got := b.answers.Take(nil); len(got) > 0 {
		b.t.Fatalf("answered before the commit: %+v", got)
	}
}

const claimStates = `SELECT string_agg(status || retry_count || 'v' || version, ' ' ORDER BY id) FROM notification_outbox`

func TestAClaimKeepsThePollerAwayAndIsMarkedInItsTransaction(t *testing.T) {
	b := newBench(t, fixture.Claimed())
	rows := b.notifications(4)
	poller := b.db.Conn(t)
	b.claim(rows, outbox.CheckPending)
	if ids := poll(t, poller); len(ids) != 0 {
		t.Fatalf("the poller took %v", ids)
	}
	b.do(outbox.MarkSent, "", rows[0], rows[1])
	b.do(outbox.MarkAttempt, "no", rows[2])
	if ids := poll(t, poller); len(ids) != 0 {
		t.Fatalf("the poller took %v", ids)
	}
	b.silent() // one row is still open
	b.updater.Unclaim(rows[3], rows[3])
	for row, a := range b.await(3) {
		want := map[*outbox.Row]outbox.MarkState{rows[0]: outbox.MarkedSent, rows[1]: outbox.MarkedSent, rows[2]: outbox.MarkedRetry}[row]
		if a.State != want || want == outbox.MarkedRetry && a.Attempts != 1 {
			t.Fatalf("%q: %+v", row.ID, a)
		}
	}
	b.want("DELIVERED0v1 DELIVERED0v1 PENDING1v1 PENDING0v0", claimStates)
	if ids := poll(t, poller); len(ids) != 2 {
		t.Fatalf("the poller took %v", ids)
	}
	if s := b.updater.Stats(); s.Claimed != 0 || s.Waiting != 0 {
		t.Fatalf("%+v", s)
	}
}

func TestWhatAClaimSaysOfRowsThatItDoesNotGet(t *testing.T) {
	b := newBench(t, fixture.Claimed())
	rows := b.notifications(6)
	poller := b.db.Conn(t)
	exec(t, poller, `UPDATE notification_outbox SET status = CASE id WHEN 1 THEN 'PROCESSING' WHEN 2 THEN 'DELIVERED' WHEN 3 THEN 'FAILED' ELSE status END`)
	exec(t, poller, `DELETE FROM notification_outbox WHERE id = 4`)
	exec(t, poller, `BEGIN`)
	exec(t, poller, `SELECT 1 FROM notification_outbox WHERE id = 5 FOR UPDATE SKIP LOCKED`)
	want := []outbox.CheckState{
		outbox.CheckTaken, outbox.CheckSettled, outbox.CheckFailed, outbox.CheckSettled, outbox.CheckTaken, outbox.CheckPending,
	}
	b.claim(rows, want...)
	want[5] = outbox.CheckTaken // by the earlier claim
	b.claim(rows, want...)
	exec(t, poller, `COMMIT`)
	b.updater.Unclaim(rows[5])
	harness.Eventually(t, 20*time.Second, func() error {
		got, err := b.updater.Claim(t.Context(), rows[4:])
		if err != nil || got[0].State != outbox.CheckPending && got[1].State != outbox.CheckPending {
			return fmt.Errorf("%+v %v", got, err)
		}
		return nil
	})
}

// Rows are claimed and marked while another relay claims, delivers and dies, and while ordinary marks of the
// same rows come from elsewhere. Each row is delivered by exactly one of them, and nobody waits for ever.
func TestClaimsBesideAPollerAtWork(t *testing.T) {
	b := newBenchOn(t, harness.Postgres(t), fixture.Claimed(), Config{LockTimeout: 100 * time.Millisecond, LockedRetry: 50 * time.Millisecond})
	rows := b.notifications(1500)
	poller := b.db.Conn(t)
	ours := make(map[string]bool)
	for len(rows) > 0 {
		batch := rows[:100]
		rows = rows[100:]
		theirs := make(map[string]bool)
		exec(t, poller, `BEGIN`)
		for _, id := range poll(t, poller) {
			theirs[id] = true
		}
		got, err := b.updater.Claim(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		if len(rows)%300 == 0 {
			exec(t, poller, `ROLLBACK`) // the relay died
		} else {
			exec(t, poller, pollerDelivered)
			exec(t, poller, `COMMIT`)
		}
		n := 0
		for _, c := range got {
			if c.State == outbox.CheckPending {
				if theirs[c.Row.ID] {
					t.Fatalf("row %s was claimed by both", c.Row.ID)
				}
				ours[c.Row.ID] = true
				b.do(outbox.MarkSent, "", c.Latest())
				n++
			}
		}
		for row, a := range b.await(n) {
			if a.State != outbox.MarkedSent {
				t.Fatalf("%q: %+v", row.ID, a)
			}
		}
	}
	for len(poll(t, poller)) > 0 {
		exec(t, poller, pollerDelivered)
	}
	b.want("1500", `SELECT count(*)::text FROM notification_outbox WHERE status = 'DELIVERED'`)
	if len(ours) == 0 {
		t.Fatal("nothing was ours")
	}
}

func TestOrdinaryMarksWaitForAClaim(t *testing.T) {
	b := newBenchOn(t, harness.Postgres(t), fixture.Claimed(), Config{LockTimeout: 50 * time.Millisecond, LockedRetry: 50 * time.Millisecond})
	rows := b.notifications(2)
	b.claim(rows, outbox.CheckPending)
	again := &outbox.Row{Table: b.table, ID: rows[0].ID} // the same row of the table, read again
	b.do(outbox.MarkSent, "", again)
	harness.Eventually(t, 20*time.Second, func() error {
		if b.updater.Stats().Locked == 0 {
			return fmt.Errorf("not set aside yet")
		}
		return nil
	})
	b.do(outbox.MarkSent, "", rows...)
	got := b.await(3)
	if got[again].State != outbox.MarkedSettled || got[rows[0]].State != outbox.MarkedSent {
		t.Fatalf("%+v", got)
	}
}

// The session is killed while a claim is open. The poller gets the rows that were locked. Marks that had
// come, and marks that come later, are written all the same.
func TestAClaimIsLostWithItsSession(t *testing.T) {
	b := newBenchOn(t, harness.Postgres(t), fixture.Claimed(), Config{ClaimIdle: 300 * time.Millisecond})
	rows := b.notifications(4)
	b.claim(rows, outbox.CheckPending)
	b.do(outbox.MarkSent, "", rows[0])
	b.do(outbox.MarkAttempt, "no", rows[1])
	b.db.Exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'`)
	got := b.await(2)
	if got[rows[0]].State != outbox.MarkedSent || got[rows[1]].State != outbox.MarkedRetry || got[rows[1]].Attempts != 1 {
		t.Fatalf("%+v", got)
	}
	b.expect(outbox.MarkSent, rows[2], outbox.MarkedSent, 0)
	if ids := poll(t, b.db.Conn(t)); len(ids) != 2 { // the charged one and the last one
		t.Fatalf("the poller took %v", ids)
	}
	b.claim(rows, outbox.CheckSettled, outbox.CheckTaken, outbox.CheckSettled, outbox.CheckTaken)
}

// A claim lasts as long as it needs, but not after its process is gone: the server ends a silent session.
func TestAClaimOutlivesItsIdleTimeOnlyWhileWeLive(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, fixture.Claimed().DDL)
	through, proxy := db.Proxied(t)
	b := runOn(t, db, fixture.Claimed().Table, Config{Pool: pool(t, through.DSN), ClaimIdle: 900 * time.Millisecond, ClaimWarn: time.Millisecond})
	row := b.notifications(1)
	b.claim(row, outbox.CheckPending)
	poller := b.db.Conn(t)
	harness.Eventually(t, 20*time.Second, func() error { // three pings
		n, err := harness.TryOne[int](t.Context(), db, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND state = 'idle in transaction' AND query = 'SELECT 1' AND now() - xact_start > interval '1200 ms'`)
		if err != nil || n != 1 {
			return fmt.Errorf("%d claims (%v)", n, err)
		}
		return nil
	})
	if ids := poll(t, poller); len(ids) != 0 {
		t.Fatalf("the poller took %v", ids)
	}
	proxy.Silence(harness.Requests)
	defer proxy.Speak()
	harness.Eventually(t, 20*time.Second, func() error {
		if ids := poll(t, poller); len(ids) != 1 {
			return fmt.Errorf("still locked")
		}
		return nil
	})
}

// If the reply to a COMMIT is lost, the attempt was charged, and it is not charged again.
func TestALostReplyToAClaimsCommitChargesOnce(t *testing.T) {
	t.Parallel()
	db := harness.PrivatePostgres(t, localpg.Options{})
	db.Exec(t, fixture.Claimed().DDL)
	// The commit takes long: a deferred trigger waits for a lock of the test's.
	db.Exec(t, `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NULL; END';
		CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON notification_outbox DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION slow()`)
	through, proxy := db.Proxied(t)
	b := runOn(t, db, fixture.Claimed().Table, Config{Pool: pool(t, through.DSN), StatementTimeout: 2 * time.Second})
	rows := b.notifications(2)
	b.claim(rows, outbox.CheckPending)
	blocker := db.Conn(t)
	exec(t, blocker, `SELECT pg_advisory_lock(7)`)
	b.do(outbox.MarkSent, "", rows[0])
	b.do(outbox.MarkAttempt, "no", rows[1])
	harness.Eventually(t, 20*time.Second, func() error {
		n, err := harness.TryOne[int](t.Context(), db, `SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'`)
		if err != nil || n != 1 {
			return fmt.Errorf("%d commits wait (%v)", n, err)
		}
		return nil
	})
	proxy.Silence(harness.Replies)
	exec(t, blocker, `SELECT pg_advisory_unlock(7)`)
	harness.Eventually(t, 20*time.Second, func() error {
		n, err := harness.TryOne[int](t.Context(), db, `SELECT count(*) FROM notification_outbox WHERE retry_count = 1`)
		if err != nil || n != 1 {
			return fmt.Errorf("not committed (%v)", err)
		}
		return nil
	})
	proxy.Speak()
	got := b.await(2)
	if got[rows[0]].State != outbox.MarkedSettled || got[rows[1]].State != outbox.MarkedRetry || got[rows[1]].Attempts != 1 {
		t.Fatalf("%+v", got)
	}
	b.want("DELIVERED0v1 PENDING1v1", claimStates)
}

// A statement that the database refuses ends the claim. The ordinary way then finds the row that causes it.
func TestARefusedMarkOfAClaimedRow(t *testing.T) {
	b := newBench(t, fixture.Claimed())
	rows := b.notifications(10)
	b.db.Exec(t, `ALTER TABLE notification_outbox ADD CHECK (NOT (id = 3 AND status = 'DELIVERED'))`)
	b.claim(rows, outbox.CheckPending)
	b.do(outbox.MarkSent, "", rows...)
	for row, a := range b.await(10) {
		if (a.State == outbox.MarkedRefused) != (row == rows[2]) {
			t.Fatalf("%q: %+v", row.ID, a)
		}
	}
}

func TestClaimsThatAreRefused(t *testing.T) {
	t.Parallel()
	db := harness.PrivatePostgres(t, localpg.Options{})
	db.Exec(t, fixture.Claimed().DDL)
	db.Exec(t, `CREATE ROLE reader LOGIN PASSWORD 'r'; GRANT USAGE ON SCHEMA public TO reader; GRANT SELECT ON notification_outbox TO reader`)
	as := *db
	as.DSN = db.Server.DSNAs(db.Name, "reader", "r")
	b := runOn(t, db, fixture.Claimed().Table, Config{Pool: pool(t, as.DSN), ClaimRows: 5})
	rows := b.notifications(5)
	_, err := b.updater.Claim(t.Context(), rows)
	wantTableError(t, err, `GRANT SELECT, UPDATE ON "public"."notification_outbox" TO "reader"`)
	if _, err := b.updater.Claim(t.Context(), append(rows, rows...)); err == nil {
		t.Fatal("too many rows were claimed")
	}
	db.Exec(t, `GRANT UPDATE ON notification_outbox TO reader`)
	b.claim(rows, outbox.CheckPending)
	db.Exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'reader'`)
	db.Exec(t, `DROP TABLE notification_outbox`)
	_, err = b.updater.Claim(t.Context(), rows)
	for i := 0; err != nil && i < 3 && !isTableError(err); i++ { // killed connections of the pool
		_, err = b.updater.Claim(t.Context(), rows)
	}
	wantTableError(t, err, "does not exist")
}

// A Claim that is given up leaves no row locked.
func TestAClaimThatNobodyWaitsForAnyMore(t *testing.T) {
	b := newBench(t, fixture.Claimed())
	rows := b.notifications(1)
	blocker := b.db.Conn(t)
	exec(t, blocker, `BEGIN; LOCK TABLE notification_outbox`)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := b.updater.Claim(ctx, rows); err == nil {
		t.Fatal("claimed a row of a locked table")
	}
	exec(t, blocker, `COMMIT`)
	harness.Eventually(t, 20*time.Second, func() error {
		if n := len(poll(t, blocker)); n != 1 {
			return fmt.Errorf("%d rows", n)
		}
		return nil
	})
}

func isTableError(err error) bool {
	var refused *tablesql.TableError
	return errors.As(err, &refused)
}

func wantTableError(t *testing.T, err error, text string) {
	t.Helper()
	if !isTableError(err) || !strings.Contains(err.Error(), text) {
		t.Fatalf("%v, want a TableError that says %s", err, text)
	}
}

// delivery counts who published what.
type delivery struct {
	mu    sync.Mutex
	by    map[string]string
	twice []string
}

func (d *delivery) publish(who, id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.by[id] != "" {
		d.twice = append(d.twice, id+" by "+d.by[id]+" and "+who)
	}
	d.by[id] = who
}

// Several claims and several pollers run at once, and each sometimes gives up halfway. No row is published
// twice, and each of them ends.
func TestClaimsAndPollersAtOnce(t *testing.T) {
	const total = 600
	b := newBench(t, fixture.Claimed())
	rows := b.notifications(total)
	d := &delivery{by: map[string]string{}}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	over := func(conn *pgx.Conn) bool {
		n := 1
		err := conn.QueryRow(ctx, `SELECT count(*) FROM notification_outbox WHERE status IN ('PENDING', 'PROCESSING')`).Scan(&n)
		return err != nil || n == 0
	}
	var group errgroup.Group
	for i := range uint64(3) {
		conn := b.db.Conn(t)
		group.Go(func() error {
			random := rand.New(rand.NewPCG(seed, i))
			for !over(conn) {
				if err := b.claimSome(ctx, rows, random, d); err != nil {
					return err
				}
			}
			return ctx.Err()
		})
	}
	for i := range uint64(2) {
		conn := b.db.Conn(t)
		group.Go(func() error {
			random := rand.New(rand.NewPCG(seed, 100+i))
			for !over(conn) {
				if err := pollSome(ctx, conn, random, d); err != nil {
					return err
				}
			}
			return ctx.Err()
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if len(d.twice) > 0 {
		t.Fatalf("published twice: %v", d.twice)
	}
	shares := map[string]int{}
	for _, who := range d.by {
		shares[who]++
	}
	if len(shares) != 2 {
		t.Fatalf("only one of the two published: %v", shares)
	}
	b.want(strconv.Itoa(len(d.by)), `SELECT count(*)::text FROM notification_outbox WHERE status = 'DELIVERED'`)
}

// claimSome claims some rows. Of those that it gets, most are published and marked; the others are charged or
// given back.
func (b *bench) claimSome(ctx context.Context, rows []*outbox.Row, random *rand.Rand, d *delivery) error {
	var some []*outbox.Row
	for range 10 {
		r := *rows[random.IntN(len(rows))]
		if !slices.ContainsFunc(some, func(x *outbox.Row) bool { return x.ID == r.ID }) {
			some = append(some, &r)
		}
	}
	got, err := b.updater.Claim(ctx, some)
	for _, c := range got {
		if c.State != outbox.CheckPending {
			continue
		}
		switch random.IntN(6) {
		case 0:
			b.updater.Unclaim(c.Now)
		case 1:
			b.updater.Do(outbox.Mark{Row: c.Now, Kind: outbox.MarkAttempt, Reason: "no"})
		default:
			d.publish("us", c.Row.ID)
			b.updater.Do(outbox.Mark{Row: c.Now, Kind: outbox.MarkSent})
		}
	}
	return err
}

// pollSome is one tick of the poller, which sometimes fails before it publishes.
func pollSome(ctx context.Context, conn *pgx.Conn, random *rand.Rand, d *delivery) error {
	rows, err := conn.Query(ctx, strings.Replace(pollerClaims, "LIMIT 50", "LIMIT 3", 1))
	if err != nil {
		return err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, id := range ids {
		next := "DELIVERED"
		if random.IntN(4) == 0 {
			next = "PENDING"
		} else {
			d.publish("the poller", id)
		}
		if _, err := conn.Exec(ctx, `UPDATE notification_outbox SET status = $1, version = version + 1 WHERE id = $2::bigint AND status = 'PROCESSING'`, next, id); err != nil {
			return err
		}
	}
	return nil
}

// A claim spans tables. If one table refuses, the error names it, and no row stays locked.
func TestAClaimOfSeveralTables(t *testing.T) {
	b := newBench(t, fixture.Claimed())
	queue := fixture.Deleting()
	b.db.Exec(t, queue.DDL)
	rows := b.notifications(3)
	for _, r := range b.insert(`INSERT INTO queue (body) SELECT 'x' FROM generate_series(1, 3) RETURNING id::text`) {
		r.Table = queue.Table
		rows = append(rows, r)
	}
	first := []*outbox.Row{rows[0], rows[3], rows[1], rows[4]}
	b.claim(first, outbox.CheckPending)
	rows[0], rows[3], rows[1], rows[4] = first[0], first[1], first[2], first[3]
	b.do(outbox.MarkSent, "", rows[0], rows[3])
	b.do(outbox.MarkAttempt, "no", rows[1], rows[4])
	got := b.await(4)
	for i, want := range map[int]outbox.MarkState{0: outbox.MarkedSent, 3: outbox.MarkedSent, 1: outbox.MarkedRetry, 4: outbox.MarkedRetry} {
		if got[rows[i]].State != want {
			t.Fatalf("%d: %+v", i, got[rows[i]])
		}
	}
	b.want("2 1", `SELECT count(*) || ' ' || sum(tries) FROM queue`)
	b.db.Exec(t, `DROP TABLE queue`)
	_, err := b.updater.Claim(t.Context(), []*outbox.Row{rows[2], rows[5]})
	wantTableError(t, err, "queue")
	b.claim(rows[2:3], outbox.CheckPending)
}
