package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// The README's minute is typed as it stands there, for a new table. Only the addresses are the test's.
func TestReadmesMinute(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(readme), "\n### For the table that you have\n")
	_, block, _ := strings.Cut(section, "```sh\n")
	block, _, ok := strings.Cut(block, "```")
	if !ok {
		t.Fatal("the section is gone")
	}
	db, kafka := harness.Postgres(t), harness.Kfake(t)
	kafka.CreateTopic(t, "orders", 1, nil)
	db.Exec(t, `CREATE TABLE outbox_events (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_id text NOT NULL, event_type text NOT NULL,
		payload jsonb NOT NULL, created_at timestamptz NOT NULL DEFAULT now(), published_at timestamptz);
		INSERT INTO outbox_events (aggregate_id, event_type, payload) VALUES ('42', 'OrderPlaced', '{"total": 12}')`)
	dir := t.TempDir()
	if err := os.Symlink(harness.Binary(t), filepath.Join(dir, "outbox-cdc")); err != nil {
		t.Fatal(err)
	}
	password := passwordOf(t, db)
	prepared := func(line string) *exec.Cmd {
		cmd := exec.Command("sh", "-c", line)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "PGPASSWORD="+password)
		return cmd
	}
	typed := strings.NewReplacer("postgres://postgres@localhost:5432/orders", strings.Replace(db.DSN, ":"+password+"@", "@", 1), "localhost:9092", kafka.Addrs[0])
	var running *harness.Process
	for _, line := range strings.Split(strings.TrimSpace(typed.Replace(block)), "\n") {
		if strings.HasPrefix(line, "outbox-cdc run") {
			running = harness.Start(t, prepared("exec "+line))
			break
		}
		out, err := prepared(line).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		if strings.HasPrefix(line, "outbox-cdc preview") {
			mustHave(t, string(out), "orders", "42", `{"total": 12}`)
		}
		if strings.Contains(line, "suggest") { // the port of other tests stays free
			text, err := os.ReadFile(filepath.Join(dir, "outbox-cdc.yaml"))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, "outbox-cdc.yaml"), append(text, "http: {listen: \"off\"}\n"...), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if running == nil {
		t.Fatal("the section does not run it")
	}
	records := kafka.AwaitRecords(t, "orders", 1, time.Minute)
	if string(records[0].Key) != "42" || string(records[0].Value) != `{"total": 12}` {
		t.Errorf("%+v", records)
	}
	harness.Eventually(t, time.Minute, func() error {
		_, err := harness.TryOne[time.Time](t.Context(), db, "SELECT published_at FROM outbox_events WHERE published_at IS NOT NULL")
		return err
	})
	running.Stop(30 * time.Second)
}
