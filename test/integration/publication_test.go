package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
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

// The publication is dropped while nobody writes, and the program makes it again: one line is loud, the stream's.
func TestAPublicationThatIsMadeAgainIsToldOnce(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	p := w.run().streaming()
	w.isPublished(w.insertNow(w.topic, "before", 1, 10)[0])
	w.settled(30 * time.Second)
	before := len(p.Said())
	w.db.Exec(t, `DROP PUBLICATION outbox`)
	p.Await(30*time.Second, "parked", `"scope":"stream"`, "publication outbox does not exist")
	p.Await(30*time.Second, "handed back to the stream", `"scope":"stream"`)
	w.isPublished(w.insertNow(w.topic, "after", 1, 10)[0])
	if said := loud(p.Said()[before:]); len(said) != 1 || !strings.Contains(said[0], `"scope":"stream"`) {
		t.Errorf("%d lines about one cause:\n%s", len(said), strings.Join(said, "\n"))
	}
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}

// The publication lacks the table, and the program may not add it: its rows are
// swept. When somebody has added it, they are streamed again by themselves.
func TestATableIsAddedToThePublicationByHand(t *testing.T) {
	t.Parallel() // it mostly waits
	db := harness.PrivatePostgres(t, localpg.Options{})
	w := newWorld(t, surroundings{db: db, noInit: true})
	w.stream["postgres"] = fields{
		"dsn": db.Server.DSNAs("app", "writer", "secret"), "replication_dsn": db.Server.DSNAs("app", "streamer", "secret"),
		"wal_sender_timeout": "3s",
	}
	w.runPrinted()
	db.Exec(t, `ALTER ROLE writer PASSWORD 'secret'; ALTER ROLE streamer PASSWORD 'secret'; ALTER PUBLICATION outbox DROP TABLE outbox`)
	p := w.run()
	p.Await(30*time.Second, "parked", "table public.outbox")
	p.Await(60*time.Second, `"message":"streaming"`) // it has tried to add the table
	load := w.write(steady())
	load.wrote(100, 30*time.Second)
	db.Exec(t, `ALTER PUBLICATION outbox ADD TABLE outbox`)
	p.Await(30*time.Second, "the publication has more tables")
	p.Await(30*time.Second, "handed back to the stream", "table public.outbox")
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
