package security

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// settings are what ALTER ROLE and ALTER DATABASE … SET can give to a session,
// each against what our statements were written for, with the value that the
// test's own sessions keep.
var settings = [][2]string{
	{"DateStyle = 'German, DMY'", "ISO"},
	{"TimeZone = 'Asia/Kathmandu'", "UTC"},
	{"IntervalStyle = 'sql_standard'", "postgres"},
	{"bytea_output = 'escape'", "hex"},
	{"extra_float_digits = -15", "1"},
	{"lc_monetary = 'POSIX'", "C"},
	{"xmloption = 'document'", "content"},
	{"xmlbinary = 'hex'", "base64"},
	{"client_encoding = 'LATIN1'", "UTF8"},
	{"standard_conforming_strings = off", "on"},
	{"backslash_quote = on", "safe_encoding"},
	{"quote_all_identifiers = on", "off"},
	{"transform_null_equals = on", "off"},
	{"array_nulls = off", "on"},
	{"row_security = on", "off"},
	{"statement_timeout = '2s'", "0"},
	{"lock_timeout = '1ms'", "0"},
	{"idle_session_timeout = '30s'", "0"},
	{"idle_in_transaction_session_timeout = '500ms'", "0"},
	{"default_transaction_isolation = 'serializable'", "read committed"},
	{"default_transaction_deferrable = on", "off"},
	{"default_transaction_read_only = on", "off"},
	{"plan_cache_mode = 'force_generic_plan'", "auto"},
	{"enable_indexscan = off", "on"},
	{"jit_above_cost = 0", "100000"},
	{"synchronous_commit = off", "on"},
	{"default_text_search_config = 'german'", "english"},
	{"client_min_messages = 'error'", "notice"},
	{"log_statement = 'none'", "none"},
	{"session_replication_role = 'replica'", "origin"}, // is not pinned: see docs/security.md
}

// carried makes a server whose database and roles have the settings, but for
// these. The test's own sessions have not.
func carried(t *testing.T, but ...string) *world {
	t.Helper()
	w := strangers(t)
	w.db.Exec(t, `CREATE ROLE boss LOGIN SUPERUSER PASSWORD 'p'`)
	var script strings.Builder
	for _, s := range settings {
		if !w.db.Accepts(t, s[0]) {
			continue
		}
		name, _, _ := strings.Cut(s[0], " = ")
		fmt.Fprintf(&script, "ALTER ROLE postgres IN DATABASE app SET %s = '%s';\n", name, s[1])
		if !slices.Contains(but, name) {
			fmt.Fprintf(&script, "ALTER DATABASE app SET %[1]s; ALTER ROLE cdc SET %[1]s; ALTER ROLE repl SET %[1]s; ALTER ROLE boss SET %[1]s;\n", s[0])
		}
	}
	w.db.Exec(t, script.String())
	return w
}

// Whatever settings the database and the roles carry, every command does what it
// is for, and records have the bytes of their rows.
func TestSettingsOfRolesAndDatabase(t *testing.T) {
	w := carried(t)
	w.everything()
	w.firedNothing()
}

// The same where the marker's sessions are a pooler's, which keep the role's
// settings. The WAL is read from PostgreSQL itself.
func TestBehindPgBouncer(t *testing.T) {
	for mode, parameter := range map[string]string{"transaction": "&default_query_exec_mode=exec", "session": ""} {
		t.Run(mode, func(t *testing.T) {
			w := carried(t, "default_transaction_read_only")
			through := harness.PgBouncer(t, w.db, mode, "cdc", "p") + parameter
			w.stream["postgres"] = fields{"dsn": through, "replication_dsn": w.dsn("repl"), "wal_sender_timeout": "3s"}
			w.everything()
			w.firedNothing()
		})
	}
}

// everything runs each command for what it is for, with rows of both ways.
func (w *world) everything() {
	w.t.Helper()
	w.boss("init", "--native-table")
	w.boss("slots")
	p := w.run()
	if out, code := w.try(false, "check"); code != 0 {
		w.t.Errorf("check ends with %d:\n%s", code, out)
	}
	w.db.Exec(w.t, `CREATE TABLE fired (); CREATE FUNCTION fire() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS 'BEGIN INSERT INTO public.fired DEFAULT VALUES; RETURN NEW; END';
		CREATE TRIGGER fire BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION fire()`)
	w.insertOdd("streamed")
	w.db.Exec(w.t, `INSERT INTO outbox (topic, key, payload, headers) VALUES ($1, 'bad', '', '{"a": []}')`, w.topic)
	w.db.Exec(w.t, `INSERT INTO outbox (topic, key, payload, available_after) VALUES ($1, 'late', '', now() + interval '1 day')`, w.topic)
	w.awaitCount(`SELECT count(*) FROM outbox WHERE status = 'SENT'`, 2)
	w.awaitCount(`SELECT count(*) FROM outbox WHERE status = 'FAILED'`, 1)
	for _, c := range []struct {
		want string
		args []string
	}{
		{"late", []string{"pending", "list"}},
		{"bad", []string{"failed", "list", "--since", "1h"}},
		{"bad", []string{"failed", "show", "3"}},
		{"streaming", []string{"status", "--database"}},
		{"slot_" + w.db.Name, []string{"slots"}},
		{"0 differences", []string{"compare", "--for", "1s", "--settle", "1s"}},
		{"1", []string{"failed", "requeue", "--key", "bad", "--yes"}},
		{"2", []string{"replay", "--key", `streamed\'`, "--yes"}},
	} {
		if out := w.must(c.args...); !strings.Contains(out, c.want) {
			w.t.Errorf("%v does not tell of %q:\n%s", c.args, c.want, out)
		}
	}
	w.kafka.AwaitRecords(w.t, w.topic, 4, 30*time.Second)
	w.awaitCount(`SELECT count(*) FROM outbox WHERE status = 'SENT'`, 2)
	w.stopped(p)

	w.insertOdd("swept")
	if through := w.stream["postgres"].(fields)["dsn"]; through != w.dsn("cdc") {
		if out, code := w.try(false, "sweep", "--once"); code != 3 || !strings.Contains(out, "connect to PostgreSQL directly") {
			w.t.Errorf("a sweep in a session that a pooler shares ends with %d:\n%s", code, out)
		}
		w.as("cdc", "repl")
	}
	w.must("sweep", "--once")
	w.awaitCount(`SELECT count(*) FROM outbox WHERE status = 'SENT'`, 4)
	for _, r := range w.kafka.AwaitRecords(w.t, w.topic, 6, 20*time.Second) {
		if !strings.HasSuffix(string(r.Key), `\'`) || string(r.Value) != odd || string(r.Header("at")) != `"quoted" \ 'ß' €` {
			w.t.Errorf("record %q: %q %q", r.Key, r.Value, r.Header("at"))
		}
	}
	w.boss("destroy", "--yes")
	if strings.Contains(w.db.Server.Log(), "nonstandard use of") {
		w.t.Error("a statement means something else with standard_conforming_strings off: see the server's log")
	}
}

// firedNothing says that no trigger fired in everything.
func (w *world) firedNothing() {
	w.t.Helper()
	if n := harness.One[int](w.t, w.db, `SELECT count(*) FROM fired`); n != 0 {
		w.t.Errorf("a trigger has fired %d times, which session_replication_role says it does not", n)
	}
}

// odd is a payload that settings print in many ways.
const odd = "\x00\\ 'ß' \xff"

// insertOdd inserts two rows of a key.
func (w *world) insertOdd(key string) {
	w.t.Helper()
	w.db.Exec(w.t, `INSERT INTO outbox (topic, key, payload, headers) SELECT $1, $2, $3, $4 FROM generate_series(1, 2)`,
		w.topic, key+`\'`, []byte(odd), map[string]string{"at": `"quoted" \ 'ß' €`})
}

// boss runs a command with an administrator's connection that carries the settings, too.
func (w *world) boss(args ...string) {
	w.t.Helper()
	w.t.Setenv("OUTBOX_CDC_ADMIN_DSN", w.dsn("boss"))
	defer w.t.Setenv("OUTBOX_CDC_ADMIN_DSN", "")
	w.must(args...)
}
