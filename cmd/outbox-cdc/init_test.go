package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// command runs a command line in this process.
func command(t *testing.T, want int, args ...string) (out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	if code := execute(args, streams{out: &o, err: &e}); code != want {
		t.Fatalf("outbox-cdc %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), code, want, o.String(), e.String())
	}
	if strings.Contains(o.String()+e.String(), "hunter2") {
		t.Errorf("a password is printed:\n%s%s", o.String(), e.String())
	}
	return o.String(), e.String()
}

// file writes a configuration of one stream with a native table.
func file(t *testing.T, dsn, replicationDSN, more string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	text := fmt.Sprintf(`
kafka: {clusters: {main: {brokers: ["127.0.0.1:1"]}}}
streams:
  - name: orders
    postgres: {dsn: %q, replication_dsn: %q}
    tables: [{table: public.outbox, profile: native}]
%s`, dsn, replicationDSN, more)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func mustHave(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in:\n%s", part, text)
		}
	}
}

// An administrator makes everything, twice. Then the two roles stream with exactly the rights that they were
// granted.
func TestInitThenRunWithTheRolesItMade(t *testing.T) {
	db := harness.PrivatePostgres(t, localpg.Options{})
	kafka := harness.Kfake(t)
	writer, streamer := db.Server.DSNAs(db.Name, "writer", "hunter2"), db.Server.DSNAs(db.Name, "streamer", "hunter2")
	c := file(t, writer, streamer, `http: {listen: "127.0.0.1:0"}`)
	rewrite(t, c, `"127.0.0.1:1"`, strconv.Quote(kafka.Addrs[0]))
	t.Setenv(adminVariable, db.DSN)

	shown, _ := command(t, 0, "init", "--config", c, "--show-sql", "--native-table")
	mustHave(t, shown, `CREATE ROLE "writer" LOGIN;`, `CREATE PUBLICATION`, `GRANT SELECT ON "public"."outbox" TO "writer"`)
	if n := harness.One[int](t, db, "SELECT count(*) FROM pg_roles WHERE rolname IN ('writer', 'streamer')"); n != 0 {
		t.Fatal("--show-sql made roles")
	}
	made, _ := command(t, 0, "init", "--config", c, "--native-table")
	mustHave(t, made, "orders: made table public.outbox of profile native", "orders: made slot outbox_cdc_orders", "orders: ready", `\password "writer" in psql`, `hostssl DATABASE "writer" ADDRESS`)
	again, _ := command(t, 0, "init", "--config", c, "--native-table")
	mustHave(t, again, "there already: table public.outbox", "there already: index outbox_due", "there already: role writer", "orders: ready")
	db.Exec(t, "DROP INDEX outbox_due; CREATE INDEX outbox_pending ON outbox (id) WHERE status = 'PENDING'") // as an earlier version made it
	again, _ = command(t, 0, "init", "--config", c, "--native-table")
	mustHave(t, again, "made index outbox_due for the sweep")

	db.Exec(t, "ALTER ROLE writer PASSWORD 'hunter2'; ALTER ROLE streamer PASSWORD 'hunter2'")
	t.Setenv(adminVariable, "")
	t.Setenv("GOMAXPROCS", "") // the machine's, of which one stream uses one
	kafka.CreateTopic(t, "orders", 1, nil)
	run := startRun(t, c)
	db.Exec(t, "INSERT INTO outbox (topic, key, payload) VALUES ('orders', 'k', 'hello')")
	harness.Eventually(t, 20*time.Second, func() error {
		if n := harness.One[int](t, db, "SELECT count(*) FROM outbox WHERE status = 'SENT'"); n != 1 {
			return fmt.Errorf("not SENT yet; the log:\n%s", run.text())
		}
		return nil
	})
	isServed(t, run, "/readyz", `"ready": true`)
	isServed(t, run, "/metrics", `outbox_cdc_rows_published_total{stream="orders",table="public.outbox"} 1`)
	isServed(t, run, "/metrics", "\ngo_sched_gomaxprocs_threads 1\n")
	if text := run.stop(t); strings.Contains(text, `"level":"warn"`) || strings.Contains(text, `"level":"error"`) || strings.Contains(text, "hunter2") {
		t.Errorf("the log of a healthy first start:\n%s", text)
	}
}

var served = regexp.MustCompile(`"address":"([^"]+)"`)

// isServed waits until a page of the program has this text.
func isServed(t *testing.T, run *child, path, want string) {
	t.Helper()
	harness.Eventually(t, patience, func() error {
		address := served.FindStringSubmatch(run.text())
		if address == nil {
			return errors.New("no address in the log yet")
		}
		res, err := http.Get("http://" + address[1] + path)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err == nil && !strings.Contains(string(body), want) {
			err = fmt.Errorf("%s: %d, no %s in\n%s", path, res.StatusCode, want, body)
		}
		return err
	})
}

// ends returns a database, a broker with the topic orders, and a configuration that streams from one to the
// other.
func ends(t *testing.T, http string) (*harness.DB, *harness.Cluster, string) {
	t.Helper()
	db := harness.Postgres(t)
	kafka := harness.Kfake(t)
	kafka.CreateTopic(t, "orders", 1, nil)
	c := file(t, db.DSN, db.DSN, http)
	rewrite(t, c, `"127.0.0.1:1"`, strconv.Quote(kafka.Addrs[0]))
	return db, kafka, c
}

// startRun runs the real program until stop.
func startRun(t *testing.T, configFile string) *child {
	t.Helper()
	c := &child{wrote: make(chan struct{}, 1), ended: make(chan struct{})}
	c.cmd = exec.Command(harness.Binary(t), "run", "--config", configFile, "--log-format", "json") // #nosec G204 -- the test's own program
	c.cmd.Stdout, c.cmd.Stderr = c, c
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = c.cmd.Wait()
		close(c.ended)
	}()
	t.Cleanup(func() { _ = c.cmd.Process.Kill() })
	return c
}

// stop ends the program as an operator would, and returns its output.
func (c *child) stop(t *testing.T) string {
	t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.ended:
	case <-time.After(patience):
		t.Fatalf("it has not ended:\n%s", c.text())
	}
	if code := c.cmd.ProcessState.ExitCode(); code != exitOK {
		t.Errorf("exit code %d:\n%s", code, c.text())
	}
	return c.text()
}

func rewrite(t *testing.T, path, from, to string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.ReplaceAll(text, []byte(from), []byte(to)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// If only a person can help, the exit code is 3, and the output says what to do.
func TestInitSaysWhatIsInTheWay(t *testing.T) {
	db := harness.PrivatePostgres(t, localpg.Options{})
	db.Exec(t, "CREATE ROLE poor LOGIN PASSWORD 'hunter2'; CREATE TABLE taken (id int)")
	poor := db.Server.DSNAs(db.Name, "poor", "hunter2")

	t.Run("wrong password", func(t *testing.T) {
		bad := db.Server.DSNAs(db.Name, "poor", "hunter2x")
		_, e := command(t, exitPermanent, "init", "--config", file(t, bad, bad, ""))
		mustHave(t, e, "password authentication failed", "correct the password in the dsn", `ALTER ROLE "poor" PASSWORD`, "still to be made, name one that may make it: OUTBOX_CDC_ADMIN_DSN=")
	})
	t.Run("no such database", func(t *testing.T) {
		bad := db.Server.DSNAs("nowhere", "poor", "hunter2")
		_, e := command(t, exitPermanent, "init", "--config", file(t, bad, bad, ""))
		mustHave(t, e, `database "nowhere" does not exist`)
	})
	t.Run("no privilege", func(t *testing.T) {
		_, e := command(t, exitPermanent, "init", "--config", file(t, poor, poor, ""))
		mustHave(t, e, "stream orders: ", "permission denied", "--show-sql")
	})
	t.Run("no table", func(t *testing.T) {
		_, e := command(t, exitPermanent, "init", "--config", file(t, db.DSN, db.DSN, ""))
		mustHave(t, e, `outbox`, "does not exist")
	})
	t.Run("the slot is somebody else's", func(t *testing.T) {
		db.Exec(t, "SELECT pg_create_physical_replication_slot('outbox_cdc_orders')")
		_, e := command(t, exitPermanent, "init", "--config", file(t, db.DSN, db.DSN, ""), "--native-table")
		mustHave(t, e, "outbox_cdc_orders")
		db.Exec(t, "SELECT pg_drop_replication_slot('outbox_cdc_orders')")
	})
	t.Run("no native table to make", func(t *testing.T) {
		c := file(t, db.DSN, db.DSN, "")
		rewrite(t, c, "native", "im2be")
		_, e := command(t, exitUsage, "init", "--config", c, "--native-table")
		mustHave(t, e, "no table of profile native")
	})
}

func TestInitNeedsLogicalDecoding(t *testing.T) {
	db := harness.PrivatePostgres(t, localpg.Options{Settings: map[string]string{"wal_level": "replica"}})
	want := exitPermanent
	if db.Major(t) >= 19 { // the first slot raises the level
		want = exitOK
	}
	_, e := command(t, want, "init", "--config", file(t, db.DSN, db.DSN, ""), "--native-table")
	if want == exitPermanent {
		mustHave(t, e, "wal_level", "logical")
	}
}
