package statusupdater

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

func exec(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func eventID(row *outbox.Row) string { return outbox.SplitID(row.ID)[1] }

// Rows that another session has locked wait, while all other rows are marked.
func TestLockedRowsHoldNobodyUp(t *testing.T) {
	b := newBenchOn(t, harness.Postgres(t), fixture.Im2be(), Config{LockTimeout: 200 * time.Millisecond, LockedRetry: 50 * time.Millisecond})
	rows := b.im2be(1500)
	conn := b.db.Conn(t)
	exec(t, conn, `BEGIN`)
	exec(t, conn, `SELECT 1 FROM outbox WHERE event_id = ANY($1::text[]::uuid[]) FOR UPDATE`, []string{eventID(rows[3]), eventID(rows[1203])})
	b.do(outbox.MarkSent, "", rows...)
	b.await(1498)
	b.do(outbox.MarkAttempt, "x", b.im2be(1)...)
	b.await(1)
	b.want("3", `SELECT count(*)::text FROM outbox WHERE status = 'PENDING'`)
	// Each of the two is set aside when its own batch has been tried again, not when the other rows are
	// marked.
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		got := b.updater.Stats()
		if got.Waiting == 2 && got.Locked >= 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", got)
		}
	}
	exec(t, conn, `COMMIT`)
	b.await(2)
	b.want("1", `SELECT count(*)::text FROM outbox WHERE status = 'PENDING'`)
}

func TestALockedRowIsChargedOnce(t *testing.T) {
	b := newBenchOn(t, harness.Postgres(t), fixture.Im2be(), Config{LockTimeout: 50 * time.Millisecond, LockedRetry: 50 * time.Millisecond})
	row := b.im2be(1)[0]
	conn := b.db.Conn(t)
	exec(t, conn, `BEGIN`)
	exec(t, conn, `UPDATE outbox SET retries = 1`) // the other relay charges the row too
	b.do(outbox.MarkAttempt, "x", row)
	harness.Eventually(t, 20*time.Second, func() error {
		if b.updater.Stats().Locked == 0 {
			return fmt.Errorf("not set aside yet")
		}
		return nil
	})
	exec(t, conn, `COMMIT`)
	if a := b.await(1)[row]; a.State != outbox.MarkedRetry || a.Attempts != 2 {
		t.Fatalf("%+v", a)
	}
}

func TestALockedTableIsWaitedFor(t *testing.T) {
	b := newBenchOn(t, harness.Postgres(t), fixture.Im2be(), Config{LockTimeout: 50 * time.Millisecond, LockedRetry: 50 * time.Millisecond})
	rows := b.im2be(10)
	conn := b.db.Conn(t)
	exec(t, conn, `BEGIN; LOCK TABLE outbox`)
	b.do(outbox.MarkSent, "", rows...)
	harness.Eventually(t, 20*time.Second, func() error {
		if b.updater.Stats().Repeated == 0 {
			return fmt.Errorf("not repeated yet")
		}
		return nil
	})
	exec(t, conn, `COMMIT`)
	b.await(10)
	b.want("10", `SELECT count(*)::text FROM outbox WHERE status = 'SENT'`)
}

// A trigger that raises an error makes its rows refused, and no others.
func TestARowThatIsRefusedIsFoundAmongOthers(t *testing.T) {
	b := newBench(t, fixture.Im2be())
	rows := b.im2be(1000)
	b.db.Exec(t, `CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''not this one''; END';
		CREATE TRIGGER no BEFORE UPDATE ON outbox FOR EACH ROW WHEN (OLD.schema_version = 7) EXECUTE FUNCTION no()`)
	b.db.Exec(t, `UPDATE outbox SET schema_version = 7 WHERE event_id = ANY($1::text[]::uuid[])`, []string{eventID(rows[0]), eventID(rows[567])})
	b.do(outbox.MarkSent, "", rows...)
	for row, a := range b.await(len(rows)) {
		refused := row == rows[0] || row == rows[567]
		if refused != (a.State == outbox.MarkedRefused) || refused != a.Alone {
			t.Fatalf("%q: %+v", row.ID, a)
		}
		if refused && !strings.Contains(a.Err.Error(), "not this one") {
			t.Fatal(a.Err)
		}
	}
	b.want("998", `SELECT count(*)::text FROM outbox WHERE status = 'SENT'`)
}

// However many rows of a batch are refused, the good one is marked.
func TestEveryRowOfABatchIsTried(t *testing.T) {
	b := newBench(t, fixture.Im2be())
	rows := b.im2be(100)
	b.db.Exec(t, `UPDATE outbox SET schema_version = 7 WHERE event_id = $1::text::uuid`, eventID(rows[77]))
	b.db.Exec(t, `ALTER TABLE outbox ADD CHECK (status <> 'SENT' OR schema_version = 7)`)
	b.do(outbox.MarkSent, "", rows...)
	for row, a := range b.await(len(rows)) {
		refused := a.State == outbox.MarkedRefused && a.Alone && a.Err != nil
		if refused != (row != rows[77]) {
			t.Fatalf("%+v", a)
		}
	}
	if n := b.updater.Stats().Statements; n > 210 {
		t.Fatalf("%d statements", n)
	}
	// Attempts use another statement.
	b.expect(outbox.MarkAttempt, rows[0], outbox.MarkedRetry, 1)
}

// A trigger that silently undoes a mark makes the row refused.
func TestAMarkThatIsUndone(t *testing.T) {
	b := newBench(t, fixture.Im2be())
	rows := b.im2be(3)
	b.db.Exec(t, `CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
		CREATE TRIGGER no BEFORE UPDATE ON outbox FOR EACH ROW WHEN (OLD.schema_version = 7) EXECUTE FUNCTION no()`)
	b.db.Exec(t, `ALTER TABLE outbox DISABLE TRIGGER no; UPDATE outbox SET schema_version = 7 WHERE event_id = '`+eventID(rows[1])+`'; ALTER TABLE outbox ENABLE TRIGGER no`)
	b.do(outbox.MarkSent, "", rows...)
	for row, a := range b.await(len(rows)) {
		refused := a.State == outbox.MarkedRefused && a.Alone && strings.Contains(a.Err.Error(), "trigger")
		if refused != (row == rows[1]) {
			t.Fatalf("%+v", a)
		}
	}
}

func TestDDLBetweenMarks(t *testing.T) {
	b := newBenchOn(t, harness.Postgres(t), fixture.Im2be(), Config{Explain: func(_ context.Context, t *outbox.Table, err error) error {
		return fmt.Errorf("of table %s it is known: %w", t, err)
	}})
	rows := b.im2be(3)
	b.expect(outbox.MarkSent, rows[0], outbox.MarkedSent, 0)
	b.db.Exec(t, `ALTER TABLE outbox ALTER COLUMN event_id TYPE text, ALTER COLUMN status TYPE text`)
	b.expect(outbox.MarkSent, rows[1], outbox.MarkedSent, 0)
	b.db.Exec(t, `ALTER TABLE outbox RENAME COLUMN sent_at TO at`)
	if a := b.expect(outbox.MarkSent, rows[2], outbox.MarkedRefused, 0); !strings.Contains(a.Err.Error(), `public.outbox it is known: table public.outbox has no column "sent_at"`) {
		t.Fatal(a.Err)
	}
	b.db.Exec(t, `ALTER TABLE outbox RENAME COLUMN at TO sent_at`)
	b.expect(outbox.MarkSent, rows[2], outbox.MarkedSent, 0)
	b.db.Exec(t, `DROP TABLE outbox`)
	if a := b.expect(outbox.MarkSent, rows[2], outbox.MarkedRefused, 0); !strings.Contains(a.Err.Error(), "it is known") {
		t.Fatal(a.Err)
	}
}

// After a table was altered, it is compared with its archive before another row is moved.
func TestDDLBetweenMovesToAnArchive(t *testing.T) {
	b := newBench(t, fixture.Layout{
		DDL: `CREATE TABLE outbox (id bigint PRIMARY KEY, status text NOT NULL DEFAULT 'PENDING', price numeric(6, 2)); CREATE TABLE archive (LIKE outbox INCLUDING ALL)`,
		Table: &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
			ID: []string{"id"}, Cluster: outbox.ClusterMapping{Default: "main"}, Topic: outbox.Template{Literals: []string{"orders"}},
			Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "price"}}, Order: []string{"id"},
			Published: outbox.PublishedArchive, Archive: outbox.ArchiveTable{Schema: "public", Name: "archive"},
			Status: outbox.StatusMapping{Column: "status", Pending: []string{"PENDING"}, Sent: "SENT"},
		}},
	})
	rows := b.insert(`INSERT INTO outbox (id) VALUES (1), (2), (3) RETURNING id::text`)
	b.expect(outbox.MarkSent, rows[0], outbox.MarkedSent, 0)
	b.db.Exec(t, `ALTER TABLE outbox ALTER price TYPE numeric(12, 4); UPDATE outbox SET price = 1.2345`)
	if a := b.expect(outbox.MarkSent, rows[1], outbox.MarkedRefused, 0); a.Alone || !strings.Contains(a.Err.Error(), `column "price" holds less there`) {
		t.Fatal(a.Alone, a.Err)
	}
	b.db.Exec(t, `ALTER TABLE archive ALTER price TYPE numeric(12, 4)`)
	b.expect(outbox.MarkSent, rows[1], outbox.MarkedSent, 0)
	b.db.Exec(t, `ALTER TABLE archive ADD more text`) // an archive may have further columns
	b.expect(outbox.MarkSent, rows[2], outbox.MarkedSent, 0)
	b.want("1.2345 1.2345", `SELECT string_agg(price::text, ' ') FROM archive WHERE id > 1 AND status = 'SENT'`)
}

func TestRevokedPrivileges(t *testing.T) {
	t.Parallel()
	db := harness.PrivatePostgres(t, localpg.Options{})
	db.Exec(t, fixture.Im2be().DDL)
	db.Exec(t, `CREATE ROLE writer LOGIN PASSWORD 'w'; GRANT USAGE ON SCHEMA public TO writer; GRANT SELECT, UPDATE ON outbox TO writer`)
	as := *db
	as.DSN = db.Server.DSNAs(db.Name, "writer", "w")
	b := runOn(t, db, fixture.Im2be().Table, Config{Pool: pool(t, as.DSN)})
	rows := b.im2be(2)
	b.expect(outbox.MarkSent, rows[0], outbox.MarkedSent, 0)
	db.Exec(t, `REVOKE UPDATE ON outbox FROM writer`)
	b.expect(outbox.MarkSent, rows[1], outbox.MarkedRefused, 0)
	// Privileges on the columns are enough.
	db.Exec(t, `REVOKE ALL ON outbox FROM writer; GRANT SELECT (aggregate_id, event_id, status, retries, version), UPDATE (status, sent_at, retries, last_error, version) ON outbox TO writer`)
	b.expect(outbox.MarkAttempt, rows[1], outbox.MarkedRetry, 1)
	b.expect(outbox.MarkSent, rows[1], outbox.MarkedSent, 0)
}

// The server stops answering and later answers again. No mark is lost, and none is charged twice, although
// the reply to its commit was lost.
func TestALostReplyToACommitChargesOnce(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, fixture.Im2be().DDL)
	through, proxy := db.Proxied(t)
	b := runOn(t, db, fixture.Im2be().Table, Config{Pool: pool(t, through.DSN), Connections: 1, StatementTimeout: 50 * time.Second, LockTimeout: 30 * time.Second})
	for round := range 4 {
		charged, sent := b.im2be(5), b.im2be(5)
		b.do(outbox.MarkAttempt, "warm", charged...)
		b.await(5)
		// The commit takes place, but its reply does not arrive.
		blocker := b.db.Conn(t)
		exec(t, blocker, `BEGIN; LOCK TABLE outbox IN SHARE MODE`)
		b.do(outbox.MarkAttempt, "charged", charged...)
		b.do(outbox.MarkSent, "", sent...)
		harness.Eventually(t, 20*time.Second, func() error {
			n, err := harness.TryOne[int](t.Context(), db, `SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'relation' AND datname = current_database() AND query LIKE '%u.reason%'`)
			if err != nil || n < 1 {
				return fmt.Errorf("%d attempts wait for the lock (%v)", n, err)
			}
			return nil
		})
		proxy.Silence(harness.Replies)
		exec(t, blocker, `COMMIT`)
		harness.Eventually(t, 20*time.Second, func() error {
			n, err := harness.TryOne[int](t.Context(), db, `SELECT count(*) FROM outbox WHERE last_error = 'charged' AND retries = 2`)
			if err != nil || n < 5*(round+1) {
				return fmt.Errorf("%d are charged (%v)", n, err)
			}
			return nil
		})
		proxy.Speak()
		for row, a := range b.await(10) {
			if a.Kind == outbox.MarkAttempt && (a.State != outbox.MarkedRetry || a.Attempts != 2) {
				t.Fatalf("%q: %+v", row.ID, a)
			}
			if a.Kind == outbox.MarkSent && a.State != outbox.MarkedSent && a.State != outbox.MarkedSettled {
				t.Fatalf("%q: %+v", row.ID, a)
			}
		}
	}
	b.want("20 20", `SELECT count(*) FILTER (WHERE status = 'SENT') || ' ' || count(*) FILTER (WHERE retries = 2) FROM outbox`)
}

func TestTheServerGoesAwayAndComesBack(t *testing.T) {
	t.Parallel()
	db := harness.PrivatePostgres(t, localpg.Options{})
	b := newBenchOn(t, db, fixture.Im2be(), Config{})
	rows := b.im2be(3000)
	b.do(outbox.MarkSent, "", rows[:1000]...)
	b.await(1000)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := db.Server.Stop(ctx, localpg.Immediate); err != nil {
		t.Fatal(err)
	}
	b.do(outbox.MarkSent, "", rows[1000:]...)
	harness.Eventually(t, 20*time.Second, func() error {
		if b.updater.Stats().Repeated == 0 {
			return fmt.Errorf("not repeated yet")
		}
		return nil
	})
	if err := db.Server.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	b.await(2000)
	b.want("3000", `SELECT count(*)::text FROM outbox WHERE status = 'SENT'`)
}

// A writer's commit waits for a standby that never comes: its rows are in the WAL but not visible. Our own
// commits would wait too, unless they are set not to.
func TestCommitsThatWaitForAStandby(t *testing.T) {
	t.Parallel()
	db := harness.PrivatePostgres(t, localpg.Options{})
	db.Exec(t, fixture.Im2be().DDL)
	db.Exec(t, `ALTER SYSTEM SET synchronous_standby_names = 'ghost'`)
	db.Exec(t, `SELECT pg_reload_conf()`)
	b := runOn(t, db, fixture.Im2be().Table, Config{Pool: pool(t, db.DSN+"&synchronous_commit=local")})
	writer := b.db.Conn(t)
	harness.Eventually(t, 20*time.Second, func() error {
		var names string
		if err := writer.QueryRow(t.Context(), `SHOW synchronous_standby_names`).Scan(&names); err != nil || names != "ghost" {
			return fmt.Errorf("%q %v", names, err)
		}
		return nil
	})
	var row *outbox.Row
	var committed chan error
	begin := func() error {
		exec(t, writer, `BEGIN`)
		var id string
		var xid uint32
		if err := writer.QueryRow(t.Context(), `INSERT INTO outbox (aggregate_id, event_id, topic) VALUES (gen_random_uuid(), gen_random_uuid(), 't')
			RETURNING aggregate_id || E'\001' || event_id, pg_current_xact_id()::text::bigint % 4294967296`).Scan(&id, &xid); err != nil {
			return err
		}
		row = &outbox.Row{Table: b.table, ID: strings.Replace(id, "\x01", "\x00", 1), XID: xid}
		committed = make(chan error, 1)
		go func(done chan error) {
			_, err := writer.Exec(context.Background(), `COMMIT`)
			done <- err
		}(committed)
		return nil
	}
	if err := begin(); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, 20*time.Second, func() error {
		select {
		case err := <-committed: // the checkpointer, which makes commits wait, has not read the settings yet
			if err == nil {
				err = begin()
			}
			return fmt.Errorf("a commit did not wait (%v)", err)
		default:
		}
		n, err := harness.TryOne[int](t.Context(), db, `SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`)
		if err != nil || n != 1 {
			return fmt.Errorf("%d wait (%v)", n, err)
		}
		return nil
	})
	b.expect(outbox.MarkSent, row, outbox.MarkedInvisible, 0)
	b.expect(outbox.MarkAttempt, row, outbox.MarkedInvisible, 0)
	db.Exec(t, `ALTER SYSTEM RESET synchronous_standby_names`)
	db.Exec(t, `SELECT pg_reload_conf()`)
	if err := <-committed; err != nil {
		t.Fatal(err)
	}
	b.expect(outbox.MarkSent, row, outbox.MarkedSent, 0)
}
