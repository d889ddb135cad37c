package takeover

import (
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// The old relay, the writer's own sending and outbox-cdc all work on the same
// rows: each row is sent once. Then each side is killed: none is lost, and
// twice are at most the rows that were under way at a kill.
func TestCoexistence(t *testing.T) {
	t.Parallel()
	for _, app := range []outboxOf{im2be, advertMarket, jeap} {
		t.Run(app.profile, func(t *testing.T) {
			t.Parallel()
			kafka := broker(t)
			w := newWorld(t, app, kafka, kafka.Topic(t, 6))
			if app.profile == "im2be" { // longer than a slow machine's writer takes to send
				w.table["head_start"], w.table["grace"] = "10s", "10s"
			}
			old := w.application()
			old.polls()
			ours := w.run()
			ours.Await(time.Minute, `"message":"streaming"`)

			old.wrote(0, rowsEach, coexisting)
			w.settled(time.Minute)
			if twice := w.counted(rowsEach); twice > 0 {
				t.Fatalf("%d rows were sent twice though nothing failed", twice)
			}

			old.writes(rowsEach, rowsEach, coexisting)
			old.Await(time.Minute, "wrote ")
			old.Kill()
			ours.Kill()
			ours = w.again(w.config("stream"))
			old = w.application()
			old.polls()
			old.wrote(2*rowsEach, rowsEach, coexisting)
			ours.Signal(syscall.SIGKILL)
			ours.Ended(time.Minute)
			ours = w.again(w.config("stream"))
			old.wrote(3*rowsEach, rowsEach, coexisting)
			w.settled(2 * time.Minute)
			t.Logf("%d rows were sent twice, around three kills", w.counted(0))
			ours.Stop(30 * time.Second)
		})
	}
}

const rowsEach = 150

// coexisting: the writer sends most rows by itself, and some are left over. after is
// longer than a slow machine keeps it from sending.
var coexisting = fields{"hot": 70, "immediate": 50, "after": 10, "pause": 2}

var numbered = regexp.MustCompile(`(?:"n\\?": ?|message )(\d+)`)

// counted checks that every row that the table holds is in the topic, or the
// first so many, and gives how many are there more than once.
func (w *world) counted(rows int) (twice int) {
	w.t.Helper()
	held := harness.One[int](w.t, w.db, `SELECT count(*)::int FROM `+w.app.table)
	if rows > 0 && held != rows {
		w.t.Fatalf("the table holds %d rows, not %d", held, rows)
	}
	times := map[int]int{}
	for _, r := range w.kafka.Records(w.t, w.topic) {
		found := numbered.FindSubmatch(r.Value)
		if found == nil {
			w.t.Fatalf("record %q is no row's", r.Value)
		}
		n, err := strconv.Atoi(string(found[1]))
		if err != nil {
			w.t.Fatal(err)
		}
		if times[n]++; times[n] > 1 {
			twice++
		}
	}
	if len(times) != held {
		w.t.Fatalf("the table holds %d rows, and %d of them were sent", held, len(times))
	}
	return twice
}

// After a clean stop the old relay goes on at its next tick, and back again:
// nothing is lost, nothing sent twice.
func TestGiveBack(t *testing.T) {
	t.Parallel()
	for _, app := range []outboxOf{im2be, jeap} {
		t.Run(app.profile, func(t *testing.T) {
			t.Parallel()
			kafka := broker(t)
			w := newWorld(t, app, kafka, kafka.Topic(t, 6))
			old := w.application()
			old.polls()
			old.Await(time.Minute, "lock taken")
			ours := w.run()
			ours.Await(time.Minute, `"message":"streaming"`)
			old.Await(time.Minute, "lock is held")
			old.wrote(0, 50, quiet)
			w.settled(time.Minute)
			ours.Stop(30 * time.Second)
			old.Await(10*time.Second, "lock taken")
			old.wrote(50, 50, quiet)
			w.settled(time.Minute)
			ours = w.again(w.config("stream"))
			ours.Await(time.Minute, `"message":"streaming"`)
			old.wrote(100, 50, quiet)
			w.settled(time.Minute)
			if twice := w.counted(150); twice > 0 {
				t.Fatalf("%d rows were sent twice", twice)
			}
		})
	}
}
