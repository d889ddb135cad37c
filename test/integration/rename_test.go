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
	w.settled(30 * time.Second) // a mark that is refused tells of the table by itself
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

// loud are the lines that a person is to read.
func loud(lines []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		return !strings.Contains(line, `"level":"warn"`) && !strings.Contains(line, `"level":"error"`)
	})
}
