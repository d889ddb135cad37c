package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// fields are keys of the configuration. JSON is YAML.
type fields map[string]any

// layout is an outbox table: its DDL, with %[1]s for its name, how rows
// are inserted, and its entry of the configuration.
type layout struct {
	name   string
	ddl    string
	insert string // of i from generate_series: %[1]s table, %[2]d keys, %[3]d bytes, %[4]s topic, %[5]s which, %[6]s to %[7]s
	config fields
	status string // the column; empty: nothing is written back, or the row is deleted
}

const (
	im2beTable = `CREATE TABLE %[1]s (
		aggregate_id uuid NOT NULL, event_id uuid NOT NULL,
		status varchar(16) NOT NULL DEFAULT 'PENDING', topic varchar(249), payload bytea,
		schema_version int NOT NULL DEFAULT 1, retries int NOT NULL DEFAULT 0, last_error varchar(1000),
		created_at timestamptz NOT NULL DEFAULT clock_timestamp(), sent_at timestamptz,
		record_version bigint NOT NULL DEFAULT 0, trace_parent varchar(64), trace_state varchar(512),
		PRIMARY KEY (aggregate_id, event_id));
		ALTER TABLE %[1]s ALTER payload SET STORAGE EXTERNAL;`
	im2beIndex  = `CREATE INDEX ON %[1]s (status, created_at);`
	im2beInsert = `INSERT INTO %[1]s (aggregate_id, event_id, topic, payload)
		SELECT lpad(to_hex(i %% %[2]d), 32, '0')::uuid, gen_random_uuid(), '%[4]s', convert_to(rpad(i || '|', %[3]d, 'x'), 'UTF8')
		FROM generate_series(%[6]s, %[7]s) i WHERE %[5]s`
)

// im2be is the layout of the bars.
func im2be() layout {
	return layout{
		name: "im2be", ddl: im2beTable + im2beIndex, insert: im2beInsert, status: "status",
		config: fields{"profile": "im2be", "head_start": "0s", "shedlock": nil},
	}
}

// unmarked is the same table with nothing written back.
func unmarked() layout {
	l := im2be()
	l.name, l.status = "im2be, published: none", ""
	l.config = fields{
		"id": []string{"aggregate_id", "event_id"}, "topic": fields{"column": "topic"}, "key": fields{"column": "aggregate_id", "encoding": "text"},
		"payload": fields{"column": "payload"}, "created_at": "created_at", "published": "none",
	}
	return l
}

// documented is unmarked with a type and a document of 250 bytes; a mapping can make
// the topic and the key. The mapping's key has the value.
func documented(key string, value fields) layout {
	l := unmarked()
	l.name = "im2be with a document, published: none"
	l.ddl = strings.Replace(l.ddl, "topic varchar", "event_type varchar(100), doc jsonb, topic varchar", 1)
	l.insert = `INSERT INTO %[1]s (aggregate_id, event_id, topic, payload, event_type, doc)
		SELECT k, gen_random_uuid(), '%[4]s', convert_to(rpad(i || '|', %[3]d, 'x'), 'UTF8'), (ARRAY['OrderPlaced', 'OrderChanged7', 'com.acme.billing.Paid'])[i %% 3 + 1],
			jsonb_build_object('type', 'OrderPlaced', 'total', i, 'currency', 'EUR', 'customer', jsonb_build_object('id', k, 'name', 'Ann'), 'placedAt', '2026-01-31T10:00:00Z', 'items', '[{"sku": "a-1", "count": 2}, {"sku": "b-2", "count": 1}]'::jsonb)
		FROM (SELECT i, lpad(to_hex(i %% %[2]d), 32, '0')::uuid AS k FROM generate_series(%[6]s, %[7]s) i) AS x WHERE %[5]s`
	l.config[key] = value
	return l
}

// theTopic is a layout's placeholder for the world's topic.
const theTopic = "THE.TOPIC"

// hot is the im2be table with no index on the status: with room on its pages a
// mark adds no index entry.
func hot() layout {
	l := im2be()
	l.name = "im2be, no index on status, fillfactor 50"
	l.ddl = im2beTable + `ALTER TABLE %[1]s SET (fillfactor = 50);`
	return l
}

func deleting() layout {
	l := unmarked()
	l.name = "im2be, published: delete"
	l.config["published"] = "delete"
	return l
}

func native() layout {
	return layout{
		name: "native", status: "status",
		insert: `INSERT INTO %[1]s (topic, key, payload)
			SELECT '%[4]s', to_hex(i %% %[2]d), convert_to(rpad(i || '|', %[3]d, 'x'), 'UTF8') FROM generate_series(%[6]s, %[7]s) i WHERE %[5]s`,
		config: fields{"profile": "native"},
	}
}

// world is what one run needs: databases with outbox tables, a topic, a
// configuration.
type world struct {
	t      *testing.T
	job    job
	kafka  *harness.Cluster
	topic  string
	dbs    []*harness.DB // by stream
	tables []string
	listen string
	file   string
	dir    string // a peer's
	// slotLost: rows come from the table.
	slotLost bool
}

// job is what is to be delivered, and how it lies there.
type job struct {
	layout     layout
	rows       int
	keys       int
	bytes      int   // of a payload
	partitions int32 // of the topic
	tables     int   // in each stream
	streams    int   // each with a database of its own
	perTx      int   // rows in a transaction
	once       bool  // the stream delivers exactly once
}

// standard is the job of the bars.
func standard(l layout, rows int) job {
	return job{layout: l, rows: rows, keys: min(100_000, rows), bytes: 256, partitions: 6, tables: 1, streams: 1, perTx: 1000}
}

// newWorld makes databases, tables, topic, and runs init.
func (b *bench) newWorld(t *testing.T, j job) *world {
	t.Helper()
	w := b.place(t, j)
	w.initialize()
	return w
}

// place makes databases, tables and topic.
func (b *bench) place(t *testing.T, j job) *world {
	t.Helper()
	w := &world{t: t, job: j, kafka: b.kafka(), listen: freeAddress(t)}
	w.topic = w.kafka.Topic(t, j.partitions)
	t.Cleanup(func() { // the disk is not for many rounds
		w.kafka.Admin(t, func(a sarama.ClusterAdmin) error { return a.DeleteTopic(w.topic) })
	})
	for i := range j.tables {
		w.tables = append(w.tables, fmt.Sprintf("outbox%d", i))
	}
	if j.layout.ddl == "" {
		w.tables = []string{"outbox"} // as init makes it
	}
	for range j.streams {
		db := harness.PlainDatabase(t, b.postgres(), "")
		for _, table := range w.tables {
			if j.layout.ddl != "" {
				db.Exec(t, fmt.Sprintf(j.layout.ddl, table))
			}
		}
		w.dbs = append(w.dbs, db)
	}
	return w
}

// initialize configures the program and runs its init.
func (w *world) initialize() {
	w.t.Helper()
	w.journal()
	w.configure()
	args := []string{"init"}
	if w.job.layout.ddl == "" {
		args = append(args, "--native-table")
	}
	w.command(args...)
}

func (w *world) configure() {
	cluster := fields{"brokers": w.kafka.Addrs, "transactional_id_prefix": fmt.Sprint("bench-", time.Now().UnixNano())}
	if w.job.bytes > 500_000 {
		cluster["max_request_bytes"] = "4MB"
		w.kafka.ConfigureTopic(w.t, w.topic, map[string]string{"max.message.bytes": "5000000"})
	}
	var streams []any
	for i, db := range w.dbs {
		var tables []any
		for _, table := range w.tables {
			entry := fields{"table": "public." + table}
			for k, v := range w.job.layout.config {
				entry[k] = v
			}
			tables = append(tables, entry)
		}
		stream := fields{
			"name": fmt.Sprint("s", i), "slot": slotOf(db), "publication": "outbox",
			"postgres": fields{"dsn": db.DSN}, "tables": tables,
			"wal_budget": "64GiB", // ten million rows are more than the default, beyond which they are swept
		}
		w.once(cluster, stream)
		streams = append(streams, stream)
	}
	text, err := json.MarshalIndent(fields{
		"kafka":   fields{"clusters": fields{"main": cluster}},
		"streams": streams,
		"http":    fields{"listen": w.listen},
	}, "", "  ")
	if err != nil {
		w.t.Fatal(err)
	}
	w.file = filepath.Join(w.t.TempDir(), "outbox-cdc.yaml")
	text = bytes.ReplaceAll(text, []byte(theTopic), []byte(w.topic))
	if err := os.WriteFile(w.file, text, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// slotOf names the slot of a database: slots are the whole server's.
func slotOf(db *harness.DB) string { return "s_" + strings.SplitN(db.Name, "_", 2)[0] }

func freeAddress(t testing.TB) string {
	t.Helper()
	port, err := localpg.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// command runs the program to its end.
func (w *world) command(args ...string) {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), harness.Binary(w.t), append(args, "--config", w.file)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("outbox-cdc %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// insert is the statement that inserts the rows of a range into a table.
func (w *world) insert(table, which, from, to string) string {
	return fmt.Sprintf(w.job.layout.insert, table, w.job.keys, w.job.bytes, w.topic, which, from, to)
}

// fill inserts all rows, those of one key always into the same table, in the
// order of their numbers.
func (w *world) fill() {
	w.t.Helper()
	units := len(w.dbs) * len(w.tables)
	for s, db := range w.dbs {
		conn := db.Conn(w.t)
		for from := 0; from < w.job.rows; from += w.job.perTx * len(w.dbs) {
			to := min(from+w.job.perTx*len(w.dbs), w.job.rows) - 1
			var sql strings.Builder
			for i, table := range w.tables {
				which := fmt.Sprintf("i %% %d %% %d = %d", w.job.keys, units, s*len(w.tables)+i)
				sql.WriteString(w.insert(table, which, strconv.Itoa(from), strconv.Itoa(to)) + ";\n")
			}
			// Statements without arguments, sent at once, are one transaction.
			if _, err := conn.Exec(w.t.Context(), sql.String()); err != nil {
				w.t.Fatalf("inserting rows %d to %d: %v", from, to, err)
			}
		}
		if _, err := conn.Exec(w.t.Context(), "ANALYZE"); err != nil {
			w.t.Fatal(err)
		}
	}
}
