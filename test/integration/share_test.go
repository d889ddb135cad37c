package integration

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// Two streams share a table by the hash of the key. Each publishes its own rows
// and takes none of the other's for missed; one loses its slot while nothing
// runs, sweeps its part, and leaves the other alone. Every row arrives once, in
// order per key.
func TestTwoStreamsShareATable(t *testing.T) {
	t.Parallel() // it mostly waits
	atLeast(t, 15)
	w := newWorld(t, surroundings{partitions: 3, noInit: true})
	w.serve()
	other := maps.Clone(w.stream)
	table := maps.Clone(w.table)
	w.table["share"], table["share"] = fields{"part": 1, "of": 2}, fields{"part": 2, "of": 2}
	slot := fmt.Sprint(w.stream["slot"]) + "_2"
	other["name"], other["slot"], other["publication"], other["tables"] = "s2", slot[max(0, len(slot)-63):], "outbox_2", []any{table}
	w.config["streams"] = []any{w.stream, other}
	w.init()

	p := w.run().streaming().streaming()
	load := w.write(steady())
	load.wrote(200, 30*time.Second)
	load.stop()
	w.settled(30 * time.Second)
	for part, stream := range []string{"s", "s2"} {
		share := outbox.Table{Share: outbox.Share{Part: part + 1, Of: 2}, Mapping: outbox.Mapping{Key: &outbox.Expr{Column: "key"}}}
		rows := harness.One[int](t, w.db, `SELECT count(*) FROM outbox AS t WHERE `+share.Filter("t."))
		if n := p.metric("outbox_cdc_rows_published_total", `stream="`+stream+`"`); rows == 0 || n != float64(rows) {
			t.Errorf("stream %s published %v rows, %s is %d", stream, n, share.Share, rows)
		}
	}
	if n := p.metric("outbox_cdc_rows_missed_total"); n != 0 {
		t.Errorf("%v rows are taken for missed", n)
	}
	p.stop()

	w.db.Exec(t, `SELECT pg_drop_replication_slot($1)`, other["slot"])
	w.writeRows(steady(), 300)
	p = w.run()
	load = w.write(steady())
	p.Await(30*time.Second, "parked", "stream", "does not exist", "s2")
	p.Await(30*time.Second, "handed back to the stream", "s2")
	load.wrote(200, 30*time.Second)
	load.stop()
	w.settled(30 * time.Second)
	if n := p.metric("outbox_cdc_rows_swept_total", `stream="s2"`, `cause="slot"`); n == 0 {
		t.Error("the stream that lost its slot swept nothing")
	}
	if n := p.metric("outbox_cdc_rows_swept_total", `stream="s"`) + p.metric("outbox_cdc_rows_missed_total"); n != 0 {
		t.Errorf("%v rows were swept by the other stream, or taken for missed", n)
	}
	p.stop()
	w.judge(history.Rules{})

	// A publication that passes every row: the table is swept, and the other
	// part's rows, which the WAL brings, are not taken.
	w.db.Exec(t, `ALTER PUBLICATION outbox_2 SET TABLE outbox`)
	w.writeRows(steady(), 100)
	p = w.run()
	p.Await(30*time.Second, "parked", "passes every row of table public.outbox, not part 2 of 2")
	load = w.write(steady())
	load.wrote(200, 30*time.Second)
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}
