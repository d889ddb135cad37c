package security

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// A trigger that hangs at the marks of its table does not get all connections that hold claims:
// rows of another table are claimed, published and marked meanwhile.
func TestATableDoesNotGetAllClaims(t *testing.T) {
	w := newWorld(t)
	w.db.Exec(t, `CREATE TABLE other (LIKE outbox INCLUDING ALL); ALTER PUBLICATION outbox ADD TABLE other;
		CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(4712); RETURN NEW; END $$;
		CREATE TRIGGER hang BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION hang()`)
	w.table["claim"] = "row_lock"
	other := maps.Clone(w.table)
	other["table"] = "public.other"
	w.stream["tables"] = []any{w.table, other}
	lock := w.db.Conn(t)
	if _, err := lock.Exec(t.Context(), `SELECT pg_advisory_lock(4712)`); err != nil {
		t.Fatal(err)
	}
	w.run()
	w.insertRows("hostile", 4*500) // as many claims as there are connections for them
	harness.Eventually(t, 30*time.Second, func() error {
		if n := harness.One[int64](t, w.db, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = 4712`); n < 2 {
			return errors.New("not all that may hang does")
		}
		return nil
	})
	w.db.Exec(t, `INSERT INTO other (topic, key, payload) VALUES ($1, 'good', '')`, w.topic)
	w.awaitWithin(60*time.Second, `SELECT count(*) FROM other WHERE status = 'SENT'`, 1)
	if n := harness.One[int64](t, w.db, `SELECT count(*) FROM outbox WHERE status = 'SENT'`); n > 0 {
		t.Errorf("%d rows of the table that hangs are SENT: nothing was shown", n)
	}
}
