package pipeline

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A keepalive counts up to the end of the WAL that the database reports. A keepalive beyond that end is false
// only if the database was asked after the keepalive came.
func TestKeepalivesCountUpToTheEndOfTheWAL(t *testing.T) {
	t.Parallel()
	never := time.Now().Add(time.Hour) // nothing is asked here
	for name, c := range map[string]struct {
		known  outbox.LSN
		kept   keepalives
		answer *walEnd
		counts outbox.LSN
		wrong  string
	}{
		"none":                       {known: 200},
		"below what is known":        {known: 200, kept: keepalives{latest: 100}, counts: 100},
		"at what is known":           {known: 200, kept: keepalives{latest: 200}, counts: 200},
		"not asked yet":              {known: 200, kept: keepalives{latest: 201}},
		"asked, no answer":           {known: 200, kept: keepalives{latest: 201, asked: 201, asking: true}},
		"the WAL goes so far":        {known: 300, kept: keepalives{latest: 300, asked: 300, asking: true}, answer: &walEnd{at: 300}, counts: 300},
		"the WAL ends before":        {known: 299, kept: keepalives{latest: 300, asked: 300, asking: true}, answer: &walEnd{at: 299}, wrong: "everything up to 0/12C, but the WAL ends at 0/12B"},
		"another came after asking":  {known: 300, kept: keepalives{latest: 400, asked: 300, asking: true}, answer: &walEnd{at: 300}},
		"the database does not know": {known: 200, kept: keepalives{latest: 300, asked: 300, asking: true}, answer: &walEnd{err: errors.New("away")}},
	} {
		w := &walReader{link: newLink(), conn: &replication.Conn{}, keepalives: c.kept}
		w.keepalives.answer, w.keepalives.again = make(chan walEnd, 1), never
		w.conn.NoteInsert(c.known)
		if c.answer != nil {
			w.keepalives.answer <- *c.answer
		}
		var b batch
		err := w.count(t.Context(), &b)
		if (c.wrong == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v, want %q", name, err, c.wrong)
		}
		if b.walEnd != c.counts || w.received != c.counts {
			t.Errorf("%s: %v counts, want %v", name, b.walEnd, c.counts)
		}
		if waits := w.keepalives.latest > 0; waits != (c.kept.latest > 0 && c.counts == 0) {
			t.Errorf("%s: waits: %v", name, waits)
		}
	}
}
