package metrics

import (
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/creep"
)

// What a row tells on its way is counted without an allocation of its own.
func TestCountingAllocatesNothingPerRow(t *testing.T) {
	const rows = 1000
	table := &outbox.Table{Schema: "public", Name: "a"}
	s := New("1.2.3", "abc").Stream("orders", []*outbox.Table{table}, 8<<30)
	batch := make([]*outbox.Row, rows)
	marks := make([]outbox.Marked, rows)
	for i := range batch {
		batch[i] = &outbox.Row{Table: table, Cluster: "main", Topic: "t", CreatedAt: 2_000_000}
		marks[i] = outbox.Marked{Row: batch[i], State: outbox.MarkedSent}
	}
	now := time.UnixMicro(5_000_000)
	creep.Hold(t, "metrics: a row on its way", rows, func() {
		s.Decoded(batch)
		s.Outcome(outbox.Outcome{Rows: batch, Class: outbox.Delivered}, now)
		s.Marked(marks)
	})
}
