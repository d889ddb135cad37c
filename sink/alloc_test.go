package sink

import (
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/outbox-cdc/outbox-cdc/internal/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/creep"
)

func TestABatchIsMadeWithNextToNoAllocations(t *testing.T) {
	const rows = 1000
	b := &batch{as: producer{1, 0}, made: time.Unix(1_800_000_000, 0)}
	for i := range rows {
		b.rows = append(b.rows, &outbox.Row{
			Table: testTable, ID: fmt.Sprint(i), Key: []byte("key"), Value: make([]byte, 256),
			Headers: []outbox.Header{{Name: "event-id", Value: []byte("1")}, {Name: "traceparent", Value: []byte("2")}},
		})
		b.headers += 2
		b.bytes += recordSize(b.rows[i])
	}
	var a arena
	batches := []*batch{b}
	creep.Hold(t, "sink: a batch of 1000 rows", rows, func() {
		a.reset(batches)
		if got := a.encode(b, sarama.CompressionNone); len(got.Records) != rows {
			t.Fatal("not all rows")
		}
		a.clear()
	})
}

func TestAPartitionIsChosenWithoutAllocations(t *testing.T) {
	key := []byte("0190f3a2-7c1e-7d35-9e0a-3f6f0f0f0f0f")
	if n := testing.AllocsPerRun(100, func() { PartitionOf(outbox.FNV1a, key, 6) }); n > 0 {
		t.Errorf("%.0f allocations", n)
	}
}
