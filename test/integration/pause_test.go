package integration

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// A stream is paused under load: rows stay PENDING, the slot moves on all the same, and
// another leader keeps to it. When it is resumed everything goes out, in order.
func TestAPauseOutlastsItsLeader(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{partitions: 3})
	w.small()
	leader := w.run().streaming()
	standby := w.run()
	standby.Await(20*time.Second, "waiting as a standby")
	load := w.write(steady())
	load.wrote(100, 30*time.Second)
	w.says("pause")
	w.paused(true)
	last := harness.One[int64](t, w.db, `SELECT max(id) FROM outbox`)
	behind := harness.One[string](t, w.db, `SELECT pg_current_wal_insert_lsn()::text`)
	load.wrote(200, 30*time.Second)
	harness.Eventually(t, 30*time.Second, func() error {
		if !harness.One[bool](t, w.db, `SELECT confirmed_flush_lsn > $1::text::pg_lsn FROM pg_replication_slots WHERE slot_name = $2`, behind, w.stream["slot"]) {
			return errors.New("the slot does not move on")
		}
		return nil
	})
	if out, err := w.command("status", "--database", "--config", w.file()); err != nil || !strings.Contains(out, "paused by ") {
		t.Errorf("status does not say who has paused it: %v\n%s", err, out)
	}
	leader.Kill()
	standby.streaming()
	load.wrote(200, 30*time.Second)
	if sent := harness.One[int](t, w.db, `SELECT count(*) FROM outbox WHERE id > $1 AND status <> 'PENDING'`, last); sent > 0 {
		t.Errorf("%d rows that came after the pause are not PENDING", sent)
	}
	w.says("resume")
	load.wrote(100, 30*time.Second)
	load.stop()
	w.settled(time.Minute)
	w.paused(false)
	standby.stop()
	w.judge(history.Rules{Duplicates: window})
}

// says runs a command.
func (w *world) says(args ...string) {
	w.t.Helper()
	if out, err := w.command(append(args, "--config", w.file())...); err != nil {
		w.t.Fatalf("outbox-cdc %v: %v\n%s", args, err, out)
	}
}

// paused waits until a park of a pause is there, or no park at all.
func (w *world) paused(yes bool) {
	w.t.Helper()
	condition, want := `SELECT count(*) FROM outbox_cdc.park WHERE cause = 'paused'`, 1
	if !yes {
		condition, want = `SELECT count(*) FROM outbox_cdc.park`, 0
	}
	harness.Eventually(w.t, 30*time.Second, func() error {
		if n := harness.One[int](w.t, w.db, condition); n != want {
			return fmt.Errorf("%d parks, want %d", n, want)
		}
		return nil
	})
}
