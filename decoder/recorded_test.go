package decoder

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/internal/mapping"
	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
)

// The tests here decode what real servers sent: now, from the server that
// OUTBOX_TEST_POSTGRES names (a major version; default: the newest installed),
// and earlier, from the recordings in testdata/recorded. To record again:
//
//	OUTBOX_RECORD=1 OUTBOX_TEST_POSTGRES=15 go test -run TestAgainstPostgreSQL ./decoder

// scenario is run statement by statement; each is a transaction.
var scenario = []string{
	`INSERT INTO outbox (id, topic, key, body) VALUES ('00000000-0000-0000-0000-000000000001', 'orders', 'k1', '\x00ff')`,
	`INSERT INTO outbox (id, topic, key, body, headers, part, at, due)
		SELECT ('00000000-0000-0000-0000-00000000001' || n)::uuid, 'orders-' || n % 2, nullif('k' || n, 'k3'), convert_to('ä😀' || n, 'UTF8'),
			jsonb_build_object('b', n::text, 'a', 'x"\y', 'n', n, 'nul', NULL, 't', true), n, '2026-01-02 03:04:05.678901+00'::timestamptz + n * interval '1 ms',
			CASE n WHEN 1 THEN 'infinity' WHEN 2 THEN '-infinity' WHEN 3 THEN '0044-03-15 BC' ELSE '2026-01-02 03:04:05' END::timestamp
		FROM generate_series(0, 4) n`,
	`INSERT INTO outbox (id, topic, key, body, headers) VALUES
		('00000000-0000-0000-0000-000000000021', NULL, '', '', '{}'), ('00000000-0000-0000-0000-000000000022', 'a b', '', '', '{"a": {}}'),
		('00000000-0000-0000-0000-000000000023', 'orders', 'k', '', '[1]')`,
	`INSERT INTO outbox (id, state, topic, key, body) VALUES ('00000000-0000-0000-0000-000000000031', 'SENT', 'orders', 'k', '')`,
	// Kept out of line, and over the server's own buffer for a tuple.
	`INSERT INTO outbox (id, topic, key, body) SELECT '00000000-0000-0000-0000-000000000041', 'orders', 'k', convert_to(repeat('0123456789', 400), 'UTF8')`,
	`BEGIN; INSERT INTO outbox (id, topic, body) VALUES ('00000000-0000-0000-0000-000000000051', 'orders', ''); ROLLBACK`,
	`BEGIN; SAVEPOINT s; INSERT INTO outbox (id, topic, body) VALUES ('00000000-0000-0000-0000-000000000052', 'orders', ''); ROLLBACK TO s;
		INSERT INTO outbox (id, topic, body) VALUES ('00000000-0000-0000-0000-000000000053', 'orders', ''); COMMIT`,
	`INSERT INTO other VALUES (1), (NULL)`,
	`UPDATE outbox SET state = 'SENT' WHERE id = '00000000-0000-0000-0000-000000000001'`,
	`UPDATE outbox SET note = 'toast stays' WHERE id = '00000000-0000-0000-0000-000000000041'`,
	`UPDATE other SET x = 2 WHERE x = 1`,
	`DELETE FROM outbox WHERE id = '00000000-0000-0000-0000-000000000031'`,
	`SELECT pg_logical_emit_message(true, 'prefix', 'content'), pg_logical_emit_message(false, 'prefix', 'content')`,
	`INSERT INTO parts VALUES (1, 'orders', 'k', 'one', 'PENDING'), (11, 'orders', 'k', 'two', 'SENT'), (2, 'orders', NULL, 'three', 'PENDING')`,
	`UPDATE parts SET id = 12 WHERE id = 2`,
	`CREATE TABLE parts_late (state state, body text, key text, topic text, id bigint NOT NULL); ALTER TABLE parts ATTACH PARTITION parts_late FOR VALUES FROM (20) TO (30)`,
	`INSERT INTO parts VALUES (21, 'orders', 'k', 'late', 'PENDING')`,
	// DDL in the middle of a transaction.
	`BEGIN; INSERT INTO outbox (id, topic, body) VALUES ('00000000-0000-0000-0000-000000000061', 'orders', '');
		ALTER TABLE outbox ADD COLUMN added int DEFAULT 7; ALTER TABLE outbox DROP COLUMN note;
		INSERT INTO outbox (id, topic, body) VALUES ('00000000-0000-0000-0000-000000000062', 'orders', ''); COMMIT`,
	`ALTER TABLE outbox RENAME COLUMN topic TO subject`,
	`INSERT INTO outbox (id, subject, body) VALUES ('00000000-0000-0000-0000-000000000063', 'orders', '')`,
	`INSERT INTO outbox (id, subject, body) VALUES ('00000000-0000-0000-0000-000000000064', 'orders', '')`,
	`ALTER TABLE outbox RENAME COLUMN subject TO topic`,
	`INSERT INTO outbox (id, topic, body) VALUES ('00000000-0000-0000-0000-000000000065', 'orders', '')`,
	`ALTER TABLE outbox ALTER part TYPE text`,
	`INSERT INTO outbox (id, topic, body) VALUES ('00000000-0000-0000-0000-000000000066', 'orders', '')`,
	`ALTER TABLE outbox ALTER part TYPE bigint USING part::bigint`,
	`INSERT INTO outbox (id, topic, body, part) VALUES ('00000000-0000-0000-0000-000000000067', 'orders', '', 3000000000)`,
	`VACUUM FULL outbox`,
	`INSERT INTO outbox (id, topic, body) VALUES ('00000000-0000-0000-0000-000000000068', 'orders', '')`,
	`TRUNCATE other, parts`,
	`INSERT INTO outbox (id, topic, body) VALUES ('00000000-0000-0000-0000-000000000069', 'orders', '')`,
}

const setting = `
	CREATE TYPE state AS ENUM ('PENDING', 'SENT');
	CREATE DOMAIN content AS bytea;
	CREATE TABLE outbox (
		seq bigserial, doubled bigint GENERATED ALWAYS AS (part * 2) STORED, id uuid PRIMARY KEY, state varchar(20) NOT NULL DEFAULT 'PENDING',
		topic varchar(100), key text, body content, headers jsonb, part int, at timestamptz, due timestamp, note text);
	ALTER TABLE outbox ALTER body SET STORAGE EXTERNAL, DROP COLUMN doubled;
	CREATE TABLE other (x int);
	ALTER TABLE other REPLICA IDENTITY FULL;
	CREATE TABLE parts (id bigint PRIMARY KEY, topic text, key text, body text, state state) PARTITION BY RANGE (id);
	CREATE TABLE parts_one PARTITION OF parts FOR VALUES FROM (0) TO (10);
	CREATE TABLE parts_two PARTITION OF parts FOR VALUES FROM (10) TO (20);
	CREATE PUBLICATION root FOR TABLE outbox, other, parts WITH (publish = 'insert', publish_via_partition_root = true);
	CREATE PUBLICATION leaf FOR TABLE outbox, other, parts;`

// recordings are the ways in which the scenario is read.
var recordings = []struct {
	name    string
	options string // of pgoutput
	binary  bool   // parts, whose enum cannot be read so, is left out
	leaves  bool
}{
	{name: "text", options: `'proto_version', '1', 'publication_names', 'root'`},
	{name: "everything", options: `'proto_version', '2', 'publication_names', 'leaf', 'messages', 'true'`, leaves: true},
	{name: "binary", options: `'proto_version', '2', 'publication_names', 'root', 'binary', 'true'`, binary: true},
}

// recordedTables are the scenario's.
func recordedTables(binary, leaves bool) (tables []*outbox.Table, partitions map[string]*outbox.Table) {
	ours := &outbox.Table{Schema: "public", Name: "outbox", Mapping: outbox.Mapping{
		ID:             []string{"id"},
		Cluster:        outbox.ClusterMapping{Default: "main"},
		Topic:          outbox.Template{Literals: []string{"", ""}, Columns: []outbox.Expr{{Column: "topic"}}},
		Key:            &outbox.Expr{Column: "key"},
		Payload:        outbox.PayloadMapping{Expr: outbox.Expr{Column: "body"}},
		Headers:        []outbox.HeaderMapping{{JSON: "headers"}},
		EventID:        outbox.EventID{Name: "id", Columns: []string{"id", "seq"}},
		Partition:      "part",
		Timestamp:      "at",
		AvailableAfter: []string{"due"},
		Published:      outbox.PublishedStatus,
		Status:         outbox.StatusMapping{Column: "state", Pending: []string{"PENDING"}},
	}}
	if binary {
		return []*outbox.Table{ours}, nil
	}
	parts := table("parts")
	parts.Mapping.Payload.Column, parts.Mapping.Status.Column = "body", "state"
	if leaves {
		partitions = map[string]*outbox.Table{"public.parts_one": parts, "public.parts_two": parts}
	}
	return []*outbox.Table{ours, parts}, partitions
}

func TestAgainstPostgreSQL(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a PostgreSQL server")
	}
	server, err := localpg.Start(t.Context(), localpg.Options{Version: os.Getenv("OUTBOX_TEST_POSTGRES")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	conn, err := pgx.Connect(t.Context(), server.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, statement := range append([]string{
		`SET DateStyle = 'ISO'; SET TimeZone = 'UTC'; SET bytea_output = 'hex'; SET extra_float_digits = 1; SET IntervalStyle = 'postgres'`,
		setting, `SELECT pg_create_logical_replication_slot('recorded', 'pgoutput')`,
	}, scenario...) {
		if _, err := conn.PgConn().Exec(t.Context(), statement).ReadAll(); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	for _, r := range recordings {
		t.Run(r.name, func(t *testing.T) {
			frames := peek(t, conn.PgConn(), r.options)
			tables, leaves := recordedTables(r.binary, r.leaves)
			b, _ := againstModel(t, tables, leaves, frames)
			likeSelect(t, conn.PgConn(), tables[0], b)
			if os.Getenv("OUTBOX_RECORD") != "" {
				major, _, _ := strings.Cut(server.Version(), ".")
				keep(t, "pg"+major+"-"+r.name, frames, dump(b))
			}
		})
	}
}

// peek reads what a walsender would send, and leaves it there.
func peek(t *testing.T, conn *pgconn.PgConn, options string) (frames [][]byte) {
	t.Helper()
	result := conn.ExecParams(
		t.Context(), `SELECT data FROM pg_logical_slot_peek_binary_changes('recorded', NULL, NULL, `+options+`)`,
		nil, nil, nil, []int16{pgx.BinaryFormatCode},
	).Read()
	if result.Err != nil {
		t.Fatal(result.Err)
	}
	for _, row := range result.Rows {
		frames = append(frames, row[0])
	}
	if len(frames) < 50 {
		t.Fatalf("only %d messages", len(frames))
	}
	return frames
}

// likeSelect compares rows of the WAL with the same rows as a sweep reads
// them: all of a row must be the same.
func likeSelect(t *testing.T, conn *pgconn.PgConn, table *outbox.Table, b *Batch) {
	t.Helper()
	result := conn.ExecParams(t.Context(), `SELECT * FROM outbox`, nil, nil, nil, nil).Read()
	if result.Err != nil {
		t.Fatal(result.Err)
	}
	cols := make([]mapping.Column, 0, len(result.FieldDescriptions))
	for _, f := range result.FieldDescriptions {
		cols = append(cols, mapping.Column{Name: f.Name, OID: f.DataTypeOID})
	}
	plan, err := mapping.Compile(nil, table, cols)
	if err != nil {
		t.Fatal(err)
	}
	arena, selected := new(mapping.Arena), map[string]*outbox.Row{}
	for _, row := range result.Rows {
		var values []mapping.Value
		for _, i := range plan.Wanted() {
			v := mapping.Value{Data: row[i], Format: mapping.Text}
			if row[i] == nil {
				v.Format = mapping.Null
			}
			values = append(values, v)
		}
		r := plan.Row(values, arena)
		selected[r.ID] = r
	}
	compared := 0
	for e := range b.All() {
		for _, r := range e.Rows {
			want := selected[r.ID]
			if want == nil || r.Table != table || !want.Pending {
				continue // deleted or sent since
			}
			like := *r
			like.XID, like.Commit, like.CommitTime = 0, 0, 0
			if !reflect.DeepEqual(&like, want) {
				t.Errorf("log    %s\nselect %s", dumpRow(&like), dumpRow(want))
			}
			compared++
		}
	}
	if compared < 12 {
		t.Errorf("only %d rows compared", compared)
	}
}

const recordedDir = "testdata/recorded"

// keep writes a recording and what it means. FuzzDecode takes each recording as a seed;
// of PostgreSQL 15 also its parts, in which it finds more.
func keep(t *testing.T, name string, frames [][]byte, events []string) {
	t.Helper()
	var file, transaction bytes.Buffer
	seeds := map[string]string{}
	for _, f := range frames {
		fmt.Fprintf(&file, "%x\n", f)
		transaction.Write(packed(f))
		if f[0] == msgCommit && len(f) < 1000 {
			seeds[fmt.Sprintf("%s-%02d", name, len(seeds))] = fmt.Sprintf("go test fuzz v1\n[]byte(%q)\n", transaction.Bytes())
			if transaction.Len() > 4000 {
				transaction.Reset()
			}
		}
	}
	write(t, filepath.Join(recordedDir, name+".frames"), file.String())
	write(t, filepath.Join(recordedDir, name+".golden"), strings.Join(events, "\n")+"\n")
	for seed, content := range seeds {
		if strings.HasPrefix(seed, "pg15") && (strings.HasSuffix(seed, "9") || strings.HasSuffix(seed, "4")) {
			write(t, filepath.Join("testdata/fuzz/FuzzDecode", seed), content)
		}
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestRecordings(t *testing.T) {
	t.Parallel()
	for _, r := range recordings {
		paths, err := filepath.Glob(filepath.Join(recordedDir, "pg*-"+r.name+".frames"))
		if err != nil || len(paths) == 0 {
			t.Errorf("no recording of %s: %v", r.name, err)
		}
		for _, path := range paths {
			t.Run(filepath.Base(path), func(t *testing.T) {
				t.Parallel()
				tables, leaves := recordedTables(r.binary, r.leaves)
				b, _ := againstModel(t, tables, leaves, readRecording(t, path))
				want, err := os.ReadFile(strings.TrimSuffix(path, ".frames") + ".golden")
				if err != nil {
					t.Fatal(err)
				}
				if got := strings.Join(dump(b), "\n") + "\n"; got != string(want) {
					t.Errorf("got\n%s\nwant\n%s", got, want)
				}
			})
		}
	}
}

func readRecording(t testing.TB, path string) (frames [][]byte) {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(file)) {
		f, err := hex.DecodeString(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		frames = append(frames, f)
	}
	return frames
}
