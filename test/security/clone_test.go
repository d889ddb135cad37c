package security

import (
	"os"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/localpg"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// A byte for byte copy of the server, as pg_basebackup makes it (without slots), is started next to
// the original, and the program there with the same configuration. The copy's leader says that the
// database is elsewhere than before, one of the two says that the other is a copy, and once the
// copy's is stopped every row of the original is published and marked.
func TestAClonedServerIsStreamed(t *testing.T) {
	if !long {
		t.Skip("starts servers of its own and mostly waits: only in the long form, OUTBOX_TEST_LONG=1")
	}
	w := worldOn(t, harness.PrivatePostgres(t, localpg.Options{}))
	w.must("init", "--native-table")
	p := w.run()
	w.insertRows("before", 10)
	w.allSent("before", 10)
	p.Stop(20 * time.Second)
	w.insertRows("left", 5) // PENDING in both

	if err := w.db.Server.Stop(t.Context(), localpg.Fast); err != nil {
		t.Fatal(err)
	}
	server, err := localpg.Start(t.Context(), localpg.Options{Version: os.Getenv(harness.EnvPostgres), CopyOf: w.db.Server})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	if err := w.db.Server.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	original := w.run()
	w.allSent("left", 5)

	clone := *w
	clone.db = &harness.DB{Server: server, Name: w.db.Name, DSN: server.DSN(w.db.Name)}
	clone.dir = t.TempDir()
	postgres := fields{"dsn": clone.db.DSN, "wal_sender_timeout": "3s"}
	w.stream["postgres"], postgres = postgres, w.stream["postgres"].(fields)
	copied := clone.run()
	w.stream["postgres"] = postgres
	if len(copied.Said("the database is at another address than before")) == 0 {
		t.Error("the copy's leader does not say that the database is elsewhere")
	}
	clone.allSent("left", 5) // no two processes of one stream: nothing tells the copy that they were published
	w.insertRows("after", 5)
	original.Await(60*time.Second, "the stream does not work", "one of the two databases is a copy")

	copied.Stop(40 * time.Second)
	w.awaitWithin(60*time.Second, `SELECT count(*) FROM outbox WHERE status <> 'SENT'`, 0)
	original.Stop(40 * time.Second)
}
