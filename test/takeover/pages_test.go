package takeover

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// The pages of docs/takeover are followed word for word, on a database made by
// the original DDL, with the application at work. Only durations are shorter.
func TestPagesAreFollowed(t *testing.T) {
	t.Parallel()
	for _, app := range []outboxOf{im2be, advertMarket, jeap} {
		t.Run(app.profile, func(t *testing.T) {
			t.Parallel()
			kafka := broker(t)
			w := newWorld(t, app, kafka, kafka.Topic(t, 6))
			old := w.application()
			old.polls()
			r := newReader(w)
			for _, line := range r.commands {
				switch {
				case strings.HasPrefix(line, "outbox-cdc run "):
					r.run()
				case strings.HasPrefix(line, "outbox-cdc compare "):
					r.compare(line, func() { old.wrote(0, 30, quiet) })
				case strings.HasPrefix(line, "outbox-cdc destroy "):
					old.wrote(30, 30, quiet)
					w.settled(time.Minute)
					r.running.Stop(30 * time.Second)
					r.shell(line)
				default:
					r.shell(line)
				}
			}
			if n := harness.One[int](t, w.db, `SELECT count(*)::int FROM pg_replication_slots WHERE database = current_database()`); n > 0 {
				t.Errorf("%d slots are left behind", n)
			}
			old.wrote(60, 10, quiet)
			w.settled(time.Minute)
			if twice := w.counted(70); twice > 0 {
				t.Errorf("%d rows were sent twice", twice)
			}
		})
	}
}

// The page on Debezium, with Debezium at work.
func TestDebeziumsPageIsFollowed(t *testing.T) {
	t.Parallel()
	kafka := broker(t)
	aggregate := strings.ReplaceAll(kafka.Topic(t, 1), "-", "_")
	topic := "outbox.event." + aggregate
	kafka.CreateTopic(t, topic, 6, nil)
	w := newWorld(t, debezium, kafka, topic)
	w.db.Exec(t, "ALTER SYSTEM SET max_slot_wal_keep_size = '64GB'") // as the page says
	w.db.Exec(t, "SELECT pg_reload_conf()")
	connector := w.connect()
	write := func(from int) {
		for n := from; n < from+30; n++ {
			w.db.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), $1, $2, 'Made', $3)`,
				aggregate, fmt.Sprint(n%7), fmt.Sprintf(`{"n": %d}`, n))
		}
	}
	r := newReader(w)
	for _, line := range r.commands {
		switch {
		case strings.HasPrefix(line, "outbox-cdc run ") && r.runs == 1:
			connector.Kill() // it has sent what it read: compare saw to that
			r.run()
		case strings.HasPrefix(line, "outbox-cdc run "):
			r.run()
		case strings.HasPrefix(line, "outbox-cdc compare "):
			r.compare(line, func() { write(0) })
		case strings.HasPrefix(line, "outbox-cdc destroy "):
			write(30)
			kafka.AwaitRecords(t, topic, 60, time.Minute)
			r.running.Stop(30 * time.Second)
			r.shell(line)
		default:
			r.shell(line)
		}
	}
	r.shell("outbox-cdc slots drop --config outbox-cdc.yaml --yes debezium_" + w.db.Name)
	if twice := w.counted(60); twice > 0 {
		t.Errorf("%d rows were sent twice", twice)
	}
}

// reader follows a page.
type reader struct {
	w        *world
	config   string // the page's
	commands []string
	sql      []string // to be run between the old relay and ours
	runs     int
	running  *harness.Process
}

var block = regexp.MustCompile("(?s)```(yaml|sh|sql)\n(.*?)```")

func newReader(w *world) *reader {
	w.t.Helper()
	r := &reader{w: w}
	r.read(w.app.profile)
	if r.commands == nil { // those of all pages
		r.read("README")
	}
	// Not on the page: a port that is free, and a slot name for a shared server.
	r.config = strings.ReplaceAll(r.config, "slot: outbox_cdc_orders", "slot: slot_"+w.db.Name) + "http: {listen: \"127.0.0.1:0\"}\n"
	r.write(r.config)
	return r
}

// read takes what a page has for its reader.
func (r *reader) read(page string) {
	r.w.t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "takeover", page+".md"))
	if err != nil {
		r.w.t.Fatal(err)
	}
	for _, m := range block.FindAllStringSubmatch(string(text), -1) {
		switch {
		case m[1] == "yaml" && r.config == "":
			r.config = m[2]
		case m[1] == "sql":
			r.sql = append(r.sql, m[2])
		case m[1] == "sh":
			for line := range strings.Lines(m[2]) {
				r.commands = append(r.commands, strings.TrimSpace(line))
			}
		}
	}
}

func (r *reader) write(config string) {
	r.w.t.Helper()
	if err := os.WriteFile(filepath.Join(r.w.dir, "outbox-cdc.yaml"), []byte(config), 0o600); err != nil {
		r.w.t.Fatal(err)
	}
}

func (r *reader) prepared(cmd *exec.Cmd) *exec.Cmd {
	cmd.Dir = r.w.dir
	cmd.Env = append(os.Environ(), "DATABASE_URL="+r.w.db.DSN, "KAFKA_BROKERS="+r.w.kafka.Addrs[0],
		"PATH="+filepath.Dir(harness.Binary(r.w.t))+string(os.PathListSeparator)+os.Getenv("PATH"))
	return cmd
}

func (r *reader) shell(line string) string {
	r.w.t.Helper()
	out, err := r.prepared(exec.Command("sh", "-c", line)).CombinedOutput()
	if err != nil {
		r.w.t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// run is first the shadow, and then the switch.
func (r *reader) run() {
	r.w.t.Helper()
	r.runs++
	if r.runs == 1 {
		r.write(strings.Replace(r.config, "- name: orders\n", "- name: orders\n    mode: shadow\n", 1))
	} else {
		r.running.Stop(30 * time.Second)
		r.write(r.config)
	}
	r.running = harness.Start(r.w.t, r.prepared(exec.Command(harness.Binary(r.w.t), "run", "--config", "outbox-cdc.yaml", "--log-format", "json")))
	r.running.Await(time.Minute, `"message":"streaming"`)
}

// compare has the application write 30 rows meanwhile. Nothing may differ.
func (r *reader) compare(line string, write func()) {
	r.w.t.Helper()
	cmd := r.prepared(exec.Command("sh", "-c", "exec "+strings.Replace(line, "--for 10m", "--for 6s --settle 20s", 1)))
	p := harness.Start(r.w.t, cmd)
	p.Await(time.Minute, "comparing stream orders")
	write()
	if code := p.Ended(time.Minute); code != 0 {
		r.w.t.Fatalf("%s: exit code %d\n%s", line, code, p.Tail(40))
	}
	p.Await(time.Second, "30 rows, 30 records, 30 equal, 0 differences")
}
