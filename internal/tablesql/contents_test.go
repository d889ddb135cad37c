package tablesql

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// A row that changed after it was read is looked up with its present values: another payload and key, gone,
// cancelled, later, or not ours. If the server cannot print it, it comes without its long values.
func TestLookReadsWhatARowIsNow(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, `CREATE TABLE outbox (id int PRIMARY KEY, kind text, key text, payload jsonb, status text, due timestamptz);
		INSERT INTO outbox SELECT n, 'mail', 'k', '{"v": 1}', 'PENDING' FROM generate_series(1, 7) n;
		UPDATE outbox SET key = 'other', payload = '{"v": 2}' WHERE id = 2;
		DELETE FROM outbox WHERE id = 3;
		UPDATE outbox SET status = 'CANCELLED' WHERE id = 4;
		UPDATE outbox SET due = now() + interval '1 day' WHERE id = 5;
		UPDATE outbox SET kind = 'other' WHERE id = 6;
		UPDATE outbox SET payload = to_jsonb(repeat('long', 1000)) WHERE id = 7`)
	table := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
		ID: []string{"id"}, Rows: []outbox.RowCondition{{Column: "kind", Values: []string{"mail"}}}, Topic: outbox.Template{Literals: []string{"t"}},
		Cluster: outbox.ClusterMapping{Default: "main"}, Key: &outbox.Expr{Column: "key"}, Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "payload"}},
		AvailableAfter: []string{"due"}, Published: outbox.PublishedStatus, LookFirst: true, MaxRowBytes: 1 << 20,
		Status: outbox.StatusMapping{Column: "status", Pending: []string{"PENDING"}, Sent: "SENT"},
	}}
	conn := db.Conn(t)
	r, err := Load(t.Context(), conn, table)
	if err != nil {
		t.Fatal(err)
	}
	contents, err := r.Contents()
	if err != nil {
		t.Fatal(err)
	}
	const most = 7
	row := func(i int) *outbox.Row {
		return &outbox.Row{Table: table, ID: fmt.Sprint(i + 1), Key: []byte("k"), Value: []byte("old"), XID: 4, Commit: 5, CommitTime: 6}
	}
	want := [most]string{`p k={"v": 1}`, `p other={"v": 2}`, "a", "s", "w", "s", "p k="}
	looked := func(bare bool, look func(l *Look) error) {
		t.Helper()
		l := &Look{Relation: r, N: most, Row: row, Contents: contents, Bare: bare}
		if err := look(l); err != nil {
			t.Fatal(err)
		}
		for i := range most {
			got, now := string(l.Seen[i].State), l.Now[i]
			if l.Seen[i].State == Held {
				got = "p"
			}
			if now != nil {
				got += fmt.Sprintf(" %s=%s", now.Key, now.Value)
				if now.XID != 4 || now.Commit != 5 || now.CommitTime != 6 || now.ID != row(i).ID || !now.Pending {
					t.Errorf("row %d lost its place: %+v", i+1, now)
				}
			}
			if i < most-1 && got != want[i] {
				t.Errorf("row %d: %s, want %s", i+1, got, want[i])
			}
		}
		if long := l.Now[most-1]; bare != (long.Err != nil) || bare != (len(long.Value) == 0) {
			t.Errorf("bare %v: %d bytes, %v", bare, len(long.Value), long.Err)
		}
	}
	settings := Settings{StatementTimeout: time.Minute, LockTimeout: time.Second}
	for _, bare := range []bool{false, true} {
		looked(bare, func(l *Look) error {
			_, err := At(t.Context(), conn, settings, true, l)
			return err
		})
		looked(bare, func(l *Look) error {
			_, err := Lock(t.Context(), conn, settings, l)
			return errors.Join(err, Run(t.Context(), conn, Step{SQL: "ROLLBACK"}))
		})
	}
}

// If only changed rows are read, a row that only its own transaction wrote is pending, without further data.
func TestLookReadsWhatOthersHaveChanged(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, `CREATE TABLE outbox (id int PRIMARY KEY, payload text, status text);
		INSERT INTO outbox SELECT n, 'old', 'PENDING' FROM generate_series(1, 5) n;
		UPDATE outbox SET payload = 'completed' WHERE id = 5`) // one transaction
	xid := harness.One[int64](t, db, `SELECT xmin::text::bigint FROM outbox WHERE id = 1`)
	db.Exec(t, `UPDATE outbox SET payload = 'new' WHERE id = 2`)
	db.Exec(t, `UPDATE outbox SET status = 'CANCELLED' WHERE id = 3`)
	db.Exec(t, `DELETE FROM outbox WHERE id = 4`)
	table := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
		ID: []string{"id"}, Topic: outbox.Template{Literals: []string{"t"}}, Cluster: outbox.ClusterMapping{Default: "main"},
		Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "payload"}}, Published: outbox.PublishedStatus, MaxRowBytes: 1 << 20,
		Status: outbox.StatusMapping{Column: "status", Pending: []string{"PENDING"}, Sent: "SENT"},
	}}
	conn := db.Conn(t)
	r, err := Load(t.Context(), conn, table)
	if err != nil {
		t.Fatal(err)
	}
	contents, err := r.Contents()
	if err != nil {
		t.Fatal(err)
	}
	for _, columns := range []bool{true, false} { // false: without SELECT on the whole table
		r.SystemColumns = columns
		want := [5]string{"p", "p new", "s", "a", "p"}
		if !columns {
			want[0], want[4] = "p old", "p completed"
		}
		l := &Look{Relation: r, N: len(want), Contents: contents, Changed: true, Row: func(i int) *outbox.Row {
			return &outbox.Row{Table: table, ID: fmt.Sprint(i + 1), XID: uint32(xid)} // #nosec G115 -- an xid
		}}
		if _, err := At(t.Context(), conn, Settings{StatementTimeout: time.Minute, LockTimeout: time.Second}, true, l); err != nil {
			t.Fatal(err)
		}
		for i := range want {
			got := string(l.Seen[i].State)
			if l.Now[i] != nil {
				got += " " + string(l.Now[i].Value)
			}
			if got != want[i] {
				t.Errorf("system columns %v, row %d: %s, want %s", columns, i+1, got, want[i])
			}
		}
	}
}

// A row that cannot be printed does not keep other rows from being looked up.
func TestLookAroundARowThatCannotBePrinted(t *testing.T) {
	unprintable := &pgconn.PgError{Code: pgerrcode.ProgramLimitExceeded}
	rows := make([]*outbox.Row, 5)
	for i := range rows {
		rows[i] = &outbox.Row{ID: fmt.Sprint(i)}
	}
	for bad := range rows {
		asked, seen := rows, 0
		for tries := 0; len(asked) > 0; tries++ {
			answers, err := Around(asked, func(some []*outbox.Row, bare bool) (answers []outbox.Checked, err error) {
				for _, r := range some {
					if r == rows[bad] && !bare {
						return nil, unprintable
					}
					answers = append(answers, outbox.Checked{Row: r, State: outbox.CheckPending})
				}
				return answers, nil
			})
			if err != nil || len(answers) != len(asked) || tries > len(rows) {
				t.Fatalf("%d of %d rows, try %d: %v", len(answers), len(asked), tries, err)
			}
			n := 0
			for n < len(answers) && answers[n].State == outbox.CheckPending {
				n++
			}
			seen, asked = seen+n, asked[n:]
		}
		if seen != len(rows) {
			t.Errorf("%d of %d rows were seen", seen, len(rows))
		}
	}
}

// Lookups read up to their bound and reject the row beyond it. After that, a lookup of fewer rows succeeds
// over the same connection.
func TestLooksHaveABoundInBytes(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, `CREATE TABLE outbox (id int PRIMARY KEY, payload text, status text);
		INSERT INTO outbox SELECT n, repeat('x', 1000000), 'PENDING' FROM generate_series(1, 20) n`)
	table := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
		ID: []string{"id"}, Topic: outbox.Template{Literals: []string{"t"}}, Cluster: outbox.ClusterMapping{Default: "main"},
		Payload: outbox.PayloadMapping{Expr: outbox.Expr{Column: "payload"}}, Published: outbox.PublishedStatus, MaxRowBytes: 2 << 20, LookFirst: true,
		Status: outbox.StatusMapping{Column: "status", Pending: []string{"PENDING"}, Sent: "SENT"},
	}}
	conn := db.Conn(t)
	r, err := Load(t.Context(), conn, table)
	if err != nil {
		t.Fatal(err)
	}
	contents, err := r.Contents()
	if err != nil {
		t.Fatal(err)
	}
	rows := make([]*outbox.Row, 20)
	for i := range rows {
		rows[i] = &outbox.Row{Table: table, ID: fmt.Sprint(i + 1)}
	}
	settings := Settings{StatementTimeout: time.Minute, LockTimeout: time.Second}
	for name, at := range map[string]func(l *Look) (outbox.Snapshot, error){
		"look": func(l *Look) (outbox.Snapshot, error) { return At(t.Context(), conn, settings, true, l) },
		"lock": func(l *Look) (outbox.Snapshot, error) { return Lock(t.Context(), conn, settings, l) },
	} {
		rest, looks, tries := rows, 0, 0
		for ; len(rest) > 0; looks++ {
			answers, err := Around(rest, func(some []*outbox.Row, bare bool) ([]outbox.Checked, error) {
				tries++
				if err := Run(t.Context(), conn, Step{SQL: "ROLLBACK"}); err != nil {
					return nil, err
				}
				l := &Look{Relation: r, N: len(some), Row: func(i int) *outbox.Row { return some[i] }, Contents: contents, Bare: bare, Most: 3 << 20}
				snapshot, err := at(l)
				if err != nil {
					return nil, err
				}
				answers := make([]outbox.Checked, len(some))
				for i, row := range some {
					answers[i] = outbox.Checked{Row: row, State: Judge(row, l.Seen[i], &snapshot), Now: l.Now[i]}
				}
				return answers, nil
			})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			n, bytes := 0, 0
			for ; n < len(answers) && answers[n].State == outbox.CheckPending; n++ {
				bytes += len(answers[n].Now.Value)
			}
			if n == 0 || bytes > 4<<20 {
				t.Fatalf("%s: a look brings %d rows, %d bytes", name, n, bytes)
			}
			rest = rest[n:]
		}
		if looks < 5 || tries > 2*looks {
			t.Errorf("%s: all in %d looks, with %d tries", name, looks, tries)
		}
		if err := Run(t.Context(), conn, Step{SQL: "ROLLBACK"}); err != nil {
			t.Fatal(err)
		}
	}
}
