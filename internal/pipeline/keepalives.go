package pipeline

import (
	"context"
	"fmt"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// askEvery is the shortest time between two queries for the end of the WAL.
const askEvery = 100 * time.Millisecond

// keepalives are the positions that the server reports as sent while no row follows. On an idle database,
// only they advance the slot. A position beyond the end of the WAL would let the slot pass rows that are not
// written yet. So a keepalive counts only once the database, asked later over another connection, confirms
// that its WAL reaches that far.
type keepalives struct {
	latest outbox.LSN // the highest position that does not count yet; 0: none
	asked  outbox.LSN // latest at the time of the query
	answer chan walEnd
	asking bool
	again  time.Time // earliest time of the next query
}

// walEnd is the database's answer to a query for the end of its WAL.
type walEnd struct {
	at  outbox.LSN
	err error
}

// count lets the latest keepalive count if the WAL is known to reach it, or else asks the database. It
// returns an error if the WAL ends before the keepalive.
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

// askWALEnd asks the database where its WAL ends. It does not log errors: other periodic queries meet them
// too.
func (w *walReader) askWALEnd(ctx context.Context, conn *replication.Conn, answer chan<- walEnd) {
	at, err := replication.WALEnd(ctx, postgres.On(w.pool))
	if err == nil {
		conn.NoteInsert(at)
	}
	w.closeOnShutdown(err)
	answer <- walEnd{at, err}
	conn.Wake()
}
