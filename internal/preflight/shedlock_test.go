package preflight

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// The application's lock is examined in each possible state. A look takes it from nobody.
func TestLocksOfTheApplication(t *testing.T) {
	w := made(t, harness.Postgres(t))
	w.stream.Tables[0].Mapping.ShedLock = outbox.ShedLock{Schema: "public", Table: "shedlock", Name: "outbox-poller"}
	const subject = "lock outbox-poller of public.shedlock"
	expect(t, find(t, w.check(), "shedlock", subject), Fail, "lock table public.shedlock does not exist", "name the application's ShedLock table")
	w.db.Exec(t, "CREATE TABLE shedlock (name varchar(64) PRIMARY KEY, lock_until timestamp NOT NULL, locked_at timestamp NOT NULL, locked_by varchar(255) NOT NULL)")
	expect(t, find(t, w.check(), "shedlock", subject), OK, "free")
	if n := harness.One[int](t, w.db, "SELECT count(*) FROM shedlock"); n != 0 {
		t.Error("the look took the lock")
	}
	w.db.Exec(t, "INSERT INTO shedlock VALUES ('outbox-poller', timezone('utc', now()) + interval '1 minute', timezone('utc', now()), 'app-1')")
	expect(t, find(t, w.check(), "shedlock", subject), OK, "held by app-1 until ")
	w.db.Exec(t, "UPDATE shedlock SET lock_until = 'infinity'")
	expect(t, find(t, w.check(), "shedlock", subject), Fail, "held for ever", "by app-1", "set it to a time that has passed")
	w.db.Exec(t, "UPDATE shedlock SET lock_until = now(); ALTER TABLE shedlock ALTER lock_until TYPE timestamptz, ALTER locked_at TYPE timestamptz")
	expect(t, find(t, w.check(), "shedlock", subject), Warn, "with time zone", "usingDbTime")
}

// A side table of headers that cannot be read.
func TestHeadersTable(t *testing.T) {
	w := made(t, harness.Postgres(t))
	w.stream.Tables[0].Mapping.HeadersTable = outbox.HeadersTable{
		Schema: "public", Name: "outbox_header", Parent: "outbox_id", Order: "n", HeaderName: "name", HeaderValue: "value",
	}
	expect(t, find(t, w.check(), "table", "public.outbox"), Fail, "outbox_header", "GRANT SELECT")
	w.db.Exec(t, "CREATE TABLE outbox_header (outbox_id bigint, n int, name text, value text)")
	expect(t, find(t, w.check(), "table", "public.outbox"), OK)
}
