package integration

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/failpoint"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// Faults of every kind come one after another, often before the last one is
// over, while applications write: a leader and a standby are killed, stopped,
// frozen, armed with failpoints; slot and connections go; the broker goes;
// records are refused. OUTBOX_TEST_CHAOS is how long, such as 90s; the long
// form takes ten minutes. OUTBOX_TEST_SEED repeats a schedule (not its timing).
func TestChaos(t *testing.T) {
	length := scaled(0, 10*time.Minute)
	if text := os.Getenv("OUTBOX_TEST_CHAOS"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	if length == 0 {
		t.Skip("only in the long form, or with OUTBOX_TEST_CHAOS=90s")
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("OUTBOX_TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("OUTBOX_TEST_SEED=%d", seed)
	k := harness.PrivateKafka(t, harness.KafkaOptions{})
	w := newWorld(t, surroundings{kafka: k, noTopic: true})
	w.refusing(20_000)
	w.small()
	w.table["status"] = fields{"max_attempts": 2}
	c := &chaos{w: w, r: rand.New(rand.NewPCG(seed, 0)), broker: k.Nodes[0]}
	c.run(length)
	h := w.judge(history.Rules{MayFail: refused, Duplicates: c.crashes * window})
	t.Logf("%d faults, %d crashes, %d rows, %d duplicates", c.faults, c.crashes, len(h.Inserts), duplicates(h))
}

// chaos is a schedule of faults for two processes.
type chaos struct {
	w         *world
	r         *rand.Rand
	broker    *harness.Node
	processes [2]*process
	frozen    [2]bool
	down      bool
	// crashes are faults after which rows may be published again.
	faults, crashes int
}

func (c *chaos) run(length time.Duration) {
	w := c.w
	for i := range c.processes {
		c.processes[i] = w.run()
	}
	load := w.write(steady())
	stopTrouble := w.trouble()
	for end := time.Now().Add(length); time.Now().Before(end) && !w.t.Failed(); {
		c.fault()
		waitUntil(w.t, time.Now().Add(time.Duration(c.r.IntN(1500))*time.Millisecond))
	}
	c.calm()
	stopTrouble()
	load.stop()
	w.settled(90 * time.Second)
	for _, p := range c.processes {
		p.stop()
	}
}

// calm ends what is still broken.
func (c *chaos) calm() {
	if c.down {
		c.broker.Start(c.w.t)
	}
	for i := range c.processes {
		c.thaw(i)
		c.revive(i)
	}
}

func (c *chaos) fault() {
	w, t := c.w, c.w.t
	i := c.r.IntN(2)
	c.faults++
	kind := c.r.IntN(9)
	if c.down && c.r.IntN(2) == 0 {
		kind = 7
	}
	switch kind {
	case 0: // killed
		c.note("kill -9 of process %d", i)
		c.crashes++
		c.processes[i].kill()
		c.revive(i)
	case 1: // stopped and started; a stop is clean only while the broker is there
		if c.frozen[i] {
			return
		}
		c.revive(i)
		c.note("SIGTERM to process %d", i)
		if c.down {
			c.crashes++
		}
		_ = c.processes[i].cmd.Process.Signal(syscall.SIGTERM) // an armed one may have ended meanwhile
		c.processes[i].ended(40 * time.Second)
		c.revive(i)
	case 2: // frozen or thawed
		if c.frozen[i] {
			c.note("SIGCONT to process %d", i)
			c.thaw(i)
			return
		}
		c.revive(i)
		c.note("SIGSTOP to process %d", i)
		c.crashes++
		c.frozen[i] = c.processes[i].cmd.Process.Signal(syscall.SIGSTOP) == nil
	case 3: // armed: it will end itself
		names := []string{
			failpoint.AfterDecode, failpoint.AfterAck, failpoint.BeforeMark, failpoint.AfterMark, failpoint.BeforeConfirm,
			failpoint.BeforeParkWrite, failpoint.AfterParkWrite, failpoint.InHandback, failpoint.BeforeSlot, failpoint.AfterSlot,
		}
		point := at(names[c.r.IntN(len(names))], 1+c.r.IntN(5))
		c.note("process %d begins anew with %s", i, point)
		c.crashes += 2
		c.processes[i].kill()
		c.frozen[i] = false
		c.processes[i] = w.run(point)
	case 4:
		c.note("the slot is dropped")
		w.dropSlot()
	case 5:
		c.note("all sessions of outbox-cdc are terminated")
		w.db.Exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'outbox-cdc%'`)
	case 6, 7: // the broker
		c.breakBroker()
	case 8: // whoever has ended by a failpoint comes back
		c.revive(0)
		c.revive(1)
	}
}

func (c *chaos) breakBroker() {
	if c.down {
		c.note("the broker starts")
		c.broker.Start(c.w.t)
		c.down = false
		return
	}
	c.crashes++ // what was in flight when a process dies next has an unknown outcome
	if c.r.IntN(2) == 0 {
		c.note("the broker is killed")
		c.broker.Kill()
	} else {
		c.note("the broker stops")
		c.broker.Stop()
	}
	c.down = true
}

func (c *chaos) thaw(i int) {
	if c.frozen[i] {
		c.frozen[i] = false
		_ = c.processes[i].cmd.Process.Signal(syscall.SIGCONT)
	}
}

// revive starts a process that has ended.
func (c *chaos) revive(i int) {
	select {
	case <-c.processes[i].done:
		c.frozen[i] = false
		c.processes[i] = c.w.run()
	default:
	}
}

func (c *chaos) note(text string, args ...any) {
	c.w.t.Logf("%s %s", time.Now().UTC().Format("15:04:05.000"), fmt.Sprintf(text, args...))
}
