package integration

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// An earlier version and this one run next to one another, as in a rollout and when it is taken back:
// each takes the lead from the other under load, after a kill and after a stop.
func TestTwoVersionsAtOnce(t *testing.T) {
	commit := os.Getenv("OUTBOX_TEST_OLDER")
	if commit == "" {
		t.Skip("NOT TRIED: OUTBOX_TEST_OLDER names no commit of an earlier version")
	}
	t.Parallel() // it mostly waits
	older := harness.BinaryOf(t, commit)
	w := newWorld(t, surroundings{partitions: 3})
	w.small()
	start := func(program string) *process {
		p := &process{harness.Start(t, exec.Command(program, "run", "--config", w.file(), "--log-format", "json", "--log-level", "debug")), t}
		return p
	}
	programs := []string{older, harness.Binary(t, "failpoints")}
	leader := start(programs[0]).streaming()
	load := w.write(steady())
	kills := 0
	for turn := 1; turn <= 4; turn++ {
		load.wrote(200, 30*time.Second)
		standby := start(programs[turn%2])
		standby.Await(30*time.Second, "stand") // what it says depends on the version
		if turn <= 2 {                         // in both directions
			leader.Kill()
			kills++
		} else {
			leader.stop()
		}
		standby.streaming()
		w.recovered()
		leader = standby
	}
	load.stop()
	w.settled(60 * time.Second)
	leader.stop()
	w.judge(history.Rules{Duplicates: kills * window})
}
