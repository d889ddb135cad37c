package integration

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// How long a standby may take until it has delivered a row: after a leader was
// killed, and after one has stopped cleanly.
const (
	takeover      = 5 * time.Second
	cleanTakeover = time.Second
)

// Leaders are killed under load, with two standbys that are ready and wait:
// each time one of the two goes on, and the other one stays the standby.
func TestAStandbyTakesOverFromAKilledLeader(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{partitions: 3})
	w.small()
	w.serve()
	leader := w.run().streaming()
	leader.ready(true)
	standbys := []*process{w.standby(), w.standby()}
	load := w.write(steady())
	kills := scaled(3, 20)
	for range kills {
		load.wrote(200, 30*time.Second)
		began := time.Now()
		leader.Kill()
		w.delivered(began, takeover)
		next, other := w.successor(standbys)
		other.ready(false)
		leader, standbys = next, []*process{other, w.standby()}
	}
	load.stop()
	w.settled(30 * time.Second)
	for _, p := range append(standbys, leader) {
		p.stop()
	}
	w.judge(history.Rules{Duplicates: kills * window})
}

// Leaders are stopped cleanly under load, as in a rolling restart: the standby
// goes on at once, and nothing is delivered twice.
func TestARollingRestart(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{partitions: 3})
	w.small()
	w.serve()
	leader := w.run().streaming()
	standby := w.standby()
	load := w.write(steady())
	for range scaled(4, 20) {
		load.wrote(200, 30*time.Second)
		leader.stop()
		w.delivered(time.Now(), cleanTakeover)
		leader, standby = standby, w.standby()
	}
	load.stop()
	w.settled(30 * time.Second)
	standby.stop()
	leader.stop()
	w.judge(history.Rules{})
}

// standby runs a process that waits as a standby, and is ready.
func (w *world) standby() *process {
	w.t.Helper()
	p := w.run()
	p.Await(20*time.Second, "waiting as a standby")
	p.ready(false)
	return p
}

// successor waits until one of two standbys leads, and gives it and the other.
func (w *world) successor(standbys []*process) (leader, other *process) {
	w.t.Helper()
	harness.Eventually(w.t, 30*time.Second, func() error {
		switch a, b := standbys[0].logged(`"message":"leading"`), standbys[1].logged(`"message":"leading"`); {
		case a == 1 && b == 0:
			leader, other = standbys[0], standbys[1]
		case a == 0 && b == 1:
			leader, other = standbys[1], standbys[0]
		case a == 1 && b == 1:
			w.t.Fatal("both lead")
		default:
			return errors.New("nobody leads")
		}
		return nil
	})
	return leader, other
}

// delivered waits until a row that is inserted now was delivered and marked, and
// tells how long that took, against what is promised: on an idle machine, so it
// is no failure where it takes several times as long.
func (w *world) delivered(since time.Time, promised time.Duration) {
	w.t.Helper()
	w.recoveredSince(since, w.topic)
	took := time.Since(since)
	w.t.Logf("takeover took %v, promised are %v", took.Round(time.Millisecond), promised)
	if took > 6*promised+10*time.Second {
		w.t.Errorf("the standby took over after %v", took)
	}
}

// A leader is stopped by SIGSTOP, so its connections stay open; the standby
// takes over, and what the former leader does when it wakes up is refused.
func TestAFrozenLeaderIsReplacedAndFenced(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{partitions: 3})
	w.small()
	a := w.run().streaming()
	b := w.run()
	b.Await(20*time.Second, "waiting as a standby")
	load := w.write(steady())
	rounds := scaled(2, 10)
	for range rounds {
		load.wrote(200, 30*time.Second)
		a.Signal(syscall.SIGSTOP)
		began := time.Now()
		b.streaming()
		w.recoveredSince(began, w.topic)
		load.wrote(200, 30*time.Second)
		a.Signal(syscall.SIGCONT)
		a.Await(30*time.Second, "waiting as a standby")
		if a.logged("the stream does not work") > 0 || a.logged(`"level":"warn"`, "another process took the lead while this one stood still") == 0 {
			t.Errorf("a leader that was frozen does not say what it is:\n%s", strings.Join(loud(a.Said()), "\n"))
		}
		load.wrote(100, 30*time.Second)
		a, b = b, a
	}
	load.stop()
	w.settled(30 * time.Second)
	b.stop()
	a.stop()
	w.judge(history.Rules{Duplicates: rounds * window})
}
