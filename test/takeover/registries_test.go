package takeover

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// library is one whose packages are fetched: a program that uses it as an application
// does makes the table, writes rows and relays them.
type library struct {
	outboxOf
	name string
	// ddl makes the table where the library does not.
	ddl string
	// moved puts the documented table where the library has it.
	moved string
	// start runs the program for one job, with the topic.
	start func(w *world, job string) *exec.Cmd
	// relays: a second job sends what the first wrote. Otherwise writing sends too.
	relays bool
	// reset makes rows of a copy pending again.
	reset string
	order string
	// unlike takes out of records what is known to differ, and is said in docs/takeover.
	unlike func([]harness.Record)
}

const libraryRows = 24

// slow is what is run by make takeover alone: it fetches packages of hundreds of files.
func slow(t *testing.T) {
	t.Helper()
	if os.Getenv("OUTBOX_TEST_LONG") == "" {
		t.Skip("only with OUTBOX_TEST_LONG=1 (make takeover)")
	}
}

// parity: the library's relay and outbox-cdc make the same records of the same rows,
// those that were there before it started and those that came later.
func (l library) parity(t *testing.T, kafka *harness.Cluster, topic string) {
	t.Helper()
	w := emptyWorld(t, l.outboxOf, kafka, topic)
	if l.ddl != "" {
		w.db.Exec(t, l.ddl)
	}
	w.succeeds(l.start(w, "write"))
	if l.relays {
		w.db.Exec(t, `CREATE TABLE kept AS SELECT * FROM `+l.table)
		relay := harness.Start(t, l.start(w, "relay"))
		kafka.AwaitRecords(t, topic, libraryRows, 2*time.Minute)
		relay.Kill()
	} else {
		w.db.Exec(t, `CREATE TABLE kept AS SELECT * FROM `+l.table)
	}
	theirs := kafka.AwaitRecords(t, topic, libraryRows, time.Minute)
	w.db.Exec(t, `TRUNCATE `+l.table)
	if l.reset != "" {
		w.db.Exec(t, `UPDATE kept SET `+l.reset)
	}
	l.record(t, w, theirs)

	again := func(which string) {
		w.db.Exec(t, fmt.Sprintf(`INSERT INTO %s SELECT %s FROM (SELECT *, row_number() OVER (ORDER BY %s) AS nth FROM kept) AS k WHERE nth %s 10 ORDER BY nth`,
			l.table, columns(t, w.db), l.order, which))
	}
	again("<=")
	p := w.run()
	p.Await(time.Minute, `"message":"streaming"`)
	again(">")
	ours := beyond(kafka.AwaitRecords(t, topic, 2*libraryRows, time.Minute), theirs)
	p.Stop(30 * time.Second)
	if l.unlike != nil {
		l.unlike(theirs)
		l.unlike(ours)
	}
	same(t, theirs, ours)
}

func columns(t *testing.T, db *harness.DB) string {
	t.Helper()
	return harness.One[string](t, db, `SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'kept'::regclass AND attnum > 0`)
}

func (w *world) succeeds(cmd *exec.Cmd) {
	w.t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
}

// java runs a program with the jars of its pom.xml.
func java(t *testing.T, dir, source, class string, args ...string) *exec.Cmd {
	t.Helper()
	classes := harness.Classes(t, harness.Jars(t, filepath.Join(dir, "pom.xml")), filepath.Join(dir, source))
	return exec.Command("java", append([]string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classes, class}, args...)...)
}

// spring returns the settings by which Spring finds the servers.
func (w *world) spring(more ...string) []string {
	w.t.Helper()
	return append([]string{
		"--spring.datasource.url=" + w.jdbcURL(), "--spring.kafka.bootstrap-servers=" + strings.Join(w.kafka.Addrs, ","), "--spring.main.web-application-type=none", "--topic=" + w.topic,
	}, more...)
}

// Spring Modulith's sender and outbox-cdc make the same records of the same rows.
func TestParityWithModulith(t *testing.T) {
	t.Parallel()
	slow(t)
	kafka := broker(t)
	topic := kafka.Topic(t, 3)
	modulith(t, topic).parity(t, kafka, topic)
}

func modulith(t *testing.T, topic string) library {
	return library{
		name: "modulith",
		outboxOf: outboxOf{profile: "modulith", table: "public.event_publication", overrides: fields{
			"topic": fields{"column": "event_type", "map": fields{"shop.Shop$OrderPlaced": topic, "shop.Shop$Imported": topic}},
			"key":   fields{"column": "serialized_event", "path": "/orderId"}, "head_start": "1s",
		}},
		start: func(w *world, _ string) *exec.Cmd {
			return java(t, "modulith", "Shop.java", "shop.Shop", w.spring("--spring.modulith.events.jdbc.schema-initialization.enabled=true")...)
		},
		reset: `status = 'PUBLISHED', completion_date = NULL`, order: "publication_date, id",
	}
}

// Namastack Outbox, with a handler like that of its module for Kafka, and outbox-cdc make
// the same records.
func TestParityWithNamastack(t *testing.T) {
	t.Parallel()
	slow(t)
	kafka := broker(t)
	topic := kafka.Topic(t, 3)
	namastack(t, topic).parity(t, kafka, topic)
}

func namastack(t *testing.T, topic string) library {
	return library{
		name:     "namastack",
		outboxOf: outboxOf{profile: "namastack", table: "public.outbox_record", overrides: fields{"topic": fields{"constant": topic}}},
		start: func(w *world, job string) *exec.Cmd {
			polling := "--namastack.outbox.polling.fixed.interval=36500d" // as the profile says: its scheduler rests
			if job == "relay" {
				polling = "--namastack.outbox.polling.fixed.interval=100ms"
			}
			return java(t, "namastack", "Shop.java", "shop.Shop", w.spring("--job="+job, "--namastack.outbox.polling.trigger=fixed", polling,
				"--namastack.outbox.jdbc.schema-initialization.enabled=true", "--namastack.outbox.retry.max-retries=3",
				"--spring.kafka.producer.value-serializer=org.springframework.kafka.support.serializer.JacksonJsonSerializer")...)
		},
		relays: true, order: "created_at, id",
	}
}

// The polling reader and the publisher of Eventuate's CDC service and outbox-cdc make
// the same records of the messages of Tram's producer.
func TestParityWithEventuate(t *testing.T) {
	t.Parallel()
	slow(t)
	kafka := broker(t)
	topic := kafka.Topic(t, 3)
	l := eventuate(t, topic)
	l.ddl = documentedTable(t, "eventuate") + l.moved
	l.parity(t, kafka, topic)
}

func eventuate(t *testing.T, topic string) library {
	return library{
		name:     "eventuate",
		outboxOf: outboxOf{profile: "eventuate", table: "eventuate.message"},
		moved:    `CREATE SCHEMA eventuate; ALTER TABLE message SET SCHEMA eventuate`,
		start: func(w *world, job string) *exec.Cmd {
			return java(t, "eventuate", "Shop.java", "Shop", job, w.jdbcURL(), w.kafka.Addrs[0], topic)
		},
		relays: true, order: "id",
	}
}

// jdbcURL returns the database in one address.
func (w *world) jdbcURL() string {
	w.t.Helper()
	c, err := pgx.ParseConfig(w.db.Own())
	if err != nil {
		w.t.Fatal(err)
	}
	return fmt.Sprintf("jdbc:postgresql://%s:%d/%s?currentSchema=public&user=%s&password=%s", c.Host, c.Port, c.Database, c.User, c.Password)
}

// documentedTable returns the table as the library documents it.
func documentedTable(t *testing.T, profile string) string {
	t.Helper()
	ddl, err := os.ReadFile(filepath.Join("..", "..", "internal", "suggest", "testdata", "tables", profile+".sql"))
	if err != nil {
		t.Fatal(err)
	}
	return string(ddl)
}

// The relay of faststream-outbox and outbox-cdc make the same records, but for two things:
// a jsonb column does not keep the order of headers, and a body of bytes has no content
// type in its row, for which the library sends an empty one.
func TestParityWithFastStream(t *testing.T) {
	t.Parallel()
	slow(t)
	kafka := broker(t)
	topic := kafka.Topic(t, 1)
	fastStream(t, topic, pythonWith(t, filepath.Join("faststream", "requirements.txt"))).parity(t, kafka, topic)
}

func fastStream(_ *testing.T, topic, python string) library {
	return library{
		name: "faststream",
		outboxOf: outboxOf{table: "public.outbox", overrides: fields{
			"id": []string{"id"}, "topic": fields{"column": "queue"}, "payload": fields{"column": "payload"}, "headers": []fields{{"json": "headers"}},
			"available_after": "next_attempt_at", "order": []string{"id"}, "published": "delete", "created_at": "created_at",
		}},
		start: func(w *world, job string) *exec.Cmd {
			return exec.Command(python, filepath.Join("faststream", "shop.py"), job, w.address(), w.kafka.Addrs[0], topic)
		},
		relays: true, order: "id",
		unlike: func(records []harness.Record) {
			for i := range records {
				headers := slices.DeleteFunc(records[i].Headers, func(h harness.Header) bool { return h.Name == "content-type" && len(h.Value) == 0 })
				slices.SortFunc(headers, func(a, b harness.Header) int { return cmp.Compare(a.Name, b.Name) })
				records[i].Headers = headers
			}
		},
	}
}

// pythonWith returns a Python with packages of its own.
func pythonWith(t *testing.T, requirements string) string {
	t.Helper()
	dir := t.TempDir()
	for _, args := range [][]string{{"python3", "-m", "venv", dir}, {filepath.Join(dir, "bin", "pip"), "install", "-q", "-r", requirements}} {
		if text, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("NOT TESTED: the packages of %s cannot be fetched: %v\n%s", requirements, err, text)
		}
	}
	return filepath.Join(dir, "bin", "python")
}

// pg-transactional-outbox with a handler that sends what the profile says, and outbox-cdc
// make the same records, but for the spelling of jsonb as text.
func TestParityWithPgTransactionalOutbox(t *testing.T) {
	t.Parallel()
	slow(t)
	kafka := broker(t)
	topic := strings.NewReplacer(".", "-", "_", "-").Replace(kafka.Topic(t, 1)) + ".Placed"
	kafka.CreateTopic(t, topic, 3, nil)
	pgTransactionalOutbox(t, topic, nodeWith(t, "pg-transactional-outbox")).parity(t, kafka, topic)
}

func pgTransactionalOutbox(t *testing.T, topic, dir string) library {
	return library{
		name:     "pg-transactional-outbox",
		outboxOf: outboxOf{profile: "pg-transactional-outbox", table: "public.outbox"},
		start: func(w *world, job string) *exec.Cmd {
			return exec.Command("node", filepath.Join(dir, "shop.js"), job, w.address()+"?options=-csearch_path%3Dpublic", w.kafka.Addrs[0], topic)
		},
		relays: true, order: "created_at",
		unlike: func(records []harness.Record) {
			for i := range records {
				var compact bytes.Buffer
				if err := json.Compact(&compact, records[i].Value); err != nil {
					t.Fatal(err)
				}
				records[i].Value = compact.Bytes()
			}
		},
	}
}

// nodeWith returns a folder with a program and the packages that its package.json lists.
func nodeWith(t *testing.T, program string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(program)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("NOT TESTED: the packages of %s cannot be fetched: %v\n%s", program, err, text)
	}
	return dir
}

// address returns the database as most languages are told it.
func (w *world) address() string {
	w.t.Helper()
	c, err := pgx.ParseConfig(w.db.Own())
	if err != nil {
		w.t.Fatal(err)
	}
	return fmt.Sprintf("postgres://%s:%s@%s/%s", c.User, c.Password, net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))), c.Database)
}
