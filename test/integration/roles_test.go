package integration

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// Two roles with exactly what init --show-sql prints, which somebody else runs:
// one may replicate, one may read the table and update the columns of the state.
// Streaming, a refused row's tries and end, a lost slot, sweep, hand-back,
// missed rows and retention need no more, and the roles have no more.
func TestTheLeastPrivileges(t *testing.T) {
	t.Parallel() // it mostly waits
	db := harness.PrivatePostgres(t, localpg.Options{})
	db.Exec(t, `REVOKE ALL ON SCHEMA public FROM PUBLIC; REVOKE ALL ON DATABASE app FROM PUBLIC`)
	w := newWorld(t, surroundings{db: db, noInit: true, noTopic: true})
	w.refusing(20_000)
	w.serve()
	w.stream["postgres"] = fields{
		"dsn": db.Server.DSNAs("app", "writer", "secret"), "replication_dsn": db.Server.DSNAs("app", "streamer", "secret"),
		"wal_sender_timeout": "3s",
	}
	w.table["status"] = fields{"max_attempts": 2}
	w.table["retention"] = "1h"
	w.runPrinted()
	db.Exec(t, `ALTER ROLE writer PASSWORD 'secret'; ALTER ROLE streamer PASSWORD 'secret'`)
	granted := w.privileges()

	p := w.run().streaming()
	load := w.write(steady())
	stopTrouble := w.trouble()
	load.wrote(200, 30*time.Second)
	w.dropSlot()
	p.Await(30*time.Second, "made the slot")
	p.Await(30*time.Second, "handed back to the stream", "stream")
	load.wrote(200, 30*time.Second)
	stopTrouble()
	load.stop()
	w.settled(60 * time.Second)
	w.judge(history.Rules{MayFail: refused})
	if n := w.log.Count(history.Committed); n < 400 {
		t.Errorf("only %d rows were written", n)
	}

	// A requeued row, found by the watcher, and rows past their retention: both
	// are looked for with other statements.
	db.Exec(t, `UPDATE outbox SET status = 'PENDING', attempts = 0 WHERE id = (SELECT min(id) FROM outbox WHERE status = 'SENT')`)
	w.settled(30 * time.Second)
	if long {
		db.Exec(t, `UPDATE outbox SET sent_at = now() - interval '2 hours' WHERE id = (SELECT max(id) FROM outbox WHERE status = 'SENT')`)
		p.Await(90*time.Second, "deleted rows past their retention")
	}
	p.stop()
	if n := p.logged("permission denied"); n > 0 {
		t.Errorf("permission was denied %d times", n)
	}
	if now := w.privileges(); !slices.Equal(now, granted) {
		t.Errorf("privileges changed from %q to %q", granted, now)
	}
}

// runPrinted runs what init --show-sql prints as an administrator would, one
// statement after the other, and checks that nothing is left to be made.
func (w *world) runPrinted() {
	w.t.Helper()
	show := func() string {
		out, err := w.commandWith([]string{"OUTBOX_CDC_ADMIN_DSN=" + w.db.DSN}, "init", "--config", w.file(), "--native-table", "--show-sql")
		if err != nil {
			w.t.Fatalf("init --show-sql: %v\n%s", err, out)
		}
		return out
	}
	script := show()
	for _, statement := range statements(script) {
		if err := w.cleanUp(statement); err != nil {
			w.t.Fatalf("%s: %v", statement, err)
		}
	}
	w.audit()
	w.db.Exec(w.t, `GRANT INSERT ON rewrites TO writer`) // the suite's own trigger
	for _, line := range statements(show()) {
		if !strings.HasPrefix(line, "GRANT") { // which may be repeated
			w.t.Errorf("after running it all, init --show-sql prints %s", line)
		}
	}
}

// statements cuts a script at the ends of its statements; ours have no
// semicolon at the end of a line elsewhere.
func statements(script string) (all []string) {
	var one []string
	for line := range strings.Lines(script) {
		if text := strings.TrimSpace(line); text == "" || strings.HasPrefix(text, "--") {
			continue
		}
		one = append(one, line)
		if strings.HasSuffix(strings.TrimSpace(line), ";") {
			all, one = append(all, strings.Join(one, "")), nil
		}
	}
	return all
}

// privileges returns what the two roles have, except on the suite's own table.
func (w *world) privileges() (all []string) {
	w.t.Helper()
	err := w.query(`
		SELECT grantee || ' ' || privilege_type || ' ' || table_schema || '.' || table_name FROM information_schema.table_privileges
		WHERE grantee IN ('writer', 'streamer') AND table_name <> 'rewrites'
		UNION ALL SELECT grantee || ' UPDATE column ' || column_name FROM information_schema.column_privileges
		WHERE grantee IN ('writer', 'streamer') AND privilege_type = 'UPDATE' AND table_schema = 'public'
		UNION ALL SELECT rolname || ' has attributes super ' || rolsuper || ' replication ' || rolreplication || ' createrole ' || rolcreaterole || ' createdb ' || rolcreatedb || ' bypassrls ' || rolbypassrls
		FROM pg_roles WHERE rolname IN ('writer', 'streamer')
		UNION ALL SELECT m.member::regrole || ' is a member of ' || m.roleid::regrole FROM pg_auth_members m WHERE m.member::regrole::text IN ('writer', 'streamer')
		ORDER BY 1`, func(rows pgx.Rows) error {
		var s string
		err := rows.Scan(&s)
		all = append(all, s)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	want := []string{
		"streamer has attributes super false replication true createrole false createdb false bypassrls false",
		"writer DELETE outbox_cdc.leader", "writer DELETE outbox_cdc.park", "writer DELETE public.outbox",
		"writer INSERT outbox_cdc.leader", "writer INSERT outbox_cdc.park",
		"writer SELECT outbox_cdc.leader", "writer SELECT outbox_cdc.park", "writer SELECT public.outbox",
		"writer UPDATE column attempts", "writer UPDATE column last_error", "writer UPDATE column sent_at", "writer UPDATE column status",
		"writer UPDATE outbox_cdc.leader", "writer UPDATE outbox_cdc.park",
		"writer has attributes super false replication false createrole false createdb false bypassrls false",
	}
	if !slices.Equal(all, want) {
		w.t.Errorf("the roles have\n%s\nand not\n%s", strings.Join(all, "\n"), strings.Join(want, "\n"))
	}
	return all
}
