package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// Of each trouble with publication, slot and server one line is loud: the one that knows the reason and what happens next.
// Everything goes on by itself once the trouble is over.
func TestOneCauseIsOneLine(t *testing.T) {
	t.Parallel() // it mostly waits
	db := harness.PrivatePostgres(t, localpg.Options{})
	w := newWorld(t, surroundings{db: db, noInit: true})
	w.roles() // which may not make a publication
	w.serve()
	p := w.run().streaming()
	w.isPublished(w.insertNow(w.topic, "before", 1, 10)[0])
	cause := func(name string, do func(), repair string, until []string, want ...string) {
		t.Helper()
		w.settled(30 * time.Second)
		before := len(p.Said())
		do()
		p.Await(30*time.Second, until...)
		if repair != "" {
			db.Exec(t, repair)
		}
		p.Await(60*time.Second, "handed back to the stream", `"scope":"stream"`)
		w.isPublished(w.insertNow(w.topic, name, 1, 10)[0])
		w.settled(30 * time.Second)
		said := loud(p.Said()[before:])
		if len(said) != 1 || !strings.Contains(said[0], want[0]) || !strings.Contains(said[0], want[1]) {
			t.Errorf("%s: %d lines about one cause:\n%s", name, len(said), strings.Join(said, "\n"))
		}
	}
	exec := func(sql string) func() { return func() { db.Exec(t, sql) } }
	parked := []string{"parked: left to the sweeper", `"scope":"stream"`}
	cause("dropped", exec(`DROP PUBLICATION outbox`),
		`CREATE PUBLICATION outbox FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = true)`, parked, "make publication outbox", "run outbox-cdc init")
	cause("taken out", exec(`ALTER PUBLICATION outbox DROP TABLE outbox`), `ALTER PUBLICATION outbox ADD TABLE outbox`, parked, "publication outbox", "ADD TABLE")
	cause("no inserts", exec(`ALTER PUBLICATION outbox SET (publish = 'update')`), `ALTER PUBLICATION outbox SET (publish = 'insert')`, parked,
		"it does not publish inserts", "SET (publish = 'insert')")
	cause("slot dropped", w.dropSlot, "", parked, "slot", "does not exist")
	p.stop()
	w.judge(history.Rules{})
}
