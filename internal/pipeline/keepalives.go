package pipeline

import (
	"context"
	"fmt"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// askEvery is the least time between two questions where the WAL ends.
const askEvery = 100 * time.Millisecond

// keepalives are the positions that the server reports as sent when no row follows. They alone move an idle
// database's slot. A position beyond the end of the WAL would move it past rows still to be written. So a keepalive
// counts once the database, asked later over another connection, says that its WAL reaches that far.
type keepalives struct {
	latest outbox.LSN // the highest that does not count yet; 0: none
	asked  outbox.LSN // the highest when the database was asked
	answer chan walEnd
	asking bool
	again  time.Time // not asked before
}

// walEnd is an answer of the database.
type walEnd struct {
	at  outbox.LSN
	err error
}

// count takes the latest keepalive, if the WAL reaches it, or asks the database. It fails where the WAL ends before it.
func (w *walReader) count(ctx context.Context, b *batch) error {
	k := &w.keepalives
	select {
	case end := <-k.answer:
		k.asking = false
		if end.err != nil {
			k.again = time.Now().Add(statusEvery)
		} else if end.at < k.asked {
			return fmt.Errorf("the server says that it has sent everything up to %s, but the WAL ends at %s: nothing is confirmed by that", k.asked, end.at)
		}
	default:
	}
	switch {
	case k.latest == 0:
	case k.latest <= w.conn.Inserted():
		b.walEnd, k.latest = k.latest, 0
		w.received = max(w.received, b.walEnd)
	case !k.asking && !time.Now().Before(k.again):
		k.asking, k.asked, k.again = true, k.latest, time.Now().Add(askEvery)
		go w.askWALEnd(ctx, w.conn, k.answer)
	}
	return nil
}

// askWALEnd asks where the WAL ends. It logs no error: those who ask the database regularly do.
func (w *walReader) askWALEnd(ctx context.Context, conn *replication.Conn, answer chan<- walEnd) {
	at, err := replication.WALEnd(ctx, postgres.On(w.pool))
	if err == nil {
		conn.NoteInsert(at)
	}
	w.closeOnShutdown(err)
	answer <- walEnd{at, err}
	conn.Wake()
}
