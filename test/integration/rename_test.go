package integration

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// The table is renamed under the stream, and gets its name back: nothing is lost. The log says what happened, to what
// the table was renamed, and for what it and the stream are parked, each once.
func TestARenamedTableIsToldOnce(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	w.serve()
	p := w.run().streaming()
	w.isPublished(w.insertNow(w.topic, "before", 1, 10)[0])
	w.settled(30 * time.Second)
	before := len(p.Said())
	w.db.Exec(t, `ALTER TABLE outbox RENAME TO outbox_old`)
	p.Await(30*time.Second, "the table was renamed", "public.outbox_old")
	p.Await(30*time.Second, "could not count the pending rows") // at debug: its park says so
	said := loud(p.Said()[before:])
	if len(said) != 1 || !strings.Contains(said[0], "the table was renamed") {
		t.Errorf("%d lines about one cause:\n%s", len(said), strings.Join(said, "\n"))
	}
	const called = "it is called public.outbox_old now; write table: public.outbox_old in the configuration"
	offered := func() {
		p.shows("/api/v1/status", called)
		p.readyz(http.StatusServiceUnavailable, called)
		if out, _ := w.command("check", "--config", w.file()); !strings.Contains(out, "public.outbox_old") {
			t.Errorf("check: %s", out)
		}
	}
	offered()
	p.stop()
	p = w.run() // what the table was is remembered
	p.Await(30*time.Second, "the table was renamed", "public.outbox_old")
	offered()
	w.db.Exec(t, `ALTER TABLE outbox_old RENAME TO outbox`)
	w.isPublished(w.insertNow(w.topic, "after", 1, 10)[0])
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}

// A column that only marks write is renamed, and gets its name back: what refuses the marks names it as it is called now.
func TestARenamedColumnIsOffered(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	w.serve()
	p := w.run().streaming()
	w.isPublished(w.insertNow(w.topic, "before", 1, 10)[0])
	w.settled(30 * time.Second)
	before := len(p.Said())
	w.db.Exec(t, `ALTER TABLE outbox RENAME sent_at TO done_at`)
	w.isPublished(w.insertNow(w.topic, "meanwhile", 1, 10)[0])
	const called = `has no column "sent_at": it is called "done_at" now`
	p.Await(30*time.Second, "parked", called)
	for _, line := range loud(p.Said()[before:]) {
		if !strings.Contains(line, "done_at") {
			t.Errorf("what the column is called is not told: %s", line)
		}
	}
	offered := func() {
		p.shows("/api/v1/status", "done_at")
		if out, _ := w.command("check", "--config", w.file()); !strings.Contains(out, `it is called "done_at" now`) {
			t.Errorf("check: %s", out)
		}
		if out, _ := w.command("status", "--config", w.file(), "--database"); !strings.Contains(out, `it is called "done_at" now`) {
			t.Errorf("status: %s", out)
		}
	}
	offered()
	p.stop()
	p = w.run() // what the column was is remembered
	p.Await(30*time.Second, "parked", called)
	offered()
	w.db.Exec(t, `ALTER TABLE outbox RENAME done_at TO sent_at`)
	w.settled(60 * time.Second)
	p.stop()
	w.judge(history.Rules{Duplicates: 1}) // it was published, and the process stopped before it could be marked
}

// loud returns the lines that an operator should read.
func loud(lines []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		return !strings.Contains(line, `"level":"warn"`) && !strings.Contains(line, `"level":"error"`)
	})
}
