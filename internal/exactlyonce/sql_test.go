package exactlyonce

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

//go:embed tally.sql
var markSQL string

const tallySchema = `
CREATE SCHEMA once;
CREATE TABLE once.tally (stream text, cluster text, unit bigint, place bigint, PRIMARY KEY (stream, cluster));
CREATE TABLE once.tally_unit (stream text, cluster text, unit bigint, place bigint, PRIMARY KEY (stream, cluster, unit));
CREATE TABLE once.tally_left (stream text, cluster text, unit bigint, "table" text, id text, hash bytea, PRIMARY KEY (stream, cluster, unit, id, hash));
CREATE TABLE outbox (id bigint PRIMARY KEY, status text NOT NULL DEFAULT 'PENDING');
INSERT INTO once.tally VALUES ('s', 'c', 0, 0);
INSERT INTO outbox SELECT generate_series(1, 9);`

// advanceSQL moves the head over units that are noted, $1 being the last of them.
const advanceSQL = `WITH head AS (UPDATE once.tally SET unit = $1 WHERE stream = 's' AND cluster = 'c' AND unit < $1 RETURNING 1)
DELETE FROM once.tally_unit WHERE EXISTS (SELECT FROM head) AND stream = 's' AND cluster = 'c' AND unit <= $1`

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// markReal says how many rows were marked and left, or that the unit was noted before.
func markReal(ctx context.Context, on querier, unit int, ids ...string) string {
	hashes := make([][]byte, len(ids))
	for i := range hashes {
		hashes[i] = []byte{1}
	}
	var marked, left int
	err := on.QueryRow(ctx, markSQL, "s", "c", unit, 10*unit, ids, hashes).Scan(&marked, &left)
	if errors.Is(err, pgx.ErrNoRows) {
		return "noted before"
	}
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d marked, %d left", marked, left)
}

func statuses(t *testing.T, db *harness.DB) string {
	return harness.One[string](t, db, "SELECT string_agg(left(status, 1), '' ORDER BY id) FROM outbox")
}

func TestTallySQL(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	db := harness.Postgres(t)
	db.Exec(t, tallySchema)
	conn, other := db.Conn(t), db.Conn(t)
	expect := func(got, want string) {
		t.Helper()
		if got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
	expect(markReal(t.Context(), conn, 1, "1", "2"), "2 marked, 0 left")
	expect(statuses(t, db), "SSPPPPPPP")

	// A repeated mark swallows no requeue, before and after the head has moved on.
	db.Exec(t, "UPDATE outbox SET status = 'PENDING' WHERE id = 1")
	expect(markReal(t.Context(), conn, 1, "1", "2"), "noted before")
	db.Exec(t, advanceSQL, 1)
	expect(markReal(t.Context(), conn, 1, "1", "2"), "noted before")
	expect(statuses(t, db), "PSPPPPPPP")

	// A row that somebody has locked, and one that is not there, are left.
	tx, err := other.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM outbox WHERE id = 3 FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	expect(markReal(t.Context(), conn, 2, "3", "4", "77"), "1 marked, 2 left")
	expect(harness.One[string](t, db, "SELECT string_agg(id, ',' ORDER BY id) FROM once.tally_left WHERE unit = 2"), "3,77")
	_ = tx.Rollback(t.Context())

	// Two units are marked side by side.
	if tx, err = other.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(markReal(t.Context(), tx, 4, "5"), "1 marked, 0 left")
	expect(markReal(t.Context(), conn, 3, "6"), "1 marked, 0 left")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(statuses(t, db), "PSPSSSPPP")
}

// TestLateUnitWaitsForTheHead: a mark that was under way while its unit's number was
// removed, because the head has passed it, changes nothing.
func TestLateUnitWaitsForTheHead(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	db := harness.Postgres(t)
	db.Exec(t, tallySchema)
	mover, late := db.Conn(t), db.Conn(t)
	if got := markReal(t.Context(), mover, 1, "1"); got != "1 marked, 0 left" {
		t.Fatal(got)
	}
	db.Exec(t, "UPDATE outbox SET status = 'PENDING' WHERE id = 1") // requeued
	tx, err := mover.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), advanceSQL, 1); err != nil {
		t.Fatal(err)
	}
	pid := late.PgConn().PID()
	done := make(chan string, 1)
	go func() { done <- markReal(t.Context(), late, 1, "1") }()
	harness.Eventually(t, 20*time.Second, func() error {
		if !harness.One[bool](t, db, "SELECT coalesce(bool_or(wait_event_type = 'Lock'), false) FROM pg_stat_activity WHERE pid = $1", pid) {
			return errors.New("it does not wait")
		}
		return nil
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := <-done; got != "noted before" {
		t.Error(got)
	}
	if got := statuses(t, db); got[0] != 'P' {
		t.Error("the requeue was swallowed:", got)
	}
}
