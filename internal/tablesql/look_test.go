package tablesql

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// A look is parsed once for each connection, and stands DDL in between.
func TestLooksAreKeptPrepared(t *testing.T) {
	l := fixture.Im2be()
	db := harness.Postgres(t)
	db.Exec(t, l.DDL)
	const id = "00000000-0000-0000-0000-000000000001"
	db.Exec(t, `INSERT INTO outbox (aggregate_id, event_id, topic, status) VALUES ($1, $1, 't', 'SENT')`, id)
	conn := db.Conn(t)
	r, err := Load(t.Context(), conn, l.Table)
	if err != nil {
		t.Fatal(err)
	}
	const kept = `SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%unnest%'`
	look := func(conn *pgx.Conn, prepare bool) {
		t.Helper()
		found := &Look{Relation: r, N: 2, Row: func(i int) *outbox.Row {
			return &outbox.Row{ID: []string{id + "\x00" + id, id + "\x00" + "00000000-0000-0000-0000-000000000002"}[i]}
		}}
		if _, err := At(t.Context(), conn, Settings{StatementTimeout: time.Minute}, prepare, found); err != nil {
			t.Fatal(err)
		}
		if found.Seen[0].State != Settled || found.Seen[1].State != Absent {
			t.Fatalf("seen: %v", found.Seen)
		}
	}
	count := func(conn *pgx.Conn) (n int) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), kept, pgx.QueryExecModeExec).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	look(conn, true)
	look(conn, true)
	db.Exec(t, `ALTER TABLE outbox ALTER status TYPE text, ADD more text`)
	look(conn, true)
	if n := count(conn); n != 1 {
		t.Errorf("%d looks are prepared, want 1", n)
	}
	other := db.Conn(t)
	look(other, false)
	if n := count(other); n != 0 {
		t.Errorf("%d looks are prepared where a pooler does not let them, want none", n)
	}
}
