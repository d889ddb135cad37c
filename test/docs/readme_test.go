package docs

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// README's five minutes, typed: on a PostgreSQL with its default settings and a Kafka that makes no topics, with run in
// a terminal of its own. Only addresses and passwords are the test's.
func TestFiveMinutes(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	if _, err := exec.LookPath("psql"); err != nil {
		t.Skip("NOT TESTED: there is no psql")
	}
	kafka := harness.PrivateKafka(t, harness.KafkaOptions{})
	tools := programs(t)
	r := newReader(t, kafka, tools, setup{fresh: true, server: localpg.Options{Settings: map[string]string{
		"wal_level": "replica", "max_wal_senders": "10", "max_replication_slots": "10", // PostgreSQL's own
	}}})
	port, err := localpg.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	r.listen = fmt.Sprintf("127.0.0.1:%d", port)
	began, said := time.Now(), ""
	var running *harness.Process
	for _, b := range blocks(t) {
		if b.page != "README.md" || b.heading != "On your own database, in five minutes" {
			continue
		}
		switch {
		case b.lang == "yaml":
			r.configure(b.text)
		case strings.Contains(b.text, "outbox-cdc run"):
			running = r.start(b.text)
			running.Await(time.Minute, streaming)
		case strings.Contains(b.text, "ALTER SYSTEM"):
			r.prepare(b.text)
		case strings.Contains(b.text, "SELECT id, status"):
			harness.Eventually(t, time.Minute, func() error { // a reader needs longer to type the first line
				_, err := harness.TryOne[int64](t.Context(), r.db, "SELECT id FROM outbox WHERE status = 'SENT'")
				return err
			})
			said = r.shell(b.text)
		default:
			r.shell(b.text)
		}
	}
	t.Logf("it took %v", time.Since(began).Round(time.Second))
	if running == nil {
		t.Fatal("the section does not run it")
	}
	running.Stop(30 * time.Second)
	for _, want := range []string{`{"total": 12}`, "orders: streaming", "| SENT"} {
		if !strings.Contains(said, want) {
			t.Errorf("the commands did not show %q:\n%s", want, said)
		}
	}
}

// prepare types the block that prepares the servers, and restarts PostgreSQL as it says. From 19 on only Kafka needs it.
func (r *reader) prepare(text string) {
	r.t.Helper()
	setting, rest, _ := strings.Cut(text, "\n")
	if major, _, _ := strings.Cut(r.db.Server.Version(), "."); major < "19" {
		r.shell(setting)
		if err := r.db.Server.Restart(r.t.Context(), localpg.Fast); err != nil {
			r.t.Fatal(err)
		}
	}
	r.shell(rest)
}
