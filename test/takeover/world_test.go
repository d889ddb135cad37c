// Package takeover proves on real parts that outbox-cdc takes over from an
// application's own relay: models of the relays (relay/Relay.java, with the real
// ShedLock and Kafka's Java client; Debezium itself) work on tables made by the
// original DDL, before, during and after a time next to outbox-cdc.
package takeover

import (
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// fields are keys of the configuration. JSON is YAML.
type fields map[string]any

// outboxOf is one application's outbox.
type outboxOf struct {
	profile, table string
	// unsettled is the query that counts rows which are neither sent nor failed.
	unsettled string
	// overrides of the profile, so that tests do not wait for minutes.
	overrides fields
}

var im2be = outboxOf{
	profile: "im2be", table: "public.outbox",
	unsettled: `SELECT count(*)::int FROM public.outbox WHERE status = 'PENDING'`,
	overrides: fields{"head_start": "3s", "grace": "3s"}, // or a slow machine's writer is too slow
}

var advertMarket = outboxOf{
	profile: "advert-market", table: "public.notification_outbox",
	unsettled: `SELECT count(*)::int FROM public.notification_outbox WHERE status IN ('PENDING', 'PROCESSING')`,
	overrides: fields{"grace": "1s"},
}

var jeap = outboxOf{
	profile: "jeap", table: "public.deferred_message",
	unsettled: `SELECT count(*)::int FROM public.deferred_message WHERE sent_immediately IS NULL AND sent_scheduled IS NULL AND failed IS NULL`,
	overrides: fields{"grace": "1s"},
}

// world is an application's database and topic.
type world struct {
	t     *testing.T
	app   outboxOf
	db    *harness.DB
	kafka *harness.Cluster
	topic string
	table fields
	dir   string
}

// broker returns a real Kafka. Everything here needs one.
func broker(t *testing.T) *harness.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("not in the short form: these start Java programs")
	}
	return harness.Kafka(t)
}

func newWorld(t *testing.T, app outboxOf, kafka *harness.Cluster, topic string) *world {
	t.Helper()
	w := emptyWorld(t, app, kafka, topic)
	ddl, _ := fixture.Original(app.profile)
	w.db.Exec(t, ddl)
	return w
}

// emptyWorld has no table yet.
func emptyWorld(t *testing.T, app outboxOf, kafka *harness.Cluster, topic string) *world {
	t.Helper()
	w := &world{t: t, app: app, db: harness.Postgres(t), kafka: kafka, topic: topic, dir: t.TempDir()}
	w.table = fields{"table": app.table}
	if app.profile != "" {
		w.table["profile"] = app.profile
	}
	maps.Copy(w.table, app.overrides)
	return w
}

// config writes the configuration. mode is the stream's.
func (w *world) config(mode string) string {
	w.t.Helper()
	return harness.ConfigFile(w.t, w.dir, fields{
		"kafka": fields{"default": "main", "clusters": fields{"main": fields{"brokers": w.kafka.Addrs, "transactional_id_prefix": "t-" + w.db.Name}}},
		"streams": []fields{{
			"name": "app", "mode": mode, "postgres": fields{"dsn": w.db.DSN},
			"slot": "slot_" + w.db.Name, "publication": "outbox_cdc_app", "watch_interval": "500ms", "tables": []fields{w.table},
		}},
		"http": fields{"listen": "127.0.0.1:0"},
	})
}

// command runs a command of outbox-cdc to its end.
func (w *world) command(args ...string) string {
	w.t.Helper()
	out, err := exec.Command(harness.Binary(w.t), args...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("outbox-cdc %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// run makes what outbox-cdc needs and starts it.
func (w *world) run() *harness.Process {
	w.t.Helper()
	file := w.config("stream")
	w.command("init", "--config", file)
	return w.again(file)
}

func (w *world) again(file string) *harness.Process {
	w.t.Helper()
	return harness.Start(w.t, exec.Command(harness.Binary(w.t), "run", "--config", file, "--log-format", "json"))
}

// relay is a process with a model of the application.
type relay struct {
	*harness.Process
	t  *testing.T
	in io.Writer
}

// application starts the model of the application. It does nothing yet.
func (w *world) application() *relay {
	w.t.Helper()
	args := []string{
		"-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-cp", relayClasses(w.t), "Relay",
		"relay=" + w.app.profile, "table=" + w.app.table, "topic=" + w.topic, "brokers=" + w.kafka.Addrs[0],
	}
	cmd := exec.Command("java", append(args, w.jdbc()...)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	return &relay{harness.Start(w.t, cmd), w.t, in}
}

func (r *relay) command(name string, settings fields) {
	r.t.Helper()
	line := name
	for key, value := range settings {
		line += fmt.Sprintf(" %s=%v", key, value)
	}
	if _, err := fmt.Fprintln(r.in, line); err != nil {
		r.t.Fatal(err)
	}
}

// polls has the old relay work from now on, in quick ticks.
func (r *relay) polls() { r.command("poll", fields{"interval": 50}) }

// writes has the application write rows.
func (r *relay) writes(from, rows int, settings fields) {
	r.t.Helper()
	all := fields{"from": from, "rows": rows}
	maps.Copy(all, settings)
	r.command("write", all)
}

// wrote has the application write rows, and waits until it has.
func (r *relay) wrote(from, rows int, settings fields) {
	r.t.Helper()
	r.writes(from, rows, settings)
	r.Await(time.Minute, "done")
}

// jdbc returns the database's address for Java programs.
func (w *world) jdbc() []string {
	w.t.Helper()
	c, err := pgx.ParseConfig(w.db.Own())
	if err != nil {
		w.t.Fatal(err)
	}
	return []string{fmt.Sprintf("jdbc=jdbc:postgresql://%s:%d/%s", c.Host, c.Port, c.Database), "user=" + c.User, "password=" + c.Password}
}

var (
	compiled sync.Once
	classes  string
)

func relayClasses(t *testing.T) string {
	t.Helper()
	compiled.Do(func() { classes = compile(t) })
	return classes
}

func compile(t *testing.T) string {
	t.Helper()
	return harness.Classes(t, harness.Jars(t, filepath.Join("relay", "pom.xml")), filepath.Join("relay", "Relay.java"))
}

// settled waits until every row is sent or failed.
func (w *world) settled(within time.Duration) {
	w.t.Helper()
	harness.Eventually(w.t, within, func() error {
		if n := harness.One[int](w.t, w.db, w.app.unsettled); n > 0 {
			return fmt.Errorf("%d rows are neither sent nor failed", n)
		}
		return nil
	})
}
