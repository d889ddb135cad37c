package statusupdater

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

func TestSentIsWrittenOnceAndNeverOverATerminalState(t *testing.T) {
	b := newBench(t, fixture.Im2be())
	rows := b.im2be(2500)
	b.db.Exec(t, `UPDATE outbox SET last_error = 'earlier'`)
	id := outbox.SplitID(rows[0].ID)[1]
	b.db.Exec(t, `UPDATE outbox SET status = 'FAILED' WHERE event_id = $1`, id)
	b.do(outbox.MarkSent, "", rows...)
	for row, a := range b.await(len(rows)) {
		want := outbox.MarkedSent
		if row == rows[0] {
			want = outbox.MarkedSettled
		}
		if a.State != want {
			t.Fatalf("row %q: %+v", row.ID, a)
		}
	}
	b.want("2499", `SELECT count(*)::text FROM outbox WHERE status = 'SENT' AND sent_at IS NOT NULL AND last_error IS NULL AND version = 1`)
	b.want("FAILED 0", `SELECT status || ' ' || version FROM outbox WHERE event_id = $1`, id)
	b.expect(outbox.MarkSent, rows[1], outbox.MarkedSettled, 0)
}

func TestAttemptsAreChargedUntilTheBudgetIsUsedUp(t *testing.T) {
	b := newBench(t, fixture.Im2be())
	row := b.im2be(1)[0]
	b.expect(outbox.MarkAttempt, row, outbox.MarkedRetry, 1)
	b.want("PENDING 1 no  such\uFFFD topic", `SELECT status || ' ' || retries || ' ' || last_error FROM outbox`)
	b.expect(outbox.MarkAttempt, row, outbox.MarkedRetry, 2)
	b.expect(outbox.MarkAttempt, row, outbox.MarkedFailed, 3)
	b.want("FAILED 3 3", `SELECT status || ' ' || retries || ' ' || version FROM outbox`)
	b.expect(outbox.MarkAttempt, row, outbox.MarkedSettled, 0)
	b.expect(outbox.MarkSent, row, outbox.MarkedSettled, 0)
}

// A mark with Spends makes the row FAILED by one attempt, with the count of its whole budget. Without a
// budget the row is tried again.
func TestARowSpendsItsBudget(t *testing.T) {
	b := newBench(t, fixture.Im2be())
	rows := b.im2be(3)
	b.expect(outbox.MarkAttempt, rows[1], outbox.MarkedRetry, 1)
	b.db.Exec(t, `ALTER TABLE outbox ALTER retries TYPE smallint`)
	for _, row := range rows[:2] {
		b.updater.Do(outbox.Mark{Row: row, Kind: outbox.MarkAttempt, Reason: "no record", Spends: true})
	}
	got := b.await(2)
	for _, row := range rows[:2] {
		if got[row].State != outbox.MarkedFailed || got[row].Attempts != 3 {
			t.Errorf("%+v", got[row])
		}
	}
	b.want("FAILED 3 no record, FAILED 3 no record, PENDING 0 ", `SELECT string_agg(status || ' ' || retries || ' ' || coalesce(last_error, ''), ', ' ORDER BY status, retries) FROM outbox`)
	endless := fixture.Im2be()
	endless.Table.Mapping.Status.MaxAttempts = 0
	b = newBench(t, endless)
	row := b.im2be(1)[0]
	b.updater.Do(outbox.Mark{Row: row, Kind: outbox.MarkAttempt, Reason: "no record", Spends: true})
	if got := b.await(1)[row]; got.State != outbox.MarkedRetry || got.Attempts != 1 {
		t.Errorf("%+v", got)
	}
}

// A deleted row, and a later row with the same id, are two rows: a late mark of the first does not touch the
// second.
func TestALateMarkFindsNoOtherRow(t *testing.T) {
	t.Parallel()
	for _, sqlType := range []string{"timestamptz", "timestamp"} {
		for name, l := range map[string]fixture.Layout{"marked": fixture.Im2be(), "deleted": fixture.Deleting()} {
			t.Run(sqlType+" "+name, func(t *testing.T) { lateMarks(t, l, sqlType) })
		}
	}
}

func lateMarks(t *testing.T, l fixture.Layout, sqlType string) {
	b := newBench(t, l)
	created, table := l.Table.Mapping.CreatedAt, l.Table.Name
	b.db.Exec(t, fmt.Sprintf(`ALTER TABLE %s ALTER %q TYPE %s USING '2026-01-02 03:04:05.678901+00'::timestamptz AT TIME ZONE 'UTC'`, table, created, sqlType))
	if l.Table.Name == "queue" {
		b.db.Exec(t, `INSERT INTO queue (at) VALUES ('2026-01-02 03:04:05.678901+00')`)
	} else {
		b.db.Exec(t, `INSERT INTO outbox (aggregate_id, event_id, topic, payload_bytes, created_at) SELECT gen_random_uuid(), gen_random_uuid(), 'x', '', '2026-01-02 03:04:05.678901+00'`)
	}
	ids := strings.Join(l.Table.Mapping.ID, "::text || chr(1) || ") + "::text"
	id := strings.ReplaceAll(b.one(`SELECT `+ids+` FROM `+table), "\x01", "\x00")
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.UTC).UnixMicro()
	late := &outbox.Row{Table: l.Table, ID: id, CreatedAt: at - 1}
	for _, kind := range []outbox.MarkKind{outbox.MarkSent, outbox.MarkAttempt} {
		b.expect(kind, late, outbox.MarkedSettled, 0)
	}
	ours := &outbox.Row{Table: l.Table, ID: id, CreatedAt: at}
	b.expect(outbox.MarkAttempt, ours, outbox.MarkedRetry, 1)
	b.expect(outbox.MarkSent, ours, outbox.MarkedSent, 0)
}

// An uncharged attempt writes nothing. Its answer says whether the row is still to be tried.
func TestUnchargedAttempts(t *testing.T) {
	b := newBench(t, fixture.Im2be())
	rows := b.im2be(2)
	b.expect(outbox.MarkSent, rows[1], outbox.MarkedSent, 0)
	for _, row := range rows {
		b.updater.Do(outbox.Mark{Row: row, Kind: outbox.MarkAttempt, Reason: "passing", Uncharged: true})
	}
	got := b.await(2)
	if got[rows[0]].State != outbox.MarkedRetry || got[rows[1]].State != outbox.MarkedSettled {
		t.Errorf("%v", got)
	}
	b.want("1", `SELECT count(*)::text FROM outbox WHERE status = 'PENDING' AND retries = 0 AND last_error IS NULL`)
}

func TestAReasonIsCutToItsColumn(t *testing.T) {
	b := newBench(t, fixture.Im2be())
	row := b.im2be(1)[0]
	b.do(outbox.MarkAttempt, strings.Repeat("ü", 5000), row)
	b.await(1)
	b.want("100", `SELECT length(last_error)::text FROM outbox`)
}

func TestStateInTimestampsWithOddNames(t *testing.T) {
	b := newBench(t, fixture.Stamps())
	rows := b.insert(`INSERT INTO "Odd ""Schema"."out-box" ("the topic") SELECT 'x' FROM generate_series(1, 2) RETURNING "Id"::text`)
	b.expect(outbox.MarkSent, rows[0], outbox.MarkedSent, 0)
	b.expect(outbox.MarkAttempt, rows[1], outbox.MarkedFailed, 0)
	b.want("1", `SELECT count(*)::text FROM "Odd ""Schema"."out-box" WHERE "sent at" BETWEEN timezone('utc', now()) - interval '1 min' AND timezone('utc', now()) AND "failed at" IS NULL`)
	b.want("1", `SELECT count(*)::text FROM "Odd ""Schema"."out-box" WHERE "sent at" IS NULL AND "failed at" IS NOT NULL AND why <> ''`)
	b.expect(outbox.MarkSent, rows[1], outbox.MarkedSettled, 0)
}

func TestPublishedRowsAreDeletedAndTheCountIsTheState(t *testing.T) {
	b := newBench(t, fixture.Deleting())
	rows := b.insert(`INSERT INTO queue (body) SELECT 'x' FROM generate_series(1, 2) RETURNING id::text`)
	b.expect(outbox.MarkSent, rows[0], outbox.MarkedSent, 0)
	b.expect(outbox.MarkSent, rows[0], outbox.MarkedSettled, 0)
	b.expect(outbox.MarkAttempt, rows[1], outbox.MarkedRetry, 1)
	b.expect(outbox.MarkAttempt, rows[1], outbox.MarkedFailed, 2)
	b.expect(outbox.MarkSent, rows[1], outbox.MarkedSettled, 0)
	b.want("1", `SELECT count(*)::text FROM queue`)
}

func TestAnAbsentRowIsSettledOnlyWhenItsTransactionEnded(t *testing.T) {
	b := newBench(t, fixture.Deleting())
	conn := b.db.Conn(t)
	var id, xid string
	for _, sql := range []string{"BEGIN", "INSERT INTO queue (body) VALUES ('x')"} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.QueryRow(t.Context(), `SELECT id::text, pg_current_xact_id()::text FROM queue`).Scan(&id, &xid); err != nil {
		t.Fatal(err)
	}
	row := &outbox.Row{Table: b.table, ID: id, XID: uint32(parse(t, xid))}
	b.expect(outbox.MarkSent, row, outbox.MarkedInvisible, 0)
	b.expect(outbox.MarkAttempt, row, outbox.MarkedInvisible, 0)
	if _, err := conn.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	b.expect(outbox.MarkSent, row, outbox.MarkedSent, 0)
	b.expect(outbox.MarkSent, row, outbox.MarkedSettled, 0)
}

func parse(t *testing.T, s string) uint64 {
	t.Helper()
	snapshot, err := outbox.ParseSnapshot(s + ":" + s + ":")
	if err != nil {
		t.Fatal(err)
	}
	return snapshot.Xmin
}

var _ = harness.Postgres
