package main

import (
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// A broker that took a batch and does not answer delays a drain. The second signal does not wait. The row is
// still there afterwards.
func TestSecondSignalStopsAtOnce(t *testing.T) {
	db, kafka, c := ends(t, `http: {listen: "off"}`)
	asked, answer := make(chan struct{}), make(chan struct{})
	kafka.Fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		close(asked)
		<-answer
		return nil, nil, false
	})
	t.Cleanup(func() { close(answer) }) // before kfake closes
	rewrite(t, c, "name: orders", "name: twice")
	command(t, 0, "init", "--config", c, "--native-table")
	run := startRun(t, c)
	db.Exec(t, "INSERT INTO outbox (topic, key, payload) VALUES ('orders', 'k', 'hello')")
	await(t, asked, run)
	if err := run.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	waitForText(t, run, "once more stops at once")
	if err := run.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	await(t, run.ended, run)
	if code := run.cmd.ProcessState.ExitCode(); code != 128+int(syscall.SIGTERM) {
		t.Errorf("exit code %d:\n%s", code, run.text())
	}
	if status := harness.One[string](t, db, "SELECT status FROM outbox"); status != "PENDING" {
		t.Errorf("the row is %s", status)
	}
}

func await(t *testing.T, what <-chan struct{}, run *child) {
	t.Helper()
	select {
	case <-what:
	case <-time.After(patience):
		t.Fatalf("waited in vain:\n%s", run.text())
	}
}

func waitForText(t *testing.T, c *child, text string) {
	t.Helper()
	harness.Eventually(t, patience, func() error { return c.printed(text) })
}
