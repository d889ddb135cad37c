package tablesql

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/fixture"
	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

func TestTies(t *testing.T) {
	db, l := harness.Postgres(t), fixture.Plain()
	db.Exec(t, l.DDL)
	conn := db.Conn(t)
	r, err := Load(t.Context(), conn, l.Table)
	if err != nil {
		t.Fatal(err)
	}
	tied := func() (is bool) {
		t.Helper()
		if err := Run(t.Context(), conn, r.Ties(100, &is)); err != nil {
			t.Fatal(err)
		}
		return is
	}
	db.Exec(t, `INSERT INTO plain (key, body) VALUES ('a', 'x'), ('b', 'x'), (NULL, 'x'), (NULL, 'x')`)
	db.Exec(t, `INSERT INTO plain (key, body) VALUES ('a', 'x')`)
	if tied() {
		t.Error("rows of other keys, of none, or of another time")
	}
	db.Exec(t, `INSERT INTO plain (key, body) VALUES ('a', 'x'), ('a', 'x')`)
	if !tied() {
		t.Error("two rows of one key and time")
	}
}
