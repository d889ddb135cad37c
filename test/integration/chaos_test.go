package integration

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// Faults of every kind come one after another, often before the last one is
// over, while applications write: a leader and a standby are killed, stopped,
// frozen, held up, armed with failpoints; slot, publication and sessions go; rows
// are locked and transactions left open; the broker goes; records are refused.
// Whatever happens, all rows are delivered at the end, in order per key, with no
// more duplicates than crashes can cause.
//
// OUTBOX_TEST_CHAOS is the duration, such as 90s (make chaos DURATION=90s). The long
// form takes ten minutes. OUTBOX_TEST_SEED repeats the schedule of a run; its result
// still depends on the machine. The files of a failed run are kept.
// OUTBOX_TEST_DELIVERY is exactly_once, or both: one mode after the other.
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
	seeds := []uint64{uint64(time.Now().UnixNano()) % 1_000_000}
	if text := os.Getenv("OUTBOX_TEST_SEED"); text != "" {
		seeds = nil
		for part := range strings.SplitSeq(text, ",") {
			seed, err := strconv.ParseUint(part, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			seeds = append(seeds, seed)
		}
	}
	k := harness.PrivateKafka(t, harness.KafkaOptions{})
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { chaosOf(t, k, seed, length) })
	}
}

func chaosOf(t *testing.T, k *harness.Cluster, seed uint64, length time.Duration) {
	w := newWorld(t, surroundings{kafka: k, noTopic: true, limit: 2*length + 10*time.Minute})
	w.refusing(20_000)
	w.small()
	w.table["status"] = fields{"max_attempts": 2}
	w.sampled()
	c := &chaos{w: w, plan: newPlanner(seed), broker: k.Nodes[0]}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("again: make chaos SEED=%d DURATION=%v", seed, length)
			c.keep()
		}
	})
	c.run(length)
	c.history = w.judge(history.Rules{MayFail: refused, Duplicates: c.crashes * window, Missed: c.cut && w.db.Major(t) >= 18})
	t.Logf("%d faults, %d crashes at least once, %d changes of the mode, %d rows, %d duplicates", len(c.done), c.crashes, c.changes, len(c.history.Inserts), duplicates(c.history))
}

// chaos carries out a schedule on two processes.
type chaos struct {
	w         *world
	plan      *planner
	broker    *harness.Node
	processes [2]*process
	all       []*process // those that have ended, too
	frozen    [2]bool
	armed     [2]bool
	down      bool
	holding   sync.WaitGroup
	// crashes are faults after which rows may be published again, in the mode that the stream is in.
	crashes int
	changes int      // of the mode
	cut     bool     // the publication was away
	done    []string // what was done, and when
	history *history.History
}

func (c *chaos) run(length time.Duration) {
	w := c.w
	for i := range c.processes {
		c.begin(i)
	}
	load := w.write(steady())
	stopTrouble := w.trouble()
	for end := time.Now().Add(length); time.Now().Before(end) && !w.t.Failed(); {
		s := c.plan.next()
		c.note(s.String())
		c.do(s)
		waitUntil(w.t, time.Now().Add(s.pause))
	}
	c.calm()
	stopTrouble()
	load.stop()
	w.drained(90 * time.Second)
	for _, p := range c.processes {
		p.stop()
	}
}

// drained waits until nothing is PENDING, for as long as a tenth of it is done each
// time: on a slow machine outages are long, and much has been written meanwhile.
func (w *world) drained(tenth time.Duration) {
	w.t.Helper()
	for left := w.mustCount()[history.Pending]; left > 0; {
		harness.Eventually(w.t, tenth, func() error {
			counts, err := w.counts()
			n := counts[history.Pending]
			if err == nil && n > left*9/10 {
				err = fmt.Errorf("%d rows are PENDING, before it were %d", n, left)
			}
			if err == nil {
				left = n
			}
			return err
		})
	}
}

// calm ends the faults that are still active. An armed process could still kill itself, so it is restarted.
// The other processes go on unchanged.
func (c *chaos) calm() {
	c.note("calm")
	c.holding.Wait()
	if c.down {
		c.broker.Start(c.w.t)
	}
	for i := range c.processes {
		c.thaw(i)
		if c.armed[i] {
			c.crashed(1)
			c.processes[i].Kill()
		}
		c.revive(i)
	}
}

func (c *chaos) do(s step) {
	w, t, i := c.w, c.w.t, s.process
	switch s.do {
	case killed:
		c.crashed(1)
		c.processes[i].Kill()
		c.begin(i)
	case stopped:
		c.stop(i)
	case frozen:
		c.revive(i)
		c.crashed(1)
		c.frozen[i] = c.processes[i].Try(syscall.SIGSTOP)
	case thawed:
		c.thaw(i)
	case armed: // it may end itself
		c.crashed(2)
		c.processes[i].Kill()
		c.begin(i, "OUTBOX_FAILPOINT="+s.point)
	case revived:
		c.revive(0)
		c.revive(1)
	case slotDropped:
		w.dropSlot()
	case sessionsEnded:
		w.db.Exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'outbox-cdc%'`)
	case publicationCut:
		c.cut = true
		w.db.Exec(t, `DROP PUBLICATION IF EXISTS outbox`)
	case rowsLocked:
		c.hold(`SELECT id FROM outbox ORDER BY id DESC LIMIT 50 FOR UPDATE SKIP LOCKED`)
	case longOpen:
		c.hold(`CREATE TEMPORARY TABLE held (i int) ON COMMIT DROP`)
	case brokerKilled:
		c.crashed(1) // what is in flight when a process dies next has an unknown outcome
		c.broker.Kill()
		c.down = true
	case brokerStopped:
		c.crashed(1)
		c.broker.Stop()
		c.down = true
	case brokerStarted:
		c.broker.Start(t)
		c.down = false
	case modeChanged:
		c.change()
	}
}

func (c *chaos) crashed(times int) {
	if c.w.stream["delivery"] != "exactly_once" {
		c.crashes += times
	}
}

// change stops all processes and goes on in the other mode, which only a clean stop allows.
func (c *chaos) change() {
	w := c.w
	if !w.bothModes {
		return
	}
	for i := range c.processes {
		c.end(i)
	}
	mode := "exactly_once"
	if w.stream["delivery"] == mode {
		mode = "at_least_once"
	}
	open := `SELECT EXISTS (SELECT FROM outbox_cdc.tally WHERE NOT closed) OR EXISTS (SELECT FROM outbox_cdc.tally_left)`
	if !harness.One[bool](w.t, w.db, open) {
		w.stream["delivery"] = mode
		c.changes++
		c.note("the mode is " + mode)
	}
	for i := range c.processes {
		c.begin(i)
	}
}

func (c *chaos) begin(i int, env ...string) {
	c.frozen[i], c.armed[i] = false, len(env) > 0
	c.processes[i] = c.w.run(env...)
	c.all = append(c.all, c.processes[i])
}

func (c *chaos) stop(i int) {
	c.end(i)
	c.begin(i)
}

// end is clean only while the broker is there.
func (c *chaos) end(i int) {
	c.thaw(i)
	c.revive(i)
	if c.down {
		c.crashed(1)
	}
	c.processes[i].Try(syscall.SIGTERM) // an armed one may have ended meanwhile
	c.processes[i].Ended(40 * time.Second)
}

func (c *chaos) thaw(i int) {
	if c.frozen[i] {
		c.frozen[i] = false
		c.processes[i].Try(syscall.SIGCONT)
	}
}

// revive starts a process that has ended.
func (c *chaos) revive(i int) {
	select {
	case <-c.processes[i].Done():
		c.begin(i)
	default:
	}
}

// hold runs a statement in a transaction that stays open for two seconds.
func (c *chaos) hold(sql string) {
	t := c.w.t
	tx, err := c.w.db.Conn(t).Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), sql)
	}
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(2 * time.Second)
	c.holding.Go(func() {
		waitUntil(t, end)
		_ = tx.Rollback(t.Context())
	})
}

func (c *chaos) note(text string) {
	text = time.Now().UTC().Format("15:04:05.000 ") + text
	c.done = append(c.done, text)
	c.w.t.Log(text)
}

// keep writes the data that explains a failure to a folder.
func (c *chaos) keep() {
	t := c.w.t
	dir, err := os.MkdirTemp(os.Getenv("OUTBOX_TEST_KEEP"), "outbox-cdc-chaos-")
	if err != nil {
		t.Log(err)
		return
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Log(err)
		}
	}
	write("schedule.txt", strings.Join(c.done, "\n"))
	write("positions.txt", c.positions())
	for i, p := range c.all {
		p.Kill()
		write(fmt.Sprintf("process-%03d.log", i), p.log())
	}
	if c.history == nil { // it did not come to be judged
		c.history = c.left()
	}
	text, err := json.MarshalIndent(c.history, "", " ")
	write("history.json", cmp.Or(string(text), fmt.Sprint(err)))
	t.Logf("schedule, positions, logs and history are in %s", dir)
}

// left returns as much of the history as can be read when the test is over. The broker may be away.
func (c *chaos) left() *history.History {
	h := &history.History{Inserts: slices.Clone(c.w.log.Inserts())}
	records, err := c.w.kafka.TryRecords(context.WithoutCancel(c.w.t.Context()), c.w.topic)
	if err != nil {
		c.w.t.Logf("no records are kept: %v", err)
	}
	for _, r := range records {
		h.Records = append(h.Records, c.w.record(r))
	}
	c.w.readStates(h)
	return h
}

// positions returns the position of the WAL and those of its slots.
func (c *chaos) positions() string {
	var b strings.Builder
	err := c.w.query(`SELECT pg_current_wal_insert_lsn()::text, slot_name, active, restart_lsn::text, confirmed_flush_lsn::text, wal_status
		FROM (SELECT 1) one LEFT JOIN pg_replication_slots ON database = current_database()`, func(rows pgx.Rows) error {
		values, err := rows.Values()
		fmt.Fprintln(&b, values)
		return err
	})
	if err != nil {
		fmt.Fprintln(&b, err)
	}
	return b.String()
}
