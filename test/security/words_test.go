package security

import (
	"maps"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/harness"
)

// An operator's mapping has words that the database's encoding cannot hold. That table is left
// alone before a row of it is published, check says which word it is, and the others go on.
func TestWordsThatTheEncodingLacks(t *testing.T) {
	if testing.Short() {
		t.Skip("not in the short form")
	}
	db := harness.PlainDatabase(t, harness.Postgres(t).Server, "TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'")
	w := worldOn(t, db)
	w.must("init", "--native-table")
	db.Exec(t, `CREATE TABLE mapped (LIKE outbox INCLUDING ALL); CREATE TABLE stated (LIKE outbox INCLUDING ALL); ALTER PUBLICATION outbox ADD TABLE mapped, stated`)
	mapped, stated := maps.Clone(w.table), maps.Clone(w.table)
	mapped["table"], stated["table"] = "public.mapped", "public.stated"
	mapped["topic"] = fields{"column": "topic", "map": fields{"журнал": w.topic, w.topic: w.topic}}
	stated["status"] = fields{"column": "status", "pending": "PENDING", "sent": "ОТПРАВЛЕНО", "sent_at": "sent_at"}
	w.stream["tables"] = []any{mapped, stated, w.table}
	out, code := w.try(false, "check")
	for _, word := range []string{"журнал", "ОТПРАВЛЕНО", "LATIN1"} {
		if !strings.Contains(out, word) {
			t.Errorf("check (%d) does not say %s: %s", code, word, out)
		}
	}
	p := w.run()
	for _, table := range []string{"mapped", "stated"} {
		db.Exec(t, `INSERT INTO `+table+` (topic, key, payload) VALUES ($1, 'lost', '')`, w.topic)
	}
	w.insertRows("good", 5)
	w.allSent("good", 5)
	w.awaitCount(`SELECT count(*) FROM outbox_cdc.park WHERE kind = 'table'`, 2)
	w.stopped(p)
	if n := w.kafka.Count(t, w.topic); n != 5 {
		t.Errorf("%d records", n)
	}
}
