package tablesql

import (
	"slices"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// A table without a unique index holds ids of any length. No statement reads one that is longer
// than a row may be; they are counted, and shown cut.
func TestLongIDsAreNotRead(t *testing.T) {
	const most = 1000
	for _, c := range []struct{ sqlType, long string }{
		{"text", `repeat('x', 5000)`},
		{"bytea", `convert_to(repeat('x', 5000), 'UTF8')`},
		{"jsonb", `to_jsonb(repeat('x', 5000))`},
	} {
		t.Run(c.sqlType, func(t *testing.T) { longIDs(t, c.sqlType, c.long, most) })
	}
}

func longIDs(t *testing.T, sqlType, long string, most int) {
	db := harness.Postgres(t)
	db.Exec(t, `CREATE TABLE outbox (id `+sqlType+`, topic text, body text, status text, created timestamptz DEFAULT now() - interval '1 h', sent timestamptz, mine bool, until timestamptz)`)
	for _, status := range []string{"PENDING", "TAKEN", "SENT", "FAILED"} {
		db.Exec(t, `INSERT INTO outbox (id, topic, status, sent) SELECT i, 't', $1, CASE WHEN $1 = 'SENT' THEN now() - interval '1 h' END
			FROM (VALUES (`+long+`), ('"1"')) AS v (i)`, status)
	}
	table := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
		ID: []string{"id"}, Topic: outbox.Template{Literals: []string{"", ""}, Columns: []outbox.Expr{{Column: "topic"}}},
		Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "body"}}, CreatedAt: "created", Order: []string{"created"},
		Published: outbox.PublishedStatus, Writer: outbox.WriterMapping{Column: "mine", Until: "until"}, MaxRowBytes: most,
		Status: outbox.StatusMapping{Column: "status", Pending: []string{"PENDING"}, Sent: "SENT", Failed: "FAILED", Processing: "TAKEN", SentAt: "sent"},
	}}
	conn := db.Conn(t)
	r, err := Load(t.Context(), conn, table)
	if err != nil {
		t.Fatal(err)
	}
	run := func(step Step) {
		t.Helper()
		each := step.Each
		step.Each = func(row [][]byte) error {
			for _, value := range row {
				if len(value) > most {
					t.Errorf("%d bytes were read: %s", len(value), step.SQL)
				}
			}
			return each(row)
		}
		if err := Run(t.Context(), conn, step); err != nil {
			t.Fatalf("%v: %s", err, step.SQL)
		}
	}
	var ids []string
	found := func(id string) { ids = append(ids, id) }
	pending, _ := r.PendingIDs(10).IDs(found)
	picked, err1 := r.PickIDs(&Filter{State: RowsFailed}, 10, found)
	taken, err2 := r.Processing(10, func(id, _ string) { found(id) })
	sent, err3 := r.Expired(time.Minute)
	unsent, err4 := r.ExpiredUnsent(time.Minute, nil)
	for _, err := range []error{err1, err2, err3, err4} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for what, step := range map[string]Step{"pending": pending, "picked": picked, "taken": taken, "sent": sent.Find(10, found)} {
		ids = nil
		if run(step); len(ids) != 1 {
			t.Errorf("%s: %d ids", what, len(ids))
		}
	}
	ids = nil
	if run(unsent.Find(10, found)); len(ids) != 2 || slices.ContainsFunc(ids, func(id string) bool { return len(id) > most }) { // pending and failed
		t.Errorf("unsent: %d ids", len(ids))
	}
	var waiting PendingCount
	if run(r.CountPending(false, &waiting)); waiting.Rows != 2 || waiting.NoID != 1 {
		t.Errorf("pending: %+v", waiting)
	}
	db.Exec(t, `DELETE FROM outbox WHERE length(id::text) < 100`)
	var never NeverReadyCount
	if run(r.CountNeverReady(&never)); never.Rows != 1 || len(never.Sample) < 10 {
		t.Errorf("never ready: %+v", never)
	}
}
