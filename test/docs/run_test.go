package docs

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	outboxsql "github.com/outbox-cdc/outbox-cdc/sql"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// setups are the pages whose blocks find something else than a stream that init has prepared.
var setups = map[string]setup{
	"docs/exactly-once.md":                         {fresh: true, sql: outboxsql.NativeTable("public", "outbox")},
	"docs/platforms.md":                            {fresh: true},
	"docs/operations.md":                           {sql: "CREATE DATABASE orders"},
	"docs/runbooks/OutboxLeadershipLockForeign.md": {sql: "CREATE ROLE name"},
	"docs/runbooks/OutboxLockNotHeld.md":           {sql: "CREATE TABLE shedlock (name text PRIMARY KEY, lock_until timestamp, locked_at timestamp, locked_by text)"},
	"docs/runbooks/OutboxRowsNeverReady.md": {sql: `CREATE TABLE deferred_message (id bigint PRIMARY KEY, topic text, created timestamp, send_immediately boolean,
		schedule_after timestamp, sent_immediately timestamp, sent_scheduled timestamp, failed timestamp)`},
}

type setup struct {
	fresh  bool // nothing was prepared
	sql    string
	server localpg.Options
}

// Blocks that no other test runs do what they say, in the order of their page. Only what the
// reader fills in is the test's.
func TestBlocksAreRun(t *testing.T) {
	if testing.Short() {
		t.Skip("the short form is to parse them")
	}
	kafka := harness.PrivateKafka(t, harness.KafkaOptions{Settings: map[string]string{
		"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users": "User:ANONYMOUS",
	}})
	tools := programs(t)
	pages, used := map[string][]block{}, map[string]bool{}
	for _, b := range blocks(t) {
		run := b.lang == "sh" || b.lang == "sql" || b.lang == "yaml" && whole.MatchString(b.text)
		for place := range elsewhere {
			if strings.HasPrefix(b.page+"/"+b.heading, place) {
				run, used[place] = false, true
			}
		}
		if run && b.notRun == "" {
			pages[b.page] = append(pages[b.page], b)
		}
	}
	for place := range elsewhere {
		if !used[place] {
			t.Errorf("%s has no blocks: leave it out of elsewhere", place)
		}
	}
	for page := range setups {
		if pages[page] == nil {
			t.Errorf("%s has no blocks: leave it out of setups", page)
		}
	}
	for page, blocks := range pages {
		t.Run(page, func(t *testing.T) {
			r := newReader(t, kafka, tools, setups[page])
			for _, b := range blocks {
				switch b.lang {
				case "yaml":
					r.configure(b.text)
				case "sql":
					r.sql(b.text)
				default:
					r.shell(b.text)
				}
			}
		})
	}
}

// whole is a configuration that can be run.
var whole = regexp.MustCompile(`(?m)^streams:(?s:.*)\bdsn: `)

// programs is a folder with what the reader has in the PATH.
func programs(t *testing.T) string {
	t.Helper()
	dir, jars := t.TempDir(), harness.Jars(t, "pom.xml")
	if err := os.Symlink(harness.Binary(t), filepath.Join(dir, "outbox-cdc")); err != nil {
		t.Fatal(err)
	}
	for name, class := range map[string]string{"kafka-acls.sh": "AclCommand", "kafka-topics.sh": "TopicCommand", "kafka-console-consumer.sh": "consumer.ConsoleConsumer"} {
		script := fmt.Sprintf("#!/bin/sh\nexec java -XX:TieredStopAtLevel=1 -cp '%s/*' org.apache.kafka.tools.%s \"$@\"\n", jars, class)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// reader types what a page says.
type reader struct {
	t      *testing.T
	db     *harness.DB
	dir    string
	path   string
	listen string // of http: the port of other tests stays free
	filled *strings.Replacer

	password string // of connection strings that have none
}

func newReader(t *testing.T, kafka *harness.Cluster, tools string, s setup) *reader {
	t.Helper()
	r := &reader{t: t, db: harness.PrivatePostgres(t, s.server), dir: t.TempDir(), path: tools, listen: "off"}
	dsn, err := url.Parse(r.db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	var idle int
	if err := r.db.Conn(t).QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&idle); err != nil {
		t.Fatal(err)
	}
	r.password, _ = dsn.User.Password()
	typed := *dsn
	typed.User = url.User(dsn.User.Username())
	r.filled = strings.NewReplacer(
		"kafka-1:9092", kafka.Addrs[0], "kafka:9092", kafka.Addrs[0], "HOST:PORT", kafka.Addrs[0], "--bootstrap-server …", "--bootstrap-server "+kafka.Addrs[0],
		"localhost:9092", kafka.Addrs[0], "postgres://postgres@localhost:5432/orders", typed.String(), "postgres://cdc@db:5432/orders", r.db.DSN, "OUTBOX_CDC_ADMIN_DSN=…", "OUTBOX_CDC_ADMIN_DSN='"+r.db.DSN+"'",
		"HOST:5432/orders?sslmode=verify-full&sslrootcert=ca.pem", dsn.Host+dsn.Path,
		"/run/secrets", r.dir, "PASSWORD '…'", "PASSWORD 'secret'",
		"stream = 'NAME'", "stream = 'orders'", "(PID)", fmt.Sprintf("(%d)", idle),
	)
	for _, name := range []string{"writer", "streamer"} {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if !s.fresh {
		r.configure(`
kafka: {clusters: {main: {brokers: ["kafka:9092"], fencing: required}}}
streams:
  - name: orders
    delivery: exactly_once
    postgres: {dsn: "postgres://cdc@db:5432/orders"}
    tables: [{table: public.outbox, profile: native}]
`)
		r.shell("outbox-cdc init --native-table")
	}
	r.sql(s.sql)
	return r
}

func (r *reader) configure(text string) {
	r.t.Helper()
	text = r.filled.Replace(text) + fmt.Sprintf("http: {listen: %q}\n", r.listen)
	if err := os.WriteFile(filepath.Join(r.dir, "outbox-cdc.yaml"), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

var ended = regexp.MustCompile(`;(?: *--.*)?\n`)

func (r *reader) sql(text string) {
	r.t.Helper()
	conn := r.db.Conn(r.t).PgConn()
	for _, statement := range ended.Split(r.filled.Replace(text), -1) {
		if _, err := conn.Exec(r.t.Context(), statement).ReadAll(); err != nil {
			r.t.Errorf("%s: %v", statement, err)
		}
	}
}

// shell has a block run to its end, or until rows are streamed, and gives what it printed.
func (r *reader) shell(text string) string {
	r.t.Helper()
	p := r.start(text)
	if strings.Contains(text, "outbox-cdc run") {
		p.Await(time.Minute, streaming)
		p.Stop(30 * time.Second)
	} else if code := p.Ended(time.Minute); code != 0 {
		r.t.Errorf("ended with %d:\n%s\n%s", code, text, p.Tail(60))
	}
	return strings.Join(p.Said(), "\n")
}

// streaming is what run logs, not what an earlier command says of it.
const streaming = `"message":"streaming"`

// start begins with a block, in a terminal of its own.
func (r *reader) start(text string) *harness.Process {
	r.t.Helper()
	cmd := exec.Command("sh", "-ec", strings.ReplaceAll(r.filled.Replace(text), "outbox-cdc run", "exec outbox-cdc run"))
	cmd.Dir, cmd.Env = r.dir, append(os.Environ(), "PATH="+r.path+string(os.PathListSeparator)+os.Getenv("PATH"), "PGPASSWORD="+r.password)
	return harness.Start(r.t, cmd)
}
