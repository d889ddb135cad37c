package integration

import (
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// The publication is dropped and made again under load, with inserts in
// between, by somebody else: versions up to 17 end the stream, for ever, with
// an error; version 18 warns, passes the rows over and goes on. Either way
// nothing is lost and nothing overtakes the rows that were passed over; they
// are counted for the publication. The second time the program is not there.
func TestThePublicationIsMadeAgainByHand(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{partitions: 3})
	w.serve()
	p := w.run().streaming()
	load := w.write(steady())
	load.wrote(100, 30*time.Second)
	w.replacePublication(load)
	w.recovered()
	p.Await(30*time.Second, "parked", "stream", "publication")
	p.Await(30*time.Second, "made the slot")
	p.Await(30*time.Second, "handed back to the stream", "stream")
	load.wrote(100, 30*time.Second)
	if n := p.metric("outbox_cdc_rows_swept_total", `cause="publication"`); n == 0 {
		t.Error("no swept row is counted for the publication")
	}
	p.stop()

	w.replacePublication(load)
	p = w.run()
	w.recovered()
	p.Await(30*time.Second, "parked", "stream", "publication")
	p.Await(30*time.Second, "handed back to the stream", "stream")
	load.wrote(100, 30*time.Second)
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}

// replacePublication drops the publication and makes it again a moment later,
// unless a running program has been faster.
func (w *world) replacePublication(load *writers) {
	w.t.Helper()
	w.db.Exec(w.t, `DROP PUBLICATION outbox`)
	load.wrote(50, 30*time.Second)
	w.db.Exec(w.t, `DO $$ BEGIN
		CREATE PUBLICATION outbox FOR TABLE outbox WITH (publish = 'insert');
	EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
	END $$`)
}
