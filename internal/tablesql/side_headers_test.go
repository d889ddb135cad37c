package tablesql

import (
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// Marks on jEAP's layout do what its own relay does: success and failure each
// clear what asks for the row again, and touch no row that is neither pending
// nor asked for.
func TestMarksOfRowsAskedForAgain(t *testing.T) {
	l := fixture.Deferred()
	db := harness.Postgres(t)
	db.Exec(t, l.DDL)
	conn := db.Conn(t)
	r, err := Load(t.Context(), conn, l.Table)
	if err != nil {
		t.Fatal(err)
	}
	marking, err := r.Marking()
	if err != nil {
		t.Fatal(err)
	}
	// What each row is, and is after success and after failure: S sent by the
	// relay, W sent by the writer, F failed, R asked for again, T why it failed.
	rows := []struct{ is, sent, failed string }{
		{"", "S", "FT"},
		{"R", "S", "FT"},
		{"FT", "S", "FT"}, // a delivery says more than a failure
		{"FRT", "S", "FT"},
		{"SR", "S", "SFT"},
		{"WR", "SW", "WFT"},
		{"S", "S", "S"},
		{"W", "W", "W"},
		{"SFT", "SFT", "SFT"},
	}
	const is = `SELECT concat(CASE WHEN sent_scheduled IS NOT NULL THEN 'S' END, CASE WHEN sent_immediately IS NOT NULL THEN 'W' END,
		CASE WHEN failed IS NOT NULL THEN 'F' END, CASE WHEN resend THEN 'R' END, CASE WHEN fail_reason IS NOT NULL THEN 'T' END)
		FROM deferred_message WHERE id = $1`
	fill := func() {
		for i, row := range rows {
			db.Exec(t, `INSERT INTO deferred_message (id, message, topic, message_id, message_idempotence_id, message_type_name, created,
				send_immediately, sent_scheduled, sent_immediately, failed, resend, fail_reason)
				SELECT $1::bigint, '', 't', 'm', 'i', 'T', now(), false, CASE WHEN s ~ 'S' THEN now() END, CASE WHEN s ~ 'W' THEN now() END,
				CASE WHEN s ~ 'F' THEN now() END, s ~ 'R', CASE WHEN s ~ 'T' THEN 'why' END FROM (VALUES ($2::text)) v (s)`, i+1, row.is)
		}
	}
	ids := []byte(`{1,2,3,4,5,6,7,8,9}`)
	created := []byte(`{` + strings.Repeat(`-infinity,`, 8) + `-infinity}`)
	for _, free := range []bool{false, true} {
		for _, success := range []bool{true, false} {
			db.Exec(t, `TRUNCATE deferred_message CASCADE`)
			fill()
			step := Step{SQL: marking.Sent, Args: Texts(created, ids)}
			if free {
				step.SQL = marking.SentFree
			}
			if !success {
				step = Step{SQL: marking.Attempt, Args: Texts(created, ids, []byte(`{a,b,c,d,e,f,g,h,i}`)), Each: func(row [][]byte) error {
					if string(row[2]) != string(Failed) {
						t.Errorf("row %s is told as %s", row[0], row[2])
					}
					return nil
				}}
				if free {
					step.SQL = marking.AttemptFree
				}
			}
			if err := Run(t.Context(), conn, step); err != nil {
				t.Fatal(err)
			}
			for i, row := range rows {
				want := row.failed
				if success {
					want = row.sent
				}
				if got := harness.One[string](t, db, is, i+1); got != want {
					t.Errorf("row %q after success %v: %q, want %q", row.is, success, got, want)
				}
			}
		}
	}
}
