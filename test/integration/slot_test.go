package integration

import (
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// The slot is dropped under load, more than once: the program sweeps, makes a
// new one and takes the stream up again, by itself and in order. Each hand-back
// ends though three more writers insert as fast as the server lets them.
func TestALostSlotLosesNothing(t *testing.T) {
	w := newWorld(t, surroundings{partitions: 3})
	w.sampled()
	p := w.run().streaming()
	load := w.write(steady())
	for range scaled(2, 10) {
		load.wrote(200, 30*time.Second)
		flood := w.write(fullRate())
		w.dropSlot()
		w.recovered()
		p.Await(30*time.Second, "made the slot")
		p.Await(60*time.Second, "handed back to the stream", "stream")
		flood.stop()
	}
	load.wrote(200, 30*time.Second)
	load.stop()
	w.settled(60 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}

// fullRate returns a load without pauses.
func fullRate() load {
	l := steady()
	l.writers, l.rate = 3, 0
	return l
}

// The slot is lost while another database of the cluster has a transaction open
// and another one prepared. Making a slot waits for both, however long; meanwhile
// rows are delivered by the sweeper, the log names what is waited for, and the
// stream goes on by itself when they are gone.
func TestMakingTheSlotWaitsForAnotherDatabase(t *testing.T) {
	t.Parallel() // it mostly waits
	db := harness.PrivatePostgres(t, localpg.Options{})
	elsewhere := harness.Database(t, db.Server)
	elsewhere.Exec(t, `CREATE TABLE x (i int)`)
	w := newWorld(t, surroundings{db: db, partitions: 3})
	p := w.run().streaming()
	load := w.write(steady())
	tx, err := elsewhere.Conn(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `INSERT INTO x VALUES (1)`); err != nil {
		t.Fatal(err)
	}
	elsewhere.Exec(t, `BEGIN; INSERT INTO x VALUES (2); PREPARE TRANSACTION 'stuck'`)
	w.dropSlot()
	w.recovered()
	p.Await(20*time.Second, "waited", `prepared transaction "stuck"`)
	load.wrote(100, 30*time.Second)
	w.isPublished(w.insertNow(w.topic, "both", 1, 10)[0])
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	load.wrote(100, 30*time.Second)
	w.isPublished(w.insertNow(w.topic, "prepared", 1, 10)[0])
	if n := p.logged("made the slot"); n > 0 {
		t.Error("the slot was made beside a prepared transaction")
	}
	elsewhere.Exec(t, `ROLLBACK PREPARED 'stuck'`)
	p.Await(20*time.Second, "made the slot")
	p.Await(20*time.Second, "handed back to the stream", "stream")
	load.wrote(100, 30*time.Second)
	load.stop()
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}

// Neither publication nor slot is there, and the only table lacks a mapped column:
// the publication is made, since that is harmless. The slot is not: it would hold WAL for
// nothing. As soon as the table is put right it is made, and nothing is lost.
func TestNoSlotForATableThatCannotStream(t *testing.T) {
	t.Parallel() // it mostly waits
	w := newWorld(t, surroundings{})
	w.dropSlot()
	w.db.Exec(t, `DROP PUBLICATION outbox; ALTER TABLE outbox RENAME payload TO body`)
	p := w.run()
	p.Await(30*time.Second, "make slot", "no table could come through it", "payload")
	if n := harness.One[int](t, w.db, `SELECT count(*) FROM pg_publication WHERE pubname = 'outbox'`); n != 1 {
		t.Error("the publication was not made")
	}
	if n := harness.One[int](t, w.db, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1`, w.stream["slot"]); n != 0 {
		t.Error("a slot holds WAL for a table that cannot come through it")
	}
	w.db.Exec(t, `ALTER TABLE outbox RENAME body TO payload`)
	row := w.insertNow(w.topic, "waits", 1, 10)[0]
	p.Await(30*time.Second, "made the slot")
	p.Await(30*time.Second, "handed back to the stream", "stream")
	w.isPublished(row)
	w.settled(30 * time.Second)
	p.stop()
	w.judge(history.Rules{})
}
