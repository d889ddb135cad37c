package bytes

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// patience is for a busy machine.
const patience = 3 * time.Minute

type fields map[string]any

// settings are a hostile session's, which a role or a database may carry.
var settings = []string{
	"DateStyle = 'German, DMY'", "TimeZone = 'Asia/Kolkata'", "IntervalStyle = 'sql_standard'", "extra_float_digits = -15",
	"bytea_output = 'escape'", "lc_monetary = 'C'", "xmloption = 'document'", "xmlbinary = 'hex'", "quote_all_identifiers = on",
	"search_path = public, pg_catalog", "standard_conforming_strings = off", "escape_string_warning = off", "array_nulls = off", "transform_null_equals = on",
	"default_transaction_isolation = 'serializable'", "row_security = off", "session_replication_role = 'origin'",
	"plan_cache_mode = 'force_custom_plan'", "backslash_quote = on", "default_text_search_config = 'pg_catalog.german'", "jit = on",
}

// world is one database with its stream and topic.
type world struct {
	t      *testing.T
	db     *harness.DB
	kafka  *harness.Cluster
	topic  string
	dir    string
	tables []*table
	// backoff is short, so that rows soon have failed.
	backoff       fields
	senderTimeout string
	// partitioned ends the CREATE TABLE of partitioned tables.
	partitioned string
}

// table is an outbox table of the world.
type table struct {
	name   string // schema.name as the configuration has it
	sql    string // quoted
	stream string
	config fields
}

func newWorld(t *testing.T, e encoding) *world {
	t.Helper()
	w := &world{t: t, kafka: harness.Kafka(t), dir: t.TempDir(), backoff: fields{"min": "50ms", "max": "100ms"}, senderTimeout: "20s"}
	w.db = harness.PlainDatabase(t, harness.Postgres(t).Server, "TEMPLATE template0 ENCODING '"+e.name+"' LC_COLLATE 'C' LC_CTYPE 'C'")
	w.topic = w.kafka.Topic(t, 3)
	return w
}

// carry gives the database the settings; ours are pinned.
func (w *world) carry(all ...string) {
	w.t.Helper()
	server := &harness.DB{DSN: w.db.Server.DSN("postgres")} // whose sessions do not have them
	for _, s := range all {
		if !server.Accepts(w.t, s) {
			continue
		}
		server.Exec(w.t, "ALTER DATABASE "+w.db.Name+" SET "+s)
	}
}

// conn returns a session with the pinned forms of text, which rows are compared by.
func (w *world) conn() *pgx.Conn {
	w.t.Helper()
	c, err := pgx.ParseConfig(w.db.DSN)
	if err != nil {
		w.t.Fatal(err)
	}
	c.RuntimeParams["client_encoding"] = "UTF8"
	conn, err := pgx.ConnectConfig(w.t.Context(), c)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	for _, s := range []string{
		"DateStyle = ISO", "TimeZone = UTC", "IntervalStyle = postgres", "extra_float_digits = 1", "bytea_output = hex", "lc_monetary = 'C'",
		"search_path = pg_catalog", "standard_conforming_strings = on", "quote_all_identifiers = off", "array_nulls = on",
		"transform_null_equals = off", "default_transaction_isolation = 'read committed'", "xmloption = content",
	} {
		if _, err := conn.Exec(w.t.Context(), "SET "+s); err != nil {
			w.t.Fatal(err)
		}
	}
	return conn
}

// add makes an outbox table with a column v of the type.
func (w *world) add(conn *pgx.Conn, stream, schema, name, columns string, config fields) *table {
	w.t.Helper()
	t := &table{name: schema + "." + name, sql: pgx.Identifier{schema, name}.Sanitize(), stream: stream}
	t.config = fields{
		"table": t.sql, "id": []string{"id"}, "topic": fields{"constant": w.topic}, "order": []string{"created_at"},
		"payload": fields{"column": "v", "tombstone": true}, "created_at": "created_at", "timestamp": "created_at", "grace": "200ms",
		"status": fields{"column": "status", "pending": []string{"PENDING"}, "sent": "SENT", "failed": "FAILED", "attempts": "attempts", "max_attempts": 2, "last_error": "last_error"},
	}
	for key, value := range config {
		t.config[key] = value
	}
	w.exec(conn, "CREATE TABLE "+t.sql+" ("+columns+", status text NOT NULL DEFAULT 'PENDING', attempts int NOT NULL DEFAULT 0, last_error text, created_at timestamptz NOT NULL DEFAULT clock_timestamp()) "+w.partitioned)
	w.tables = append(w.tables, t)
	return t
}

func (w *world) exec(conn *pgx.Conn, sql string) {
	w.t.Helper()
	if _, err := conn.Exec(w.t.Context(), sql); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

// config writes the configuration.
func (w *world) config() string {
	byStream := map[string][]any{}
	for _, t := range w.tables {
		byStream[t.stream] = append(byStream[t.stream], t.config)
	}
	var streams []any
	for _, name := range []string{"text", "binary"} {
		if byStream[name] == nil {
			continue
		}
		slot := name + "_" + w.db.Name
		streams = append(streams, fields{
			"name": name, "slot": slot, "publication": slot, "postgres": fields{"dsn": w.db.DSN, "wal_sender_timeout": w.senderTimeout},
			"tables": byStream[name], "backoff": w.backoff, "watch_interval": "300ms",
		})
	}
	cluster := fields{"brokers": w.kafka.Addrs, "transactional_id_prefix": w.db.Name}
	return harness.ConfigFile(w.t, w.dir, fields{"kafka": fields{"clusters": fields{"main": cluster}}, "streams": streams, "http": fields{"listen": "off"}})
}

// run runs a command to its end.
func (w *world) run(args ...string) string {
	w.t.Helper()
	out, err := w.try(args...)
	if err != nil {
		w.t.Fatalf("outbox-cdc %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (w *world) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, harness.Binary(w.t), append(args, "--config", w.config())...).CombinedOutput() // #nosec G204 -- the test's own program
	return string(out), err
}

func (w *world) start() *harness.Process {
	w.t.Helper()
	return harness.Start(w.t, exec.Command(harness.Binary(w.t), "run", "--config", w.config(), "--log-format", "json")) // #nosec G204 -- as above
}

// settled waits until no row is pending.
func (w *world) settled(conn *pgx.Conn, but ...string) {
	w.t.Helper()
	harness.Eventually(w.t, patience, func() error { return w.pending(conn, but...) })
}

// sweep sweeps by command until no row is pending. Rows that can be no record wait
// between their tries, which a sweep need not wait for.
func (w *world) sweep(conn *pgx.Conn) {
	w.t.Helper()
	harness.Eventually(w.t, patience, func() error {
		w.run("sweep", "--once")
		return w.pending(conn)
	})
}

// pending names tables that have pending rows.
func (w *world) pending(conn *pgx.Conn, but ...string) error {
	var parts []string
	for _, t := range w.tables {
		if !slices.Contains(but, t.name) {
			parts = append(parts, "SELECT '"+t.name+"' AS name, count(*) AS n, max(last_error) FROM "+t.sql+" WHERE status = 'PENDING' HAVING count(*) > 0")
		}
	}
	rows, err := conn.Query(w.t.Context(), strings.Join(parts, " UNION ALL ")+" LIMIT 5")
	if err != nil {
		return err
	}
	left, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		var name string
		var n int
		var last *string
		err := row.Scan(&name, &n, &last)
		if last != nil {
			name += " (" + *last + ")"
		}
		return fmt.Sprintf("%d of %s", n, name), err
	})
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("still PENDING: %s", strings.Join(left, "; "))
	}
	return err
}
