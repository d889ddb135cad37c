package tablesql

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
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

// A header of a side table is as long as it is, not as it is stored. What a row cannot have fails it
// alone and is not read; what one statement cannot bring is left for the next.
func TestHeadersOfASideTableAreBounded(t *testing.T) {
	l := fixture.Deferred()
	l.Table.Mapping.MaxRowBytes = 1 << 20
	db := harness.Postgres(t)
	db.Exec(t, l.DDL)
	db.Exec(t, `INSERT INTO deferred_message (id, message, topic, message_id, message_idempotence_id, message_type_name, created, send_immediately)
		SELECT n, '', 't', 'm', 'i', 'T', now(), false FROM generate_series(1, 20) n`)
	header := func(id, n, bytes int) {
		db.Exec(t, `INSERT INTO deferred_message_header SELECT $1::bigint, n, 'h' || n, convert_to(repeat('x', $3), 'UTF8') FROM generate_series($2::int, 1, -1) n`, id, n, bytes)
	}
	header(1, 2, 500_000)    // fit
	header(2, 1, 25_000_000) // too long
	header(3, 3, 400_000)    // too long together
	header(4, 10_001, 0)     // too many
	header(6, 10_000, 1)     // no more than may be; row 5 has none
	for id := 7; id <= 18; id++ {
		header(id, 1, 1_000_000) // not all at once
	}
	header(20, 1, 0)
	conn := db.Conn(t)
	r, err := Load(t.Context(), conn, l.Table)
	if err != nil {
		t.Fatal(err)
	}
	unknown := *r // as where the side table is a view: the types of its columns are not known
	unknown.side = nil
	for name, relation := range map[string]*Relation{"": r, "brief": r.Brief(), "unknown types": &unknown} {
		rows := make([]*outbox.Row, 20)
		for i := range rows {
			rows[i] = &outbox.Row{ID: fmt.Sprint(i + 1), Table: l.Table}
		}
		side, step, err := relation.HeadersOf(len(rows), func(i int) *outbox.Row { return rows[i] })
		if err != nil {
			t.Fatal(err)
		}
		read, bytes := step.Each, 0
		step.Each = func(row [][]byte) error {
			bytes += len(row[2])
			return read(row)
		}
		if err := Run(t.Context(), conn, step); err != nil {
			t.Fatal(err)
		}
		n := side.AttachAll()
		if name == "unknown types" { // printed bytes count, which are twice as many
			if bytes > headersAtOnce+3<<20 || n < 5 || rows[1].Err == nil || rows[3].Err == nil || rows[0].Err == nil {
				t.Errorf("%s: %d bytes of %d rows, %v", name, bytes, n, rows[0].Err)
			}
			continue
		}
		if bytes > 2*(headersAtOnce+1<<20) || n < 7+6 || n > 7+8 || side.Late(4) || !side.Late(19) || side.Late(18) {
			t.Errorf("%s: %d bytes, headers of %d rows", name, bytes, n)
		}
		for i, want := range map[int]string{0: "", 1: "more than max_row_bytes", 2: "more than max_row_bytes", 3: "more than 10000 headers", 4: "", 5: "", 6: ""} {
			if got := rows[i].Err; got == nil != (want == "") || got != nil && !strings.Contains(got.Error(), want) {
				t.Errorf("%s: row %s: %v", name, rows[i].ID, got)
			}
		}
		if h := rows[0].Headers; len(h) != 2 || h[0].Name != "h1" || len(h[1].Value) != 500_000 || len(rows[5].Headers) != 10_000 || len(rows[6].Headers) != 1 {
			t.Errorf("%s: headers %d, %d, %d", name, len(h), len(rows[5].Headers), len(rows[6].Headers))
		}
	}
}
