package integration

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/test/history"
)

// recovered waits, a fault being over, until a row that is committed now is
// delivered and marked. How long that takes is the fault's recovery; of several
// faults of a test the longest counts. It decides nothing.
func (w *world) recovered() {
	w.t.Helper()
	w.recoveredSince(time.Now(), w.topic)
}

// recoveredSince is recovered for a fault that was over at began, with a row for
// that topic.
func (w *world) recoveredSince(began time.Time, topic string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, w.db.Own()) // one from before may be lost
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	key := "probe"
	rows, err := w.insert(ctx, conn, topic, &key, 1, 10)
	if err != nil {
		w.t.Fatal(err)
	}
	w.conclude(rows, history.Committed)
	if w.layout.status == "" {
		w.arrived(60 * time.Second)
	} else {
		w.becomes(rows[0], history.Sent, 60*time.Second)
	}
	w.recovery = max(w.recovery, time.Since(began))
}

// tell says what a fault cost.
func (w *world) tell(h *history.History) {
	w.t.Helper()
	recovery := "recovery not timed"
	if w.recovery > 0 {
		recovery = fmt.Sprintf("recovered in %.1f s", w.recovery.Seconds())
	}
	n := duplicates(h)
	w.t.Logf("%s, %d duplicates of %d rows", recovery, n, len(h.Records)-n)
}
