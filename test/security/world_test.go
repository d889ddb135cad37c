package security

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// long says that the long form of the suite was asked for.
var long = os.Getenv("OUTBOX_TEST_LONG") == "1"

// fields are keys of the configuration. JSON is YAML.
type fields map[string]any

// world is an application's database with a native outbox table, a topic, and
// the program's configuration for them.
type world struct {
	t     *testing.T
	db    *harness.DB
	kafka *harness.Cluster
	topic string
	dir   string

	config, stream, cluster, table fields
}

// newWorld makes everything and runs init.
func newWorld(t *testing.T) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("not in the short form")
	}
	w := worldOn(t, harness.Postgres(t))
	w.must("init", "--native-table")
	return w
}

// worldOn is newWorld on a database of the test's, without init.
func worldOn(t *testing.T, db *harness.DB) *world {
	t.Helper()
	harness.Binary(t, "failpoints") // before any deadline
	w := &world{t: t, db: db, kafka: harness.Kafka(t), dir: t.TempDir()}
	w.topic = w.kafka.Topic(t, 1)
	w.table = fields{"table": "public.outbox", "profile": "native", "grace": "200ms"}
	w.cluster = fields{
		"brokers": w.kafka.Addrs, "request_timeout": "3s", "dial_timeout": "1s",
		"transactional_id_prefix": fmt.Sprint("t-", w.db.Name, time.Now().UnixNano()),
	}
	w.stream = fields{
		"name":           "s",
		"slot":           "slot_" + w.db.Name, // slots are the whole server's
		"publication":    "outbox",
		"postgres":       fields{"dsn": w.db.DSN, "wal_sender_timeout": "3s"},
		"tables":         []any{w.table},
		"backoff":        fields{"min": "100ms", "max": "200ms"},
		"watch_interval": "500ms",
		"drain_timeout":  "2m", // no stop takes so long: see stopped
	}
	w.config = fields{
		"kafka":   fields{"clusters": fields{"main": w.cluster}},
		"streams": []any{w.stream},
		"http":    fields{"listen": "off"},
	}
	return w
}

// file writes the configuration and gives its path.
func (w *world) file() string {
	w.t.Helper()
	return harness.ConfigFile(w.t, w.dir, w.config)
}

// command makes a command of the program with the configuration.
func (w *world) command(ctx context.Context, args ...string) *exec.Cmd {
	w.t.Helper()
	return exec.CommandContext(ctx, harness.Binary(w.t, "failpoints"), append(args, "--config", w.file())...)
}

// must runs a command of the program to its end and gives what it printed.
func (w *world) must(args ...string) string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	out, err := w.command(ctx, args...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("outbox-cdc %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// stopped stops a process, which has nothing to wait for.
func (w *world) stopped(p *harness.Process) {
	w.t.Helper()
	p.Stop(time.Minute)
}

// run starts outbox-cdc run and waits until it streams. env are additional
// variables, NAME=VALUE.
func (w *world) run(env ...string) *harness.Process {
	w.t.Helper()
	cmd := w.command(w.t.Context(), "run", "--log-format", "json", "--log-level", "debug")
	cmd.Env = append(os.Environ(), env...)
	p := harness.Start(w.t, cmd)
	p.Await(30*time.Second, "streaming")
	return p
}
