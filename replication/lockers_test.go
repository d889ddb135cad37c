package replication

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// LockersOf returns who has a table or a partition of it locked, and does not wait for the lock. It does not
// return other sessions that wait. Its text stays the same while the same transaction holds the lock.
func TestWhoHasATableLocked(t *testing.T) {
	db := harness.Postgres(t)
	db.Exec(t, `CREATE TABLE whole (part int) PARTITION BY LIST (part); CREATE TABLE leaf PARTITION OF whole FOR VALUES IN (1); CREATE TABLE other ()`)
	asks := db.Conn(t).PgConn()
	look := func() (text string) {
		t.Helper()
		all, err := LockersOf(t.Context(), asks, [2]string{"public", "other"}, [2]string{"public", "whole"})
		if err != nil {
			t.Fatal(err)
		}
		if len(all[0]) > 0 {
			t.Fatal(all[0])
		}
		by := all[1]
		for i := range by {
			by[i] = by[i].Lasting()
		}
		if len(by) == 0 {
			return ""
		}
		return LockedBy(by)
	}
	says := func(pid uint32) string { return fmt.Sprintf("(SELECT pg_terminate_backend(%d) ends it)", pid) }
	if said := look(); said != "" {
		t.Fatal(said)
	}
	holds, waits := db.Conn(t), db.Conn(t)
	if _, err := holds.Exec(t.Context(), "BEGIN; LOCK TABLE leaf"); err != nil {
		t.Fatal(err)
	}
	first := look()
	if !strings.Contains(first, says(holds.PgConn().PID())) {
		t.Fatal(first)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := waits.Exec(t.Context(), "BEGIN; LOCK TABLE leaf")
		ended <- err
	}()
	harness.Eventually(t, patience, func() error {
		if n := harness.One[int64](t, db, `SELECT count(*) FROM pg_locks WHERE relation = 'leaf'::regclass AND NOT granted`); n != 1 {
			return errors.New("nobody waits yet")
		}
		return nil
	})
	if _, err := holds.Exec(t.Context(), "SELECT pg_sleep(1.1)"); err != nil {
		t.Fatal(err)
	}
	if said := look(); said != first {
		t.Errorf("said %s\nand then %s", first, said)
	}
	if _, err := holds.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if said := look(); !strings.Contains(said, says(waits.PgConn().PID())) {
		t.Error(said)
	}
}
