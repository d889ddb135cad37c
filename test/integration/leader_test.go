package integration

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// takeover is how long a standby may take, from the leader's end until it has
// delivered a row.
const takeover = 5 * time.Second

// A leader is killed, and stopped cleanly, under load; the standby goes on.
func TestAStandbyTakesOver(t *testing.T) {
	w := newWorld(t, surroundings{partitions: 3})
	w.small()
	leader := w.run().streaming()
	standby := w.run()
	standby.awaitLog(20*time.Second, "standing by")
	load := w.write(steady())
	for i := range scaled(4, 20) {
		load.wrote(200, 30*time.Second)
		began := time.Now()
		if i%2 == 0 {
			leader.kill()
		} else {
			leader.stop()
		}
		w.delivers(standby, began)
		leader, standby = standby, w.run()
		standby.awaitLog(20*time.Second, "standing by")
	}
	load.stop()
	w.settled(30 * time.Second)
	standby.stop()
	leader.stop()
	w.judge(history.Rules{Duplicates: scaled(2, 10) * window})
}

// delivers waits until the process has delivered a row that was inserted now.
func (w *world) delivers(p *process, since time.Time) {
	w.t.Helper()
	row := w.insertNow(w.topic, "probe", 1, 10)[0]
	p.streaming()
	harness.Eventually(w.t, 30*time.Second, func() error {
		status, err := harness.TryOne[string](w.t.Context(), w.db,
			`SELECT status FROM outbox WHERE key = 'probe' AND convert_from(payload, 'UTF8') LIKE $1 || '|%'`, row.Ref)
		if err == nil && status != "SENT" {
			err = fmt.Errorf("the row is %s", status)
		}
		return err
	})
	took := time.Since(since)
	w.t.Logf("takeover took %v", took.Round(time.Millisecond))
	if took > takeover {
		w.t.Errorf("the standby took over after %v, wanted %v", took, takeover)
	}
}

// A leader is stopped by SIGSTOP, so its connections stay open; the standby
// takes over, and what the former leader does when it wakes up is refused.
func TestAFrozenLeaderIsReplacedAndFenced(t *testing.T) {
	w := newWorld(t, surroundings{partitions: 3})
	w.small()
	a := w.run().streaming()
	b := w.run()
	b.awaitLog(20*time.Second, "standing by")
	load := w.write(steady())
	rounds := scaled(2, 10)
	for range rounds {
		load.wrote(200, 30*time.Second)
		a.signal(syscall.SIGSTOP)
		began := time.Now()
		b.streaming()
		if took := time.Since(began); took > 2*takeover { // the server's patience comes first
			t.Errorf("the leader was replaced after %v", took)
		}
		load.wrote(200, 30*time.Second)
		a.signal(syscall.SIGCONT)
		a.awaitLog(30*time.Second, "standing by")
		load.wrote(100, 30*time.Second)
		a, b = b, a
	}
	load.stop()
	w.settled(30 * time.Second)
	b.stop()
	a.stop()
	h := w.judge(history.Rules{Duplicates: rounds * window})
	t.Logf("%d rows, %d duplicates", len(h.Inserts), duplicates(h))
}
