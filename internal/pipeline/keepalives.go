package pipeline

import (
	"context"
	"fmt"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/internal/postgres"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// askEvery is how often at most the database is asked for keepalives where its WAL ends.
const askEvery = 100 * time.Millisecond

// keepalives are what the server says it has sent where no row follows. An idle database's slot moves
// on by nothing else, and one beyond the end of the WAL would move past rows that are
// still to be written. So a keepalive counts once the database has said, on another connection and
// after it came, that its WAL goes so far.
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

// count has the latest keepalive count, or asks the database about it. An error says that it cannot be true.
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

// askWALEnd asks where the WAL ends. What is wrong with the database is told by those who ask it regularly.
func (w *walReader) askWALEnd(ctx context.Context, conn *replication.Conn, answer chan<- walEnd) {
	at, err := replication.WALEnd(ctx, postgres.On(w.pool))
	if err == nil {
		conn.NoteInsert(at)
	}
	w.closeOnShutdown(err)
	answer <- walEnd{at, err}
	conn.Wake()
}
